package route

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// launch starts what may start.
func (r *Race) launch(now time.Time) {
	r.starved = false
	for r.mayStart() {
		r.keepPlace()
		if now.Before(r.next()) {
			return
		}
		if !r.opts.Budget.Take(now) {
			r.starved = true
			return
		}
		a := &r.field[r.started]
		a.Outcome, a.Start = Running, now
		r.act(Dial, a.Route, r.whyDial())
		r.started++
		r.pulled, r.pulledW = time.Time{}, ""
	}
}

// mayStart reports whether a route is left and a place is free for it.
func (r *Race) mayStart() bool {
	return r.best == 0 && r.started < len(r.field) && r.running() < MaxAtOnce
}

// next is when the next route may start.
func (r *Race) next() time.Time {
	at := r.slot(r.started)
	if !r.pulled.IsZero() {
		at = earlier(at, r.pulled)
	}
	return at
}

// slot is when the i-th route starts if no failure pulls it forward.
func (r *Race) slot(i int) time.Time {
	step, _ := r.step()
	at := r.start.Add(time.Duration(i) * step)
	if i == 0 || i >= len(r.field) {
		return at
	}
	switch e := &r.field[i]; {
	case e.ranked.liveLAN():
		return r.start
	case e.Route.Class == Relay && i == r.bestRelay():
		return earlier(at, later(r.start, r.field[0].Start).Add(RelayBy))
	default:
		return at
	}
}

// step is the head start of each route over the next, and what it rests on.
func (r *Race) step() (time.Duration, string) {
	if r.opts.AllAtOnce {
		return 0, ""
	}
	leader := r.field[0].ranked.Why
	switch {
	case !leader.LastFailure.IsZero():
		return 0, ", as the leader failed here when last tried"
	case leader.Handshake > 0:
		return min(max(2*leader.Handshake, SlotStepMin), SlotStepMax), fmt.Sprintf(", as the leader took %s here", leader.Handshake)
	default:
		return SlotStep, ""
	}
}

func (r *Race) whyDial() string {
	i := r.started
	e := r.field[i]
	if i == 0 {
		return "leader: " + e.ranked.lead()
	}
	if r.pulledW != "" {
		return r.pulledW
	}
	_, because := r.step()
	due := fmt.Sprintf("due at %s%s", r.slot(i).Sub(r.start), because)
	switch {
	case e.ranked.liveLAN():
		return "seen live here: beside whatever leads"
	case e.Route.Class == Relay && i == r.bestRelay():
		return "best relay, " + due
	case i == 1 && e.ranked.Why.Class != r.field[0].ranked.Why.Class:
		return "best of another class, " + due
	default:
		return fmt.Sprintf("slot %d, %s", i, due)
	}
}

// bestRelay is the place of the first relay of the field, or -1.
func (r *Race) bestRelay() int {
	return slices.IndexFunc(r.field, func(e entry) bool { return e.Route.Class == Relay })
}

// add puts the routes of a ranking into the field and arranges all that have not
// started.
func (r *Race) add(plan []Ranked) {
	place := map[string]int{}
	for i, ranked := range plan {
		id := ranked.Route.ID()
		if _, twice := place[id]; twice {
			continue
		}
		place[id] = i
		if a := r.find(ranked.Route); a == nil {
			r.field = append(r.field, entry{Attempt{Route: ranked.Route}, ranked})
		} else if a.Outcome == NotTried {
			a.ranked = ranked
		}
	}
	waiting := r.field[r.started:]
	slices.SortStableFunc(waiting, func(a, b entry) int {
		return cmp.Compare(placeOf(place, a.Route, len(plan)), placeOf(place, b.Route, len(plan)))
	})
	r.arrange()
}

// placeOf is the place of a route in a ranking, behind all if it has none.
func placeOf(place map[string]int, route Route, last int) int {
	if i, ok := place[route.ID()]; ok {
		return i
	}
	return last
}

// arrange puts the first wave before all others that wait: a LAN route that is
// seen live, the best relay, and the best of another class than the leader's; so
// that one dead class never holds up the others.
func (r *Race) arrange() {
	if len(r.field) == 0 {
		return
	}
	from := max(r.started, 1) // the leader leads
	leader, rest := r.field[0], r.field[from:]
	live, relay, other := -1, -1, -1
	if !slices.ContainsFunc(r.field[:from], func(e entry) bool { return e.ranked.liveLAN() }) {
		live = slices.IndexFunc(rest, func(e entry) bool { return e.ranked.liveLAN() })
	}
	if r.bestRelay() >= from {
		relay = r.bestRelay() - from
	}
	if from == 1 && (live < 0 || leader.ranked.Why.Class == LAN) {
		other = slices.IndexFunc(rest, func(e entry) bool {
			return e.ranked.Why.Class != leader.ranked.Why.Class && e.Route.Class != Relay && !e.ranked.Why.Demoted()
		})
	}
	wave := func(i int) int {
		switch i {
		case live:
			return 0
		case relay, other:
			return 1
		default:
			return 2
		}
	}
	order := make([]int, len(rest))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wave(a), wave(b)) })
	sorted := make([]entry, len(rest))
	for i, from := range order {
		sorted[i] = rest[from]
	}
	copy(rest, sorted)
}

// keepPlace makes the best relay that waits the next if only one place is left
// and none runs: routes that hang must not lock all relays out.
func (r *Race) keepPlace() {
	isRelay := func(e entry) bool { return e.Route.Class == Relay }
	running := func(e entry) bool { return e.Outcome == Running }
	if r.running() < MaxAtOnce-1 || slices.ContainsFunc(r.field, func(e entry) bool { return running(e) && isRelay(e) }) {
		return
	}
	if i := slices.IndexFunc(r.field[r.started:], isRelay); i > 0 {
		relay := r.field[r.started+i]
		r.field = slices.Insert(slices.Delete(r.field, r.started+i, r.started+i+1), r.started, relay)
	}
}

func (r *Race) find(route Route) *entry {
	i := slices.IndexFunc(r.field, func(e entry) bool { return e.Route.Same(route) })
	if i < 0 {
		return nil
	}
	return &r.field[i]
}

func (r *Race) running() int {
	n := 0
	for _, e := range r.field {
		if e.Outcome == Running {
			n++
		}
	}
	return n
}
