package route

import (
	"fmt"
	"slices"
	"time"
)

// The numbers of the second carrier.
const (
	// ActiveFor is how long after its last byte a link counts as active: only then
	// is a standby worth its keep, and a better route worth a check a minute.
	ActiveFor = 60 * time.Second
	// SeekMin and SeekMax bound the wait between two dials for a second carrier: it
	// is a comfort, no need.
	SeekMin = 5 * time.Second
	SeekMax = 60 * time.Second
	// DrainJitter is the longest wait before a relay that goes is dialled again
	// for want of another: all its machines are about to do that.
	DrainJitter = 5 * time.Second
)

// pace spaces attempts that are a comfort: SeekMin after each, doubled after each
// failure up to SeekMax.
type pace struct {
	next  time.Time
	delay time.Duration
}

func (p *pace) ended(now time.Time, failed bool) {
	if !failed {
		p.delay = 0
	}
	p.delay = max(p.delay, SeekMin)
	p.next = now.Add(p.delay)
	if failed {
		p.delay = min(2*p.delay, SeekMax)
	}
}

func (r *Roam) jitter(most time.Duration) time.Duration {
	if r.random == nil {
		return most
	}
	return time.Duration(r.random() * float64(most))
}

// active reports whether a byte moved lately, and until when that holds.
func (r *Roam) activeUntil(now time.Time) (until time.Time, ok bool) {
	until = r.link.LastByte.Add(ActiveFor)
	return until, !r.link.LastByte.IsZero() && until.After(now)
}

// wantStandby says whether a second carrier is wanted now.
func (r *Roam) wantStandby(now time.Time, in *carrier) bool {
	if r.standby == StandbyNever || r.link.Streams == 0 {
		return false
	}
	if r.standby == StandbyAlways {
		return true
	}
	until, ok := r.activeUntil(now)
	if !ok || r.Facts.Path.carrying(in.Local).Metered {
		return false
	}
	r.wakeAt(until)
	return true
}

// otherWay reports whether a route fails for other reasons than the carrier in
// use: it is of another class or on another interface. Where an interface is not
// known, another route will do.
func (r *Roam) otherWay(in *carrier, route Route, over Interface) bool {
	if in.Route.Same(route) && (over.Name == "" || over.Name == r.Facts.Path.carrying(in.Local).Name) {
		return false
	}
	mine := r.Facts.Path.carrying(in.Local)
	return in.Route.Class != route.Class || mine.Name == "" || over.Name == "" || mine.Name != over.Name
}

// bestOther is the attached carrier besides the one in use that could best take
// over, or nil. Apart: only one that is another way.
func (r *Roam) bestOther(in *carrier, apart bool) *carrier {
	for _, e := range r.ranking() {
		var best *carrier
		for _, c := range r.carriers {
			if c == in || !c.trusted() || c.draining || !c.Route.Same(e.Route) {
				continue
			}
			if apart && !r.otherWay(in, c.Route, r.Facts.Path.carrying(c.Local)) {
				continue
			}
			if best == nil || c.ID > best.ID {
				best = c
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// shed keeps the best other carrier if a standby is wanted, and lets go of the
// rest. Those the link is on its way off and those in doubt close by themselves.
func (r *Roam) shed(now time.Time) {
	in := r.inUse()
	if !r.free() || in == nil || !in.trusted() {
		return
	}
	var keep *carrier
	if r.wantStandby(now, in) {
		keep = r.bestOther(in, true)
	}
	for _, c := range r.carriers {
		switch {
		case c == in || c.dropped || r.watched(c):
		case c == keep:
			if !c.standby {
				c.standby, c.released = true, false
				r.act(KeepStandby{ID: c.ID, Route: c.Route, Why: "the best beside " + in.Route.ID()})
			}
		case c.Draining || c.draining:
			c.standby = false
			if !c.released {
				c.released = true
				r.act(Release{ID: c.ID, Route: c.Route, Why: "it is not needed beside " + in.Route.ID()})
			}
		case !c.Suspect && c.adrift.IsZero():
			r.drop(c, "it is not needed beside "+in.Route.ID())
		}
	}
}

// seekStandby dials for a standby, one route at a time.
func (r *Roam) seekStandby(now time.Time) {
	in := r.inUse()
	if !r.free() || r.dialing || in == nil || !in.trusted() || !r.wantStandby(now, in) || r.bestOther(in, true) != nil {
		return
	}
	var list []Ranked
	for _, e := range r.ranking() {
		if slices.ContainsFunc(r.carriers, func(c *carrier) bool { return c != in && !c.dropped && c.Route.Same(e.Route) }) {
			continue // in doubt: it settles that, or ends
		}
		over := r.Facts.Path.toward(e.Route)
		if e.Why.Implausible == "" && !r.blocked[e.Route.ID()] && r.otherWay(in, e.Route, over) &&
			(!over.Metered || r.standby == StandbyAlways) {
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		return
	}
	if r.second.next.After(now) {
		r.wakeAt(r.second.next)
		return
	}
	if !r.Budget.TakeSpare(now) {
		r.wakeAt(r.Budget.ReadySpare(now))
		return
	}
	r.dialing = true
	to := list[r.turn%len(list)].Route
	r.act(DialStandby{Route: to, Why: fmt.Sprintf("bytes move over %s alone, the last %s ago", in.Route, now.Sub(r.link.LastByte))})
}

func (e DialEnded) happen(r *Roam, now time.Time) {
	if !r.dialing {
		return
	}
	r.dialing = false
	switch e.Outcome {
	case Won:
		r.turn = 0
		if r.find(e.Carrier.ID) == nil {
			r.attached(now, e.Carrier)
		}
	case NoRoute:
		r.Budget.Refund(now)
		r.turn++
	case Blocked, NoToken:
		r.blocked[e.Route.ID()] = true
		r.turn++
	default:
		r.turn++
	}
	r.second.ended(now, e.Outcome != Won)
}

// leave moves the link off a route that goes, or is not to be used any more.
func (r *Roam) leave(now time.Time) {
	in := r.inUse()
	if in == nil || !r.free() {
		return
	}
	_, known := r.entry(in.Route)
	if known && !in.draining {
		return
	}
	if best := r.bestOther(in, false); best != nil {
		_, why := r.gain(in, best)
		r.order(errand{id: best.ID, planned: true}, why)
		return
	}
	if r.replace.next.After(now) {
		r.wakeAt(r.replace.next)
		return
	}
	trigger, why := ForRemoval, "the route in use is not to be used any more"
	plan := r.ranking()
	if known {
		trigger, why = ForDrain, "the relay in use goes"
		plan = slices.DeleteFunc(slices.Clone(plan), func(e Ranked) bool { return e.Route.Same(in.Route) })
		if len(plan) == 0 && in.redial.IsZero() {
			in.redial = now.Add(r.jitter(DrainJitter))
		}
		if !in.redial.IsZero() {
			if in.redial.After(now) {
				r.wakeAt(in.redial)
				return
			}
			plan, why = r.ranking(), "the relay in use goes, and nothing else has answered"
		}
	}
	if len(plan) > 0 {
		r.start(now, StartRace{Trigger: trigger, Plan: plan, AllAtOnce: true, Why: why})
	}
}
