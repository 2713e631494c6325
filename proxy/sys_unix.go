//go:build unix

package proxy

import "golang.org/x/sys/unix"

var (
	errnoRefused = []error{unix.ECONNREFUSED}
	errnoHost    = []error{unix.EHOSTUNREACH, unix.EHOSTDOWN}
	errnoNetwork = []error{unix.ENETUNREACH, unix.ENETDOWN}
	errnoReset   = []error{unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED}
	errnoBusy    = []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} // this machine ran out of something
	errnoPipe    = []error{unix.EPIPE}
	errnoInUse   = []error{unix.EADDRINUSE}
	errnoPassing = []error{
		unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.ECONNRESET, unix.EINTR,
	}
	errnoNoIPv6 = []error{unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT}
)

// look says whether the app behind fd has left; it reads nothing and takes no error away. An app that sent bytes and then
// its end is still there: it may wait for the answer to what it sent.
func look(fd uintptr, _ int, talked bool) presence {
	p := [1]unix.PollFd{{Fd: int32(fd)}}
	if n, err := unix.Poll(p[:], 0); err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
		return left
	}
	var b [1]byte
	n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err == nil && n == 0 && !talked {
		return left
	}
	return there
}

// presetMode makes the file of a Unix socket be born private, where the system (Linux) takes it from the descriptor.
func presetMode(fd uintptr) { _ = unix.Fchmod(int(fd), socketMode) }
