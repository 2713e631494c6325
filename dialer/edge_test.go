package dialer

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

func TestLocalRefusalCostsNothing(t *testing.T) {
	var w *world
	offline := func(c *Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if time.Since(w.start) < 30*time.Second {
				return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
			}
			return dial(ctx, network, address)
		}
	}
	if isWindows {
		t.Skip("the system's numbers differ there")
	}
	inWith(t, &w, delays{lan: 0, tailnet: 0}, offline, func(t *testing.T) {
		ctx, cancel := contextWithTimeout(t, 20*time.Second)
		defer cancel()
		if _, err := w.d.DialContext(ctx, "devbox", echoTarget); !errors.Is(err, errLeft) {
			t.Errorf("error: %v", err)
		}
		st := w.status()
		for _, a := range st.Attempts {
			if a.Outcome != route.NoRoute {
				t.Errorf("attempt: %s", a)
			}
		}
		if len(st.Attempts) != 2 {
			t.Errorf("attempts: %v", st.Attempts)
		}
		w.open(echoTarget)
		if at := w.since(); at < 30*time.Second || at > 36*time.Second {
			t.Errorf("served at %s", at)
		}
	})
}

// A route on which something takes the connection and says nothing.
func TestHalfOpenRoute(t *testing.T) {
	in(t, delays{tailnet: 10 * ms}, func(c *Config) { c.Wait = -1 }, func(t *testing.T, w *world) {
		w.listen(lan.Address, func(c net.Conn) { _, _ = io.Copy(io.Discard, c); _ = c.Close() })
		w.setRoutes(lan)
		_, err := w.d.DialContext(t.Context(), "devbox", echoTarget)
		wantTime(t, "told", w.since(), route.RaceLimit)
		wantReason(t, err, "no_route")
		if !strings.Contains(err.Error(), "devbox is not responding at "+lan.Address) {
			t.Errorf("error: %v", err)
		}
		w.setRoutes(lan, tailnet)
		at := w.since()
		w.open(echoTarget)
		wantTime(t, "opened beside it", w.since()-at, 60*ms) // both start at once, as the last race failed
		time.Sleep(time.Second)
		if n := w.route(lan).Live(); n != 0 {
			t.Errorf("%d connections of the loser live", n)
		}
	})
}

// A route that connects and dies at once is not dialled without rest.
func TestFlappingRouteIsHeldByTheBudget(t *testing.T) {
	in(t, delays{lan: 5 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		quit := make(chan struct{})
		defer close(quit)
		w.wg.Go(func() {
			tick := time.NewTicker(40 * ms)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					w.route(lan).Reset()
				case <-quit:
					return
				}
			}
		})
		w.dialled()
		time.Sleep(10 * time.Minute)
		if n, most := len(w.dialled()), route.BudgetSize+int(10*time.Minute/route.RefillWaiting); n > most || n < 20 {
			t.Errorf("%d dials in 10 minutes, the budget is %d", n, most)
		}
		_ = s.Close()
	})
}

// The same over the system's sockets and resolver.
func TestOverTheSystemsSockets(t *testing.T) {
	w := &world{t: t, key: testKey(t), hostKey: testKey(t), handle: serve}
	w.paired.Store(true)
	w.restart()
	defer w.host.Load().Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { ln.Close(); w.wg.Wait() }()
	w.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.serveConn(c) })
		}
	})
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	d := New(Config{Key: w.key, Process: link.Process{Instance: [16]byte{2}, Boot: 1}, Peers: []Peer{{
		Name: "devbox", ID: w.hostKey.Fingerprint(), Routes: []route.Route{mustRoute("lan:localhost:" + port)},
	}}})
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := d.DialContext(ctx, "devbox", echoTarget)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, s, "hello")
	checks, err := d.Check(ctx, "devbox")
	if err != nil || len(checks) != 1 || checks[0].Outcome != route.Won || checks[0].Address != ln.Addr().String() {
		t.Errorf("check: %+v, %v", checks, err)
	}
}
