package dialer

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"linkproxy/dialer/route"
)

// plainConn is a connection to a service of a peer without an agent. It cannot move: when its route ends it is reset.
type plainConn struct {
	net.Conn // the socket
	route    route.Route
	target   string // peer:port
	since    time.Time

	p      *peer
	local  netip.Addr
	adrift time.Time             // since when this machine has not had local any more; the loop's own
	cause  atomic.Pointer[error] // why linkproxy has ended it; nil: it has not
}

// Socket is the connection itself, for who can do more with one that the system knows. It is to be closed by Close.
func (c *plainConn) Socket() net.Conn { return c.Conn }

// Read reads from the socket.
func (c *plainConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.told(err)
}

// Write writes to the socket.
func (c *plainConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.told(err)
}

// told replaces what the socket says of its end by why it was ended.
func (c *plainConn) told(err error) error {
	if cause := c.cause.Load(); err != nil && cause != nil {
		return *cause
	}
	return err
}

// CloseWrite ends the writing direction.
func (c *plainConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// Reset ends the connection so that the far end sees a failure.
func (c *plainConn) Reset(uint32) {
	resetConn(c.Conn)
	c.Close()
}

// Close closes the socket.
func (c *plainConn) Close() error {
	err := c.Conn.Close()
	c.p.send(func(time.Time) { delete(c.p.plain.conns, c) })
	return err
}

func resetConn(c net.Conn) {
	switch c := c.(type) {
	case interface{ Reset(code uint32) }:
		c.Reset(0)
	case interface{ SetLinger(sec int) error }:
		_ = c.SetLinger(0)
	}
	c.Close()
}
