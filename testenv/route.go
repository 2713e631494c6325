package testenv

import (
	"net"
	"slices"
	"sync"
	"time"
)

// defaultBuffer is how many bytes a direction of a connection takes that nobody has read: what a kernel gives a TCP
// connection before it measures it.
const defaultBuffer = 256 << 10

// Route is one way between two ends in memory; all its connections share its faults. A change holds from now on: bytes
// that have their time of arrival keep it, and none overtakes another of its connection.
type Route struct {
	// mu guards the route and everything about its connections. Nobody waits while holding it.
	mu       sync.Mutex
	up, down lane
	buffer   int
	readSize int
	conns    []*Conn // dialling ends of connections that live, oldest first

	refuse, hang, unreachable bool
	listener                  *listener
	dials                     signal // a dial's prospects or the backlog changed
}

// NewRoute returns a route without faults and without a listener.
func NewRoute() *Route { return &Route{buffer: defaultBuffer} }

// Pipe returns both ends of a new connection over a route of its own: up is from near to far.
func Pipe() (near, far *Conn) { return NewRoute().Pipe() }

// Pipe returns both ends of a new connection over r: up is from near to far. No dial or accept is involved.
func (r *Route) Pipe() (near, far *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connect(Addr("near"), Addr("far"))
}

func (r *Route) connect(from, to net.Addr) (near, far *Conn) {
	up, down := &half{lane: &r.up}, &half{lane: &r.down}
	up.back, down.back = down, up
	near = &Conn{r: r, in: down, out: up, local: from, remote: to}
	far = &Conn{r: r, in: up, out: down, local: to, remote: from, peer: near}
	near.peer = far
	r.conns = append(r.conns, near)
	return near, far
}

// SetDelay makes each direction take d; the round trip is 2 d.
func (r *Route) SetDelay(d time.Duration) {
	r.change(func(time.Time) { r.up.delay, r.down.delay = d, d })
}

// SetRate lets each direction carry so many bytes a second, shared by its connections in the order of their writes;
// 0 = no limit. The queue is the connections' buffers.
func (r *Route) SetRate(bytesPerSecond int64) {
	r.change(func(time.Time) {
		for _, l := range []*lane{&r.up, &r.down} {
			l.rate, l.free = bytesPerSecond, time.Time{}
		}
	})
}

// SetBuffer sets how many bytes written and not read a direction of a connection takes before a Write blocks;
// 0 = 256 KiB.
func (r *Route) SetBuffer(n int) {
	if n <= 0 {
		n = defaultBuffer
	}
	r.change(func(time.Time) { r.buffer = n })
}

// SetReadSize lets a Read return at most n bytes; 0 = as many as have arrived.
func (r *Route) SetReadSize(n int) { r.change(func(time.Time) { r.readSize = n }) }

// BlackHole makes the directions named lose everything, also what is on its way, and tells nobody: writes succeed until
// the buffer is full, then block; dials hang. A direction not named is healed.
func (r *Route) BlackHole(up, down bool) {
	r.change(func(now time.Time) {
		r.setHole(now, &r.up, up)
		r.setHole(now, &r.down, down)
	})
}

func (r *Route) setHole(now time.Time, l *lane, hole bool) {
	was := l.hole
	l.hole = hole
	switch {
	case hole && !was:
		r.each(l, func(h *half) { h.swallow(now) })
	case !hole && was:
		r.each(l, func(h *half) { h.heal(now) })
	}
}

// LoseLarge makes a direction lose each write of more than so many bytes, and hold up what its connection writes
// after it, as a path does that drops full-sized packets without a word; 0 = off, and what was lost is sent again.
func (r *Route) LoseLarge(up, down int) {
	r.change(func(now time.Time) {
		r.up.large, r.down.large = up, down
		r.each(&r.up, func(h *half) { h.heal(now) })
		r.each(&r.down, func(h *half) { h.heal(now) })
	})
}

// Heal ends BlackHole and LoseLarge. What they held arrives one delay from now, in order.
func (r *Route) Heal() {
	r.BlackHole(false, false)
	r.LoseLarge(0, 0)
}

// CutAfter resets the connection that carries the n-th byte written from now on in that direction, behind that byte;
// see [Conn.CutAfter]. n ≤ 0 disarms.
func (r *Route) CutAfter(up bool, n int64) {
	r.change(func(time.Time) {
		c := countdown{armed: n > 0, left: n}
		if up {
			r.up.cut = c
		} else {
			r.down.cut = c
		}
	})
}

// Reset resets all connections at once, at both ends; what was not read is gone.
func (r *Route) Reset() {
	r.change(func(time.Time) {
		for _, near := range r.conns {
			for _, c := range []*Conn{near, near.peer} {
				c.reset = true
				c.in.drop()
			}
		}
		r.conns = nil
		r.up.free, r.down.free = time.Time{}, time.Time{}
	})
}

// Refuse makes dials fail with ECONNREFUSED after a round trip. The error is always nil; [Path.Refuse] may have one.
func (r *Route) Refuse(on bool) error {
	r.change(func(time.Time) { r.refuse = on })
	return nil
}

// Hang makes dials wait for their context; those that still wait go on when it is switched off.
func (r *Route) Hang(on bool) { r.change(func(time.Time) { r.hang = on }) }

// Unreachable makes dials fail with EHOSTUNREACH at once.
func (r *Route) Unreachable(on bool) { r.change(func(time.Time) { r.unreachable = on }) }

// Conns returns the dialling ends of the connections that live, oldest first. One is gone when it was reset or both
// ends have closed it.
func (r *Route) Conns() []*Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.conns)
}

// Live is the number of connections that live.
func (r *Route) Live() int { return len(r.Conns()) }

// Bytes counts what was read at the far end (up) and at the near end (down).
func (r *Route) Bytes() (up, down int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up.bytes, r.down.bytes
}

// change applies f and wakes all who may be concerned.
func (r *Route) change(f func(now time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conns := r.conns
	f(time.Now())
	for _, c := range conns {
		c.in.sig.broadcast()
		c.out.sig.broadcast()
	}
	r.dials.broadcast()
}

// each calls f for the half that l carries of every connection.
func (r *Route) each(l *lane, f func(*half)) {
	for _, c := range r.conns {
		if l == &r.up {
			f(c.out)
		} else {
			f(c.in)
		}
	}
}

// forget takes the connection of c, either end, off the list.
func (r *Route) forget(c *Conn) {
	r.conns = slices.DeleteFunc(r.conns, func(o *Conn) bool { return o == c || o == c.peer })
}

// wait gives up mu until s is broadcast, done is closed (nil = never) or until has come (zero = never).
func (r *Route) wait(s *signal, done <-chan struct{}, until time.Time) {
	changed := s.changed()
	r.mu.Unlock()
	defer r.mu.Lock()
	await(changed, done, until)
}
