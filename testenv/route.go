package testenv

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// defaultBuffer is how many bytes a direction of a connection takes that nobody has read: what a kernel gives a TCP
// connection before it measures it.
const defaultBuffer = 256 << 10

// outageStream tells the random numbers of outages from those of jitter, which count connections.
const outageStream = 1 << 63

// Route is one way between two ends in memory; all its connections share its faults. A change holds from now on: bytes
// that have their time of arrival keep it, and none overtakes another of its connection.
type Route struct {
	// mu guards the route and everything about its connections; routes of a World share it. Nobody waits while holding it.
	mu       *sync.Mutex
	up, down lane
	buffer   int
	readSize int
	conns    []*Conn // dialling ends of connections that live, oldest first
	seed     uint64
	opened   uint64 // connections ever

	refuse, hang, unreachable bool
	listener                  *listener // of Net
	dials                     *signal   // a dial's prospects or a backlog changed
	// Of a World; they write to its timeline and are called with mu held.
	note   func(format string, args ...any)
	outage func(from time.Time, d time.Duration)
}

// NewRoute returns a route without faults and without a listener.
func NewRoute() *Route {
	return &Route{
		mu: new(sync.Mutex), dials: new(signal), buffer: defaultBuffer,
		note: func(string, ...any) {}, outage: func(time.Time, time.Duration) {},
	}
}

// Pipe returns both ends of a new connection over a route of its own: up is from near to far.
func Pipe() (near, far *Conn) { return NewRoute().Pipe() }

// Pipe returns both ends of a new connection over r: up is from near to far. No dial or accept is involved.
func (r *Route) Pipe() (near, far *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connect(Addr("near"), Addr("far"))
}

func (r *Route) connect(from, to net.Addr) (near, far *Conn) {
	return r.connectBy(&r.up, &r.down, from, to)
}

// connectBy is connect for a dialling end that sends by the lane out and hears by the lane in.
func (r *Route) connectBy(out, in *lane, from, to net.Addr) (near, far *Conn) {
	there, back := &half{}, &half{}
	there.lane, back.lane = out, in
	there.back, back.back = back, there
	there.jitter = rand.New(rand.NewPCG(r.seed, 2*r.opened))
	back.jitter = rand.New(rand.NewPCG(r.seed, 2*r.opened+1))
	r.opened++
	near = &Conn{r: r, in: back, out: there, local: from, remote: to}
	far = &Conn{r: r, in: there, out: back, local: to, remote: from, peer: near}
	near.peer = far
	r.conns = append(r.conns, near)
	return near, far
}

// SetDelay makes each direction take d; the round trip is 2 d.
func (r *Route) SetDelay(d time.Duration) { r.SetDelays(d, d) }

// SetDelays makes the way up take up, and the way down take down.
func (r *Route) SetDelays(up, down time.Duration) {
	r.change(func(time.Time) {
		r.note("delay %s up, %s down", up, down)
		r.up.delay, r.down.delay = up, down
	})
}

// SetJitter makes each piece take up to d longer, evenly spread by the seed; the bytes of a connection stay in order.
func (r *Route) SetJitter(d time.Duration) {
	r.change(func(time.Time) {
		r.note("jitter %s", d)
		r.up.jitter, r.down.jitter = d, d
	})
}

// SetRate lets each direction carry so many bytes a second, shared by its connections in the order of their writes;
// 0 = no limit. See [Route.SetQueue].
func (r *Route) SetRate(bytesPerSecond int64) {
	r.change(func(time.Time) {
		r.note("rate %d B/s", bytesPerSecond)
		r.up.setRate(bytesPerSecond)
		r.down.setRate(bytesPerSecond)
	})
}

// SetQueue bounds how many bytes of all connections together wait for the rate of a direction. When it is full, writers
// block and take turns, a packet of 1448 bytes each, as TCP senders do that share a bottleneck. 0 = each connection may
// have its whole buffer in the queue.
func (r *Route) SetQueue(bytes int) {
	r.change(func(time.Time) {
		r.note("queue %d B", bytes)
		for _, l := range []*lane{&r.up, &r.down} {
			l.queue, l.leaving, l.queued = bytes, nil, 0
		}
	})
}

// Outages makes the route silent both ways by a timetable that the seed gives: for the share (0 to 1) of the time, in
// pieces of mean length, each and each gap between half its mean and one and a half. What is sent during an outage
// arrives as if sent at its end; what is on its way when it begins arrives. Share 0 = none.
func (r *Route) Outages(share float64, mean time.Duration) {
	r.change(func(now time.Time) {
		r.note("outages: %g %% of the time, %s on average", 100*share, mean)
		var o *outages
		if share > 0 && share < 1 && mean > 0 {
			o = &outages{rnd: rand.New(rand.NewPCG(r.seed, outageStream)), share: share, mean: mean, until: now, note: r.outage}
		}
		r.up.out, r.down.out = o, o
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
		if up != r.up.hole || down != r.down.hole {
			r.note("black hole up %v, down %v", up, down)
		}
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
		if up != r.up.large || down != r.down.large {
			r.note("loses writes of more than %d B up, %d B down (0: none)", up, down)
		}
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
		r.note("cut after %d B, up %v", n, up)
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
		r.note("reset: %d connections", len(r.conns))
		for _, near := range r.conns {
			for _, c := range []*Conn{near, near.peer} {
				c.failed = syscall.ECONNRESET
				c.in.drop()
			}
		}
		r.conns = nil
		r.up.setRate(r.up.rate)
		r.down.setRate(r.down.rate)
	})
}

// Fin ends all connections as a machine in the way does that closes its sockets: both ends get a FIN behind the bytes
// that are on their way, and what is sent from now on is lost.
func (r *Route) Fin() {
	r.change(func(now time.Time) {
		r.note("fin: %d connections", len(r.conns))
		for _, c := range r.conns {
			for _, h := range []*half{c.out, c.in} {
				h.mute = true
				h.send(now, &h.fin)
			}
		}
	})
}

// Forget leaves all connections half open: the accepting end has lost them without a word, and its calls fail with
// ECONNRESET; what the dialling end sends next is answered by a reset.
func (r *Route) Forget() {
	r.change(func(now time.Time) {
		r.note("half open: %d connections", len(r.conns))
		for _, c := range r.conns {
			c.peer.lose(now, syscall.ECONNRESET)
		}
	})
}

// Refuse makes dials fail with ECONNREFUSED after a round trip. The error is always nil; [Path.Refuse] may have one.
func (r *Route) Refuse(on bool) error {
	r.change(func(time.Time) {
		r.note("refuse %v", on)
		r.refuse = on
	})
	return nil
}

// Hang makes dials wait for their context; those that still wait go on when it is switched off.
func (r *Route) Hang(on bool) {
	r.change(func(time.Time) {
		r.note("hang %v", on)
		r.hang = on
	})
}

// Unreachable makes dials fail with EHOSTUNREACH at once.
func (r *Route) Unreachable(on bool) {
	r.change(func(time.Time) {
		r.note("unreachable %v", on)
		r.unreachable = on
	})
}

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
		if c.out.lane == l {
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
func (r *Route) wait(s *signal, done <-chan struct{}, until time.Time) { waitFor(r.mu, s, done, until) }
