package sock

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTune(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	Tune(c)
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]struct{ level, option, want int }{
		"TCP_NODELAY":       {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		"TCP_USER_TIMEOUT":  {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 120_000},
		"TCP_NOTSENT_LOWAT": {unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 32 << 10},
		"TCP_KEEPIDLE":      {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 120},
		"SO_KEEPALIVE":      {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	} {
		got := -1
		if err := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), o.level, o.option) }); err != nil {
			t.Fatal(err)
		}
		if err != nil || got != o.want {
			t.Errorf("%s = %d, %v; want %d", name, got, err, o.want)
		}
	}
}

// TestTuneOfOthers: what is no socket of TCP is left alone, also when it is closed.
func TestTuneOfOthers(t *testing.T) {
	a, b := net.Pipe()
	Tune(a)
	_, _ = a.Close(), b.Close()
	Tune(a)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Close(), ln.Close()
	Tune(c)
}
