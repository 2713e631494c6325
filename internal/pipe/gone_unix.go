//go:build unix

package pipe

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"linkproxy/internal/sock"
)

// askEvery is how often one that has ended its own way is asked whether it is there. The system of one that was killed forgets
// the connection after a minute or so, and resets it from then on.
const askEvery = 15 * time.Second

// waitGone waits until the far end of c, which has ended its own way, has closed or been reset. It returns false when c's
// read deadline passes, or where the system does not tell.
func waitGone(c net.Conn) bool {
	raw := sock.Raw(c)
	if raw == nil {
		return false
	}
	if t, ok := c.(*net.TCPConn); ok {
		// One that ended its way first and was killed then has nothing more to say: only a question brings its reset.
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: askEvery, Interval: askEvery})
	}
	return raw.Read(pollGone) == nil
}

func pollGone(fd uintptr) bool {
	got, err := sock.PollFD(fd, 0)
	return err == nil && got&(unix.POLLHUP|unix.POLLERR) != 0
}
