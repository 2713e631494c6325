package testenv

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// world is a Net with a listener that hands out what it accepts and when.
func world(t *testing.T, d time.Duration, f func(t *testing.T, n *Net, r *Route, ln net.Listener)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var n Net
		r := n.Route("192.0.2.7:443")
		r.SetDelay(d)
		ln, err := n.Listen("192.0.2.7:443")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		f(t, &n, r, ln)
	})
}

func TestDialTakesARoundTrip(t *testing.T) {
	world(t, 10*ms, func(t *testing.T, n *Net, r *Route, ln net.Listener) {
		start := time.Now()
		accepted := make(chan time.Duration, 1)
		go func() {
			c, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			accepted <- time.Since(start)
			if c.RemoteAddr().(*net.TCPAddr).Port != firstPort {
				t.Errorf("accepted from %v", c.RemoteAddr())
			}
			io.Copy(c, c)
			c.Close()
		}()
		c, err := n.DialContext(t.Context(), "tcp", "192.0.2.7:443")
		if err != nil || time.Since(start) != 20*ms {
			t.Fatalf("Dial: %v at %v, want 20 ms", err, time.Since(start))
		}
		if at := <-accepted; at != 30*ms {
			t.Errorf("accepted at %v, want 30 ms", at)
		}
		if got := r.Conns(); len(got) != 1 || got[0] != c {
			t.Errorf("Conns() = %v", got)
		}
		write(t, c, "echo")
		c.(*Conn).CloseWrite()
		same(t, reads(c, start)(), outcome{"echo", nil, 50 * ms}, outcome{"", io.EOF, 50 * ms})
		c.Close()
		if r.Live() != 0 {
			t.Error("a connection closed at both ends lives")
		}
	})
}

func TestDialFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*Route)
		want  error
		after time.Duration
	}{
		"refuse":      {func(r *Route) { r.Refuse(true) }, syscall.ECONNREFUSED, 20 * ms},
		"unreachable": {func(r *Route) { r.Unreachable(true) }, syscall.EHOSTUNREACH, 0},
		"hang":        {func(r *Route) { r.Hang(true) }, context.DeadlineExceeded, time.Second},
		"hole up":     {func(r *Route) { r.BlackHole(true, false) }, context.DeadlineExceeded, time.Second},
		"hole down":   {func(r *Route) { r.BlackHole(false, true) }, context.DeadlineExceeded, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			world(t, 10*ms, func(t *testing.T, n *Net, r *Route, ln net.Listener) {
				c.fault(r)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := n.Dial(ctx, "192.0.2.7:443")
				if !errors.Is(err, c.want) || time.Since(start) != c.after {
					t.Errorf("Dial: %v at %v, want %v at %v", err, time.Since(start), c.want, c.after)
				}
			})
		})
	}
}

func TestDialGoesOnAfterHangAndHole(t *testing.T) {
	world(t, 10*ms, func(t *testing.T, n *Net, r *Route, ln net.Listener) {
		start := time.Now()
		r.Hang(true)
		go func() {
			time.Sleep(time.Second)
			r.BlackHole(true, false)
			r.Hang(false)
			time.Sleep(time.Second)
			r.Heal()
		}()
		c, err := n.DialFrom(t.Context(), "me", "192.0.2.7:443")
		if err != nil || time.Since(start) != 2*time.Second+20*ms {
			t.Fatalf("Dial: %v at %v, want 2.02 s", err, time.Since(start))
		}
		if a := c.LocalAddr(); a.String() != "me" || a.Network() != "memory" {
			t.Errorf("LocalAddr() = %v", a)
		}
	})
}

func TestListenerEnds(t *testing.T) {
	world(t, 10*ms, func(t *testing.T, n *Net, r *Route, ln net.Listener) {
		if _, err := n.Listen("192.0.2.7:443"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second Listen: %v", err)
		}
		c, err := n.Dial(t.Context(), ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ln.Close() // before it was accepted
		same(t, reads(c, time.Now())(), outcome{"", syscall.ECONNRESET, 10 * ms})
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
		if _, err := n.Dial(t.Context(), "192.0.2.7:443"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial after Close: %v", err)
		}
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestBacklogIsBounded(t *testing.T) {
	world(t, 0, func(t *testing.T, n *Net, r *Route, ln net.Listener) {
		for range backlog {
			if _, err := n.Dial(t.Context(), "192.0.2.7:443"); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			ln.Accept()
		}()
		if _, err := n.Dial(t.Context(), "192.0.2.7:443"); err != nil || time.Since(start) != time.Second {
			t.Errorf("Dial with a full backlog: %v at %v, want 1 s", err, time.Since(start))
		}
	})
}
