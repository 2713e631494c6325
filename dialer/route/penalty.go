package route

import (
	"fmt"
	"strings"
	"time"
)

// The numbers of holding a grudge against a route.
const (
	// PenaltyHold is how long the carrier of an upgrade has to hold: one that is
	// lost earlier earns its route a penalty, and holding it clears the history. A
	// distant tailnet path answers every check and drops after three minutes.
	PenaltyHold = 5 * time.Minute
	// CoolDown is how long upgrades leave a route alone that answered a check but
	// could not be attached.
	CoolDown = 300 * time.Second
	// reasonsKept bounds what is remembered of a penalty: one per rung.
	reasonsKept = 4
)

// penaltyLadder is the length of each penalty in a row.
var penaltyLadder = [...]time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute}

// Fell is the penalty after the route's carrier was lost within PenaltyHold of an
// upgrade to it.
func (p Penalty) Fell(now time.Time, reason string) Penalty {
	p.Step++
	p.Until = wall(now).Add(penaltyLadder[min(p.Step, len(penaltyLadder))-1])
	reasons := append(append([]string{}, p.Reasons...), reason) // the old one may be shared
	p.Reasons = reasons[max(0, len(reasons)-reasonsKept):]
	return p
}

// Held is the penalty after a carrier of the route held for PenaltyHold.
func (p Penalty) Held() Penalty { return Penalty{} }

// Cooled is the penalty after an upgrade to the route failed to attach.
func (p Penalty) Cooled(now time.Time) Penalty {
	p.CoolUntil = wall(now).Add(CoolDown)
	return p
}

// Skipped is until when upgrades leave the route alone; zero: they do not.
func (p Penalty) Skipped(now time.Time) time.Time {
	var until time.Time
	if p.Active(now) {
		until = p.Until
	}
	if p.Cooling(now) {
		until = later(until, p.CoolUntil)
	}
	return until
}

// Text is the penalty as it is shown to the user at now, "" if there is none:
// "penalized until 14:05: dropped twice within 5 min after a switch (lost after
// 3m0s)".
func (p Penalty) Text(now time.Time) string {
	switch {
	case p.Active(now):
		times := fmt.Sprintf("%d times", p.Step)
		switch p.Step {
		case 1:
			times = "once"
		case 2:
			times = "twice"
		}
		text := fmt.Sprintf("penalized until %s: dropped %s within 5 min after a switch", p.Until.Format("15:04"), times)
		if len(p.Reasons) > 0 {
			text += " (" + strings.Join(p.Reasons, "; ") + ")"
		}
		return text
	case p.Cooling(now):
		return fmt.Sprintf("left alone until %s: it answered a check but did not attach", p.CoolUntil.Format("15:04"))
	default:
		return ""
	}
}

// appealTime is how long a penalty may still turn out to be undeserved: people
// walk out of a Wi-Fi's reach long before their machine gives its address up.
const appealTime = 30 * time.Second

// The numbers of going back to a better route that the link left in doubt.
const (
	// RollbackWithin is how soon it must be alive again: that long the link keeps
	// the carrier it has left.
	RollbackWithin = 10 * time.Second
	// RollbackAlive is how long it must have been so: one byte may be an echo of
	// what was on its way.
	RollbackAlive = time.Second
)

// trial is the time in which the route of a carrier in use has to prove itself.
type trial struct {
	id      uint64 // of the carrier
	since   time.Time
	counted bool // losing it is a penalty: it came by an upgrade, or by going back
	back    bool // it came by going back: there is no second time
}

// appeal is a penalty that may be taken back.
type appeal struct {
	routeID string
	network Network
	carrier Carrier
	placed  bool
	before  Penalty
	until   time.Time
}

// penaltyOf is what is held against a route on a network.
func (r *Roam) penaltyOf(n Network, id string) Penalty {
	if !n.Known() {
		return r.unplaced[id]
	}
	known, _ := r.Facts.Memory.At(n, id)
	return known.Penalty
}

// setPenalty writes it. On an unknown network nothing is stored: it then lasts as
// long as this machine stays there.
func (r *Roam) setPenalty(now time.Time, n Network, id string, p Penalty, why string) {
	if !n.Known() {
		r.unplaced[id] = p
	} else {
		known, _ := r.Facts.Memory.At(n, id)
		known.Penalty = p
		r.Facts.Memory = r.Facts.Memory.With(now, n, id, known)
	}
	r.ranked = nil
	r.act(Remember{Network: n, RouteID: id, Penalty: p, Why: why})
}

// tryHeld clears the history of a route that has held.
func (r *Roam) tryHeld(now time.Time) {
	in := r.inUse()
	if in == nil || r.trial.id != in.ID || r.trial.since.IsZero() {
		return
	}
	n := r.Facts.Path.NetworkOf(in.Local)
	if due := r.trial.since.Add(PenaltyHold); now.Before(due) {
		if r.penaltyOf(n, in.Route.ID()).Step > 0 {
			r.wakeAt(due)
		}
		return
	}
	r.trial = trial{id: in.ID}
	if p := r.penaltyOf(n, in.Route.ID()); p.Step > 0 {
		r.setPenalty(now, n, in.Route.ID(), p.Held(), fmt.Sprintf("it held for %s", PenaltyHold))
	}
}

// fell ends the trial of a carrier in use that was lost or left; what says how.
func (r *Roam) fell(now time.Time, c *carrier, what string) {
	t := r.trial
	if t.id != c.ID || !t.counted || t.since.IsZero() || now.Sub(t.since) >= PenaltyHold {
		return
	}
	r.trial = trial{}
	if excuse := r.excuse(now, c); excuse != "" {
		return
	}
	n, id := r.Facts.Path.NetworkOf(c.Local), c.Route.ID()
	before := r.penaltyOf(n, id)
	p := before.Fell(now, fmt.Sprintf("%s after %s", what, now.Sub(t.since)))
	r.appeals = append(r.appeals, appeal{routeID: id, network: n, carrier: c.Carrier, placed: c.placed, before: before, until: now.Add(appealTime)})
	r.setPenalty(now, n, id, p, fmt.Sprintf("%s %s after the upgrade to it, %s are asked for: rung %d, until %s",
		what, now.Sub(t.since), PenaltyHold, p.Step, p.Until.Sub(now)))
}

// excuse is why losing a carrier does not speak against its route.
func (r *Roam) excuse(now time.Time, c *carrier) string {
	switch {
	case !c.adrift.IsZero():
		return "its address left this machine"
	case c.draining:
		return "its relay was going"
	case !r.woke.IsZero() && now.Sub(r.woke) < appealTime:
		return "this machine slept"
	case !r.restarted.IsZero() && now.Sub(r.restarted) < appealTime:
		return "the peer restarted"
	default:
		return ""
	}
}

// acquit takes back the penalties for which a reason has turned up that is not
// the route's own.
func (r *Roam) acquit(why string, innocent func(appeal) bool) {
	now := r.now
	var rest []appeal
	for _, a := range r.appeals {
		switch {
		case !now.Before(a.until):
		case innocent(a):
			r.setPenalty(now, a.network, a.routeID, a.before, "taken back: "+why)
		default:
			rest = append(rest, a)
		}
	}
	r.appeals = rest
}

func (r *Roam) acquitRoute(route Route, why string) {
	r.acquit(why, func(a appeal) bool { return a.routeID == route.ID() })
}

// cool leaves routes alone that an upgrade did not reach.
func (r *Roam) cool(now time.Time, route Route, why string) {
	n := r.networkToward(route)
	r.setPenalty(now, n, route.ID(), r.penaltyOf(n, route.ID()).Cooled(now), why)
}
