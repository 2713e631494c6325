package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"linkproxy/testenv/streamcheck"
)

// failFactor is how many times its goal a stall may last before the run fails.
const failFactor = 5

// Result is what a runner found out about a scenario.
type Result struct {
	Scenario *Scenario
	Runner   Runner
	Baseline string        // what stood in for the product, "" for linkproxy itself
	Took     time.Duration // by the wall; set by the caller: in a bubble time is another
	Figures  []Figure
	Apps     []AppResult
	Lost     int64 // bytes, of all apps
	Repeated int64
	Wrongly  int // connections that ended otherwise than they should
	Longest  time.Duration
	Switches int
	Dials    int
	Faults   []string // what is wrong whatever the clock says: bytes, ends, what could not be done
	Late     []string // what took too long or came out otherwise: where time is real, a busy machine may be the reason
	Tries    int      // runs that it took
	Frozen   Freezes  // of the machine, where time is real
	World    string   // what is to be known of the world
	Trace    []string
	Timeline Timeline
}

// Figure is one check with what was measured.
type Figure struct {
	Check
	Event  string  // what it is about; "" for the whole run
	Share  float64 // of what Base reached; 0: that was not played
	Key    string  // the same for all runners
	Values []float64
	Median float64
	Worst  float64
	Met    bool
	Said   string // Active: what it was

	expected bool // another check says what the same figure may be: the goal is beyond what this version can
}

// AppResult is one app, or several alike.
type AppResult struct {
	Name           string
	Count          int
	Bytes          int64 // that came, both ways
	Lost, Repeated int64
	End            string // of the first that ended otherwise than most
	Longest        time.Duration
	Trip99         time.Duration
}

// Timeline is what a picture is made of.
type Timeline struct {
	Bucket time.Duration
	End    time.Duration
	Apps   []Series // bytes that came, by bucket
	Links  []Series // bytes carried, by bucket
	Events []Mark
	Stalls []Mark // of over 50 ms; Text is the app
}

// Series is one curve.
type Series struct {
	Name  string
	Bytes []int64
}

// Mark is something at a time, lasting For.
type Mark struct {
	At, For time.Duration
	Text    string
}

// judge sums a run up.
func (p *player) judge() *Result {
	r := &Result{Scenario: p.sc, Runner: p.runner, Frozen: p.frozen}
	for _, e := range p.errs {
		r.Faults = append(r.Faults, e.Error())
	}
	allowed := p.figures(r)
	p.appResults(r, allowed)
	last := p.windows[len(p.windows)-1]
	r.Switches = last.after.Switches
	for _, w := range p.windows {
		r.Dials += w.dials
	}
	r.Trace = p.w.Log()
	p.picture(r)
	return r
}

// figures measures every check and returns the apps whose connection may be reset.
func (p *player) figures(r *Result) (mayReset map[string]bool) {
	mayReset = map[string]bool{}
	nth := map[string]int{} // events of the same text
	add := func(c Check, event string, all []Check, list []window) {
		f := Figure{Check: c, Event: event, Key: fmt.Sprintf("%s %d %s", event, nth[event], c)}
		f.expected = slices.ContainsFunc(all, func(o Check) bool { return !o.Goal && o.Measure == c.Measure && o.App == c.App })
		for _, w := range list {
			if c.Measure == Reset {
				mayReset[c.App] = true
			}
			v, said := p.measure(c, w)
			f.Values, f.Said = append(f.Values, v), said
		}
		f.settle(r)
		r.Figures = append(r.Figures, f)
	}
	for i, e := range p.sc.Events {
		nth[e.Text]++
		for _, c := range e.Checks {
			list := slices.DeleteFunc(slices.Clone(p.windows), func(w window) bool { return w.event != i })
			add(c, e.Text, e.Checks, list)
		}
	}
	all := p.windows[0]
	last := p.windows[len(p.windows)-1]
	all.to, all.after, all.dials, all.traffic = last.to, last.after, 0, 0
	for _, w := range p.windows {
		all.dials += w.dials
		all.traffic += w.traffic
	}
	for _, c := range p.sc.Checks {
		add(c, "", p.sc.Checks, []window{all})
	}
	return mayReset
}

// settle judges a figure.
func (f *Figure) settle(r *Result) {
	if len(f.Values) == 0 {
		r.Faults = append(r.Faults, fmt.Sprintf("%s: %s: it never happened", f.Event, f.Check))
		return
	}
	sorted := slices.Sorted(slices.Values(f.Values))
	if f.AtLeast {
		slices.Reverse(sorted)
	}
	f.Median, f.Worst = sorted[(len(sorted)-1)/2], sorted[len(sorted)-1]
	holds := func(v, limit float64) bool { return v <= limit && !f.AtLeast || v >= limit && f.AtLeast }
	if f.Base != "" {
		return // relate judges it
	}
	f.Met = holds(f.Median, f.Limit)
	where := f.Event
	if where == "" {
		where = "the whole run"
	}
	got := f.value(f.Worst)
	if f.Said != "" {
		got = f.Said
	}
	switch {
	case !f.Goal && !holds(f.Worst, f.Limit):
		r.Late = append(r.Late, fmt.Sprintf("%s: expected %s, got %s", where, f.Check, got))
	case f.Goal && f.Measure == Stall && !f.expected && f.Worst > failFactor*f.Limit:
		r.Late = append(r.Late, fmt.Sprintf("%s: %s, over %d times the goal %s", where, got, failFactor, f.Check))
	}
}

// relate judges the goals that are a share of what a baseline reached.
func (r *Result) relate(base *Result) {
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Base != base.Baseline {
			continue
		}
		for _, b := range base.Figures {
			if b.Key == f.Key && b.Median > 0 {
				f.Share = f.Median / b.Median
				f.Met = f.Share >= f.Limit
			}
		}
	}
}

// ratio tells a figure that is a share of another.
func (f *Figure) ratio() string {
	if f.Share == 0 {
		return f.value(f.Median) + ", not compared"
	}
	return fmt.Sprintf("%s, %.0f%%", f.value(f.Median), 100*f.Share)
}

// measure is a figure of one window. For Active and Reset the figure is 0 when all is well; said tells how it was.
func (p *player) measure(c Check, w window) (v float64, said string) {
	hours := (w.to - w.from).Hours()
	switch c.Measure {
	case Stall:
		for _, a := range p.named(c.App) {
			for _, rec := range a.readers() {
				v = max(v, rec.stall(w.from, w.to).Seconds())
			}
			if a.ended < w.to && !a.report.Whole() {
				said = "gone"
			}
		}
		return v, said
	case Trip:
		for _, a := range p.named(c.App) {
			v = max(v, a.report.Trip(0.99).Seconds())
		}
		return v, ""
	case Dip:
		return p.dip(c.App, w.from), ""
	case Goodput:
		for _, a := range p.named(c.App) {
			for _, rec := range a.readers() {
				v += float64(rec.came(w.from, w.to)) * 8
			}
		}
		return v / (w.to - w.from).Seconds(), ""
	case Switches:
		v = float64(w.after.Switches - w.before.Switches)
	case Dials:
		v = float64(w.dials)
	case Traffic:
		v = float64(w.traffic)
	case First:
		for _, a := range p.named(c.App) {
			v = max(v, a.up.firstAt(p.sc.End).Seconds()-a.began.Seconds())
		}
		return v, ""
	case Streams:
		return float64(w.after.Streams), ""
	case Active:
		if w.after.Active != c.Link {
			v = 1
		}
		return v, w.after.Active
	case Reset:
		return p.resetAt(c, w)
	}
	if c.PerHour {
		v /= hours
	}
	return v, ""
}

// resetAt is how long behind the earliest allowed time the app's connection was reset, in seconds.
func (p *player) resetAt(c Check, w window) (float64, string) {
	const never = 1e9
	worst := 0.0
	for _, a := range p.named(c.App) {
		end := endOf(a.report)
		if a.openErr != nil || end != streamcheck.EndReset {
			return never, "it ended otherwise: " + a.how()
		}
		late := a.ended - w.from - c.After
		if late < 0 {
			return never, fmt.Sprintf("it was reset %s too early", short(-late))
		}
		worst = max(worst, late.Seconds())
	}
	return worst, ""
}

// dip is by how many percent the second behind at brought less than the second before it.
func (p *player) dip(app string, at time.Duration) float64 {
	var before, after int64
	for _, a := range p.named(app) {
		for _, rec := range a.readers() {
			before += rec.came(at-time.Second, at)
			after += rec.came(at, at+time.Second)
		}
	}
	if before == 0 {
		return 100
	}
	return max(0, 100*(1-float64(after)/float64(before)))
}

func (p *player) named(app string) (list []*appRun) {
	for _, a := range p.apps {
		if a.app.Name == app {
			list = append(list, a)
		}
	}
	return list
}

// readers are the recorders of the directions in which the app's bytes flow.
func (a *appRun) readers() []*recorder {
	switch a.app.Kind {
	case BlastUp:
		return []*recorder{a.up}
	case BlastDown, Keys, Idle:
		return []*recorder{a.down}
	}
	return []*recorder{a.up, a.down}
}

// endOf is how a run ended: clean only if both directions did.
func endOf(r streamcheck.Report) string {
	if r.Down.End != streamcheck.EndClean {
		return r.Down.End
	}
	return r.Up.End
}

// how tells how an app ended.
func (a *appRun) how() string {
	if a.openErr != nil {
		return a.openErr.Error()
	}
	s := endOf(a.report)
	if s == "" {
		s = "not at all"
	}
	if a.report.Err != "" {
		s += " (" + a.report.Err + ")"
	}
	return s
}

// appResults judges what came and how each connection ended.
func (p *player) appResults(r *Result, mayReset map[string]bool) {
	for _, app := range p.sc.Apps {
		res := AppResult{Name: app.Name, Count: app.Count}
		for _, a := range p.named(app.Name) {
			p.merge(a)
			rep := &a.report
			for _, w := range []*streamcheck.Way{&rep.Up, &rep.Down} {
				res.Bytes += w.Verified
				res.Lost += w.Lost + w.Changed + w.Swapped
				res.Repeated += w.Repeated
			}
			for _, rec := range a.readers() {
				res.Longest = max(res.Longest, rec.stall(app.From, min(a.ended, p.sc.End)))
			}
			res.Trip99 = max(res.Trip99, rep.Trip(0.99))
			p.judgeEnd(r, &res, a, mayReset[app.Name])
		}
		r.Lost += res.Lost
		r.Repeated += res.Repeated
		if app.Kind != Idle {
			r.Longest = max(r.Longest, res.Longest)
		}
		r.Apps = append(r.Apps, res)
	}
}

// merge takes what the target saw, where the app could not be told.
func (p *player) merge(a *appRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.served[a.seed]; ok && !a.report.Whole() {
		a.report.Merge(s)
	}
}

func (p *player) judgeEnd(r *Result, res *AppResult, a *appRun, mayReset bool) {
	name := a.app.Name
	if a.app.Count > 1 {
		name = fmt.Sprintf("%s %d", name, a.i+1)
	}
	if !a.report.Intact() {
		r.Faults = append(r.Faults, fmt.Sprintf("%s: bytes were lost or repeated: %s", name, a.report.String()))
	}
	whole := a.openErr == nil && a.report.Whole()
	if res.End == "" || !whole {
		res.End = a.how()
	}
	if whole || mayReset { // when a reset is expected, the check judges it
		return
	}
	r.Wrongly++
	if r.Wrongly <= 5 {
		r.Faults = append(r.Faults, fmt.Sprintf("%s: its connection ended wrongly at %s: %s", name, short(a.ended), a.how()))
	}
}

// stallFloor is from which stall on a picture shows it.
const stallFloor = 50 * time.Millisecond

// picture collects what is drawn.
func (p *player) picture(r *Result) {
	t := &r.Timeline
	t.Bucket, t.End = p.bucket, p.sc.End
	for _, app := range p.sc.Apps {
		s := Series{Name: app.Name}
		for _, a := range p.named(app.Name) {
			for _, rec := range a.readers() {
				s.add(rec.series())
			}
			if app.Kind != Idle && len(p.apps) <= 100 {
				floor := max(stallFloor, 2*app.Every)
				for _, g := range a.readers()[0].longest(floor) {
					t.Stalls = append(t.Stalls, Mark{g.from, g.to - g.from, app.Name})
				}
			}
		}
		t.Apps = append(t.Apps, s)
	}
	for _, l := range p.sc.Links {
		s := Series{Name: l.Name}
		var before int64
		for _, c := range p.counts {
			s.Bytes = append(s.Bytes, c.Bytes[l.Name]-before)
			before = c.Bytes[l.Name]
		}
		t.Links = append(t.Links, s)
	}
	for _, w := range p.windows {
		if w.event >= 0 {
			t.Events = append(t.Events, Mark{At: w.from, Text: p.sc.Events[w.event].Text})
		}
	}
}

func (s *Series) add(other []int64) {
	for len(s.Bytes) < len(other) {
		s.Bytes = append(s.Bytes, 0)
	}
	for i, v := range other {
		s.Bytes[i] += v
	}
}

// Busy says whether the machine stood still for so long that times mean nothing.
func (r *Result) Busy() bool { return r.Frozen.Longest > freezeMost }

// Problems is why the run has failed; empty: it has not.
func (r *Result) Problems() []string {
	if r.Busy() {
		return r.Faults
	}
	return append(slices.Clone(r.Faults), r.Late...)
}

// Summary is the result in a few lines.
func (r *Result) Summary() string {
	var b strings.Builder
	who := "linkproxy"
	if r.Baseline != "" {
		who = r.Baseline
	}
	fmt.Fprintf(&b, "%s, %s, %s: lost %d, repeated %d, ended wrongly %d, longest stall %s, %d switches, %d dials, took %s",
		r.Scenario.Name, r.Runner, who, r.Lost, r.Repeated, r.Wrongly, short(r.Longest), r.Switches, r.Dials, short(r.Took))
	for _, f := range r.Figures {
		mark := "met"
		switch {
		case f.Base != "" && r.Baseline != "":
			mark = ""
		case !f.Met && f.Goal:
			mark = "MISSED"
		case !f.Met:
			mark = "FAILED"
		}
		got := f.value(f.Median)
		switch {
		case f.Said != "":
			got = f.Said
		case f.Base != "" && r.Baseline == "":
			got = f.ratio()
		case len(f.Values) > 1:
			got += fmt.Sprintf(" (worst of %d: %s)", len(f.Values), f.value(f.Worst))
		}
		fmt.Fprintf(&b, "\n  %-34s %-32s %s %s", f.Event, f.Check, got, mark)
	}
	for _, f := range r.Problems() {
		fmt.Fprintf(&b, "\n  FAULT %s", f)
	}
	if r.Busy() {
		fmt.Fprintf(&b, "\n  the machine stood still, for %s at a time and %s in all: what was late is not held against anybody",
			short(r.Frozen.Longest), short(r.Frozen.Total))
	}
	return b.String()
}
