package testenv

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Conn is one end of an in-memory connection. Its errors look like those of a *net.TCPConn: *net.OpError around
// ECONNRESET, EPIPE, net.ErrClosed or os.ErrDeadlineExceeded.
type Conn struct {
	r             *Route
	peer          *Conn
	in, out       *half
	local, remote net.Addr
	place         place // in a World

	// r.mu guards what follows.
	closed        bool
	failed        error // what this end was ended with from outside
	readDeadline  time.Time
	writeDeadline time.Time
}

var _ net.Conn = (*Conn)(nil)

// Read returns bytes that have arrived, at most [Route.SetReadSize] of them.
func (c *Conn) Read(p []byte) (int, error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for {
		now := time.Now()
		if err := c.usable(now, c.readDeadline); err != nil {
			return 0, c.error("read", err)
		}
		if c.in.rst.arrived(now) && (!c.in.keep || c.in.size == 0) {
			return 0, c.error("read", syscall.ECONNRESET)
		}
		if len(p) == 0 {
			return 0, nil
		}
		if c.r.readSize > 0 {
			p = p[:min(len(p), c.r.readSize)]
		}
		if n := c.in.take(now, p); n > 0 {
			return n, nil
		}
		if c.in.size == 0 && c.in.fin.arrived(now) {
			return 0, io.EOF
		}
		c.r.wait(&c.in.sig, nil, c.in.wake(c.readDeadline))
	}
}

// Write returns when all of p is in the buffer of the connection ([Route.SetBuffer]) and the queue of the route
// ([Route.SetQueue]); arrival is another matter.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	defer c.out.lane.yield(&c.out.transit)
	for n < len(p) {
		now := time.Now()
		if err := c.usable(now, c.writeDeadline); err != nil {
			return n, c.error("write", err)
		}
		switch {
		case c.in.rst.arrived(now):
			return n, c.error("write", syscall.ECONNRESET)
		case c.out.fin.set && !c.out.mute:
			return n, c.error("write", syscall.EPIPE)
		}
		room, wake := c.out.lane.turn(now, &c.out.transit, min(c.r.buffer-c.out.size, len(p)-n))
		if room <= 0 {
			c.r.wait(&c.out.sig, nil, c.in.rst.wake(earlier(wake, c.writeDeadline)))
			continue
		}
		if c.admit(now, p[n:n+room], len(p)) {
			return len(p), nil
		}
		n += room
	}
	return n, nil
}

// admit queues part, some of a write of size bytes, and says whether a cut ended the connection behind it. The bytes
// after the cut are lost although their write succeeds, as those in a kernel's buffer are.
func (c *Conn) admit(now time.Time, part []byte, size int) (cut bool) {
	pass, cut := c.out.cut.take(len(part))
	lanePass, laneCut := c.out.lane.cut.take(pass)
	if laneCut {
		pass, cut = lanePass, true
	}
	c.out.push(now, part[:pass], size)
	if cut {
		c.cutNow(now)
	}
	return cut
}

// cutNow resets the connection behind the bytes this end has written: the peer reads them, then ECONNRESET.
func (c *Conn) cutNow(now time.Time) {
	c.failed = syscall.ECONNRESET
	c.out.keep = true
	c.out.send(now.Add(-c.out.lane.delay), &c.out.rst) // with its last byte, not after it
	c.in.deaf = true
	c.in.drop()
	c.out.sig.broadcast()
	c.r.forget(c)
}

// lose makes this end forget the connection and tell nobody: its calls fail with err, and bytes that arrive from now on
// are answered by a reset. What it has written goes on.
func (c *Conn) lose(now time.Time, err error) {
	if c.closed || c.failed != nil {
		return
	}
	c.failed = err
	c.in.discard(now)
	c.in.deaf = true
	c.in.answer(now)
	c.in.sig.broadcast()
	c.out.sig.broadcast()
}

// usable says why this end can do nothing any more, if so.
func (c *Conn) usable(now, deadline time.Time) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case !deadline.IsZero() && !now.Before(deadline):
		return os.ErrDeadlineExceeded
	case c.failed != nil:
		return c.failed
	}
	return nil
}

// Close ends both directions. As with TCP, the peer reads what was written and then EOF; but when this end leaves bytes
// unread, or bytes arrive later, the peer is reset and loses what it has not read.
func (c *Conn) Close() error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.closed {
		return c.error("close", net.ErrClosed)
	}
	now := time.Now()
	c.shut()
	if c.failed == nil {
		c.out.send(now, &c.out.fin)
		c.in.answer(now)
	}
	return nil
}

// Reset ends both directions at once: this end now, the peer with ECONNRESET one delay later. No code travels; the
// parameter lets a Conn stand where a stream is reset with one.
func (c *Conn) Reset(uint32) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.closed {
		return
	}
	c.shut()
	if c.failed == nil {
		c.out.send(time.Now(), &c.out.rst)
	}
}

// shut makes this end closed and deaf.
func (c *Conn) shut() {
	c.closed, c.in.deaf = true, true
	c.in.sig.broadcast()
	c.out.sig.broadcast()
	if c.peer.closed {
		c.r.forget(c)
	}
}

// CloseWrite ends this end's direction: the peer reads what was written and then EOF.
func (c *Conn) CloseWrite() error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	now := time.Now()
	if err := c.usable(now, time.Time{}); err != nil {
		return c.error("close", err)
	}
	c.out.send(now, &c.out.fin)
	return nil
}

// CutAfter resets the connection after exactly n more bytes written at this end: the peer can read those and no more,
// then gets ECONNRESET; this end gets it as soon as the n-th byte is written. With n = 0 that is now.
func (c *Conn) CutAfter(n int64) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if n > 0 {
		c.out.cut = countdown{armed: true, left: n}
		return
	}
	c.cutNow(time.Now())
}

// Route is the route this connection takes.
func (c *Conn) Route() *Route { return c.r }

// LocalAddr is the name or address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the name or address of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines; zero = none.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(&t, &t) }

// SetReadDeadline makes a Read fail with os.ErrDeadlineExceeded from t on; zero = never.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(&t, nil) }

// SetWriteDeadline makes a Write that blocks fail with os.ErrDeadlineExceeded from t on; zero = never.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *Conn) setDeadlines(read, write *time.Time) error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.closed {
		return c.error("set", net.ErrClosed)
	}
	if read != nil {
		c.readDeadline = *read
		c.in.sig.broadcast()
	}
	if write != nil {
		c.writeDeadline = *write
		c.out.sig.broadcast()
	}
	return nil
}

func (c *Conn) error(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}
