package route

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoffIsInTheUpperHalf(t *testing.T) {
	longest := []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}
	for _, c := range []struct {
		rand float64
		half int // of the longest wait: 1 half or 2
	}{{0, 1}, {1, 2}} {
		var budget Budget
		now := epoch
		r := Reconnect{Rand: func() float64 { return c.rand }}
		for i, most := range longest {
			r.Started(now)
			now = now.Add(time.Second)
			r.Failed(now)
			want := most * time.Second / 2 * time.Duration(c.half)
			if at, _, ok := r.Next(now, true, &budget); !ok || at.Sub(now) != want {
				t.Errorf("rand %v, failure %d: wait %s, want %s", c.rand, i+1, at.Sub(now), want)
			}
			now = now.Add(want)
		}
	}
}

func TestUpToReset(t *testing.T) {
	for _, c := range []struct{ up, wait time.Duration }{
		{UpToReset - 1, 4 * time.Second}, // the third failure in a row
		{UpToReset, 1 * time.Second},     // the first
	} {
		var budget Budget
		var r Reconnect
		r.Started(epoch)
		r.Failed(epoch)
		r.Started(epoch)
		r.Failed(epoch)
		r.Started(epoch)
		r.Won(epoch)
		lost := epoch.Add(c.up)
		r.Lost(lost)
		if at, _, ok := r.Next(lost, true, &budget); !ok || !at.Equal(lost) {
			t.Fatalf("up %s: the race after a loss starts %s after it", c.up, at.Sub(lost))
		}
		r.Started(lost)
		r.Failed(lost)
		if at, _, _ := r.Next(lost, true, &budget); at.Sub(lost) != c.wait {
			t.Errorf("up %s: wait %s, want %s", c.up, at.Sub(lost), c.wait)
		}
	}
}

// Whatever comes in whatever order: the next race is never in the past, never
// before the budget allows it, never more than BackoffMax away when the budget
// is not spent; nothing is dialled with no stream open but once after each loss
// or wake-up; and the same history gives the same answer.
func TestReconnectProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget, twinBudget := new(Budget), new(Budget)
		seed := rapid.SliceOfN(rapid.Float64Range(0, 0.999), 60, 60).Draw(t, "rand")
		source := func() func() float64 {
			i := 0
			return func() float64 { i++; return seed[i%len(seed)] }
		}
		r, twin := Reconnect{Rand: source()}, Reconnect{Rand: source()}
		now, racing, up, streams, owed := epoch, false, false, false, false
		var ended time.Time
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(t, "gap")) * time.Millisecond)
			both := func(f func(*Reconnect)) { f(&r); f(&twin) }
			what := rapid.SampledFrom([]string{"lost", "woke", "changed", "asked", "start", "end", "idle"}).Draw(t, "what")
			switch what {
			case "lost":
				if !up {
					what = "nothing"
				} else {
					up, owed = false, true
					both(func(r *Reconnect) { r.Lost(now) })
				}
			case "woke":
				if !up {
					owed = true
					both(func(r *Reconnect) { r.Woke(now) })
				}
			case "changed":
				both(func(r *Reconnect) { r.Changed(now, "the config") })
			case "asked":
				streams = true
				both(func(r *Reconnect) { r.Asked(now) })
			case "idle":
				streams = false
			case "start":
				if _, _, ok := r.Next(now, streams, budget); ok && !racing && !up {
					racing, owed = true, false
					both(func(r *Reconnect) { r.Started(now) })
					if budget.Take(now) != twinBudget.Take(now) {
						t.Fatal("the budgets differ")
					}
				}
			case "end":
				if racing {
					racing, ended = false, now
					if up = rapid.Bool().Draw(t, "won"); up {
						owed = false
						both(func(r *Reconnect) { r.Won(now) })
					} else {
						both(func(r *Reconnect) { r.Failed(now) })
					}
				}
			}
			if racing || up {
				continue
			}
			at, why, ok := r.Next(now, streams, budget)
			at2, why2, ok2 := twin.Next(now, streams, twinBudget)
			if at != at2 || why != why2 || ok != ok2 {
				t.Fatalf("the same history gave %s (%s) and %s (%s)", since(at), why, since(at2), why2)
			}
			if ok != (streams || owed) {
				t.Fatalf("a race is due: %v, with streams %v, owed %v", ok, streams, owed)
			}
			if why == "" {
				t.Fatal("no reason")
			}
			if !ok {
				continue
			}
			ready := budget.Ready(now)
			if at.Before(now) || at.Before(ready) || at.After(later(ready, now.Add(BackoffMax))) {
				t.Fatalf("at %s the next race is at %s, the budget is ready at %s", since(now), since(at), since(ready))
			}
			if (what == "lost" || what == "woke" || what == "changed") && !at.Equal(ready) {
				t.Fatalf("%s did not end the wait: %s, now %s", what, since(at), since(now))
			}
			if what == "asked" && at.After(later(ready, later(now, ended.Add(AskFloor)))) {
				t.Fatalf("an app waits until %s, the last race ended at %s", since(at), since(ended))
			}
		}
	})
}
