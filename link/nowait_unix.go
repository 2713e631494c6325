//go:build unix

package link

import (
	"errors"
	"net"
	"syscall"
)

// rawOf is the way to write to c without waiting; nil: there is none.
func rawOf(c net.Conn) syscall.RawConn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// tryWrite writes what the connection takes at once.
func tryWrite(raw syscall.RawConn, b []byte) (n int, err error) {
	cerr := raw.Write(func(fd uintptr) bool {
		for n < len(b) {
			m, werr := syscall.Write(int(fd), b[n:])
			switch {
			case m > 0:
				n += m
			case errors.Is(werr, syscall.EINTR):
			case errors.Is(werr, syscall.EAGAIN):
				return true
			default:
				err = werr
				return true
			}
		}
		return true
	})
	if err == nil {
		err = cerr
	}
	return n, err
}
