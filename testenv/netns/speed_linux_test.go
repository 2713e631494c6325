package netns

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
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

// TestThroughput states what links carry. Only a link without faults has a goal; the others must be of use at all.
func TestThroughput(t *testing.T) {
	const gigabit = 125e6 // bytes a second
	for _, c := range []struct {
		name        string
		congestion  string
		shape       func(l *Link)
		least, most float64 // bytes a second
	}{
		{"unshaped", "cubic", func(*Link) {}, gigabit, 1000 * gigabit},
		{"unshaped", "bbr", func(*Link) {}, gigabit, 1000 * gigabit},
		{"delay of 5 ms", "cubic", func(l *Link) { l.SetDelay(5 * ms) }, gigabit / 10, 1000 * gigabit},
		{"packet by packet", "cubic", func(l *Link) { l.LoseLarge(1500, 1500) }, gigabit / 10, 1000 * gigabit},
		{"100 Mbit/s, 5 ms", "cubic", func(l *Link) { l.SetRate(gigabit / 10); l.SetDelay(5 * ms) }, gigabit / 20, gigabit / 10},
	} {
		t.Run(c.name+" "+c.congestion, func(t *testing.T) {
			laptop, server, l := pair(t)
			c.shape(l)
			if err := laptop.SetCongestion(c.congestion); errors.Is(err, syscall.ENOENT) && c.congestion == "bbr" {
				t.Logf("this kernel has no bbr: %v", err)
			} else {
				must(t, err)
			}
			near, far := connect(t, laptop, server, "192.168.1.20:0")
			got := transfer(t, near, far, 2*time.Second)
			up, _ := l.Count()
			t.Logf("%.3f Gbit/s with %s; frames up: %d, %d bytes each, %d lost", got*8/1e9, congestion(t, near), up.Frames, up.Bytes/up.Frames, up.Lost)
			if got < c.least || got > c.most {
				t.Errorf("%.0f bytes a second, want %.0f to %.0f", got, c.least, c.most)
			}
		})
	}
}
