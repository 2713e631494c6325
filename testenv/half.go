package testenv

import "time"

// segment is a piece of one write on its way.
type segment struct {
	b    []byte
	size int // of the whole write it belongs to
	due  time.Time
	held bool // swallowed: due is set by Heal
}

// half is one direction of one connection: what was written at one end and not yet read at the other. Route.mu guards it.
type half struct {
	lane    *lane
	back    *half // the other direction of the same connection
	queue   []segment
	size    int       // bytes in queue
	last    time.Time // arrival of the newest segment: nothing overtakes it
	stalled bool      // a segment was swallowed; whatever follows waits for it
	fin     mark
	rst     mark
	keep    bool // the reset follows the bytes in queue instead of dropping them (CutAfter)
	deaf    bool // the reading end is closed: bytes that arrive are answered by a reset
	cut     countdown
	sig     signal
}

// push queues p, a part of a write of size bytes.
func (h *half) push(now time.Time, p []byte, size int) {
	step := len(p)
	if h.lane.rate > 0 {
		step = packet
	}
	for len(p) > 0 {
		n := min(step, len(p))
		s := segment{b: append([]byte(nil), p[:n]...), size: size}
		h.admit(now, &s)
		h.queue = append(h.queue, s)
		h.size += n
		p = p[n:]
	}
	h.answer(now)
	h.sig.broadcast()
}

// admit gives s its time of arrival, or swallows it.
func (h *half) admit(now time.Time, s *segment) {
	if h.stalled || h.lane.swallows(s.size) {
		h.stalled, s.held = true, true
		return
	}
	s.held = false
	s.due = later(h.last, h.lane.arrival(now, len(s.b)))
	h.last = s.due
}

// send puts m behind the bytes.
func (h *half) send(now time.Time, m *mark) {
	if m.set {
		return
	}
	*m = mark{set: true, held: h.stalled || h.lane.hole, due: later(h.last, now.Add(h.lane.delay))}
	h.stalled = m.held
	h.sig.broadcast()
}

// answer sends the reset that bytes arriving at a closed end provoke (RFC 9293 section 3.10.7.1).
func (h *half) answer(now time.Time) {
	if h.deaf && len(h.queue) > 0 && !h.queue[0].held {
		h.back.send(later(now, h.queue[0].due), &h.back.rst)
		h.back.sig.broadcast()
		h.sig.broadcast()
	}
}

// take moves bytes that have arrived into p.
func (h *half) take(now time.Time, p []byte) (n int) {
	for n < len(p) && len(h.queue) > 0 && !h.queue[0].held && !now.Before(h.queue[0].due) {
		s := &h.queue[0]
		k := copy(p[n:], s.b)
		n += k
		if s.b = s.b[k:]; len(s.b) == 0 {
			h.queue[0] = segment{}
			h.queue = h.queue[1:]
		}
	}
	if n > 0 {
		h.size -= n
		h.lane.bytes += int64(n)
		h.sig.broadcast()
	}
	return n
}

// wake is when the reading end should look again, until at the latest.
func (h *half) wake(until time.Time) time.Time {
	if len(h.queue) > 0 {
		if !h.queue[0].held {
			until = earlier(until, h.queue[0].due)
		}
	} else {
		until = h.fin.wake(until)
	}
	return h.rst.wake(until)
}

// swallow holds all that has not arrived yet.
func (h *half) swallow(now time.Time) {
	h.stalled = true
	for i := range h.queue {
		if h.queue[i].due.After(now) {
			h.queue[i].held = true
		}
	}
	h.fin.hold(now)
	h.rst.hold(now)
	h.sig.broadcast()
}

// heal sends again what was swallowed, as TCP retransmits: it arrives one delay from now.
func (h *half) heal(now time.Time) {
	h.stalled = false
	for i := range h.queue {
		if h.queue[i].held {
			h.admit(now, &h.queue[i])
		}
	}
	for _, m := range []*mark{&h.fin, &h.rst} {
		if m.held {
			m.set = false
			h.send(now, m)
		}
	}
	h.answer(now)
	h.sig.broadcast()
}

// drop forgets what is on its way.
func (h *half) drop() {
	h.queue, h.size = nil, 0
	h.sig.broadcast()
}
