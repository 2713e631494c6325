package lab

import (
	"net"

	"golang.org/x/sys/unix"
)

// wasReset says whether a TCP connection that has come to an end was reset: a proper end leaves it in another state.
func wasReset(c net.Conn) bool {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	reset := false
	_ = raw.Control(func(fd uintptr) { // an error: it was closed from this side
		const closed = 7 // TCP_CLOSE, tcp_states.h
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == closed
	})
	return reset
}
