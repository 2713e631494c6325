package netns

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// congestion is what the kernel uses for a connection: it is stated with every figure.
func congestion(t *testing.T, c net.Conn) string {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	must(t, err)
	var name string
	must(t, raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}))
	must(t, err)
	return name
}

// connect dials from one host to an address of another and returns both ends.
func connect(t *testing.T, from, to *Host, addr string) (near, far net.Conn) {
	t.Helper()
	ln, err := to.Listen("tcp", addr)
	must(t, err)
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	near, err = from.Dial(ctx, "tcp", ln.Addr().String())
	must(t, err)
	far, err = ln.Accept()
	must(t, err)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// transfer sends bytes for so long and says how many bytes a second arrived.
func transfer(t *testing.T, from, to net.Conn, d time.Duration) float64 {
	t.Helper()
	sent := make(chan error, 1)
	start := time.Now()
	go func() {
		buf := make([]byte, 256<<10)
		for time.Since(start) < d {
			if _, err := from.Write(buf); err != nil {
				sent <- err
				return
			}
		}
		sent <- from.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{to}, make([]byte, 256<<10))
	must(t, err)
	must(t, <-sent)
	return float64(n) / time.Since(start).Seconds()
}

func TestThroughput(t *testing.T) {
	for _, c := range []struct {
		name  string
		shape func(l *Link)
		least float64 // bytes a second
	}{
		{"unshaped", func(*Link) {}, 125e6},
		{"delay 5 ms", func(l *Link) { l.SetDelay(5 * time.Millisecond) }, 0},
		{"packet by packet", func(l *Link) { l.LoseLarge(1600, 1600) }, 0},
		{"rate 12.5e6", func(l *Link) { l.SetRate(12500000); l.SetDelay(5 * time.Millisecond) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			laptop, server, l := pair(t)
			c.shape(l)
			near, far := connect(t, laptop, server, "192.168.1.20:0")
			got := transfer(t, near, far, 2*time.Second)
			up, down := l.Count()
			t.Logf("%.2f Gbit/s with %s, up %+v down %+v", got*8/1e9, congestion(t, near), up, down)
			if got < c.least {
				t.Errorf("%.0f bytes a second, want at least %.0f", got, c.least)
			}
		})
	}
}
