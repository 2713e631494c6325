package pipe

import (
	"net"
	"syscall"
)

// closeWrite half-closes c and reports whether c can do that at all. That it failed does not matter here: then c is gone,
// which its reader finds out.
func closeWrite(c net.Conn) bool {
	h, ok := c.(interface{ CloseWrite() error })
	if ok {
		_ = h.CloseWrite()
	}
	return ok
}

// reset closes c so that its far end sees a failure and no end, where c knows the difference.
func reset(c net.Conn) {
	if r, ok := c.(interface{ Reset(code uint32) }); ok {
		r.Reset(ResetCode)
		_ = c.Close()
		return
	}
	if t, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
		_ = c.Close()
		return
	}
	if u, ok := c.(interface{ NetConn() net.Conn }); ok {
		// Closing a TLS connection itself would say close_notify, which is a clean end.
		reset(u.NetConn())
		return
	}
	_ = c.Close()
}

// Reset closes c at once so that its far end sees a failure and no end, where c knows the difference.
func Reset(c net.Conn) { reset(c) }

// waiter waits until its connection has a byte, an end or an error to read, holding no buffer.
type waiter interface{ WaitReadable() error }

// newWaiter returns nil if c cannot be waited for.
func newWaiter(c net.Conn) waiter {
	switch c := c.(type) {
	case waiter:
		return c
	case *net.TCPConn:
		return newSocketWaiter(c)
	case *net.UnixConn:
		return newSocketWaiter(c)
	}
	return nil
}

func newSocketWaiter(c syscall.Conn) waiter {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	w := &socketWaiter{raw: raw}
	w.poll = w.ready
	return w
}

type socketWaiter struct {
	raw    syscall.RawConn
	parked bool
	poll   func(fd uintptr) bool // w.ready, bound once: waiting allocates nothing
}

func (w *socketWaiter) WaitReadable() error {
	w.parked = false
	return w.raw.Read(w.poll)
}

// readable says whether a read would not wait; false also where the system does not tell.
func (w *socketWaiter) readable() (yes bool) {
	_ = w.raw.Control(func(fd uintptr) { yes = pollIn(fd) }) // a closed socket is not readable
	return yes
}

// ready is asked by the runtime before it parks and after each wake-up. A wake-up is believed unseen: a false one only
// means that the next read waits.
func (w *socketWaiter) ready(fd uintptr) bool {
	if w.parked {
		return true
	}
	w.parked = true
	return pollIn(fd)
}

// WaitReadable waits until c has a byte, an end or an error to read, holding no buffer. It returns nil at once if c cannot
// be waited for that way.
func WaitReadable(c net.Conn) error {
	if w := newWaiter(c); w != nil {
		return w.WaitReadable()
	}
	return nil
}

// WaitGone waits until the far end of c, which has ended its own way, has closed or been reset; until c's read deadline; or,
// where the system does not tell, not at all.
func WaitGone(c net.Conn) { waitGone(c) }
