package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"linkproxy/dialer/route"
)

// refusalGrace is how long other routes may still open a port that one has refused: there somebody has answered, so the app
// need not wait for the dead ones.
const refusalGrace = time.Second

// dial begins to open a socket to the service over a route.
func (s *service) dial(now time.Time, r route.Route, on func(time.Time, route.Event)) *attempt {
	a := &attempt{route: r, on: on}
	a.record = route.Attempt{Route: r, Outcome: route.Running, Start: now}
	ctx, cancel := context.WithCancelCause(s.p.ctx)
	a.cancel = cancel
	s.p.wg.Add(1)
	go s.run(ctx, a)
	return a
}

// run is the goroutine of a dial.
func (s *service) run(ctx context.Context, a *attempt) {
	defer s.p.wg.Done()
	defer a.cancel(nil)
	conn, err := s.p.d.connect(ctx, net.JoinHostPort(a.route.Address, s.port))
	if err != nil {
		outcome := plainOutcome(ctx, err)
		s.p.send(func(now time.Time) { a.happened(now, route.Ended{Route: a.route, Outcome: outcome, Err: err}) })
		return
	}
	if !s.p.send(func(now time.Time) {
		a.conn = conn
		a.happened(now, route.Reached{Route: a.route, Stage: route.Attach, Local: localOf(conn)})
		a.happened(now, route.Attached{Route: a.route, RTT: now.Sub(a.record.Start)})
	}) {
		conn.Close()
	}
}

// plainOutcome sorts what ended a dial. A machine that refuses has answered: that does not speak against the way to it.
func plainOutcome(ctx context.Context, err error) route.Outcome {
	if isRefused(err) {
		return route.Busy
	}
	return outcomeOf(ctx, err)
}

func isRefused(err error) bool { return errors.Is(err, errRefused) }

// plainRace carries out one route.Race among bare sockets.
type plainRace struct {
	s       *service
	race    *route.Race
	path    route.Path // where this machine was when it began
	wake    time.Time
	tries   []*attempt
	refused time.Time // the first refusal; zero: none
	won     bool
	look    bool // for a better route than the chosen one: nobody waits for it
}

// startRace begins the race that all who wait are for.
func (s *service) startRace(now time.Time, why string) {
	hurry := s.hurry
	s.hurry = false
	s.again.Started(now)
	s.begin(now, &plainRace{s: s}, s.p.roam.Ranking(now), hurry, why)
}

// lookForBetter has a better class, or what is pinned, dialled beside the chosen route, when that is due.
func (s *service) lookForBetter(now time.Time) {
	if now.Before(s.look) {
		return
	}
	pin := s.p.pin
	plan := s.p.roam.Ranking(now)
	class := route.Class(255)
	for _, e := range plan {
		if e.Route.Same(s.chosen) {
			class = e.Why.Class
		}
	}
	plan = slices.DeleteFunc(plan, func(e route.Ranked) bool {
		return e.Route.Same(s.chosen) || e.Why.Demoted() || pin.Set() && !pin.Wants(e.Route) || !pin.Set() && e.Why.Class >= class
	})
	if len(plan) == 0 || pin.Set() && pin.Wants(s.chosen) {
		return
	}
	s.look = now.Add(route.CheckEvery)
	s.begin(now, &plainRace{s: s, look: true}, plan, true, fmt.Sprintf("%s is in use, a better one is looked for every %s", s.chosen, route.CheckEvery))
}

func (s *service) begin(now time.Time, r *plainRace, plan []route.Ranked, atOnce bool, why string) {
	p := s.p
	facts := p.roam.Facts
	facts.Now = now
	p.decided(route.ExplainRace(facts, plan, p.refused, fmt.Sprintf("port %s: %s", s.port, why)))
	r.path = facts.Path
	r.race = route.NewRace(now, plan, route.RaceOptions{AllAtOnce: atOnce, Budget: &p.roam.Budget})
	s.race = r
	r.step(now, route.Tick{})
}

func (r *plainRace) step(now time.Time, ev route.Event) {
	actions, wake := r.race.Step(now, ev)
	r.wake = wake
	for _, a := range actions {
		switch a.Do {
		case route.Dial:
			r.dial(now, a.Route)
		case route.Cancel:
			r.find(a.Route).quit()
		case route.Win, route.Keep:
			r.take(now, r.find(a.Route))
		case route.Done:
			r.finish(now, a.Result)
		}
	}
}

func (r *plainRace) dial(now time.Time, to route.Route) {
	r.tries = append(r.tries, r.s.dial(now, to, func(now time.Time, ev route.Event) {
		e, ended := ev.(route.Ended)
		_, attached := ev.(route.Attached)
		if attached || ended && e.Outcome == route.Busy {
			r.s.p.roam.Budget.Refund(now) // the budget is there for the dead
		}
		if ended && e.Outcome == route.Busy && r.refused.IsZero() {
			r.refused = now
		}
		r.step(now, ev)
	}))
}

func (r *plainRace) find(to route.Route) *attempt {
	i := slices.IndexFunc(r.tries, func(a *attempt) bool { return a.route.Same(to) })
	return r.tries[i]
}

// take makes the route of an open socket the one that the service is reached by: the first that has opened, or a better
// class shortly after it.
func (r *plainRace) take(now time.Time, a *attempt) {
	s := r.s
	s.known, s.chosen = true, a.route
	s.limit = max(route.SlotStep, 2*a.record.Duration)
	s.look = now.Add(route.CheckEvery)
	r.won = true
	waiting := s.waiting
	if len(waiting) == 0 {
		waiting = s.following[:min(1, len(s.following))]
	}
	for _, w := range slices.Clone(waiting) {
		if a.conn != nil {
			s.serve(now, w, a)
			continue
		}
		if w.dial != nil {
			w.dial.quit()
		}
		s.drop(w)
		s.follow(now, w)
	}
	a.quit() // its socket, if nobody wants it
}

func (r *plainRace) finish(now time.Time, res *route.Result) {
	s, p := r.s, r.s.p
	s.race = nil
	p.decided(route.ExplainEnd(now, res, "port "+s.port))
	if res.Won || !r.refused.IsZero() {
		r.refund(now, res.Attempts)
	}
	facts := &p.roam.Facts
	facts.Memory = facts.Memory.Record(now, route.Raced{Start: r.path, End: facts.Path, Attempts: r.learned(res.Attempts), Known: p.conf.Routes})
	p.d.cfg.Remember(p.key(), facts.Memory)
	if r.look && !res.Won {
		return // what is in use stays
	}
	s.ended, s.last = now, res.Attempts
	p.lastRace, p.lastRaceAt = res.Attempts, now
	switch {
	case res.Won:
		s.again.Won(now)
	case !r.refused.IsZero():
		s.again.Stopped(now)
		s.fail(p.raceError(res.Attempts, ""), all)
	default:
		s.again.Failed(now)
		p.log.Info("no route works", "port", s.port, "cause", p.raceError(res.Attempts, "").text)
		if p.d.patience() < 0 {
			s.fail(p.raceError(res.Attempts, ""), all)
		}
	}
}

// refund gives back what dials cost that got no answer while another did: a host that is there is not hammered by being asked at
// its other addresses.
func (r *plainRace) refund(now time.Time, attempts []route.Attempt) {
	for _, a := range attempts {
		switch a.Outcome {
		case route.Failed, route.Silent, route.Lost, route.Cancelled:
			r.s.p.roam.Budget.Refund(now)
		}
	}
}

// learned leaves out what one port alone has taught: where a better route refused it, that a worse one has it does not make
// that the way to the peer.
func (r *plainRace) learned(attempts []route.Attempt) []route.Attempt {
	best := route.Class(255)
	for _, a := range attempts {
		if a.Outcome == route.Busy {
			best = min(best, a.Route.Class)
		}
	}
	return slices.DeleteFunc(slices.Clone(attempts), func(a route.Attempt) bool { return a.Outcome == route.Won && a.Route.Class > best })
}
