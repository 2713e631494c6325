//go:build unix && (!linux || race)

package sock

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadFD reads from a socket that does not block.
func ReadFD(fd uintptr, b []byte) (int, error) {
	n, err := syscall.Read(int(fd), b)
	return max(n, 0), err
}

// WriteFD writes to a socket that does not block.
func WriteFD(fd uintptr, b []byte) (int, error) {
	n, err := syscall.Write(int(fd), b)
	return max(n, 0), err
}

// PollFD says which of events there are on fd now, and whether it failed or hung up.
func PollFD(fd uintptr, events int16) (int16, error) {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(p[:], 0)
		if !errors.Is(err, unix.EINTR) {
			return p[0].Revents, err
		}
	}
}
