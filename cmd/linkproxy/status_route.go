package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/dialer/route"
)

func peerStatus(p dialer.PeerStatus, now time.Time) control.Peer {
	cp := control.Peer{
		Name: p.Name, ID: p.ID.String(), State: p.State.String(), Next: p.Next, NextWhy: plainly(p.NextWhy), Waiting: p.Waiting,
		RacedAt: p.RaceEnded, Active: activeRoute(p), Links: []control.Link{},
	}
	if p.Plain {
		cp.ID, cp.NoAgent, cp.Conns = "", true, plainConns(p)
	}
	if p.Err != nil {
		cp.Error = plainly(said(p.Err))
	}
	if p.Pin.Set() {
		cp.Pin = p.Pin.String()
	}
	for i, e := range p.Ranked {
		r := routeStatus(p, e, now)
		r.Place = i + 1
		cp.Routes = append(cp.Routes, r)
	}
	for _, refused := range p.Refused {
		r := routeStatus(p, route.Ranked{Route: refused.Route, Why: route.Why{Class: refused.Route.Class}}, now)
		r.State = "not tried: " + plainly(refused.Why)
		cp.Routes = append(cp.Routes, r)
	}
	for _, r := range p.Routes { // what a pin does not allow
		if !slices.ContainsFunc(cp.Routes, func(told control.Route) bool { return told.Route == r.ID() }) {
			cp.Routes = append(cp.Routes, routeStatus(p, route.Ranked{Route: r, Why: route.Why{Class: r.Class}}, now))
		}
	}
	if p.Link == nil {
		return cp
	}
	if p.Link.Doubtful && !p.Link.HasOther {
		cp.State = "no answer at present; streams are held"
	}
	l := linkStatus(*p.Link, p.Streams, p.Since, p.RouteOf)
	cp.Links = append(cp.Links, l)
	for _, c := range l.Carriers {
		if c.State == "standby" {
			cp.Standby = append(cp.Standby, c.Route)
		}
	}
	return cp
}

// routeStatus is what is known of a route.
func routeStatus(p dialer.PeerStatus, e route.Ranked, now time.Time) control.Route {
	r := control.Route{
		Route: e.Route.ID(), Class: e.Why.Class.String(), Demoted: e.Why.Demoted(), Failing: e.Why.Failing,
		LastSuccess: e.Why.LastSuccess, LastFailure: e.Why.LastFailure, HandshakeUS: e.Why.Handshake.Microseconds(),
		State: routeState(p, e, now),
	}
	if held := penaltyOf(p, e, now); held.Step > 0 || !held.Skipped(now).IsZero() {
		r.Penalty = &control.Penalty{Step: held.Step, Until: held.Until, CoolUntil: held.CoolUntil, Reasons: held.Reasons}
	}
	if a, ok := lastAttempt(p, e.Route); ok {
		r.Outcome, r.TookMS = a.Outcome.String(), a.Duration.Milliseconds()
		if a.Err != nil {
			r.Error = plainly(said(a.Err))
		}
	}
	if p.Link != nil {
		for _, c := range p.Link.Carriers {
			r.Attached = r.Attached || c.Attached && c.Name == r.Route
		}
	}
	return r
}

// routeState says how a route stands that is not in use.
func routeState(p dialer.PeerStatus, e route.Ranked, now time.Time) string {
	state := standingOf(p, e, now)
	if e.Why.Relayed && e.Route.Class == route.Tailnet {
		state += "; the tailnet relays it here, so it is no better than a relay"
	}
	switch {
	case !p.Pin.Set():
		return state
	case p.Pin.Wants(e.Route):
		return "pinned; " + state
	case p.Pin.Only:
		return "not to be used: " + p.Pin.String() + " is pinned"
	default:
		return state
	}
}

func standingOf(p dialer.PeerStatus, e route.Ranked, now time.Time) string {
	w := e.Why
	last, raced := lastAttempt(p, e.Route)
	why := ""
	if raced && (last.IsFailure() || last.Outcome == route.NoRoute || last.Outcome == route.Blocked || last.Outcome == route.Busy) {
		why = cause(last)
	}
	if held := penaltyOf(p, e, now).Text(now); held != "" {
		return plainly(held)
	}
	switch {
	case w.Failing:
		return fmt.Sprintf("failing: %d times, last %s%s", failures(p, e), when(now, w.LastFailure), behind(": ", why))
	case w.Implausible != "" && p.Pin.Set() && p.Pin.Wants(e.Route):
		return "can hardly work here: " + w.Implausible
	case w.Implausible != "":
		return "tried last: " + w.Implausible
	case !w.LastFailure.IsZero():
		return fmt.Sprintf("failed once, %s%s", when(now, w.LastFailure), behind(": ", why))
	case why != "":
		return fmt.Sprintf("did not work at %s: %s", when(now, p.RaceEnded), why)
	case !w.LastSuccess.IsZero():
		state := fmt.Sprintf("worked %s, after %s", when(now, w.LastSuccess), short(w.Handshake))
		if raced && last.Outcome == route.Lost {
			state += "; another was faster last time"
		}
		return state
	case raced && last.Outcome != route.NotTried:
		return fmt.Sprintf("%s, %s", outcomes[last.Outcome], when(now, p.RaceEnded))
	case raced:
		return "not tried: another was there first"
	default:
		return "not tried yet"
	}
}

// behind puts a mark before a text, if there is one.
func behind(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}

// failures is how many failures make a route a failing one.
func failures(p dialer.PeerStatus, e route.Ranked) int {
	n := 0
	for _, here := range p.Here {
		n = max(n, len(here.Routes[e.Route.ID()].Failures))
	}
	return cmp.Or(n, route.FailuresToDemote)
}

// penaltyOf is what is held against a route here, in this machine's own time.
func penaltyOf(p dialer.PeerStatus, e route.Ranked, now time.Time) route.Penalty {
	held := e.Why.Penalty
	for _, here := range p.Here {
		if known := here.Routes[e.Route.ID()].Penalty; known.Skipped(now).After(held.Skipped(now)) {
			held = known
		}
	}
	held.Until, held.CoolUntil = local(now, held.Until), local(now, held.CoolUntil)
	return held
}

// local keeps a zero time zero.
func local(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.In(now.Location())
}

// lastAttempt is what became of a route in the last race.
func lastAttempt(p dialer.PeerStatus, r route.Route) (route.Attempt, bool) {
	for _, a := range p.Attempts {
		if a.Route.Same(r) {
			return a, true
		}
	}
	return route.Attempt{}, false
}

// networks are where this machine is.
func networks(path route.Path) (list []control.Network, tailnet bool) {
	for _, i := range path.Interfaces {
		n := control.Network{Interface: i.Name, Kind: i.Kind.String(), Metered: i.Metered, Default: i.Default}
		if i.Network.Known() {
			n.Network = i.Network.String()
		}
		list = append(list, n)
	}
	return list, path.Tailnet
}
