package route

import "time"

// Failing: so many failures, each within FailureWindow of the next and the last
// not longer ago, make a route be tried last. One failure is a dropped packet,
// two are a pattern; two minutes later the world may have changed.
const (
	FailuresToDemote = 2
	FailureWindow    = 2 * time.Minute
)

// Ranked is a route in its place among the others.
type Ranked struct {
	Route Route
	Why   Why
}

// Why is what a place in the ranking rests on.
type Why struct {
	Class       Class // as it ranks: a relayed tailnet route is Relay
	Relayed     bool
	Seen        time.Time     // live since; zero: not seen
	LastSuccess time.Time     // on this network; zero: never
	Handshake   time.Duration // of LastSuccess
	LastFailure time.Time     // on this network, since LastSuccess; zero: none
	Failing     bool
	Implausible string // why it can hardly work here; "": it can
	Penalty     Penalty
	Penalized   bool
	Hoisted     string // why it was put first; "": it was not
	Place       int    // in the config, from 0
}

// Demoted reports whether the route is tried last.
func (w Why) Demoted() bool { return w.Failing || w.Implausible != "" || w.Penalized }

// Rank puts vetted routes in the order in which they are to be tried. It removes
// none and adds none.
func Rank(f Facts) []Ranked {
	ranked := make([]Ranked, len(f.Routes))
	for i, r := range f.Routes {
		ranked[i] = Ranked{Route: r, Why: Why{Class: r.Class, Place: i}}
	}
	return ranked
}
