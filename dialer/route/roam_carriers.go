package route

import (
	"fmt"
	"slices"
	"time"
)

// errand is a Switch.
type errand struct {
	id      uint64
	planned bool
	counted bool // as an upgrade: the carrier is on trial
	back    bool // to one the link had left in doubt
	arrived bool // the link has been there
}

// way is a carrier the link left in doubt for a worse class.
type way struct {
	id    uint64
	until time.Time
	alive time.Time // since when it is; zero: it is not
}

func (e LinkState) happen(r *Roam, now time.Time) {
	r.link = e
	var stay []*carrier
	var left []*carrier
	for _, c := range r.carriers {
		if slices.ContainsFunc(e.Carriers, func(x Carrier) bool { return x.ID == c.ID }) {
			stay = append(stay, c)
		} else {
			left = append(left, c)
		}
	}
	r.carriers = stay
	for _, x := range e.Carriers {
		if c := r.find(x.ID); c != nil {
			c.Carrier = x
		} else {
			r.attached(now, x)
		}
	}
	for _, c := range r.carriers {
		c.unproven = c.unproven && !c.Heard.After(r.woke)
	}
	for _, c := range left {
		r.lost(now, c)
	}
	if e.Active != r.active {
		r.moved(now, e.Active)
	}
}

// attached takes a carrier on.
func (r *Roam) attached(now time.Time, x Carrier) *carrier {
	c := &carrier{Carrier: x, since: now}
	r.carriers = append(r.carriers, c)
	_, c.placed = r.Facts.Path.of(c.Local)
	return c
}

// lost takes one off that has ended.
func (r *Roam) lost(now time.Time, c *carrier) {
	if c.ID != r.active || c.dropped {
		return
	}
	what := "lost"
	if c.Suspect {
		what = "closed by silence"
	}
	r.fell(now, c, what)
	if r.trial.id == c.ID {
		r.trial = trial{}
	}
}

// moved follows the link to another carrier.
func (r *Roam) moved(now time.Time, to uint64) {
	from, o := r.inUse(), r.ordered
	r.active = to
	c := r.find(to)
	if c == nil {
		return
	}
	obeyed := o.id == to && !o.arrived
	if from != nil && from != c && !(obeyed && o.planned) {
		r.leftInDoubt(now, from, c)
	}
	c.standby, c.released = false, false
	r.trial = trial{id: to, since: now, counted: obeyed && o.counted, back: obeyed && o.back}
	r.ordered.arrived = r.ordered.arrived || obeyed
	r.sweep = sweep{last: now}
}

// leftInDoubt judges a carrier that the link has left though it is attached.
func (r *Roam) leftInDoubt(now time.Time, from, to *carrier) {
	old, _ := r.entry(from.Route)
	next, _ := r.entry(to.Route)
	again := r.trial.id == from.ID && r.trial.back && now.Sub(r.trial.since) < PenaltyHold
	if !again && r.worth(old) < r.worth(next) && !from.draining && from.adrift.IsZero() && !from.dropped {
		r.back = append(r.back, way{id: from.ID, until: now.Add(RollbackWithin)})
	}
	r.fell(now, from, "left in doubt")
}

// goBack has the link go back to a better carrier that is alive again.
func (r *Roam) goBack(now time.Time) {
	var rest []way
	for _, w := range r.back {
		c, in := r.find(w.id), r.inUse()
		if !now.Before(w.until) || c == nil || in == nil || c == in || c.dropped || !c.adrift.IsZero() || c.draining {
			continue
		}
		if !c.trusted() {
			w.alive = time.Time{}
		} else if w.alive.IsZero() {
			w.alive = now
		}
		due := w.alive.Add(RollbackAlive)
		if !w.alive.IsZero() && !now.Before(due) && r.moving == 0 {
			if better, _ := r.gain(in, c); better {
				r.acquitRoute(c.Route, "it is alive again")
				r.order(errand{id: c.ID, planned: true, counted: true, back: true},
					fmt.Sprintf("%s has been alive again for %s", c.Route, now.Sub(w.alive)))
			}
			continue
		}
		if !w.alive.IsZero() {
			r.wakeAt(due)
		}
		r.wakeAt(w.until)
		rest = append(rest, w)
	}
	r.back = rest
}

// watched reports whether a carrier may be gone back to.
func (r *Roam) watched(c *carrier) bool {
	return slices.ContainsFunc(r.back, func(w way) bool { return w.id == c.ID })
}

// order has the link go to a carrier. None is under way.
func (r *Roam) order(o errand, why string) {
	r.ordered, r.moving, r.choice = o, o.id, choice{}
	r.act(Switch{ID: o.id, Route: r.find(o.id).Route, Planned: o.planned, Why: why})
}

func (e SwitchEnded) happen(r *Roam, now time.Time) {
	if r.moving != e.ID {
		return
	}
	r.moving = 0
	o, c := r.ordered, r.find(e.ID)
	switch {
	case !e.Failed:
		if !o.arrived && c != nil {
			r.moved(now, e.ID)
		}
	default:
		if c != nil {
			if o.counted {
				r.cool(now, c.Route, "an upgrade to it failed: large segments do not pass")
			}
			r.drop(c, "the link could not move to it")
		}
		r.second.ended(now, true)
	}
	r.ordered = errand{}
	next, in := r.find(r.after), r.inUse()
	r.after = 0
	if next == nil || in == nil || next == in {
		return
	}
	if better, why := r.gain(in, next); better {
		r.order(errand{id: next.ID, planned: in.trusted()}, why)
	}
}

func (r *Roam) drop(c *carrier, why string) {
	c.dropped = true
	r.act(Drop{ID: c.ID, Route: c.Route, Why: why})
}

// dropOthers lets go of every carrier that the user does not allow.
func (r *Roam) dropOthers(now time.Time) {
	for _, c := range r.carriers {
		if !r.pin.Allows(c.Route) && !c.dropped {
			r.drop(c, "the user wants only "+r.pin.String())
		}
	}
	r.weigh(now)
}

// obey does what the user has just asked for.
func (r *Roam) obey(now time.Time) {
	if !r.pinning || !r.free() {
		return
	}
	r.pinning = false
	in := r.inUse()
	if in == nil || r.pin.Wants(in.Route) {
		return
	}
	for _, c := range r.carriers {
		if r.pin.Wants(c.Route) && c.trusted() {
			r.order(errand{id: c.ID, planned: true}, "the user wants "+r.pin.String())
			return
		}
	}
	plan := slices.DeleteFunc(slices.Clone(r.ranking()), func(e Ranked) bool { return !r.pin.Wants(e.Route) })
	if len(plan) == 0 {
		if r.pin.Only {
			r.dropOthers(now)
		}
		return
	}
	r.start(now, StartRace{Trigger: ForUser, Plan: plan, AllAtOnce: true, Why: "the user wants " + r.pin.String()})
}
