package testenv

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

const (
	ringStart = 64 << 10  // what a flow takes for its first byte
	ringSpan  = 256 << 10 // queue without delay or rate: enough for a reader and a writer to work side by side
	ringMax   = 32 << 20  // memory bound of a flow: 800 MB/s over 40 ms
	// ringSpeed is the rate, in bytes a second, that a delay must not limit as long as ringMax allows.
	ringSpeed = 1600 << 20
	// rateQueue is how long a byte waits at most in the queue of a rate: a router's usual buffer.
	rateQueue = 100 * time.Millisecond
	// lump is within which time of each other pieces are delivered together, early by that much: it bounds the
	// wake-ups to 5000 a second.
	lump = 200 * time.Microsecond
)

// flow carries one direction of a forwarded connection: a reader fills the ring, a writer empties it in time. Path.mu
// guards it; what is free in the ring belongs to the reader, and what is due to the writer, while they work.
type flow struct {
	transit
	p    *Path
	pair *pair

	ring     []byte
	head     int64 // position of the first byte in ring; behind it are as many as transit says
	finished bool  // the far end has got its FIN
}

func newFlow(p *Path, c *pair, l *lane) *flow {
	return &flow{p: p, pair: c, transit: transit{lane: l, lump: lump}}
}

// limit is how many bytes the flow may hold.
func (f *flow) limit() int {
	if r := f.lane.rate; r > 0 {
		return int(min(max(float64(r)*(f.lane.delay+rateQueue).Seconds(), ringStart), ringMax))
	}
	return int(min(ringSpan+f.lane.delay.Seconds()*ringSpeed, ringMax))
}

// reserve waits for room and returns it; nil when the connection is over. In a black hole nothing is read: what the
// kernels hold stays there.
func (f *flow) reserve() []byte {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	for !f.pair.over {
		used, limit := f.size, f.limit()
		if f.lane.hole || used >= limit {
			f.p.wait(&f.sig, time.Time{})
			continue
		}
		if used == len(f.ring) {
			f.grow(min(max(2*len(f.ring), ringStart), limit))
		}
		at := int((f.head + int64(used)) % int64(len(f.ring)))
		n := min(len(f.ring)-used, len(f.ring)-at)
		if r := f.lane.rate; r > 0 {
			n = min(n, max(packet, int(min(r/1000, ringSpan))))
		}
		return f.ring[at : at+n]
	}
	return nil
}

// grow moves the ring's content to a ring of n bytes. The writer may still read from the old one.
func (f *flow) grow(n int) {
	ring := make([]byte, n)
	for pos, tail := f.head, f.head+int64(f.size); pos < tail; {
		at, to := int(pos%int64(len(f.ring))), int(pos%int64(n))
		end := min(len(f.ring), at+int(tail-pos))
		pos += int64(copy(ring[to:], f.ring[at:end]))
	}
	f.ring = ring
}

// commit queues the n bytes read into what reserve returned and the error behind them; false ends the reading.
func (f *flow) commit(n int, err error) bool {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	now := time.Now()
	if f.mute {
		return err == nil
	}
	pass, cut := f.lane.cut.take(n)
	if pass > 0 {
		f.push(now, pass, n)
	}
	switch {
	case cut:
		f.send(now.Add(-f.lane.delay), &f.rst)
	case errors.Is(err, io.EOF):
		f.send(now, &f.fin)
	case err != nil:
		f.send(now, &f.rst)
	}
	f.sig.broadcast()
	return err == nil && !cut
}

// step is what the writer has to do next.
type step int

const (
	stepWrite step = iota
	stepFin
	stepReset
	stepOver
)

// next waits until something is due.
func (f *flow) next() (step, []byte) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	for {
		now := time.Now()
		var wake time.Time
		switch {
		case f.pair.over:
			return stepOver, nil
		case f.size > 0:
			if b := f.due(now); len(b) > 0 {
				return stepWrite, b
			}
			wake, _ = f.first()
		case f.rst.arrived(now):
			return stepReset, nil
		case f.fin.arrived(now) && !f.finished:
			return stepFin, nil
		default:
			if wake = f.rst.wake(wake); !f.finished {
				wake = f.fin.wake(wake)
			}
		}
		f.p.wait(&f.sig, wake)
	}
}

// due is what has arrived, as far as it lies in one piece.
func (f *flow) due(now time.Time) []byte {
	at := int(f.head % int64(len(f.ring)))
	return f.ring[at:min(len(f.ring), at+f.arrived(now, len(f.ring)))]
}

// wrote accounts for n bytes delivered.
func (f *flow) wrote(n int) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.head += int64(n)
	f.took(n)
}

// read is the goroutine that fills the flow from src.
func (f *flow) read(src net.Conn) {
	defer f.p.wg.Done()
	for {
		b := f.reserve()
		if b == nil {
			return
		}
		if n, err := src.Read(b); !f.commit(n, err) {
			return
		}
	}
}

// write is the goroutine that empties the flow into dst and ends the connection when both directions are done. When
// dst takes nothing any more, src learns it as a reset, one delay later.
func (f *flow) write(dst net.Conn, back *flow) {
	defer f.p.wg.Done()
	for {
		what, b := f.next()
		switch what {
		case stepOver:
			return
		case stepReset:
			f.pair.end(true)
			return
		case stepFin:
			if err := closeWrite(dst); err != nil && !errors.Is(err, syscall.ENOTCONN) {
				back.fail()
			}
			f.finish(back)
		case stepWrite:
			n, err := dst.Write(b)
			f.wrote(n)
			if err != nil {
				f.discard()
				back.fail()
			}
		}
	}
}

// finish notes that the far end has its FIN; the second of both directions ends the connection.
func (f *flow) finish(back *flow) {
	f.p.mu.Lock()
	f.finished = true
	both := back.finished
	f.p.mu.Unlock()
	if both {
		f.pair.end(false)
	}
}

// fail sends a reset this way.
func (f *flow) fail() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.send(time.Now(), &f.rst)
}

// discard drops what is queued: its receiver is gone.
func (f *flow) discard() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.head += int64(f.size)
	f.drop()
}

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
