package route

import (
	"fmt"
	"strings"
	"time"
)

// MaxDecisions is how many decisions are kept for a peer: a bad day's worth.
const MaxDecisions = 64

// Fact is one thing a decision rested on, with its value as it was then.
type Fact struct{ Name, Value string }

// Decision is the record of one decision for `why`. It holds text alone, so that
// it says what was known then, whatever became of it.
type Decision struct {
	At      time.Time
	What    string   // "race: lan:192.168.1.20:7000 leads"
	Why     string   // what brought it about: "an app asked"
	Facts   []Fact   // on what it rested
	Routes  []string // each route, in the order in which it was to be tried
	Changes []string // what would have changed it
}

// String is the decision as shown to the user: a headline with the time of day,
// then a line for each fact, route and change, indented.
func (d Decision) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s (%s)\n", d.At.Format(time.TimeOnly), d.What, d.Why)
	for _, f := range d.Facts {
		fmt.Fprintf(&b, "    %s: %s\n", f.Name, f.Value)
	}
	for i, r := range d.Routes {
		fmt.Fprintf(&b, "    %d. %s\n", i+1, r)
	}
	for _, c := range d.Changes {
		fmt.Fprintf(&b, "    would change with: %s\n", c)
	}
	return b.String()
}

// Decisions keeps the last MaxDecisions of a peer. The zero Decisions is empty.
type Decisions struct{ list []Decision }

// Add keeps a decision, and drops the oldest if there are too many.
func (d *Decisions) Add(one Decision) {
	if len(d.list) == MaxDecisions {
		copy(d.list, d.list[1:])
		d.list = d.list[:MaxDecisions-1]
	}
	d.list = append(d.list, one)
}

// All lists them, oldest first; the caller may keep it.
func (d *Decisions) All() []Decision { return append([]Decision(nil), d.list...) }

// ExplainRace is the record of a race that begins with a ranking of f, because
// of what why says; refused are the routes that must not be tried.
func ExplainRace(f Facts, ranked []Ranked, refused []Refusal, why string) Decision {
	d := Decision{At: f.Now, What: "race: no route may be tried", Why: why, Facts: f.explain()}
	if len(ranked) > 0 {
		d.What = fmt.Sprintf("race: %s leads", ranked[0].Route)
	}
	for i, r := range ranked {
		d.Routes = append(d.Routes, r.Explain(f.Now))
		if i == 0 && len(ranked) > 1 && !r.Why.Demoted() {
			d.Changes = append(d.Changes, fmt.Sprintf("%s: %d failures within %s of each other, or another route that wins here",
				r.Route, FailuresToDemote, FailureWindow))
		}
		d.Changes = append(d.Changes, r.changes(f.Now)...)
	}
	for _, r := range refused {
		d.Facts = append(d.Facts, Fact{"not tried", fmt.Sprintf("%s: %s", r.Route, r.Why)})
	}
	return d
}

// ExplainEnd is the record of how a race ended.
func ExplainEnd(now time.Time, res *Result, why string) Decision {
	d := Decision{At: now, What: "race: nobody won", Why: why}
	if winner, ok := inUse(res.Attempts); ok {
		d.What = fmt.Sprintf("race: %s won", winner.Route)
	}
	if res.Captive {
		d.Facts = append(d.Facts, Fact{"sign-in", "this network answers for others: nothing is held against a route"})
	}
	for _, a := range res.Attempts {
		d.Routes = append(d.Routes, a.String())
	}
	return d
}

// ExplainAction is the record of what a Roam has decided.
func ExplainAction(now time.Time, a RoamAction) Decision {
	what, why, _ := strings.Cut(a.String(), "  (")
	return Decision{At: now, What: what, Why: strings.TrimSuffix(why, ")")}
}

// explain lists what is the same for all routes.
func (f Facts) explain() []Fact {
	facts := []Fact{}
	if len(f.Path.Interfaces) == 0 {
		facts = append(facts, Fact{"network", "not known: nothing is looked up or held against a route"})
	}
	for _, i := range f.Path.Interfaces {
		text := i.Kind.String()
		if i.Network.Known() {
			text = i.Network.String()
			if n := f.Memory.find(i.Network); n >= 0 {
				text += fmt.Sprintf(", last used %s ago", ago(f.Now, f.Memory.Networks[n].Used))
			} else {
				text += ", never used with this peer"
			}
		}
		if i.Metered {
			text += ", metered"
		}
		facts = append(facts, Fact{"interface " + i.Name, text})
	}
	if len(f.Path.Interfaces) > 0 {
		facts = append(facts, Fact{"tailnet", map[bool]string{true: "yes", false: "no"}[f.Path.Tailnet || f.TailnetKnows]})
	}
	if f.Memory.Last != "" {
		facts = append(facts, Fact{"last worked anywhere", fmt.Sprintf("%s, %s ago", f.Memory.Last, ago(f.Now, f.Memory.LastAt))})
	}
	return facts
}

// Explain is one line about a route in its place: what it is and why it is there.
func (r Ranked) Explain(now time.Time) string {
	w := r.Why
	parts := []string{}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if w.Hoisted != "" {
		add("first, as %s", w.Hoisted)
	}
	if w.Implausible != "" {
		add("tried last: %s", w.Implausible)
	}
	if w.Failing {
		add("tried last: failed %d times within %s of each other, last %s ago", FailuresToDemote, FailureWindow, ago(now, w.LastFailure))
	} else if !w.LastFailure.IsZero() {
		add("failed here %s ago", ago(now, w.LastFailure))
	}
	if w.Penalized {
		add("tried last: penalized until %s", clock(now, w.Penalty.Until))
		if n := len(w.Penalty.Reasons); n > 0 {
			parts[len(parts)-1] += " (" + w.Penalty.Reasons[n-1] + ")"
		}
	}
	if w.Relayed && r.Route.Class == Tailnet {
		add("the tailnet relays it here: no better than a relay")
	}
	if !w.Seen.IsZero() {
		add("seen live for %s", ago(now, w.Seen))
	}
	if w.LastSuccess.IsZero() {
		add("never worked here")
	} else {
		add("worked here %s ago, after %s", ago(now, w.LastSuccess), w.Handshake)
	}
	return r.Route.ID() + ": " + strings.Join(parts, "; ")
}

// changes says what would give a route a better place.
func (r Ranked) changes(now time.Time) []string {
	var list []string
	add := func(format string, args ...any) {
		list = append(list, fmt.Sprintf("%s: %s", r.Route, fmt.Sprintf(format, args...)))
	}
	w := r.Why
	switch {
	case w.Implausible != "" && r.Route.Class == Tailnet:
		add("a tailnet on this machine")
	case w.Implausible != "":
		add("a Wi-Fi or wired interface")
	}
	if w.Failing {
		add("a success, or no failure until after %s", clock(now, w.LastFailure.Add(FailureWindow)))
	}
	if w.Penalized {
		add("the end of its penalty at %s", clock(now, w.Penalty.Until))
	}
	if w.Relayed && r.Route.Class == Tailnet {
		add("a direct path through the tailnet")
	}
	return list
}

// ago is how long before now t was, to the second from a minute on; short times
// keep their milliseconds.
func ago(now, t time.Time) string {
	d := wall(now).Sub(wall(t))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// clock is a time of day where now is read.
func clock(now, t time.Time) string { return t.In(now.Location()).Format(time.TimeOnly) }
