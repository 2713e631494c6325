package dialer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// The numbers of the second carrier.
const (
	// activeFor is how long after its last byte a link counts as active: only then is a standby worth its keep.
	activeFor = 60 * time.Second
	// seekMin and seekMax bound the wait between two dials for a second carrier: it is a comfort, no need.
	seekMin = 5 * time.Second
	seekMax = 60 * time.Second
	// moveLimit is how long a carrier may take to prove that large segments pass before a planned move to it is given up.
	moveLimit = 5 * time.Second
)

// seek paces the dials for a second carrier of a link that works.
type seek struct {
	next  time.Time     // not before
	delay time.Duration // after the next failure
	turn  int           // which candidate is next
}

// reset makes the next dial due at once, because facts have changed.
func (s *seek) reset() { *s = seek{} }

// failed notes the end of a dial.
func (s *seek) failed(now time.Time, failed bool) {
	if !failed {
		s.delay, s.turn = 0, 0
	} else {
		s.turn++
	}
	s.delay = max(s.delay, seekMin)
	s.next = now.Add(s.delay)
	if failed {
		s.delay = min(2*s.delay, seekMax)
	}
}

// tendCarriers looks after the carriers besides the one in use: which is kept as standby, which is surplus, and whether one
// is to be sought. A planned move or a race owns its carriers until it has ended.
func (p *peer) tendCarriers(now time.Time, st link.Status, wake *alarm) {
	if p.client == nil || p.state != up {
		return
	}
	in := activeOf(st)
	if in.Gen != p.inUse {
		p.inUse = in.Gen
		p.bulk.reset() // there is none on this route yet
		if in.Gen == p.standby {
			p.standby = 0
		}
		p.client.Keep(in.Gen, false) // once the link has moved off it as planned, it is no longer needed
	}
	if p.race != nil || p.moves > 0 {
		return
	}
	if !p.configured(in.Name) && p.leave(now, st, in, wake) {
		return
	}
	if in.Suspect {
		return // whoever else is attached is about to take over
	}
	wanted := p.wantStandby(now, st, in, wake)
	p.sortOut(st, in, wanted)
	if wanted && p.standby == 0 {
		p.seekStandby(now, in, wake)
	}
	if p.moves == 0 {
		p.tendBulk(now, st, in, wake)
	}
}

func (p *peer) configured(id string) bool {
	return slices.ContainsFunc(p.conf.Routes, func(r route.Route) bool { return r.ID() == id })
}

// leave moves the link off a route that is no longer configured; false: there is none to move to.
func (p *peer) leave(now time.Time, st link.Status, in link.CarrierStatus, wake *alarm) bool {
	if len(p.conf.Routes) == 0 {
		return false
	}
	if best, ok := p.bestOther(st, in); ok {
		p.move(p.client, best.Gen, nil)
		return true
	}
	if p.seek.next.After(now) {
		wake.add(p.seek.next)
		return true
	}
	p.startRace(now, true, route.RaceOptions{AllAtOnce: true, Budget: &p.budget})
	return true
}

// wantStandby says whether a second carrier is wanted now.
func (p *peer) wantStandby(now time.Time, st link.Status, in link.CarrierStatus, wake *alarm) bool {
	if p.conf.Standby == StandbyNever || len(p.candidates(in.Name)) == 0 {
		return false
	}
	if p.conf.Standby == StandbyAlways {
		return st.Streams > 0 || p.standby != 0
	}
	if st.Streams == 0 && p.standby == 0 {
		return false
	}
	until := st.At(st.LastByte).Add(activeFor)
	if st.LastByte > 0 && until.After(now) {
		wake.add(until)
		return st.Streams > 0 || p.standby != 0
	}
	return false // the next byte is told
}

// candidates are the routes a standby may take, best first.
func (p *peer) candidates(inUse string) []route.Route {
	list := slices.DeleteFunc(slices.Clone(p.conf.Routes), func(r route.Route) bool { return r.ID() == inUse })
	slices.SortStableFunc(list, func(a, b route.Route) int { return cmp.Compare(a.Class, b.Class) })
	return list
}

// bestOther is the attached carrier, besides the one in use, that could best take over: on a configured route of its own,
// not in doubt.
func (p *peer) bestOther(st link.Status, in link.CarrierStatus) (best link.CarrierStatus, ok bool) {
	rank := func(id string) int {
		return slices.IndexFunc(p.candidates(in.Name), func(r route.Route) bool { return r.ID() == id })
	}
	for _, c := range st.Carriers {
		if !c.Attached || c.Bulk || c.Gen == in.Gen || c.Suspect || rank(c.Name) < 0 {
			continue
		}
		if !ok || rank(c.Name) < rank(best.Name) || c.Name == best.Name && c.Gen > best.Gen {
			best, ok = c, true
		}
	}
	return best, ok
}

// sortOut keeps the best other carrier if a standby is wanted, and lets go of the rest. Those the link is being drained off
// and those in doubt close by themselves.
func (p *peer) sortOut(st link.Status, in link.CarrierStatus, wanted bool) {
	best, ok := p.bestOther(st, in)
	keep := uint64(0)
	if wanted && ok {
		keep = best.Gen
	}
	for _, c := range st.Carriers {
		switch {
		case !c.Attached || c.Bulk || c.Gen == in.Gen:
		case c.Gen == keep:
			if p.standby != keep {
				p.client.Keep(keep, true)
			}
		case c.Draining:
			p.client.Keep(c.Gen, false)
		case !c.Suspect:
			p.client.Drop(c.Gen)
		}
	}
	p.standby = keep
}

// seekStandby dials for a standby, one route at a time.
func (p *peer) seekStandby(now time.Time, in link.CarrierStatus, wake *alarm) {
	if p.seek.next.After(now) {
		wake.add(p.seek.next)
		return
	}
	if !p.budget.TakeSpare(now) {
		wake.add(p.budget.ReadySpare(now))
		return
	}
	list := p.candidates(in.Name)
	p.log.Debug("dialling for a standby", "route", list[p.seek.turn%len(list)].ID())
	p.single(now, list[p.seek.turn%len(list)], false, func(now time.Time, a *attempt, ev route.Event) {
		if e, ended := ev.(route.Ended); ended && e.Outcome == route.NoRoute {
			p.budget.Refund(now)
		}
		p.seek.failed(now, a.record.Outcome != route.Won)
	})
}

// single dials one route for the link, outside of any race: as a standby or as the carrier for bulk. On is told how it ended,
// on the loop.
func (p *peer) single(now time.Time, to route.Route, bulk bool, on func(time.Time, *attempt, route.Event)) {
	p.moves++
	var a *attempt
	a = p.start(now, to, route.RaceLimit, bulk, func(now time.Time, ev route.Event) {
		if _, more := ev.(route.Reached); more {
			return
		}
		p.moves--
		on(now, a, ev)
	})
}

// move takes a link to a carrier of its own as planned. Done, if any, is told the outcome on the loop.
func (p *peer) move(c *link.Client, gen uint64, done func(error)) {
	p.moves++
	p.wg.Add(1)
	go p.runMove(c, gen, done)
}

var errMoveTimeout = errors.New("large segments do not pass")

func (p *peer) runMove(c *link.Client, gen uint64, done func(error)) {
	defer p.wg.Done()
	ctx, cancel := context.WithTimeoutCause(p.ctx, moveLimit, errMoveTimeout)
	defer cancel()
	err := c.Switch(ctx, gen)
	p.send(func(now time.Time) {
		p.moves--
		if err != nil {
			p.log.Info("staying on the carrier in use", "cause", err)
			c.Drop(gen)
			p.seek.failed(now, true)
		}
		if done != nil {
			done(err)
		}
	})
}

// Use moves a peer's link to one of its routes, given as its ID, as planned: it dials the route, attaches it beside the
// carrier in use and moves over. It returns once the link has moved, or with an error and the link untouched.
func (d *Dialer) Use(ctx context.Context, peer, routeID string) error {
	p, err := d.find(peer)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	if err := p.ask(ctx, func(now time.Time) { p.use(now, routeID, func(err error) { result <- err }) }); err != nil {
		return err
	}
	select {
	case err = <-result:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.gone:
		err = p.endedBy()
	}
	if err != nil {
		return fmt.Errorf("dialer: moving to %s: %w", routeID, err)
	}
	return nil
}

// use is Use on the loop; done is called once.
func (p *peer) use(now time.Time, id string, done func(error)) {
	i := slices.IndexFunc(p.conf.Routes, func(r route.Route) bool { return r.ID() == id })
	if i < 0 {
		done(&Error{Peer: p.name, reason: reasonNoRoute, text: fmt.Sprintf("%s has no route %s in the config", p.name, id)})
		return
	}
	if p.client == nil || p.state == down {
		done(&Error{Peer: p.name, reason: reasonNoRoute, text: fmt.Sprintf("no connection to %s is up", p.name)})
		return
	}
	st := p.client.Status()
	in := activeOf(st)
	if in.Name == id {
		done(nil)
		return
	}
	for _, c := range st.Carriers {
		if c.Attached && !c.Bulk && c.Name == id && !c.Suspect {
			p.move(p.client, c.Gen, done)
			return
		}
	}
	_ = p.budget.Take(now) // counted, but what a user asks for is done
	p.single(now, p.conf.Routes[i], false, func(now time.Time, a *attempt, _ route.Event) {
		if a.record.Outcome != route.Won {
			done(raceError(p.name, []route.Attempt{a.record}, ""))
			return
		}
		p.move(a.client, a.gen, done)
	})
}
