package proxy

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

type presence int

const (
	there presence = iota
	left
	unwatched
)

// watchAfter is how long a dial may take before its app is watched. A fast one is not worth it, and an app that half-closes
// right after it connected, as "nc -N" with nothing to say does, has not left.
const watchAfter = 50 * time.Millisecond

// watchLeft calls gone when the app behind c leaves, until stop is called; no byte is read. Leaving is a reset, or an end
// with no byte before it (talked: there were some): an app that waits for its connection has no reason to say that it
// will say nothing.
// Connections that are no sockets are not watched. stop clears c's read deadline.
func watchLeft(c net.Conn, talked bool, gone func()) (stop func()) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return func() {}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return func() {}
	}
	done := make(chan struct{})
	timer := time.AfterFunc(watchAfter, func() { watch(raw, talked, gone, done) })
	return func() {
		if timer.Stop() {
			return
		}
		_ = c.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = c.SetReadDeadline(time.Time{})
	}
}

func watch(raw syscall.RawConn, talked bool, gone func(), done chan<- struct{}) {
	defer close(done)
	asked := 0
	state := there
	err := raw.Read(func(fd uintptr) bool {
		state = look(fd, asked, talked)
		asked++
		return state != there
	})
	if state == left || (err != nil && !errors.Is(err, os.ErrDeadlineExceeded)) {
		gone()
	}
}
