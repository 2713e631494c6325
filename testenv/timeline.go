package testenv

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostEvents bounds the timeline: older events are dropped by halves.
const mostEvents = 4096

// event is something that happened.
type event struct {
	at   time.Time
	text string
}

// Note adds a line of the test's own to the timeline.
func (w *World) Note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

// note adds a line; w.mu is held.
func (w *World) note(format string, args ...any) { w.noteAt(time.Now(), fmt.Sprintf(format, args...)) }

func (w *World) noteAt(at time.Time, text string) {
	if len(w.events) >= mostEvents {
		w.dropped += mostEvents / 2
		w.events = slices.Clone(w.events[mostEvents/2:])
	}
	w.events = append(w.events, event{at, text})
}

// Timeline is the seed and what has happened so far, with the times since the world was made.
func (w *World) Timeline() string {
	w.mu.Lock()
	events, dropped := slices.Clone(w.events), w.dropped
	w.mu.Unlock()
	now := time.Now()
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	var b strings.Builder
	fmt.Fprintf(&b, "world with seed %d, from %s on\n", w.seed, w.start.UTC().Format(time.DateTime))
	if dropped > 0 {
		fmt.Fprintf(&b, "(%d older events are not listed)\n", dropped)
	}
	for _, e := range events {
		if !e.at.After(now) { // outages are known before they come
			fmt.Fprintf(&b, "%12s  %s\n", e.at.Sub(w.start), e.text)
		}
	}
	return b.String()
}

// tester is what [World.LogTo] needs of a *testing.T.
type tester interface {
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
}

// LogTo prints the timeline at the end of the test if it has failed.
func (w *World) LogTo(t tester) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", w.Timeline())
		}
	})
}
