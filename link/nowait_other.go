//go:build !unix

package link

import (
	"errors"
	"net"
	"syscall"
)

// rawOf is the way to write to c without waiting: there is none here.
func rawOf(net.Conn) syscall.RawConn { return nil }

// tryWrite is never called here.
func tryWrite(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }

// readSome reads behind w, at most most bytes.
func (c *outConn) readSome(most int) (n int, err error) {
	if c.in == nil {
		c.in = readAheads.Get().(*[readAhead]byte)
	}
	return c.Conn.Read(c.in[c.w:][:min(most, readAhead-c.w)])
}
