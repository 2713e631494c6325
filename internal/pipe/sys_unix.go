//go:build unix

package pipe

import (
	"errors"

	"golang.org/x/sys/unix"

	"linkproxy/internal/sock"
)

// pollIn reports whether a read of fd would not wait. Unlike a peek it leaves a pending socket error for the read.
func pollIn(fd uintptr) bool {
	got, err := sock.PollFD(fd, unix.POLLIN)
	return got != 0 || err != nil
}

// isReset reports whether a failed write says that the connection was reset before its far end had ended it: a reset
// after that end comes as EPIPE.
func isReset(err error) bool { return errors.Is(err, unix.ECONNRESET) }
