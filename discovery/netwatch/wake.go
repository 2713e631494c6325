package netwatch

import "time"

const (
	// sleepMin is the least by which time must have gone on without us to call it sleep: above what a clock is corrected by.
	sleepMin = 2 * time.Second
	// lateMin is how late the loop must be to say that it did not run, with a clock that went on: the process was stopped, its virtual
	// machine frozen, or the system sleeps without stopping its clock. Above what a busy machine makes of a timer.
	lateMin = 5 * time.Second
)

// sleeper finds out that the machine, or this process, slept. It is pure: step gets all its times.
type sleeper struct {
	asleep time.Duration // by how much the clock that goes on in sleep was ahead at the last step
	due    time.Time     // when the loop wanted to run next, zero: whenever
}

// step says for how long the machine slept since the last step; 0: it did not. asleep is by how much the clock that goes on in sleep
// is ahead of that which stands still, from any beginning. A clock that was set back is no sleep.
func (s *sleeper) step(now time.Time, asleep time.Duration) (slept time.Duration) {
	if jump := asleep - s.asleep; jump >= sleepMin {
		slept = jump
	}
	s.asleep = asleep
	if late := now.Sub(s.due); !s.due.IsZero() && late >= lateMin {
		slept = max(slept, late) // not the sum: on Windows the clock of package time goes on in sleep
	}
	s.due = time.Time{}
	return slept
}

// wallAsleep measures with a wall clock: it went on while the monotonic clock, which package time compares by, stood still.
func wallAsleep(wall func() time.Time) func(now time.Time) time.Duration {
	start, began := time.Now(), wall().Round(0)
	return func(now time.Time) time.Duration { return wall().Round(0).Sub(began) - now.Sub(start) }
}
