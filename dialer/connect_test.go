package dialer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

type delays = map[route.Route]time.Duration

func TestColdConnectTakesThreeRoundTrips(t *testing.T) {
	in(t, delays{lan: 10 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		wantTime(t, "opened", w.since(), 60*ms) // TCP, TLS, and NEW with OPEN behind it
		echo(t, s, "hello")
		wantTime(t, "echoed", w.since(), 80*ms)
		s2 := w.open(echoTarget)
		wantTime(t, "the second, warm, opened", w.since(), 100*ms)
		echo(t, s2, "again")
		if n := len(w.dialled()); n != 1 {
			t.Errorf("%d dials", n)
		}
	})
}

func TestDeadLeaderHoldsUpNobody(t *testing.T) {
	for _, c := range []struct {
		name string
		dead func(w *world)
		want time.Duration
	}{
		{"refused after a round trip of 20 ms", func(w *world) { _ = w.route(lan).Refuse(true) }, 20*ms + 60*ms},
		{"unreachable at once", func(w *world) { w.route(lan).Unreachable(true) }, 60 * ms},
		{"silent", func(w *world) { w.route(lan).Hang(true) }, 250*ms + 60*ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, delays{lan: 10 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
				c.dead(w)
				w.open(echoTarget)
				wantTime(t, "opened", w.since(), c.want)
				if a := w.active(); a != tailnet.ID() {
					t.Errorf("the link is on %s", a)
				}
			})
		})
	}
}

func TestBetterClassJustBehindTheWinnerIsUsed(t *testing.T) {
	// The LAN needs 300 ms, the tailnet starts 250 ms later and needs 12 ms: the LAN comes 38 ms after it.
	in(t, delays{lan: 50 * ms, tailnet: 2 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		// The host got OPEN over the LAN first and answered there; it says so again once it is told who won.
		wantTime(t, "opened", w.since(), 266*ms)
		time.Sleep(time.Second)
		synctest.Wait()
		if a := w.active(); a != lan.ID() {
			t.Errorf("the link is on %s", a)
		}
		if sw := w.status().Link.Switches; len(sw) != 2 || !sw[1].Planned {
			t.Errorf("switches: %+v", sw)
		}
		echo(t, s, "x")
		time.Sleep(15 * time.Second)
		if n := w.attached(); n != 1 {
			t.Errorf("%d carriers are attached after the move", n)
		}
	})
}

func TestEarlyStreamCarriesItsFirstBytesWithTheOpening(t *testing.T) {
	in(t, delays{lan: 10 * ms}, nil, func(t *testing.T, w *world) {
		s, err := w.d.Open(t.Context(), "devbox", echoTarget, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantTime(t, "opened", w.since(), 0)
		echo(t, s, "hello")
		wantTime(t, "echoed", w.since(), 60*ms)
	})
}

func TestRefusedTargetHarmsOneStream(t *testing.T) {
	in(t, delays{lan: 10 * ms}, nil, func(t *testing.T, w *world) {
		s := w.open(echoTarget)
		_, err := w.d.DialContext(t.Context(), "devbox", refusedTarget)
		wantReason(t, err, "refused")
		var refused *link.RefusedError
		if !errors.As(err, &refused) || refused.Target != refusedTarget {
			t.Errorf("error: %v", err)
		}
		echo(t, s, "still here")
	})
}

func TestUnknownPeerNamesTheKnown(t *testing.T) {
	in(t, delays{lan: 10 * ms}, nil, func(t *testing.T, w *world) {
		_, err := w.d.DialContext(t.Context(), "devbax", echoTarget)
		wantReason(t, err, "unknown_peer")
		if !strings.Contains(err.Error(), "devbax") || !strings.Contains(err.Error(), "devbox") {
			t.Errorf("error: %v", err)
		}
		if _, err := w.d.Open(t.Context(), "", echoTarget, OpenOptions{}); err == nil {
			t.Error("no name was found")
		}
	})
}

func TestWrongKeyOnARouteIsThatRoutesFailure(t *testing.T) {
	in(t, delays{tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
		other := link.NewHost(link.HostConfig{Key: testKey(t), Process: link.Process{Instance: [16]byte{9}}})
		defer other.Close()
		w.listen(lan.Address, func(c connType) { _ = other.ServeConn(t.Context(), c) })
		w.setRoutes(lan, tailnet)
		w.open(echoTarget)
		if a := w.active(); a != tailnet.ID() {
			t.Errorf("the link is on %s", a)
		}
		if a := w.status().Attempts[0]; a.Outcome != route.WrongPeer || !a.Route.Same(lan) {
			t.Errorf("attempt: %s", a)
		}
	})
}

func TestUnpairedIsToldAtOnce(t *testing.T) {
	in(t, delays{lan: 10 * ms}, nil, func(t *testing.T, w *world) {
		w.paired.Store(false)
		_, err := w.d.DialContext(t.Context(), "devbox", echoTarget)
		wantTime(t, "told", w.since(), 60*ms)
		wantReason(t, err, "blocked")
		var no *link.AttachError
		if !errors.As(err, &no) || no.Code != link.CodeUnpaired {
			t.Errorf("error: %v", err)
		}
		var e *Error
		if !errors.As(err, &e) || len(e.Attempts) != 1 || strings.Count(e.Error(), "pair again") != 1 {
			t.Errorf("error: %+v", e)
		}
	})
}

func TestNamesAreResolvedBesideAddresses(t *testing.T) {
	named := mustRoute("lan:devbox.local:7000")
	resolve := func(ctx ctxType, host string) ([]addrType, error) {
		if host != "devbox.local" {
			t.Errorf("%s was looked up", host)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	in(t, delays{tailnet: 10 * ms}, func(c *Config) { c.Resolve = resolve }, func(t *testing.T, w *world) {
		w.setRoutes(named, tailnet)
		w.open(echoTarget)
		wantTime(t, "opened", w.since(), 310*ms)
		checks, err := w.d.Check(t.Context(), "devbox")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(checks, func(c RouteCheck) bool { return c.Route.Same(named) })
		if c := checks[i]; c.Outcome != route.Silent || c.Duration != 3*time.Second || !errors.Is(c.Err, errResolveTimeout) {
			t.Errorf("the dead name: %s", c)
		}
		if c := checks[1-i]; c.Outcome != route.Won || c.Duration != 60*ms || c.Handshake != 20*ms || c.RoundTrip != 20*ms ||
			c.Host.Boot != 1 || c.Address != tailnet.Address {
			t.Errorf("the address: %+v", c)
		}
	})
}

func TestAddressesOfANameAreTriedAsRFC8305Says(t *testing.T) {
	named := mustRoute("direct:devbox.example:7000")
	found := parseAddrs("2001:db8::1", "2001:db8::2", "192.0.2.80")
	resolve := func(ctxType, string) ([]addrType, error) { return found, nil }
	in(t, nil, func(c *Config) { c.Resolve = resolve }, func(t *testing.T, w *world) {
		w.setRoutes(named)
		w.net.Route("[2001:db8::1]:7000").Hang(true)
		w.net.Route("192.0.2.80:7000").SetDelay(200 * ms)
		w.net.Route("[2001:db8::2]:7000").SetDelay(10 * ms)
		for _, a := range []string{"[2001:db8::1]:7000", "192.0.2.80:7000", "[2001:db8::2]:7000"} {
			w.listen(a, w.serveConn)
		}
		w.open(echoTarget)
		wantTime(t, "opened", w.since(), 560*ms)
		want := []dial{{0, "[2001:db8::1]:7000"}, {250 * ms, "192.0.2.80:7000"}, {500 * ms, "[2001:db8::2]:7000"}}
		if got := w.dialled(); !slices.Equal(got, want) {
			t.Errorf("dials: %v", got)
		}
		if n := w.net.Route("192.0.2.80:7000").Live(); n != 0 {
			t.Errorf("%d connections of the slower address live", n)
		}
		if a := w.status().Attempts; len(a) != 1 || a[0].Outcome != route.Won {
			t.Errorf("attempts: %v", a)
		}
	})
}

// TestAddressThatAnswersTooLateIsClosed: it was connected before the dial heard that nobody wants it any more.
func TestAddressThatAnswersTooLateIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := map[string]net.Conn{} // what stays of each connection
		var mu sync.Mutex
		d := New(Config{
			Resolve: func(context.Context, string) ([]netip.Addr, error) { return parseAddrs("192.0.2.1", "192.0.2.2"), nil },
			Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				time.Sleep(addressStep + 50*ms)
				near, far := net.Pipe()
				mu.Lock()
				defer mu.Unlock()
				ends[address] = far
				return near, nil
			},
		})
		defer d.Close()
		conn, err := d.connect(t.Context(), "devbox.example:7000")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if len(ends) != 2 {
			t.Fatalf("%d addresses were dialled", len(ends))
		}
		for address, far := range ends {
			_ = far.SetReadDeadline(time.Now().Add(time.Second))
			_, err := far.Read(make([]byte, 1))
			if closed := errors.Is(err, io.EOF); closed != (address == "192.0.2.2:7000") {
				t.Errorf("%s: closed %v (%v)", address, closed, err)
			}
		}
	})
}
