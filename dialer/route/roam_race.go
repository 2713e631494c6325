package route

import (
	"fmt"
	"slices"
	"time"
)

// reach brings the peer back when no carrier can be trusted.
func (r *Roam) reach(now time.Time) {
	if r.state == sound || r.race != nil || r.checks.deciding() {
		return
	}
	if len(r.silent) > 0 {
		plan := r.silent
		r.silent = nil
		r.again.Started(now)
		r.start(now, StartRace{Trigger: r.need(), Plan: plan, AllAtOnce: true, Why: "they did not answer their checks, but nothing else is left to try"})
		return
	}
	at, why, ok := r.again.Next(now, r.link.Held, &r.Budget)
	if !ok {
		return
	}
	if at.After(now) {
		if !r.saving || !r.Budget.Ready(now).After(now) {
			r.wakeAt(at)
		}
		return
	}
	plan := r.ranking()
	if r.again.Round() > 0 {
		plan = slices.DeleteFunc(slices.Clone(plan), func(e Ranked) bool { return r.blocked[e.Route.ID()] })
	}
	if len(plan) == 0 {
		return // until what blocks them is gone, or what the user wants alone is known
	}
	if r.again.Round() > 0 && !r.fresh && r.checkRound(now, plan, why) {
		return
	}
	trigger := r.need()
	r.again.Started(now)
	r.start(now, StartRace{Trigger: trigger, Plan: plan, AllAtOnce: trigger != ForConnect || r.again.Round() > 0, Why: why})
}

// need is what a race is for while no carrier can be trusted.
func (r *Roam) need() Trigger {
	in := r.inUse()
	switch {
	case in != nil && !in.adrift.IsZero():
		return ForLoss
	case r.state == doubt && slices.ContainsFunc(r.carriers, func(c *carrier) bool { return c.unproven }):
		return ForWakeUp
	case r.state == doubt:
		return ForDoubt
	case r.again.down.IsZero():
		return ForConnect
	default:
		return ForLoss
	}
}

func (e RaceWon) happen(r *Roam, now time.Time) {
	c := r.find(e.Carrier.ID)
	if c == nil {
		c = r.attached(now, e.Carrier)
	}
	in := r.inUse()
	if in == nil || in == c {
		return // the link uses it
	}
	trigger := ForLoss
	if r.race != nil {
		trigger = r.race.trigger
	}
	better, why := r.gain(in, c)
	switch {
	case better && r.moving != 0:
		r.after = c.ID
	case better:
		r.order(errand{id: c.ID, planned: in.trusted(), counted: trigger == ForUpgrade && !r.pin.Set()}, why)
	case r.moving != 0 || r.choice.fresh != 0:
		// It stays beside what is under way.
	default:
		within := patience(in.RTT)
		r.choice = choice{old: in.ID, fresh: c.ID, asked: now, due: now.Add(within)}
		r.act(Prove{ID: in.ID, Within: within, Why: fmt.Sprintf("%s has won, but %s", c.Route, why)})
	}
}

// gain reports whether a carrier is worth leaving a working one for, and why or
// why not.
func (r *Roam) gain(in, c *carrier) (better bool, why string) {
	old, known := r.entry(in.Route)
	fresh, _ := r.entry(c.Route)
	a, b := r.worth(old), r.worth(fresh)
	from, to := r.Facts.Path.carrying(in.Local), r.Facts.Path.carrying(c.Local)
	switch {
	case !known:
		return true, fmt.Sprintf("%s is not to be used any more", in.Route)
	case in.draining:
		return !c.draining, fmt.Sprintf("the relay of %s goes", in.Route)
	case r.pin.Set() && a != b && (a == 0 || b == 0):
		return b == 0, "the user wants " + r.pin.String()
	case from.Metered != to.Metered:
		return from.Metered, fmt.Sprintf("bytes cost money on %s, not on %s", named(from, to, true), named(from, to, false))
	case fresh.Why.Penalized && !old.Why.Penalized:
		return false, fmt.Sprintf("%s did not hold here lately", c.Route)
	case a != b:
		return b < a, fmt.Sprintf("%s is preferred to %s", min(a, b), max(a, b))
	case from.Name != to.Name && from.Kind.physical() && to.Kind.physical() && from.Kind != to.Kind:
		return to.Kind < from.Kind, fmt.Sprintf("%s is preferred to %s", min(from.Kind, to.Kind), max(from.Kind, to.Kind))
	case in.Route.Same(c.Route) && from.Name == to.Name:
		return false, "it is the route in use"
	default:
		return false, "the one in use is as good"
	}
}

// named is the name of the interface that is metered, or is not.
func named(a, b Interface, metered bool) string {
	if a.Metered == metered {
		return a.Name
	}
	return b.Name
}

// physical reports whether kinds can be compared: a tunnel is as good as what is
// beneath it.
func (k Kind) physical() bool { return k == Wired || k == WiFi || k == Cell }

// The numbers of asking whether a carrier is alive.
const (
	ProveMin = 500 * time.Millisecond
	ProveMax = 3 * time.Second
	proveRTT = 3
)

// patience is how long an answer on a carrier may take.
func patience(rtt time.Duration) time.Duration { return min(max(ProveMin, proveRTT*rtt), ProveMax) }

func (e Proved) happen(r *Roam, now time.Time) {
	c := r.find(e.ID)
	if c == nil {
		return
	}
	if e.Alive {
		c.unproven = false
	}
	if r.choice.fresh == 0 || r.choice.old != e.ID {
		return
	}
	if e.Alive {
		r.choice = choice{}
	} else {
		r.choice.due = now
	}
}

// choose settles between the carrier in use and one that has won a race without
// being better.
func (r *Roam) choose(now time.Time) {
	if r.choice.fresh == 0 {
		return
	}
	old, fresh := r.find(r.choice.old), r.find(r.choice.fresh)
	switch {
	case old == nil || fresh == nil || fresh.dropped || r.active != old.ID:
		r.choice = choice{} // the link has settled it
	case old.Heard.After(r.choice.asked):
		r.choice = choice{}
	case now.Before(r.choice.due):
		r.wakeAt(r.choice.due)
	case r.moving == 0:
		within := now.Sub(r.choice.asked)
		r.choice = choice{}
		r.order(errand{id: fresh.ID}, fmt.Sprintf("%s gave no answer in %s", old.Route, within))
	}
}

func (e RaceEnded) happen(r *Roam, now time.Time) {
	race := r.race
	if race == nil {
		return
	}
	r.race = nil
	for _, a := range e.Attempts {
		switch a.Outcome {
		case Blocked, NoToken:
			r.blocked[a.Route.ID()] = true
		case Superseded:
			r.halted = true
		}
	}
	r.weigh(now)
	if r.state == sound {
		r.silent = nil
		r.raceReplaced(now, race, e)
	} else {
		r.raceReached(now, e)
	}
}

// raceReached draws the conclusions of a race while nothing can be trusted.
func (r *Roam) raceReached(now time.Time, e RaceEnded) {
	at, soon := retryAfter(r.changed, now)
	switch {
	case e.Stopped:
		r.again.Stopped(now)
	case e.Won:
		r.silent = nil
		r.again.Won(now)
		r.again.Lost(now) // it is gone already
	case Captive(e.Attempts):
		r.again.Captive(now)
	case soon && onlyNoRoute(e.Attempts):
		r.again.NoRoute(now, at)
		r.fresh = true
	case len(r.silent) > 0 && worthSilent(e.Attempts):
		r.again.Stopped(now) // it goes on
	default:
		r.silent = nil
		r.again.Failed(now)
	}
}

// raceReplaced draws the conclusions of a race while a carrier works.
func (r *Roam) raceReplaced(now time.Time, race *racing, e RaceEnded) {
	failed := !e.Won && !e.Stopped
	switch race.trigger {
	case ForConnect, ForLoss, ForDoubt, ForWakeUp:
		r.again.Won(now)
	case ForUpgrade:
		for _, a := range e.Attempts {
			if failed && a.tried() {
				r.cool(now, a.Route, fmt.Sprintf("it answered a check, but an upgrade to it did not attach: %s", a.Outcome))
			}
		}
	case ForDrain, ForRemoval:
		r.replace.ended(now, failed)
		if c := r.find(race.from); failed && race.trigger == ForDrain && c != nil && c.redial.IsZero() {
			c.redial = now.Add(r.jitter(DrainJitter))
		}
	case ForUser:
		if failed && r.pin.Only {
			r.dropOthers(now)
		}
	}
}

// tried reports whether an attempt that did not win had its chance.
func (a Attempt) tried() bool {
	switch a.Outcome {
	case Failed, Silent, WrongPeer, Foreign, Blocked, NoToken, Busy, Unfinished:
		return true
	default:
		return false
	}
}

// save has no dial come back while all there is is doubt, on a network where
// bytes cost money: the doubt is settled by the carrier or by its loss.
func (r *Roam) save(now time.Time) {
	in := r.inUse()
	frozen := r.state == doubt && in != nil && r.Facts.Path.carrying(in.Local).Metered
	if frozen != r.saving {
		r.saving = frozen
		r.Budget.freeze(now, frozen)
	}
}

// freeze stops the refill, or lets it go on.
func (b *Budget) freeze(now time.Time, on bool) {
	b.pay(now)
	if on {
		b.paid = now.Add(forever) // nothing is paid for the time before
	} else {
		b.paid = now
	}
}

const forever = 100 * 365 * 24 * time.Hour
