package state

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"linkproxy/dialer/route"
)

// TestMergeEitherWay: where times tell what is later, it does not matter which of two processes writes last.
func TestMergeEitherWay(t *testing.T) {
	// learn makes changes, each at a second of its own: of those that leave the remainder odd.
	learn := func(t *rapid.T, m route.Memory, odd int) route.Memory {
		for i := range rapid.IntRange(0, 5).Draw(t, "changes") {
			at := epoch.Add(time.Duration(1000+2*i+odd) * time.Second)
			r := route.RouteMemory{LastSuccess: at}
			if rapid.Bool().Draw(t, "failed") {
				r = route.RouteMemory{LastSuccess: epoch, Failures: []time.Time{at}}
			}
			id := rapid.SampledFrom([]string{"lan:a:1", "direct:b:1", "direct:c:1"}).Draw(t, "route")
			m = m.With(at, home(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "router")), id, r)
			m.Networks[0].Last = id
			m.Last, m.LastAt = id, at
			if rapid.Bool().Draw(t, "ready") {
				m = m.WithReadyV2(fmt.Sprint("wss://", id))
			}
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		base := memories(t, "base")
		a, b := learn(t, base, 0), learn(t, base, 1)
		if one, two := normal(merge(base, a, b)), normal(merge(base, b, a)); one != two {
			t.Fatalf("the second writes last:\n%s\nthe first does:\n%s", two, one)
		}
	})
}

// TestClockSetBack: what a process has learned replaces what it wrote itself, though by its times that looks newer. That takes knowing
// one's own record again when it was read from the file: without the digits and the zone that the file does not hold.
func TestClockSetBack(t *testing.T) {
	d := newDir(t)
	n, id := home("5f3a"), "tailnet:100.64.0.9:7000"
	record := func(at time.Time, p route.Penalty) route.RouteMemory {
		return route.RouteMemory{LastSuccess: at, Handshake: 1234567 * time.Nanosecond, Penalty: p}
	}
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		defer s.Close()
		ahead := time.Now().Add(24 * time.Hour).In(time.FixedZone("far", 3600))
		for _, r := range []route.RouteMemory{
			record(ahead, route.Penalty{}), record(ahead, route.Penalty{}.Fell(ahead, "lost after 3m0s")), record(time.Now(), route.Penalty{}),
		} {
			s.Save("p", s.Load("p").With(time.Now(), n, id, r))
			time.Sleep(2 * saveEvery)
			synctest.Wait()
			other := d.open()
			if got, ok := other.Load("p").At(n, id); !ok || !same(got, r) {
				t.Errorf("on disk it is %+v, want %+v", got, r)
			}
			other.Close()
		}
	})
}

// TestSame: every field counts, and how a time is written does not.
func TestSame(t *testing.T) {
	whole := func() route.RouteMemory {
		return route.RouteMemory{
			LastSuccess: epoch, Handshake: time.Millisecond, Failures: []time.Time{epoch}, Relayed: true,
			Penalty: route.Penalty{Step: 1, Until: epoch, Reasons: []string{"a"}, CoolUntil: epoch},
		}
	}
	for name, change := range map[string]func(*route.RouteMemory){
		"last success": func(r *route.RouteMemory) { r.LastSuccess = epoch.Add(1) },
		"handshake":    func(r *route.RouteMemory) { r.Handshake += time.Microsecond },
		"failures":     func(r *route.RouteMemory) { r.Failures = nil },
		"a failure":    func(r *route.RouteMemory) { r.Failures[0] = epoch.Add(1) },
		"relayed":      func(r *route.RouteMemory) { r.Relayed = false },
		"step":         func(r *route.RouteMemory) { r.Penalty.Step++ },
		"until":        func(r *route.RouteMemory) { r.Penalty.Until = epoch.Add(1) },
		"reasons":      func(r *route.RouteMemory) { r.Penalty.Reasons[0] = "b" },
		"cool until":   func(r *route.RouteMemory) { r.Penalty.CoolUntil = epoch.Add(1) },
	} {
		r := whole()
		if change(&r); same(r, whole()) || same(whole(), r) {
			t.Errorf("%s does not count", name)
		}
	}
	r := whole()
	r.LastSuccess, r.Handshake = epoch.In(time.FixedZone("far", 3600)), r.Handshake+1
	if !same(r, whole()) {
		t.Error("what the file does not hold counts")
	}
}

// TestNoTimeSaysWhichIsLater: a penalty does not tell when it was earned. Of two changes between which no time decides, ours stays.
func TestNoTimeSaysWhichIsLater(t *testing.T) {
	once := route.RouteMemory{LastSuccess: epoch, Penalty: route.Penalty{}.Fell(epoch, "lost")}
	held, twice := once, once
	held.Penalty = once.Penalty.Held()
	twice.Penalty = once.Penalty.Fell(epoch.Add(time.Hour), "lost")
	if got := later(once, held, twice); !same(got, held) {
		t.Errorf("ours is the end of the penalty: %+v", got)
	}
	if got := later(once, twice, held); !same(got, twice) {
		t.Errorf("ours is the longer penalty: %+v", got)
	}
}
