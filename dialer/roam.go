package dialer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// useLimit is how long `use` waits for its move: what a race among the wanted routes and the proof of the winner may take.
const useLimit = route.RaceLimit + moveLimit

// moveLimit is how long a carrier may take to prove that large segments pass before a planned move to it is given up.
const moveLimit = 5 * time.Second

// roam is the standby's policy as route knows it.
func (s Standby) roam() route.Standby {
	switch s {
	case StandbyAlways:
		return route.StandbyAlways
	case StandbyNever:
		return route.StandbyNever
	default:
		return route.StandbyAuto
	}
}

// tell tells roam what has happened and does what it decides. What that brings about at once is told after it.
func (p *peer) tell(now time.Time, ev route.RoamEvent) {
	p.events = append(p.events, ev)
	if p.telling {
		return
	}
	p.telling = true
	for len(p.events) > 0 {
		ev := p.events[0]
		p.events = p.events[1:]
		actions, wake := p.roam.Step(now, ev)
		p.roamWake = wake
		for _, a := range actions {
			p.do(now, a)
		}
	}
	p.telling = false
}

// do carries one decision out.
func (p *peer) do(now time.Time, action route.RoamAction) {
	p.log.Debug("decided", "what", action.String())
	if start, ok := action.(route.StartRace); ok {
		why := fmt.Sprintf("%s: %s", start.Trigger, start.Why)
		p.decided(route.ExplainRace(p.roam.Facts, start.Plan, p.refused, why))
	} else {
		p.decided(p.explain(now, action))
	}
	switch a := action.(type) {
	case route.StartRace:
		p.startRace(now, a)
	case route.JoinRace:
		p.inRace(now, route.Joined{Plan: a.Plan})
	case route.TryAgain:
		p.inRace(now, route.Again{Routes: a.Routes})
	case route.DialStandby:
		p.dialStandby(now, a.Route)
	case route.Check:
		for _, r := range a.Routes {
			p.wg.Add(1)
			go p.check(r)
		}
	case route.Prove:
		p.client.Ask() // its answer is a byte on that carrier
	case route.Switch:
		p.move(now, a)
	case route.KeepStandby:
		p.client.Keep(a.ID, true)
	case route.Release:
		p.client.Keep(a.ID, false)
	case route.Drop:
		p.client.Drop(a.ID)
	case route.Remember:
		p.d.cfg.Remember(p.key(), p.roam.Facts.Memory)
	}
}

func (p *peer) inRace(now time.Time, ev route.Event) {
	if p.race != nil {
		p.race.step(now, ev)
	}
}

// linkState is the link as roam is told it.
func (p *peer) linkState(st link.Status) route.LinkState {
	s := route.LinkState{Exists: p.client != nil, Streams: st.Streams, Active: activeOf(st).Gen}
	if p.client == nil {
		return s
	}
	s.Held = len(p.waits) > 0 || st.Streams > 0 && p.client.Work().Apps > 0
	if st.LastByte > 0 {
		s.LastByte = st.At(st.LastByte)
	}
	for _, c := range st.Carriers {
		if c.Attached && !c.Bulk {
			s.Carriers = append(s.Carriers, p.carrier(st, c))
		}
	}
	return s
}

// carrier is one of them.
func (p *peer) carrier(st link.Status, c link.CarrierStatus) route.Carrier {
	return route.Carrier{
		ID: c.Gen, Route: p.known[c.Name], Local: c.Local, RTT: c.RTT, Suspect: c.Suspect, Draining: c.Draining,
		Heard: st.At(c.LastRecv),
	}
}

// carrierOf is the carrier of an attempt that has been attached.
func (p *peer) carrierOf(a *attempt) route.Carrier {
	st := a.client.Status()
	for _, c := range st.Carriers {
		if c.Gen == a.gen {
			return p.carrier(st, c)
		}
	}
	return route.Carrier{ID: a.gen, Route: a.route} // it has ended already
}

// pathChanged takes over where this machine is now.
func (p *peer) pathChanged(now time.Time, path route.Path) {
	p.tell(now, route.PathChanged{Path: path})
	p.revet(now)
	if p.plain != nil {
		p.plain.moved(now, path)
	}
	if p.race == nil {
		return
	}
	var gone []netip.Addr
	for _, a := range p.race.tries {
		if a.record.Outcome == route.Running && !path.Has(a.record.Local) {
			gone = append(gone, a.record.Local)
		}
	}
	for _, local := range gone {
		p.inRace(now, route.Vanished{Local: local})
	}
}

// revet tells roam when other routes may be tried than before.
func (p *peer) revet(now time.Time) {
	before := len(p.refused)
	if list := p.vet(now); before > 0 || len(p.refused) > 0 {
		p.tell(now, route.RoutesChanged{Routes: list, Standby: p.conf.Standby.roam(), What: "which routes may be tried"})
	}
}

// dialStandby dials one route for the link, outside of any race.
func (p *peer) dialStandby(now time.Time, to route.Route) {
	p.single(now, to, false, func(now time.Time, a *attempt, _ route.Event) {
		end := route.DialEnded{Route: to, Outcome: a.record.Outcome}
		if end.Outcome == route.Won {
			end.Carrier = p.carrierOf(a)
		}
		p.tell(now, end)
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

// check is the goroutine of a check.
func (p *peer) check(r route.Route) {
	defer p.wg.Done()
	ctx, cancel := context.WithTimeoutCause(p.ctx, route.CheckLate, fmt.Errorf("no answer within %s", route.CheckLate))
	defer cancel()
	c := p.d.checkRoute(ctx, p.id, r)
	p.send(func(now time.Time) {
		p.noteKeys(now, []route.Attempt{c.Attempt})
		p.tell(now, route.CheckEnded{Route: r, Answered: c.Outcome == route.Won, RTT: c.RoundTrip, Outcome: c.Outcome})
	})
}

// move takes the link to a carrier of its own: as planned, or at once.
func (p *peer) move(now time.Time, to route.Switch) {
	c := p.client
	if !to.Planned {
		err := c.Leave(to.ID, to.Why)
		p.moved(now, to, err)
		return
	}
	p.moves++
	p.wg.Add(1)
	go p.runMove(c, to)
}

var errMoveTimeout = errors.New("large segments do not pass")

func (p *peer) runMove(c *link.Client, to route.Switch) {
	defer p.wg.Done()
	ctx, cancel := context.WithTimeoutCause(p.ctx, moveLimit, errMoveTimeout)
	defer cancel()
	err := c.Switch(ctx, to.ID)
	p.send(func(now time.Time) {
		p.moves--
		p.moved(now, to, err)
	})
}

func (p *peer) moved(now time.Time, to route.Switch, err error) {
	if err != nil {
		p.log.Info("staying on the carrier in use", "cause", err)
		if p.wish != nil && p.wish.pin.Wants(to.Route) {
			p.wish.err = err
		}
	}
	p.tell(now, route.SwitchEnded{ID: to.ID, Failed: err != nil})
}

// wish is what the user wants used, until it is settled whether the link is there.
type wish struct {
	pin   route.Pin
	until time.Time // when nobody waits for it any more
	done  func(error)
	err   error // why not
}

// Use pins one of a peer's routes, given as its ID, or a class, or with "auto" leaves the choice open again. What is pinned is
// preferred: the link moves there as planned, and returns there when it answers again; only: it uses nothing else. Use returns once the
// link has moved, at once if none is up, or with an error that says why it has not, at the latest after useLimit; pinned it stays.
func (d *Dialer) Use(ctx context.Context, peer, what string, only bool) error {
	p, err := d.find(peer)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	if err := p.ask(ctx, func(now time.Time) { p.use(now, what, only, func(err error) { result <- err }) }); err != nil {
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
		return fmt.Errorf("dialer: moving to %s: %w", what, err)
	}
	return nil
}

var errOtherWish = errors.New("dialer: something else was asked for meanwhile")

// use is Use on the loop; done is called once.
func (p *peer) use(now time.Time, what string, only bool, done func(error)) {
	pin, err := route.ParsePin(what, only, p.conf.Routes)
	if err != nil || pin.Set() && !slices.ContainsFunc(p.conf.Routes, pin.Wants) {
		done(p.noSuchRoute(what, only))
		return
	}
	p.settle(errOtherWish)
	p.pin, p.wish = pin, &wish{pin: pin, until: now.Add(useLimit), done: done}
	p.tell(now, route.Pinned{Pin: pin})
	if p.plain != nil {
		p.plain.changed(now, "what the user wants")
	}
}

func (p *peer) noSuchRoute(what string, only bool) error {
	var known []string
	for _, r := range p.conf.Routes {
		known = append(known, r.ID())
	}
	e := &Error{Peer: p.name, reason: reasonNoRoute, text: fmt.Sprintf("%s has no route %s; it has %s", p.name, what, strings.Join(known, ", "))}
	switch {
	case len(known) == 0:
		return raceError(p.name, nil, "")
	case only && strings.EqualFold(what, "auto"):
		e.text, e.Next = "auto leaves the choice open, which --only does not", "leave out --only, or name a route or a class"
	}
	return e
}

// grant settles the user's wish once the link is where it is to be, or could not be moved.
func (p *peer) grant(now time.Time, st link.Status, wake *alarm) {
	if p.wish == nil {
		return
	}
	in := activeOf(st)
	switch {
	case p.client == nil || p.state == down || !p.wish.pin.Set() || p.wish.pin.Wants(p.known[in.Name]):
		p.settle(nil)
	case p.wish.err != nil && p.race == nil && p.moves == 0:
		p.settle(p.wish.err)
	case !p.wish.until.After(now):
		p.settle(p.notMoved())
	default:
		wake.add(p.wish.until)
	}
}

// notMoved tells that the link could not even be tried to be moved, as something else was under way all the time.
func (p *peer) notMoved() error {
	return &Error{
		Peer: p.name, reason: reasonNoRoute, cause: p.wish.err,
		text: fmt.Sprintf("the link to %s has not moved within %s", p.name, useLimit),
		Next: fmt.Sprintf("`linkproxy why %s` tells what it waits for", p.name),
	}
}

func (p *peer) settle(err error) {
	if p.wish != nil {
		p.wish.done(err)
		p.wish = nil
	}
}
