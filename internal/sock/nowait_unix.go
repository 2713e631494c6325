//go:build unix

package sock

import (
	"errors"
	"net"
	"syscall"
)

// Raw is the way to read and write c without waiting; nil: there is none. A connection that wraps another is left alone, as
// its own Write would be passed by.
func Raw(c net.Conn) syscall.RawConn {
	var s syscall.Conn
	switch c := c.(type) {
	case *net.TCPConn:
		s = c
	case *net.UnixConn:
		s = c
	default:
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// TryWrite writes what the connection takes at once: fewer bytes than b has, without an error, where more would wait.
func TryWrite(raw syscall.RawConn, b []byte) (n int, err error) {
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
