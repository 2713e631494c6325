package testenv

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// packet is how many bytes leave together when a rate is set: the payload of one TCP segment on Ethernet.
const packet = 1448

// lane is one direction of a route: the faults that all its connections share. Its owner's mutex guards it.
type lane struct {
	delay  time.Duration // one way
	jitter time.Duration // each piece takes up to so much longer
	rate   int64         // bytes a second, 0 = as fast as the machine
	queue  int           // bytes that wait for the rate at most; 0 = as many as the connections' buffers take
	hole   bool          // nothing arrives
	large  int           // a write of more bytes is lost, with all that follows it; 0 = none is
	cut    countdown     // resets the connection that carries the last byte
	out    *outages
	bytes  int64 // accepted for delivery or read by the far end, as the owner counts

	free    time.Time // when the last byte accepted has left: the connections of a lane share its rate
	leaving []leaving // what waits for the rate, kept while queue is set
	queued  int       // bytes in leaving
	turns   []*transit
}

// leaving is some bytes and when they have left.
type leaving struct {
	at time.Time
	n  int
}

// setRate changes the rate for what is sent from now on.
func (l *lane) setRate(bytesPerSecond int64) {
	l.rate, l.free = bytesPerSecond, time.Time{}
	l.leaving, l.queued = nil, 0
}

// leave says when something without size that is sent now arrives.
func (l *lane) leave(now time.Time) time.Time { return l.out.clear(now).Add(l.delay) }

// arrival says when n bytes handed over now are all at the far end.
func (l *lane) arrival(now time.Time, n int, jitter *rand.Rand) time.Time {
	if l.rate > 0 {
		now = later(now, l.free)
	}
	now = l.out.clear(now)
	if l.rate > 0 {
		now = now.Add(time.Duration(int64(n) * int64(time.Second) / l.rate))
		l.free = now
		if l.queue > 0 {
			l.leaving = append(l.leaving, leaving{now, n})
			l.queued += n
		}
	}
	if now = now.Add(l.delay); l.jitter > 0 {
		now = now.Add(time.Duration(jitter.Int64N(int64(l.jitter))))
	}
	return now
}

// turn says how many of want bytes t may send now. The writers that wait for room in the queue take turns, a packet each;
// one that gets none looks again when its signal comes, or at wake.
func (l *lane) turn(now time.Time, t *transit, want int) (room int, wake time.Time) {
	if want <= 0 || l.queue == 0 || l.rate == 0 || t.stalled || t.mute || t.hole || l.hole {
		l.yield(t)
		return want, time.Time{}
	}
	for len(l.leaving) > 0 && !now.Before(l.leaving[0].at) {
		l.queued -= l.leaving[0].n
		l.leaving = l.leaving[1:]
	}
	if !slices.Contains(l.turns, t) {
		l.turns = append(l.turns, t)
	}
	switch {
	case l.turns[0] != t:
		return 0, time.Time{}
	case l.queued >= l.queue:
		return 0, l.leaving[0].at
	}
	l.yield(t)
	return min(want, packet), time.Time{}
}

// yield takes t off the list of those that wait, and wakes the next.
func (l *lane) yield(t *transit) {
	i := slices.Index(l.turns, t)
	if i < 0 {
		return
	}
	if l.turns = slices.Delete(l.turns, i, i+1); i == 0 && len(l.turns) > 0 {
		l.turns[0].sig.broadcast()
	}
}

// countdown is an armed cut: after left more bytes the connection is reset.
type countdown struct {
	armed bool
	left  int64
}

// take passes up to n bytes and says whether the last of them was the one to cut after.
func (c *countdown) take(n int) (pass int, cut bool) {
	if !c.armed {
		return n, false
	}
	if c.left > int64(n) {
		c.left -= int64(n)
		return n, false
	}
	c.armed = false
	return int(c.left), true
}

// mark is an event that travels behind the bytes: the end of a stream, or a reset.
type mark struct {
	set  bool
	held bool // swallowed: comes after Heal
	due  time.Time
}

func (m mark) arrived(now time.Time) bool { return m.set && !m.held && !now.Before(m.due) }

// hold swallows the mark if it has not arrived yet.
func (m *mark) hold(now time.Time) {
	if m.set && m.due.After(now) {
		m.held = true
	}
}

// wake is the earliest of until (zero = never) and the mark's arrival, if that lies ahead.
func (m mark) wake(until time.Time) time.Time {
	if !m.set || m.held {
		return until
	}
	return earlier(until, m.due)
}

// signal wakes all who wait for a change. Its owner's mutex guards it; waiting happens without the mutex.
type signal struct{ ch chan struct{} }

func (s *signal) broadcast() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

func (s *signal) changed() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// waitFor gives up mu until s is broadcast, done is closed (nil = never) or until has come (zero = never).
func waitFor(mu *sync.Mutex, s *signal, done <-chan struct{}, until time.Time) {
	changed := s.changed()
	mu.Unlock()
	defer mu.Lock()
	await(changed, done, until)
}

// await returns on changed, on done (nil = never) or at until (zero = never).
func await(changed, done <-chan struct{}, until time.Time) {
	var timeout <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-changed:
	case <-done:
	case <-timeout:
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// earlier treats the zero time as never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
