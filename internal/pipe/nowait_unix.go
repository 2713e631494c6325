//go:build unix

package pipe

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// nowaitOf is c as a writer that takes what the system takes at once and fails with errWouldWait for the rest.
func nowaitOf(c net.Conn) io.Writer {
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
	return nowait{raw}
}

var errWouldWait = errors.New("pipe: the write would wait")

type nowait struct{ raw syscall.RawConn }

func (w nowait) Write(p []byte) (n int, err error) {
	cerr := w.raw.Write(func(fd uintptr) bool {
		for n < len(p) {
			m, werr := unix.Write(int(fd), p[n:])
			switch {
			case m > 0:
				n += m
			case errors.Is(werr, unix.EINTR):
			case errors.Is(werr, unix.EAGAIN):
				err = errWouldWait
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
