package testenv

import (
	"time"
)

// packet is how many bytes leave together when a rate is set: the payload of one TCP segment on Ethernet.
const packet = 1448

// lane is one direction of a route: the faults that all its connections share. Its owner's mutex guards it.
type lane struct {
	delay time.Duration // one way
	rate  int64         // bytes a second, 0 = as fast as the machine
	hole  bool          // nothing arrives
	large int           // a write of more bytes is lost, with all that follows it; 0 = none is
	cut   countdown     // resets the connection that carries the last byte
	free  time.Time     // when the last byte accepted has left: the connections of a lane share its rate
	bytes int64         // accepted for delivery or read by the far end, as the owner counts
}

// arrival says when n bytes handed over now are all at the far end.
func (l *lane) arrival(now time.Time, n int) time.Time {
	if l.rate > 0 {
		now = later(now, l.free).Add(time.Duration(int64(n) * int64(time.Second) / l.rate))
		l.free = now
	}
	return now.Add(l.delay)
}

// swallows says whether what was written in one piece of size bytes gets lost on the way.
func (l *lane) swallows(size int) bool {
	return l.hole || l.large > 0 && size > l.large
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
