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
	trigger route.Trigger
	replace bool       // the carrier in use is to be replaced, though it works
	path    route.Path // where this machine was when it began
	race    *route.Race
	wake    time.Time // when the next Tick is due; zero: never
	tries   []*attempt
	stopped bool
}

// startRace begins a race; there is none running.
func (p *peer) startRace(now time.Time, s route.StartRace) {
	r := &race{p: p, client: p.client, trigger: s.Trigger, replace: s.Replace, path: p.roam.Facts.Path}
	r.race = route.NewRace(now, s.Plan, route.RaceOptions{AllAtOnce: s.AllAtOnce, Budget: &p.roam.Budget})
	p.race = r
	r.step(now, route.Tick{})
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
			r.won(now, r.find(a.Route))
		case route.Keep:
			r.won(now, r.find(a.Route))
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

// won has roam decide about a carrier that has just been attached. If none was in use the link is on it already, and if the one
// in use is in doubt the link goes over by itself when that is right (docs/wire.md, Signs of life).
func (r *race) won(now time.Time, a *attempt) {
	r.p.tell(now, route.RaceWon{Carrier: r.p.carrierOf(a)})
}

// finish ends the race for its peer.
func (r *race) finish(now time.Time, res *route.Result) {
	p := r.p
	p.race = nil
	if !r.stopped || res.Won {
		p.lastRace, p.lastRaceAt = res.Attempts, now
		p.learn(now, r, res)
	}
	p.tell(now, route.RaceEnded{Won: res.Won, Stopped: r.stopped, Attempts: res.Attempts})
	switch {
	case r.stopped || res.Won:
	case r.replace:
		if p.wish != nil && r.trigger == route.ForUser {
			p.wish.err = raceError(p.name, res.Attempts, "")
		}
	default:
		p.raceFailed(now, r)
	}
}

// learn remembers what a race has taught.
func (p *peer) learn(now time.Time, r *race, res *route.Result) {
	p.decided(route.ExplainEnd(now, res, r.trigger.String()))
	facts := &p.roam.Facts
	facts.Memory = facts.Memory.Record(now, route.Raced{Start: r.path, End: facts.Path, Attempts: res.Attempts, Known: p.conf.Routes})
	p.d.cfg.Remember(p.key(), facts.Memory)
	p.noteKeys(now, res.Attempts)
}

// noteKeys remembers which addresses showed another key than the peer's, and which the right one.
func (p *peer) noteKeys(now time.Time, attempts []route.Attempt) {
	path := p.roam.Facts.Path
	wrong := false
	for _, a := range attempts {
		switch a.Outcome {
		case route.WrongPeer:
			p.wrong.Note(now, path.NetworkOf(a.Local), a.Route.Address)
			wrong = true
		case route.Won, route.Kept:
			p.wrong.Proved(path.NetworkOf(a.Local), a.Route.Address)
		}
	}
	if wrong || len(p.refused) > 0 {
		p.revet(now)
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
