//go:build unix

package pipe

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"linkproxy/internal/sock"
)

// waitGone waits until the far end of c, which has ended its own way, has closed or been reset. It returns false when c's
// read deadline passes, or where the system does not tell.
func waitGone(c net.Conn) bool {
	raw := sock.Raw(c)
	if raw == nil {
		return false
	}
	return raw.Read(pollGone) == nil
}

func pollGone(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd)}}
	for {
		n, err := unix.Poll(p[:], 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
		}
	}
}
