package testenv

import (
	"math/rand/v2"
	"time"
)

// transit is the fate of the bytes of one direction of one connection: which are on their way, when they arrive, what holds
// them up, and what comes behind them. It knows nothing of the bytes themselves. The mutex of the lane's owner guards it.
type transit struct {
	lane    *lane
	lump    time.Duration // pieces that come within it of each other arrive together, early by that much
	hole    bool          // this connection alone is silent
	mute    bool          // what is sent from now on is lost: see Route.Fin
	pieces  []piece
	size    int       // bytes in pieces
	last    time.Time // arrival of the newest piece: nothing overtakes it
	stalled bool      // a piece was swallowed; whatever follows waits for it
	fin     mark
	rst     mark
	jitter  *rand.Rand // of this direction; nil = the lane may have none
	sig     signal
}

// piece is some bytes that arrive together.
type piece struct {
	n    int
	size int // of the whole write they belong to
	due  time.Time
	held bool // swallowed: due is set by heal
}

// push sends n bytes, a part of a write of size bytes; false when they are lost for good.
func (t *transit) push(now time.Time, n, size int) bool {
	if t.mute {
		return false
	}
	t.size += n
	t.admit(now, piece{n: n, size: size})
	return true
}

// admit queues p with its time of arrival, or swallows it.
func (t *transit) admit(now time.Time, p piece) {
	t.stalled = t.stalled || t.swallows(p.size)
	if p.held = t.stalled; !p.held {
		p.due = later(t.last, t.lane.arrival(now, p.n, t.jitter))
		if i := len(t.pieces) - 1; i >= 0 && t.merges(t.pieces[i], p) {
			t.pieces[i].n += p.n
			return
		}
		t.last = p.due
	}
	t.pieces = append(t.pieces, p)
}

// merges says whether b may arrive with a, which is before it.
func (t *transit) merges(a, b piece) bool {
	if t.lump == 0 {
		return a.due.Equal(b.due) && a.size == b.size
	}
	return t.lane.rate == 0 && b.due.Sub(a.due) < t.lump
}

// swallows says whether what was written in one piece of size bytes gets lost on the way.
func (t *transit) swallows(size int) bool {
	return t.hole || t.lane.hole || t.lane.large > 0 && size > t.lane.large
}

// send puts m behind the bytes.
func (t *transit) send(now time.Time, m *mark) {
	if m.set {
		return
	}
	t.stalled = t.stalled || t.hole || t.lane.hole
	*m = mark{set: true, held: t.stalled, due: later(t.last, t.lane.leave(now))}
	t.sig.broadcast()
}

// swallow holds all that has not arrived.
func (t *transit) swallow(now time.Time) {
	t.stalled = true
	for i := range t.pieces {
		t.pieces[i].held = t.pieces[i].held || t.pieces[i].due.After(now)
	}
	t.fin.hold(now)
	t.rst.hold(now)
	t.sig.broadcast()
}

// heal sends again what was swallowed, as TCP retransmits: it arrives one delay from now.
func (t *transit) heal(now time.Time) {
	t.stalled = false
	pieces := t.pieces
	t.pieces = make([]piece, 0, len(pieces))
	for _, p := range pieces {
		if p.held {
			t.admit(now, p)
		} else {
			t.pieces = append(t.pieces, p)
		}
	}
	for _, m := range []*mark{&t.fin, &t.rst} {
		if m.held {
			m.set = false
			t.send(now, m)
		}
	}
	t.sig.broadcast()
}

// arrived is how many bytes may be read now, most at most.
func (t *transit) arrived(now time.Time, most int) (n int) {
	for _, p := range t.pieces {
		if n >= most || p.held || now.Before(p.due) {
			break
		}
		n += p.n
	}
	return min(n, most)
}

// took accounts for n bytes read at the far end.
func (t *transit) took(n int) {
	t.size -= n
	t.lane.bytes += int64(n)
	i := 0
	for ; i < len(t.pieces) && t.pieces[i].n <= n; i++ {
		n -= t.pieces[i].n
	}
	if t.pieces = t.pieces[i:]; n > 0 {
		t.pieces[0].n -= n
	}
	if len(t.pieces) == 0 {
		t.pieces = nil
	}
	t.sig.broadcast()
}

// first is when the first piece arrives; false when there is none or it is held.
func (t *transit) first() (time.Time, bool) {
	if len(t.pieces) == 0 || t.pieces[0].held {
		return time.Time{}, false
	}
	return t.pieces[0].due, true
}

// drop forgets what is on its way.
func (t *transit) drop() {
	t.pieces, t.size = nil, 0
	t.sig.broadcast()
}
