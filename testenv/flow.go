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
// guards it; ring[tail:] belongs to the reader and ring[head:] up to the bytes due to the writer while they work.
type flow struct {
	p    *Path
	pair *pair
	lane *lane

	ring       []byte
	head, tail int64
	chunks     []chunk
	last       time.Time // nothing arrives before it
	stalled    bool
	fin, rst   mark
	finished   bool // the far end has got its FIN
	mute       bool // what is read from now on is lost: see Path.Fin
	sig        signal
}

// chunk is what one read brought; it ends at the position end of the flow.
type chunk struct {
	end  int64
	size int
	due  time.Time
	held bool
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
		used, limit := int(f.tail-f.head), f.limit()
		if f.lane.hole || used >= limit {
			f.p.wait(&f.sig, time.Time{})
			continue
		}
		if used == len(f.ring) {
			f.grow(min(max(2*len(f.ring), ringStart), limit))
		}
		at := int(f.tail % int64(len(f.ring)))
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
	for pos := f.head; pos < f.tail; {
		at, to := int(pos%int64(len(f.ring))), int(pos%int64(n))
		end := min(len(f.ring), at+int(f.tail-pos))
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
		f.tail += int64(pass)
		f.admit(now, chunk{end: f.tail, size: n})
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

// admit queues c with its time of arrival, or swallows it.
func (f *flow) admit(now time.Time, c chunk) {
	n := len(f.chunks)
	f.stalled = f.stalled || f.lane.swallows(c.size)
	if c.held = f.stalled; !c.held {
		from := f.head
		if n > 0 {
			from = f.chunks[n-1].end
		}
		c.due = later(f.last, f.lane.arrival(now, int(c.end-from)))
		if n > 0 && f.lane.rate == 0 && c.due.Sub(f.chunks[n-1].due) < lump {
			f.chunks[n-1].end = c.end
			return
		}
		f.last = c.due
	}
	f.chunks = append(f.chunks, c)
}

// send puts m behind the bytes.
func (f *flow) send(now time.Time, m *mark) {
	if m.set {
		return
	}
	f.stalled = f.stalled || f.lane.hole
	*m = mark{set: true, held: f.stalled, due: later(f.last, now.Add(f.lane.delay))}
	f.sig.broadcast()
}

// swallow holds what has not arrived.
func (f *flow) swallow(now time.Time) {
	f.stalled = true
	for i := range f.chunks {
		f.chunks[i].held = f.chunks[i].held || f.chunks[i].due.After(now)
	}
	f.fin.hold(now)
	f.rst.hold(now)
	f.sig.broadcast()
}

// heal sends again what was swallowed.
func (f *flow) heal(now time.Time) {
	f.stalled = false
	chunks := f.chunks
	f.chunks = nil
	for _, c := range chunks {
		if c.held {
			f.admit(now, c)
		} else {
			f.chunks = append(f.chunks, c)
		}
	}
	for _, m := range []*mark{&f.fin, &f.rst} {
		if m.held {
			m.set = false
			f.send(now, m)
		}
	}
	f.sig.broadcast()
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
		case len(f.chunks) > 0:
			if b := f.due(now); len(b) > 0 {
				return stepWrite, b
			}
			if !f.chunks[0].held {
				wake = f.chunks[0].due
			}
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
	end := f.head
	for _, c := range f.chunks {
		if c.held || now.Before(c.due) {
			break
		}
		end = c.end
	}
	at := int(f.head % int64(len(f.ring)))
	return f.ring[at:min(len(f.ring), at+int(end-f.head))]
}

// wrote accounts for n bytes delivered.
func (f *flow) wrote(n int) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.head += int64(n)
	f.lane.bytes += int64(n)
	i := 0
	for i < len(f.chunks) && f.chunks[i].end <= f.head {
		i++
	}
	f.chunks = f.chunks[i:]
	f.sig.broadcast()
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
	f.head, f.chunks = f.tail, nil
	f.sig.broadcast()
}

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
