//go:build unix

package link

import (
	"errors"
	"syscall"
)

// readSome reads behind w, at most most bytes. No buffer is held while there is nothing to read.
func (c *outConn) readSome(most int) (n int, err error) {
	if c.raw == nil {
		if c.in == nil {
			c.in = readAheads.Get().(*[readAhead]byte)
		}
		return c.Conn.Read(c.in[c.w:][:min(most, readAhead-c.w)])
	}
	cerr := c.raw.Read(func(fd uintptr) bool {
		if c.in == nil {
			c.in = readAheads.Get().(*[readAhead]byte)
		}
		for {
			n, err = syscall.Read(int(fd), c.in[c.w:][:min(most, readAhead-c.w)])
			if !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		n = max(n, 0)
		if errors.Is(err, syscall.EAGAIN) {
			if err = nil; c.w == 0 {
				readAheads.Put(c.in)
				c.in = nil
			}
			return false
		}
		return true
	})
	if err == nil {
		err = cerr
	}
	return n, err
}
