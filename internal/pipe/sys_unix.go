//go:build unix

package pipe

import (
	"errors"

	"golang.org/x/sys/unix"
)

// pollIn reports whether a read of fd would not wait. Unlike a peek it leaves a pending socket error for the read.
func pollIn(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p[:], 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
	}
}

// isReset reports whether a failed write says that the connection was reset before its far end had ended it: a reset
// after that end comes as EPIPE.
func isReset(err error) bool { return errors.Is(err, unix.ECONNRESET) }
