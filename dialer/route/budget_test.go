package route

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBudget(t *testing.T) {
	var b Budget
	now := epoch
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	for i := range BudgetSize {
		if !b.Ready(now).Equal(now) || !b.Take(now) {
			t.Fatalf("dial %d of a full budget was refused", i)
		}
	}
	steps := []struct {
		at    time.Duration
		do    func(time.Time)
		take  bool
		ready time.Duration
	}{
		{at: 0, take: false, ready: 5 * time.Second},
		{at: 5*time.Second - 1, take: false, ready: 5 * time.Second},
		{at: 5 * time.Second, take: true, ready: 10 * time.Second},
		{at: 6 * time.Second, take: false, ready: 10 * time.Second},
		// An app waits: the 8/10 of a dial that are missing come in 1.6 s.
		{at: 6 * time.Second, do: func(t time.Time) { b.SetWaiting(t, true) }, take: false, ready: 7600 * time.Millisecond},
		{at: 7600 * time.Millisecond, take: true, ready: 9600 * time.Millisecond},
		{at: 8600 * time.Millisecond, do: func(t time.Time) { b.SetWaiting(t, false) }, take: false, ready: 11100 * time.Millisecond},
		{at: 8600 * time.Millisecond, do: b.Refund, take: true, ready: 11100 * time.Millisecond},
	}
	for i, s := range steps {
		if s.do != nil {
			s.do(at(s.at))
		}
		if got := b.Take(at(s.at)); got != s.take {
			t.Fatalf("step %d at %s: take = %v", i, s.at, got)
		}
		if got := b.Ready(at(s.at)); !got.Equal(at(s.ready)) {
			t.Fatalf("step %d at %s: ready at %s, want %s", i, s.at, got.Sub(epoch), s.ready)
		}
	}
}

func TestBudgetRefundNeverExceedsTheSize(t *testing.T) {
	var b Budget
	b.Refund(epoch)
	b.Refund(epoch.Add(1000 * time.Hour))
	n := 0
	for b.Take(epoch.Add(1000*time.Hour)) && n < 100 {
		n++
	}
	if n != BudgetSize {
		t.Fatalf("%d dials at once", n)
	}
}

// In no span of time are there more dials than the size plus what that span
// refills; and what Ready says is neither too early nor too late.
func TestBudgetIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Budget
		var taken []time.Time
		var fast []time.Duration // time waited for by apps up to each taking
		now, waiting, fastSoFar := epoch, false, time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			gap := time.Duration(rapid.Int64Range(0, int64(7*time.Second)).Draw(t, "gap"))
			if rapid.Bool().Draw(t, "to ready") {
				gap = b.Ready(now).Sub(now)
			}
			now = now.Add(gap)
			if waiting {
				fastSoFar += gap
			}
			if rapid.IntRange(0, 3).Draw(t, "switch") == 0 {
				waiting = !waiting
				b.SetWaiting(now, waiting)
			}
			ready := b.Ready(now)
			if took := b.Take(now); took != ready.Equal(now) {
				t.Fatalf("Ready is %s away, but Take = %v", ready.Sub(now), took)
			} else if !took {
				before, after := b, b
				if before.Take(ready.Add(-1)) || !after.Take(ready) {
					t.Fatalf("Ready is not the first time that Take succeeds")
				}
				continue
			}
			taken, fast = append(taken, now), append(fast, fastSoFar)
			for i, first := range taken {
				waited := fastSoFar - fast[i]
				idle := now.Sub(first) - waited
				// Whole units of work: n dials cost (n-1-size … ) at most what was refilled.
				refilled := float64(waited)/float64(RefillWaiting) + float64(idle)/float64(RefillIdle)
				if n := len(taken) - i; float64(n) > BudgetSize+refilled+1e-6 {
					t.Fatalf("%d dials in %s (%s of it waited for)", n, now.Sub(first), waited)
				}
			}
		}
	})
}

func TestBudgetKeepsAReserve(t *testing.T) {
	var b Budget
	now := time.Unix(1000, 0)
	for i := range BudgetSize - BudgetReserve {
		if !b.TakeSpare(now) {
			t.Fatalf("no dial %d for a comfort", i)
		}
	}
	if b.TakeSpare(now) {
		t.Fatal("a comfort took what a loss may need")
	}
	if at := b.ReadySpare(now); !at.Equal(now.Add(RefillIdle)) {
		t.Errorf("the next comfort is due at %v", at.Sub(now))
	}
	for i := range BudgetReserve {
		if !b.Take(now) {
			t.Fatalf("dial %d of the reserve is gone", i)
		}
	}
	if b.Take(now) || b.TakeSpare(now) {
		t.Error("more than there is")
	}
	if at := b.ReadySpare(now); !at.Equal(now.Add((BudgetReserve + 1) * RefillIdle)) {
		t.Errorf("after a loss the next comfort is due at %v", at.Sub(now))
	}
}

func TestBudgetStopped(t *testing.T) {
	var b Budget
	for range BudgetSize {
		b.Take(epoch)
	}
	b.SetStopped(epoch, true)
	later := epoch.Add(time.Minute)
	if b.Take(later) || b.Ready(later).Sub(later) < time.Minute {
		t.Fatal("a dial came back though it was stopped")
	}
	b.SetStopped(later, false)
	if !b.Ready(later).Equal(later.Add(RefillIdle)) {
		t.Errorf("afterwards the next one is ready in %s", b.Ready(later).Sub(later))
	}
}
