package route

import (
	"fmt"
	"slices"
	"time"
)

// The numbers of looking for a better route.
const (
	// CheckLimit is how long a check may take to count.
	CheckLimit = 2500 * time.Millisecond
	// CheckLate is how long an answer is still heard: a tailnet path that is cold
	// takes some seconds, and is known to work then.
	CheckLate = 15 * time.Second
	// CheckEvery is between two looks while bytes move.
	CheckEvery = 60 * time.Second
	// CarrierAge is how long the carrier in use is left in peace.
	CarrierAge = 10 * time.Second
	// UpgradeSame and UpgradeAny are the least times between two upgrades to one
	// route, and between any two.
	UpgradeSame = 300 * time.Second
	UpgradeAny  = 30 * time.Second
	// UpgradeSlack and three halves of the round trip in use bound what an upgrade
	// may cost: a class is a promise of speed, and a distant tailnet breaks it.
	UpgradeSlack = 20 * time.Millisecond
)

// checkIdle is between two looks while streams are open and no byte moves.
var checkIdle = [...]time.Duration{
	1 * time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, 60 * time.Minute,
}

// sweep is the schedule of looking for a better route.
type sweep struct {
	last time.Time // the last look, or when the carrier came into use
	step int       // how many looks in a row found everything idle
}

// due is when the next look is.
func (s sweep) due(active bool) time.Time {
	if active {
		return s.last.Add(CheckEvery)
	}
	return s.last.Add(checkIdle[min(s.step, len(checkIdle)-1)])
}

// looked notes a look.
func (s *sweep) looked(now time.Time, active bool) {
	s.last = now
	if active {
		s.step = 0
	} else {
		s.step++
	}
}

// checking is a Check under way.
type checking struct {
	began   time.Time
	plan    []Ranked // what may enter the race
	waiting map[string]bool
	passed  map[string]bool
	round   bool   // to reconnect, not to upgrade
	why     string // of the race that follows a round
	stale   bool   // it decides nothing any more
}

// deciding reports whether a race waits for the answers.
func (c *checking) deciding() bool { return c != nil && !c.stale }

// limit is the longest round trip that is still an upgrade; false: any is.
func (r *Roam) limit(in *carrier) (time.Duration, bool) {
	return in.RTT*3/2 + UpgradeSlack, in.RTT > 0
}

// skipped is until when upgrades leave a route alone.
func (r *Roam) skipped(now time.Time, id string) time.Time {
	until := r.unplaced[id].Skipped(now)
	for _, n := range r.Facts.Memory.Here(r.Facts.Path) {
		until = later(until, n.Routes[id].Penalty.Skipped(wall(now)))
	}
	return until
}

// upgrade is a route that would be better.
type upgrade struct {
	Ranked
	at    time.Time // when it is looked at
	floor time.Time // when it may be moved to, if it is attached
	plan  bool      // it is due by the schedule, whatever else
	why   string
}

// upgrades are the routes that are worth more than the carrier in use.
func (r *Roam) upgrades(now time.Time, in *carrier) []upgrade {
	old, known := r.entry(in.Route)
	if !known {
		return nil
	}
	_, active := r.activeUntil(now)
	var list []upgrade
	for _, e := range r.ranking() {
		id := e.Route.ID()
		pinned := r.pin.Set() && r.pin.Wants(e.Route)
		over := r.Facts.Path.toward(e.Route)
		if r.worth(e) >= r.worth(old) || e.Why.Implausible != "" || r.blocked[id] || over.Metered && !pinned {
			continue
		}
		u := upgrade{Ranked: e, at: r.sweep.due(active), why: "looked for every " + CheckEvery.String() + " while bytes move"}
		if !active {
			u.why = fmt.Sprintf("idle, look %d", r.sweep.step+1)
		}
		u.plan = !u.at.After(now)
		if r.found[id] {
			u.at, u.why = now, "it has become known"
		}
		if !now.Before(r.claim) { // else it belongs to the change of the path
			u.floor = in.since.Add(CarrierAge)
			if !r.upgraded.IsZero() {
				u.floor = later(u.floor, r.upgraded.Add(UpgradeAny))
			}
			if last, ok := r.raced[id]; ok && !pinned {
				u.floor = later(u.floor, last.Add(UpgradeSame))
			}
		}
		if !pinned {
			u.floor = later(u.floor, r.skipped(now, id))
		}
		u.at = later(u.at, u.floor)
		list = append(list, u)
	}
	return list
}

// lookForBetter checks better routes when that is due. With no stream open
// nobody would notice, and nothing is dialled.
func (r *Roam) lookForBetter(now time.Time) {
	in := r.inUse()
	if !r.free() || r.checks.deciding() || r.link.Streams == 0 || in == nil || !in.trusted() || in.draining {
		return
	}
	if r.sweep.last.IsZero() {
		r.sweep.last = now
	}
	var due []upgrade
	var next time.Time
	for _, u := range r.upgrades(now, in) {
		if c := r.onRoute(u.Route); c != nil {
			if r.promote(now, in, c, u) {
				return
			}
		} else if !u.at.After(now) {
			due = append(due, u)
		} else if next.IsZero() || u.at.Before(next) {
			next = u.at
		}
	}
	if len(due) == 0 {
		r.wakeAt(next)
		return
	}
	// What the next loss will need stays in the budget.
	checks := &checking{began: now, waiting: map[string]bool{}, passed: map[string]bool{}}
	var routes []Route
	plan := false
	for _, u := range due {
		if !r.Budget.TakeSpare(now) {
			break
		}
		plan = plan || u.plan
		routes = append(routes, u.Route)
		checks.plan = append(checks.plan, u.Ranked)
		checks.waiting[u.Route.ID()] = true
		delete(r.found, u.Route.ID())
	}
	if len(routes) == 0 {
		r.wakeAt(r.Budget.ReadySpare(now))
		return
	}
	if plan {
		_, active := r.activeUntil(now)
		r.sweep.looked(now, active)
	}
	r.checks = checks
	r.wakeAt(now.Add(CheckLimit))
	r.act(Check{Routes: routes, Why: fmt.Sprintf("better than %s: %s", in.Route, due[0].why)})
}

// onRoute is an attached carrier of a route besides the one in use, or nil.
func (r *Roam) onRoute(route Route) *carrier {
	i := slices.IndexFunc(r.carriers, func(c *carrier) bool {
		return c.ID != r.active && c.trusted() && !c.draining && c.Route.Same(route) && !r.watched(c)
	})
	if i < 0 {
		return nil
	}
	return r.carriers[i]
}

// promote moves to a better route that is attached already, as the standby: by
// the rules of an upgrade, without a check.
func (r *Roam) promote(now time.Time, in, c *carrier, u upgrade) bool {
	limit, bound := r.limit(in)
	pinned := r.pin.Set() && r.pin.Wants(c.Route)
	if bound && c.RTT > limit && !pinned {
		return false
	}
	if u.floor.After(now) {
		r.wakeAt(u.floor)
		return false
	}
	r.raced[c.Route.ID()], r.upgraded = now, now
	r.order(errand{id: c.ID, planned: true, counted: !pinned},
		fmt.Sprintf("the standby is preferred to %s; its round trip is %s, at most %s is an upgrade", in.Route, c.RTT, limit))
	return true
}

// checkRound checks the cheap routes before the next race of an outage; false:
// it would tell nothing. Where there is no relay, a check would cost the same
// dial as the race and win nothing.
func (r *Roam) checkRound(now time.Time, plan []Ranked, why string) bool {
	cheap := func(e Ranked) bool { return e.Route.Class != Relay }
	if !slices.ContainsFunc(plan, cheap) || !slices.ContainsFunc(plan, func(e Ranked) bool { return !cheap(e) }) {
		return false
	}
	checks := &checking{began: now, plan: plan, waiting: map[string]bool{}, passed: map[string]bool{}, round: true, why: why}
	var routes []Route
	for _, e := range plan {
		// A dial is left for the relay.
		if cheap(e) && r.Budget.take(now, 1) {
			routes = append(routes, e.Route)
			checks.waiting[e.Route.ID()] = true
		}
	}
	if len(routes) == 0 {
		return false
	}
	r.checks = checks
	r.wakeAt(now.Add(CheckLimit))
	r.act(Check{Routes: routes, Why: fmt.Sprintf("%s; the last race failed, so the next is among those that answer, and the relays", why)})
	return true
}

func (e CheckEnded) happen(r *Roam, now time.Time) {
	id := e.Route.ID()
	if e.Outcome == NoRoute && !e.Answered {
		r.Budget.Refund(now)
	}
	c := r.checks
	if c == nil || !c.waiting[id] {
		return
	}
	delete(c.waiting, id)
	in := r.inUse()
	switch {
	case !e.Answered:
	case c.round && c.stale:
		if r.race != nil && r.state != sound {
			r.act(JoinRace{Plan: r.ranking(), Why: fmt.Sprintf("%s answered its check late, after %s", e.Route, now.Sub(c.began))})
		}
	case c.round:
		c.passed[id] = true
	case in != nil && !c.stale:
		limit, bound := r.limit(in)
		if r.pin.Set() && r.pin.Wants(e.Route) || !bound || e.RTT <= limit {
			c.passed[id] = true
		}
	}
	if len(c.waiting) == 0 && c.stale {
		r.checks = nil
	}
}

// finishChecks starts the race that waited for answers: as soon as nothing better
// than what has answered is still out, at the latest after CheckLimit.
func (r *Roam) finishChecks(now time.Time) {
	c := r.checks
	if !c.deciding() {
		return
	}
	over := !now.Before(c.began.Add(CheckLimit)) || len(c.waiting) == 0
	if !over && (c.round || !r.leads(c)) {
		r.wakeAt(c.began.Add(CheckLimit))
		return
	}
	c.stale = true
	if len(c.waiting) == 0 {
		r.checks = nil
	}
	if r.race != nil || r.halted || !r.link.Exists {
		return
	}
	if c.round {
		r.finishRound(now, c)
		return
	}
	r.finishLook(now, c)
}

// leads reports whether something has answered that nothing still out is better
// than.
func (r *Roam) leads(c *checking) bool {
	best, out := Class(255), Class(255)
	for _, e := range c.plan {
		id := e.Route.ID()
		if c.passed[id] {
			best = min(best, r.worth(e))
		} else if c.waiting[id] {
			out = min(out, r.worth(e))
		}
	}
	return best < 255 && best <= out
}

func (r *Roam) finishRound(now time.Time, c *checking) {
	if r.state == sound {
		return
	}
	var plan, silent []Ranked
	for _, e := range r.ranking() {
		switch id := e.Route.ID(); {
		case r.blocked[id]:
		case e.Route.Class == Relay || c.passed[id]:
			plan = append(plan, e)
		default:
			silent = append(silent, e)
		}
	}
	if len(plan) == 0 {
		plan, silent = silent, nil
	}
	if len(plan) == 0 {
		return
	}
	r.silent = silent
	trigger := r.need()
	r.again.Started(now)
	r.start(now, StartRace{Trigger: trigger, Plan: plan, AllAtOnce: true, Why: fmt.Sprintf("%s; %d of %d checks answered in %s",
		c.why, len(c.passed), len(c.passed)+len(silent), now.Sub(c.began))})
}

func (r *Roam) finishLook(now time.Time, c *checking) {
	in := r.inUse()
	if in == nil || !r.free() {
		return
	}
	old, known := r.entry(in.Route)
	if !known {
		return
	}
	var plan []Ranked
	for _, e := range c.plan {
		if c.passed[e.Route.ID()] && r.worth(e) < r.worth(old) {
			plan = append(plan, e)
		}
	}
	if len(plan) == 0 {
		return
	}
	if r.Budget.ReadySpare(now).After(now) {
		for _, e := range plan {
			r.found[e.Route.ID()] = true // again when the budget allows
		}
		return
	}
	for _, e := range plan {
		r.raced[e.Route.ID()] = now
	}
	r.upgraded = now
	limit, _ := r.limit(in)
	why := fmt.Sprintf("%s is preferred to %s, and answers within %s", plan[0].Route, in.Route, limit)
	if now.Before(r.claim) {
		why += fmt.Sprintf("; first find after the change of the path %s ago", now.Sub(r.changed))
		r.claim = time.Time{}
	}
	r.start(now, StartRace{Trigger: ForUpgrade, Plan: plan, Why: why})
}
