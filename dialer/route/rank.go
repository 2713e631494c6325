package route

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// A route is failing after FailuresToDemote failures on a network, each within
// FailureWindow of the next and the last not longer ago. One failure is a
// dropped packet, two are a pattern; two minutes later the world may be another.
const (
	FailuresToDemote = 2
	FailureWindow    = 2 * time.Minute
)

// Ranked is a route in its place among the others.
type Ranked struct {
	Route Route
	Why   Why
}

// Why is what a place in the ranking rests on. "Here" is every network this
// machine is on.
type Why struct {
	Class       Class         // as it ranks: a relayed tailnet route is Relay
	Relayed     bool          // that is so
	Seen        time.Time     // live since; zero: not seen
	LastSuccess time.Time     // here; zero: never
	Handshake   time.Duration // from the dial to attached, of LastSuccess
	LastFailure time.Time     // here, since LastSuccess; zero: none
	Failing     bool
	Implausible string // why it can hardly work here; "": it can
	Penalty     Penalty
	Penalized   bool
	Hoisted     string // why it was put first; "": it was not
	Place       int    // in the config, from 0
}

// Demoted reports whether the route is tried last.
func (w Why) Demoted() bool { return w.Failing || w.Implausible != "" || w.Penalized }

// liveLAN reports whether the route deserves a start beside whatever leads.
func (r Ranked) liveLAN() bool {
	return r.Route.Class == LAN && !r.Why.Seen.IsZero() && !r.Why.Demoted()
}

// Rank puts vetted routes in the order in which they are to be tried. It removes
// none and adds none.
func Rank(f Facts) []Ranked {
	f.Now = wall(f.Now)
	here := f.Memory.Here(f.Path)
	ranked := make([]Ranked, len(f.Routes))
	for i, r := range f.Routes {
		ranked[i] = Ranked{Route: r, Why: f.why(here, i)}
	}
	slices.SortStableFunc(ranked, compare)
	f.hoist(here, ranked)
	return ranked
}

// why gathers what is known about the route at a place of the config.
func (f Facts) why(here []NetworkMemory, place int) Why {
	r := f.Routes[place]
	id := r.ID()
	w := Why{Class: r.Class, Place: place, Seen: f.Seen[id], Implausible: f.implausible(r), Relayed: f.Relayed[id]}
	for _, n := range here {
		known := n.Routes[id]
		if known.LastSuccess.After(w.LastSuccess) {
			w.LastSuccess, w.Handshake = known.LastSuccess, known.Handshake
		}
		w.Relayed = w.Relayed || known.Relayed
		if known.Penalty.Until.After(w.Penalty.Until) {
			w.Penalty = known.Penalty
		}
	}
	for _, n := range here {
		failures := n.Routes[id].Failures
		if len(failures) == 0 || !failures[len(failures)-1].After(w.LastSuccess) {
			continue // it has worked since, be it over another interface
		}
		w.LastFailure = later(w.LastFailure, failures[len(failures)-1])
		w.Failing = w.Failing || failing(f.Now, failures)
	}
	w.Penalized = w.Penalty.Active(f.Now)
	if w.Relayed && r.Class == Tailnet {
		w.Class = Relay
	}
	return w
}

// failing reports whether failures on one network make a pattern. Those from the
// future are a clock that was set back: they say nothing.
func failing(now time.Time, failures []time.Time) bool {
	if len(failures) < FailuresToDemote {
		return false
	}
	recent := failures[len(failures)-FailuresToDemote:]
	for i, t := range recent {
		next := now
		if i+1 < len(recent) {
			next = recent[i+1]
		}
		if gap := next.Sub(t); gap < 0 || gap > FailureWindow {
			return false
		}
	}
	return true
}

// implausible says why a route can hardly work on the path; "": it can, or the
// path is not known.
func (f Facts) implausible(r Route) string {
	if len(f.Path.Interfaces) == 0 {
		return ""
	}
	if r.Class == Tailnet && !f.Path.Tailnet && !f.TailnetKnows {
		return "this machine has no tailnet now"
	}
	if r.localOnly() && !slices.ContainsFunc(f.Path.Interfaces, Interface.local) {
		return "a local address, and no Wi-Fi or wired interface"
	}
	return ""
}

// local reports whether private addresses can be behind the interface. What
// nobody can name is given the benefit of the doubt: a bridge is such a one.
func (i Interface) local() bool { return i.Kind == Wired || i.Kind == WiFi || i.Kind == OtherKind }

// localOnly reports whether the address is one of a local network, and not of
// this machine itself.
func (r Route) localOnly() bool {
	host := r.host()
	if r.Class != LAN || ClassOf(host, true) != LAN {
		return false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return ClassOf(host, true) == LAN && !isLocalhost(host)
	}
	return !addr.Unmap().IsLoopback()
}

// compare is the order of the ranking.
func compare(a, b Ranked) int {
	return cmp.Or(
		cmp.Compare(a.Why.group(), b.Why.group()),
		// Among those that fail the one that was tried longest ago: with a dial at
		// a time the same dead one would be tried for ever, and one that has come
		// back never.
		a.Why.lastTry().Compare(b.Why.lastTry()),
		-cmpBool(!a.Why.Seen.IsZero(), !b.Why.Seen.IsZero()),
		cmp.Compare(a.Why.Class, b.Why.Class),
		// A tailnet's resolver may hang while its numbers work.
		-cmpBool(a.Route.Class == Tailnet && a.Route.numeric(), b.Route.Class == Tailnet && b.Route.numeric()),
		b.Why.LastSuccess.Compare(a.Why.LastSuccess),
		cmp.Compare(a.Why.Place, b.Why.Place),
	)
}

// group is 0 for what is tried first. What can hardly work is behind what may.
func (w Why) group() int {
	switch {
	case w.Implausible != "":
		return 2
	case w.Demoted():
		return 1
	default:
		return 0
	}
}

// lastTry is the last failure of a route that is failing, else zero.
func (w Why) lastTry() time.Time {
	if w.Failing {
		return w.LastFailure
	}
	return time.Time{}
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// hoist puts the route that last worked here first, or, where no such route is
// known, the one that last worked anywhere, unless it is demoted.
func (f Facts) hoist(here []NetworkMemory, ranked []Ranked) {
	i, why := -1, ""
	for _, n := range here {
		if i = slices.IndexFunc(ranked, func(r Ranked) bool { return r.Route.ID() == n.Last }); i >= 0 {
			why = fmt.Sprintf("it last worked on %s", n.Network)
			break
		}
	}
	if i < 0 {
		why = "it last worked, elsewhere"
		i = slices.IndexFunc(ranked, func(r Ranked) bool { return r.Route.ID() == f.Memory.Last && r.Route.Class != LAN })
	}
	if i < 0 || ranked[i].Why.Demoted() {
		return
	}
	first := ranked[i]
	first.Why.Hoisted = why
	copy(ranked[1:i+1], ranked[:i])
	ranked[0] = first
}

// lead says why a route leads, in a few words.
func (r Ranked) lead() string {
	switch w := r.Why; {
	case w.Hoisted != "":
		return w.Hoisted
	case w.Demoted():
		return "nothing better is left"
	case !w.Seen.IsZero():
		return "seen live"
	case !w.LastSuccess.IsZero():
		return "best class, it has worked here"
	default:
		return "best class, first in the config"
	}
}
