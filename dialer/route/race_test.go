package route

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// The order in which routes would start, from the order in which they are
// configured.
func TestRaceOrder(t *testing.T) {
	for _, c := range []struct{ plan, want string }{
		{"", ""},
		{"lan:a", "lan:a"},
		{"lan:b lan:a", "lan:b lan:a"},
		{"direct:a tailnet:a lan:a", "lan:a tailnet:a direct:a"},
		{"lan:a lan:b lan:c direct:a tailnet:a tailnet:b", "lan:a tailnet:a lan:b lan:c tailnet:b direct:a"},
		{"direct:a direct:b tailnet:b tailnet:a", "tailnet:b direct:a tailnet:a direct:b"},
		{"lan:a lan:a:7000 direct:a", "lan:a direct:a"},
	} {
		r := NewRace(epoch, plain(strings.Fields(c.plan)...), RaceOptions{})
		if got := order(r); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.plan, got, c.want)
		}
	}
}

func order(r *Race) string {
	var ids []string
	for _, a := range r.field {
		ids = append(ids, strings.TrimSuffix(a.Route.ID(), ":7000"))
	}
	return strings.Join(ids, " ")
}

// Joining keeps what has started where it is and ranks all the rest anew; the
// second place still goes to another class.
func TestRaceOrderAfterJoining(t *testing.T) {
	for _, c := range []struct {
		plan, joined, want string
		start              int // so many have started before
	}{
		{"direct:a direct:b", "direct:c lan:b tailnet:a lan:a direct:a", "direct:a lan:b lan:a tailnet:a direct:b direct:c", 1},
		{"lan:a lan:b", "direct:a tailnet:a", "lan:a tailnet:a lan:b direct:a", 1},
		{"lan:a lan:b lan:c", "tailnet:a", "lan:a lan:b lan:c tailnet:a", 2},
		{"direct:a", "lan:a lan:b", "lan:a direct:a lan:b", 0},
	} {
		r := NewRace(epoch, plain(strings.Fields(c.plan)...), RaceOptions{})
		for i := range c.start {
			r.Step(epoch.Add(time.Duration(i)*SlotStep), Tick{})
		}
		if r.started != c.start {
			t.Fatalf("%d have started", r.started)
		}
		r.add(plain(strings.Fields(c.plan + " " + c.joined)...))
		if got := order(r); got != c.want {
			t.Errorf("%s + %s\n got %s\nwant %s", c.plan, c.joined, got, c.want)
		}
	}
}

func TestEndedTakesOnlyEnds(t *testing.T) {
	for o := range Outcome(len(outcomeNames) + 1) {
		r := NewRace(epoch, plain("lan:a"), RaceOptions{})
		r.Step(epoch, Tick{})
		actions, _ := r.Step(epoch.Add(1), Ended{Route: mustRoutes("lan:a")[0], Outcome: o})
		want := Failed
		if o >= Failed && o <= NoRoute {
			want = o
		}
		done := actions[len(actions)-1]
		if done.Do != Done || done.Result.Attempts[0].Outcome != want {
			t.Errorf("ended as %s: %v", o, done)
		}
	}
}

// step is one call of Race.Step, to be replayed.
type step struct {
	at time.Time
	ev Event
}

// fate is what becomes of a route once it is dialled.
type fate struct {
	after   time.Duration
	outcome Outcome // Won: it attaches; Running: nothing ever comes
	rtt     time.Duration
	local   netip.Addr
}

// raceWorld runs a race against drawn fates and checks each answer.
type raceWorld struct {
	t       *rapid.T
	race    *Race
	fates   map[string]fate
	ranks   map[string]Ranked // what is known about each route
	queue   []step            // what is still to come, in time order
	log     []step
	said    [][]Action
	known   map[string]bool // plan and joined
	dialled map[string]bool
	running map[string]bool
	ends    map[string]int
	inUse   Route
	won     bool
	done    *Result
	spent   int // dials that cost something
}

var (
	raceNames  = []string{"lan:a", "lan:b", "lan:c", "tailnet:a", "tailnet:b", "direct:a", "direct:b", "relay:wss://a", "relay:wss://b"}
	raceRoutes = mustRoutes(raceNames...)
	raceLocals = []netip.Addr{netip.MustParseAddr("192.168.1.2"), netip.MustParseAddr("10.200.7.9"), {}}
)

// drawRanked is anything that may be known about a route.
func drawRanked(t *rapid.T, r Route) Ranked {
	w := Why{Class: r.Class}
	flag := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) == 0 }
	if flag("seen") {
		w.Seen = epoch
	}
	if flag("worked") {
		w.LastSuccess, w.Handshake = epoch.Add(-time.Hour), time.Duration(rapid.IntRange(1, 400).Draw(t, "handshake"))*time.Millisecond
	}
	if flag("failed") {
		w.LastFailure, w.Failing = epoch.Add(-time.Second), flag("failing")
	}
	if flag("penalized") {
		w.Penalized = true
	}
	if flag("implausible") {
		w.Implausible = "no such network"
	}
	if r.Class == Tailnet && flag("relayed") {
		w.Class, w.Relayed = Relay, true
	}
	return Ranked{r, w}
}

func drawFate(t *rapid.T) fate {
	return fate{
		after:   time.Duration(rapid.IntRange(0, 1200).Draw(t, "after")) * 10 * time.Millisecond,
		outcome: rapid.SampledFrom([]Outcome{Won, Won, Won, Running, Failed, Failed, Silent, WrongPeer, Blocked, Busy, NoRoute, Superseded, Foreign, NoToken}).Draw(t, "outcome"),
		local:   rapid.SampledFrom(raceLocals).Draw(t, "local"),
		rtt:     time.Duration(rapid.IntRange(0, 400).Draw(t, "rtt")) * time.Millisecond,
	}
}

func (w *raceWorld) later(at time.Time, ev Event) {
	w.queue = append(w.queue, step{at, ev})
	slices.SortStableFunc(w.queue, func(a, b step) int { return a.at.Compare(b.at) })
}

func (w *raceWorld) step(now time.Time, ev Event) (wake time.Time) {
	switch e := ev.(type) {
	case Joined:
		for _, r := range e.Plan {
			if w.done == nil {
				w.known[r.Route.ID()] = true
			}
		}
	case Ended:
		if w.running[e.Route.ID()] {
			w.end(e.Route)
			if e.Outcome == NoRoute {
				w.spent--
			}
		}
	}
	attached, wasRunning := ev.(Attached)
	wasRunning = wasRunning && w.running[attached.Route.ID()]
	wasOver := w.done != nil
	actions, wake := w.race.Step(now, ev)
	w.log, w.said = append(w.log, step{now, ev}), append(w.said, actions)
	answered := 0
	for i, a := range actions {
		if attached.Route.Same(a.Route) && a.Do != Dial {
			answered++
		}
		if wasOver && a.Do != Cancel {
			w.t.Fatalf("%s %s after the end", a.Do, a.Route)
		}
		w.check(now, a, i == len(actions)-1)
	}
	if wasRunning && answered != 1 {
		w.t.Fatalf("%s attached and got %d answers: %v", attached.Route, answered, actions)
	}
	if len(w.running) > MaxAtOnce {
		w.t.Fatalf("%d run at once", len(w.running))
	}
	if (w.done != nil) != wake.IsZero() || w.done == nil && !wake.After(now) {
		w.t.Fatalf("at %s, done %v, wake is %s", since(now), w.done != nil, since(wake))
	}
	return wake
}

func (w *raceWorld) end(r Route) {
	if !w.running[r.ID()] {
		w.t.Fatalf("%s ended but does not run", r)
	}
	delete(w.running, r.ID())
	w.ends[r.ID()]++
}

func (w *raceWorld) check(now time.Time, a Action, last bool) {
	id := a.Route.ID()
	if a.Why == "" && a.Do != Done {
		w.t.Fatalf("%s %s has no reason", a.Do, a.Route)
	}
	switch a.Do {
	case Dial:
		if !w.known[id] || w.dialled[id] || w.won || w.done != nil {
			w.t.Fatalf("dial of %s: known %v, dialled %v, won %v", id, w.known[id], w.dialled[id], w.won)
		}
		w.dialled[id], w.running[id] = true, true
		w.spent++
		f := w.fates[id]
		if f.outcome == Running {
			return
		}
		w.later(now.Add(f.after/2), Reached{Route: a.Route, Stage: Handshake, Local: f.local})
		if f.outcome == Won {
			w.later(now.Add(f.after), Attached{Route: a.Route, RTT: f.rtt})
		} else {
			w.later(now.Add(f.after), Ended{Route: a.Route, Outcome: f.outcome})
		}
	case Cancel:
		if w.running[id] {
			w.end(a.Route)
		}
	case Win:
		if w.won {
			w.t.Fatalf("%s wins, but %s has won", a.Route, w.inUse)
		}
		w.won, w.inUse = true, a.Route
		w.end(a.Route)
	case Keep:
		if !w.won || w.ranks[id].Why.Class >= w.ranks[w.inUse.ID()].Why.Class || w.ranks[id].Why.Penalized {
			w.t.Fatalf("%s is kept beside %s", a.Route, w.inUse)
		}
		w.inUse = a.Route
		w.end(a.Route)
	case Done:
		if w.done != nil || !last || a.Result == nil {
			w.t.Fatalf("done twice, not last or without a result")
		}
		w.done = a.Result
	default:
		w.t.Fatalf("verb %s", a.Do)
	}
}

// drawPlan is some of the routes in any order, some of them twice.
func (w *raceWorld) drawPlan(t *rapid.T, label string) []Ranked {
	var plan []Ranked
	for _, r := range rapid.SliceOfN(rapid.SampledFrom(raceRoutes), 0, 11).Draw(t, label) {
		plan = append(plan, w.ranks[r.ID()])
	}
	return plan
}

func TestRaceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &raceWorld{
			t: t, fates: map[string]fate{}, known: map[string]bool{}, dialled: map[string]bool{},
			running: map[string]bool{}, ends: map[string]int{}, ranks: map[string]Ranked{},
		}
		for _, r := range raceRoutes {
			w.fates[r.ID()] = drawFate(t)
			w.ranks[r.ID()] = drawRanked(t, r)
		}
		plan := w.drawPlan(t, "plan")
		for _, r := range plan {
			w.known[r.Route.ID()] = true
		}
		together, spent := rapid.Bool().Draw(t, "together"), rapid.IntRange(0, BudgetSize).Draw(t, "spent")
		fresh := func() *Race {
			budget := new(Budget)
			for range spent {
				budget.Take(epoch)
			}
			return NewRace(epoch, plan, RaceOptions{AllAtOnce: together, Budget: budget})
		}
		w.race = fresh()
		drawTrouble(t, w)
		late := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 300, 4000}).Draw(t, "late")) * time.Millisecond
		w.run(late)
		w.checkEnd(spent, late)

		again := fresh()
		for i, s := range w.log {
			actions, _ := again.Step(s.at, s.ev)
			if diff := cmp.Diff(w.said[i], actions, cmpopts.EquateErrors(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Fatalf("the same events gave something else: %s", diff)
			}
		}
	})
}

// drawTrouble queues what comes from outside: routes that join, a stop, and
// attachments that nobody expects.
func drawTrouble(t *rapid.T, w *raceWorld) {
	for range rapid.IntRange(0, 3).Draw(t, "joins") {
		at := time.Duration(rapid.IntRange(0, 11000).Draw(t, "join at")) * time.Millisecond
		w.later(epoch.Add(at), Joined{w.drawPlan(t, "joined")})
	}
	for range rapid.IntRange(0, 2).Draw(t, "strays") {
		at := time.Duration(rapid.IntRange(0, 12000).Draw(t, "stray at")) * time.Millisecond
		w.later(epoch.Add(at), Attached{Route: rapid.SampledFrom(raceRoutes).Draw(t, "stray")})
	}
	for range rapid.IntRange(0, 2).Draw(t, "vanishings") {
		at := time.Duration(rapid.IntRange(0, 11000).Draw(t, "vanished at")) * time.Millisecond
		w.later(epoch.Add(at), Vanished{Local: rapid.SampledFrom(raceLocals).Draw(t, "vanished")})
	}
	if rapid.IntRange(0, 4).Draw(t, "stop") == 0 {
		at := time.Duration(rapid.IntRange(0, 11000).Draw(t, "stop at")) * time.Millisecond
		w.later(epoch.Add(at), Stop{"nobody waits"})
	}
}

// run steps the race through its wake-ups, each up to late behind, and through
// the queue, until nothing is left to happen.
func (w *raceWorld) run(late time.Duration) {
	wake := w.step(epoch, Tick{})
	now := epoch
	for range 1000 {
		switch {
		case len(w.queue) > 0 && (wake.IsZero() || !w.queue[0].at.After(wake.Add(late))):
			s := w.queue[0]
			w.queue = w.queue[1:]
			now = later(now, s.at)
			wake = w.step(now, s.ev)
		case !wake.IsZero():
			now = later(now, wake.Add(late))
			wake = w.step(now, Tick{})
		default:
			return
		}
	}
	w.t.Fatal("the race never comes to rest")
}

func (w *raceWorld) checkEnd(spent int, late time.Duration) {
	t := w.t
	if w.done == nil {
		t.Fatal("the race has not ended")
	}
	if i := slices.IndexFunc(w.said, func(as []Action) bool {
		return slices.ContainsFunc(as, func(a Action) bool { return a.Do == Done })
	}); w.log[i].at.After(epoch.Add(RaceLimit + late)) {
		t.Fatalf("it ended at %s", since(w.log[i].at))
	}
	if len(w.running) != 0 {
		t.Fatalf("still running: %v", w.running)
	}
	for id := range w.dialled {
		if w.ends[id] != 1 {
			t.Fatalf("%s has %d ends", id, w.ends[id])
		}
	}
	if bound := BudgetSize - spent + int((RaceLimit+late)/RefillIdle); w.spent > bound {
		t.Fatalf("%d dials with a budget of %d", w.spent, bound)
	}
	var planned, reported []string
	for id := range w.known {
		planned = append(planned, id)
	}
	for _, a := range w.done.Attempts {
		reported = append(reported, a.Route.ID())
		if a.Outcome == Running || (a.Outcome == NotTried) == w.dialled[a.Route.ID()] {
			t.Fatalf("%s; dialled: %v", a, w.dialled[a.Route.ID()])
		}
		if (a.Outcome == Won) != (w.done.Won && w.done.Winner.Same(a.Route)) {
			t.Fatalf("%s, but the winner is %s", a, w.done.Winner)
		}
	}
	slices.Sort(planned)
	slices.Sort(reported)
	if !slices.Equal(planned, reported) {
		t.Fatalf("planned %v, reported %v", planned, reported)
	}
	if w.done.Won != w.won {
		t.Fatalf("won %v, reported %v", w.won, w.done.Won)
	}
}

// No slot starts before its time unless a failure, or AllAtOnce, allows it: with
// routes that hang, the starts are exactly these.
func TestRaceStartTimes(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprintf("together=%v", together), func(t *testing.T) {
			r := NewRace(epoch, plain("lan:a", "lan:b", "tailnet:a", "direct:a"), RaceOptions{AllAtOnce: together})
			now, ev := epoch, Event(Tick{})
			var starts []time.Duration
			for range 10 {
				actions, wake := r.Step(now, ev)
				for _, a := range actions {
					if a.Do == Dial {
						starts = append(starts, now.Sub(epoch))
					}
				}
				if wake.IsZero() {
					break
				}
				now = wake
			}
			want := []time.Duration{0, SlotStep, 2 * SlotStep}
			if together {
				want = []time.Duration{0, 0, 0}
			}
			if !slices.Equal(starts, want) {
				t.Errorf("started at %v, want %v", starts, want)
			}
			if now.Sub(epoch) != RaceLimit {
				t.Errorf("ended at %s", now.Sub(epoch))
			}
		})
	}
}

// The grace is one round trip of the winner, at least 100 ms.
func TestRaceGrace(t *testing.T) {
	for rtt, want := range map[time.Duration]time.Duration{
		0: GraceMin, 99 * time.Millisecond: GraceMin, 101 * time.Millisecond: 101 * time.Millisecond, time.Second: time.Second,
		time.Minute: RaceLimit - 20*time.Millisecond,
	} {
		plan := mustRoutes("lan:a", "direct:a")
		r := NewRace(epoch, plain("lan:a", "direct:a"), RaceOptions{AllAtOnce: true})
		r.Step(epoch, Tick{})
		won := epoch.Add(20 * time.Millisecond)
		actions, wake := r.Step(won, Attached{Route: plan[1], RTT: rtt})
		if got := wake.Sub(won); got != want {
			t.Errorf("round trip %s: grace %s, want %s", rtt, got, want)
		}
		if len(actions) != 1 || actions[0].Do != Win {
			t.Errorf("the win answered %v", actions)
		}
	}
}
