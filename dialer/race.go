package dialer

import (
	"errors"
	"slices"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// race carries out one route.Race.
type race struct {
	p       *peer
	client  *link.Client
	replace bool // the carrier in use is to be replaced, though it works
	race    *route.Race
	wake    time.Time // when the next Tick is due; zero: never
	tries   []*attempt
	stopped bool
}

// startRace begins a race among the configured routes; there is none running.
func (p *peer) startRace(now time.Time, replace bool, o route.RaceOptions) {
	r := &race{p: p, client: p.client, replace: replace, race: route.NewRace(now, p.plan(now), o)}
	p.race = r
	if !replace {
		p.reconnect.Started(now)
	}
	r.step(now, route.Tick{})
}

// plan ranks the configured routes.
func (p *peer) plan(now time.Time) []route.Ranked {
	return route.Rank(route.Facts{Now: now, Routes: p.conf.Routes})
}

func (r *race) tick(now time.Time) {
	if !r.wake.IsZero() && !now.Before(r.wake) {
		r.step(now, route.Tick{})
	}
}

// step tells the race what happened and does what it decides.
func (r *race) step(now time.Time, ev route.Event) {
	if _, stop := ev.(route.Stop); stop {
		r.stopped = true
	}
	actions, wake := r.race.Step(now, ev)
	r.wake = wake
	for _, a := range actions {
		r.p.log.Debug("race", "do", a.Do.String(), "route", a.Route.ID(), "why", a.Why)
		switch a.Do {
		case route.Dial:
			r.dial(now, a.Route)
		case route.Cancel:
			r.find(a.Route).quit()
		case route.Win:
			r.won(r.find(a.Route), r.replace)
		case route.Keep:
			r.won(r.find(a.Route), true)
		case route.Done:
			r.finish(now, a.Result)
		}
	}
}

func (r *race) dial(now time.Time, to route.Route) {
	r.tries = append(r.tries, r.p.start(now, to, 0, false, func(now time.Time, ev route.Event) {
		if r.p.client == r.client && r.client.Err() != nil {
			r.p.linkEnded(now) // first: what ended the link is no finding about the route
		}
		r.step(now, ev)
	}))
}

// find is the attempt of a route; the race dials each at most once and speaks of none other.
func (r *race) find(to route.Route) *attempt {
	i := slices.IndexFunc(r.tries, func(a *attempt) bool { return a.route.Same(to) })
	return r.tries[i]
}

// won uses a carrier that has just been attached. If none was in use the link is on it already, and if the one in use is
// in doubt the link goes over by itself when that is right (docs/wire.md, Signs of life).
func (r *race) won(a *attempt, move bool) {
	st := r.client.Status()
	in := activeOf(st)
	if move && in.Gen != a.gen && in.Gen != 0 && !in.Suspect {
		r.p.move(r.client, a.gen, nil)
	}
}

// finish ends the race for its peer.
func (r *race) finish(now time.Time, res *route.Result) {
	p := r.p
	p.race = nil
	if r.stopped {
		if !r.replace {
			p.reconnect.Stopped(now)
		}
		return
	}
	p.lastRace, p.lastRaceAt = res.Attempts, now
	switch {
	case r.replace:
		p.seek.failed(now, !res.Won)
	case res.Won:
		p.reconnect.Won(now)
		p.raceWon = true
	default:
		p.reconnect.Failed(now)
		p.raceFailed(now, r)
	}
}

// raceFailed draws the conclusions of a race that brought no carrier.
func (p *peer) raceFailed(now time.Time, r *race) {
	p.log.Info("no route works", "cause", raceError(p.name, p.lastRace, "").text)
	if len(p.waits) > 0 && (p.d.patience() < 0 || isFinal(p.lastRace)) {
		p.failWaits(now, "")
	}
	if everybodyForgot(p.lastRace) {
		r.client.GiveUp()
	}
}

// isFinal says whether waiting for another race is of no use: no route is configured, or the peer itself, proved by its
// key, does not let this machine in, and no other route has anything better to say.
func isFinal(attempts []route.Attempt) bool {
	blocked := false
	for _, a := range attempts {
		switch a.Outcome {
		case route.Blocked:
			blocked = true
		case route.Busy:
			return false
		case route.Failed, route.Silent, route.Unfinished:
			if a.Answered() {
				return false
			}
		}
	}
	return blocked || len(attempts) == 0
}

// everybodyForgot says whether every route on which the peer proved its key answered that it does not know the link.
func everybodyForgot(attempts []route.Attempt) bool {
	n := 0
	for _, a := range attempts {
		if a.Stage < route.Attach {
			continue
		}
		var no *link.AttachError
		if !errors.As(a.Err, &no) || no.Code != link.CodeUnknown {
			return false
		}
		n++
	}
	return n > 0
}

// sofar lists what the race has found out by now.
func (r *race) sofar(now time.Time) []route.Attempt {
	var list []route.Attempt
	for _, a := range r.tries {
		list = append(list, a.sofar(now))
	}
	return list
}
