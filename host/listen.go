package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Times to wait after a failed accept, so that a process out of file descriptors does not also spin.
const (
	acceptPause    = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// Listen listens for carriers on a TCP address, host:port.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // its sockets refuse the options that carriers need
	ln, err := lc.Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return ln, nil
	case errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, wsaInUse):
		return nil, fmt.Errorf("host: listening on %s: %w; stop its holder, or set another one under [host] in the config: listen = %q",
			address, err, ":PORT")
	}
	return nil, fmt.Errorf("host: listening on %s: %w", address, err)
}

// wsaInUse is Winsock's number, which package syscall does not compare with its own.
const wsaInUse = syscall.Errno(10048)

// Serve accepts connections on ln and serves them, until ln fails or the server is closed, for which it returns nil. It
// owns ln, and may be called for several listeners.
func (s *Server) Serve(ln net.Listener) error {
	l := s.enlist(ln)
	if l == nil {
		_ = ln.Close()
		return ErrClosed
	}
	defer s.wg.Done()
	defer s.delist(l)
	for pause := acceptPause; ; {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = acceptPause
			s.take(conn)
			continue
		case s.isClosed():
			return nil
		case !passing(err):
			return fmt.Errorf("host: accepting on %s: %w", ln.Addr(), err)
		}
		s.log.Warn("accepting a connection failed; trying again", "on", ln.Addr().String(), "in", pause, "err", err)
		s.sleep(pause)
		pause = min(2*pause, acceptPauseMax)
	}
}

// passing says whether accepting may work again later: the process or the system lacks something, or one connection ended
// before it was accepted.
func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

func (s *Server) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}
