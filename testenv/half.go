package testenv

import (
	"bytes"
	"time"
)

// half is one direction of one connection in memory: what was written at one end and not yet read at the other. The
// route's mutex guards it.
type half struct {
	transit
	data [][]byte // of the pieces, as they were written
	back *half    // the other direction of the same connection
	keep bool     // the reset follows the bytes in queue instead of dropping them (CutAfter)
	deaf bool     // the reading end is closed: bytes that arrive are answered by a reset
	cut  countdown
}

// push queues p, a part of a write of size bytes.
func (h *half) push(now time.Time, p []byte, size int) {
	step := len(p)
	if h.lane.rate > 0 {
		step = packet
	}
	for len(p) > 0 {
		n := min(step, len(p))
		if h.transit.push(now, n, size) {
			h.data = append(h.data, bytes.Clone(p[:n]))
		}
		p = p[n:]
	}
	h.answer(now)
	h.sig.broadcast()
}

// answer sends the reset that bytes arriving at a closed end provoke (RFC 9293 section 3.10.7.1).
func (h *half) answer(now time.Time) {
	if due, ok := h.first(); ok && h.deaf {
		h.back.send(later(now, due), &h.back.rst)
		h.back.sig.broadcast()
		h.sig.broadcast()
	}
}

// take moves bytes that have arrived into p.
func (h *half) take(now time.Time, p []byte) int {
	n := h.arrived(now, len(p))
	if n > 0 {
		h.skip(p[:n])
		h.took(n)
	}
	return n
}

// skip moves the first len(p) bytes into p.
func (h *half) skip(p []byte) {
	for len(p) > 0 {
		n := copy(p, h.data[0])
		p = p[n:]
		if h.data[0] = h.data[0][n:]; len(h.data[0]) == 0 {
			h.data[0] = nil
			h.data = h.data[1:]
		}
	}
}

// wake is when the reading end should look again, until at the latest.
func (h *half) wake(until time.Time) time.Time {
	if h.size == 0 {
		until = h.fin.wake(until)
	} else if due, ok := h.first(); ok {
		until = earlier(until, due)
	}
	return h.rst.wake(until)
}

// heal is [transit.heal] for a half whose reader may be gone.
func (h *half) heal(now time.Time) {
	h.transit.heal(now)
	h.answer(now)
}

// silence makes this connection alone lose everything in this direction, or ends that.
func (h *half) silence(now time.Time, on bool) {
	if on == h.hole {
		return
	}
	if h.hole = on; on {
		h.swallow(now)
	} else {
		h.heal(now)
	}
}

// discard drops what has arrived.
func (h *half) discard(now time.Time) {
	if n := h.arrived(now, h.size); n > 0 {
		h.skip(make([]byte, n))
		h.took(n)
	}
}

// drop forgets what is on its way.
func (h *half) drop() {
	h.data = nil
	h.transit.drop()
}
