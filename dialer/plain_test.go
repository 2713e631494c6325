package dialer

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/testenv"
)

// The routes of nas, which has no agent.
var (
	nasLAN     = mustPlain("lan:192.168.1.9")
	nasTailnet = mustPlain("tailnet:100.64.0.3")
)

func mustPlain(text string) route.Route {
	r, err := route.ParsePlain(text)
	if err != nil {
		panic(err)
	}
	return r
}

// home is a network that has nas on its cable.
func home(addr string) route.Path {
	prefix := netip.MustParsePrefix(addr + "/24")
	return route.Path{Tailnet: true, Interfaces: []route.Interface{{
		Name: "eth0", Kind: route.Wired, Addrs: []netip.Prefix{prefix}, Default: true,
		Network: route.Network{Kind: route.Wired, Prefix: prefix.Masked(), Router: "5f3a"},
	}}}
}

// ports are the services that echo on a route.
type ports map[route.Route][]string

// inNAS is in for a world of nas. Its LAN answers after 10 ms, its tailnet after 40 ms.
func inNAS(t *testing.T, open ports, change func(*Config), f func(t *testing.T, w *world)) {
	t.Helper()
	in(t, nil, func(c *Config) {
		c.Peers = []Peer{{Name: "nas", Routes: []route.Route{nasLAN, nasTailnet}}}
		c.Path = home("192.0.2.1") // where testenv dials from
		if change != nil {
			change(c)
		}
	}, func(t *testing.T, w *world) {
		for _, r := range []route.Route{nasLAN, nasTailnet} {
			for _, port := range []string{"80", "443"} {
				w.nas(r, port).SetDelay(map[route.Route]time.Duration{nasLAN: 5 * ms, nasTailnet: 20 * ms}[r])
			}
			for _, port := range open[r] {
				w.listen(net.JoinHostPort(r.Address, port), echoConn)
			}
		}
		f(t, w)
	})
}

var both = ports{nasLAN: {"80", "443"}, nasTailnet: {"80", "443"}}

func (w *world) nas(r route.Route, port string) *testenv.Route {
	return w.net.Route(net.JoinHostPort(r.Address, port))
}

func echoConn(c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.Close()
}

// openNAS opens a port of nas, and says over which route.
func (w *world) openNAS(port string) *plainConn {
	w.t.Helper()
	c, err := w.d.DialContext(w.t.Context(), "nas", "127.0.0.1:"+port)
	if err != nil {
		w.t.Fatalf("opening port %s: %v", port, err)
	}
	return c.(*plainConn)
}

func wantRoute(t *testing.T, c *plainConn, want route.Route) {
	t.Helper()
	if c.route != want {
		t.Errorf("over %s, want %s", c.route, want)
	}
	echo(t, c, "hello")
}

func (w *world) wantDials(want ...string) {
	w.t.Helper()
	var got []string
	for _, d := range w.dialled() {
		got = append(got, d.address)
	}
	slices.Sort(got) // those of one moment come in any order
	slices.Sort(want)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("dialled %v, want %v", got, want)
	}
}

// TestPlainRacesOnce: the first connection races, and those after it take the route that won, alone and at once.
func TestPlainRacesOnce(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		wantRoute(t, w.openNAS("80"), nasLAN)
		wantTime(t, "the first connection and its echo", w.since(), 20*ms)
		w.wantDials("192.168.1.9:80")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { wantRoute(t, w.openNAS("80"), nasLAN) })
		}
		wg.Wait()
		wantTime(t, "fifty more", w.since(), 40*ms)
		if n := len(w.dialled()); n != 50 {
			t.Errorf("%d dials for 50 connections", n)
		}
		wantRoute(t, w.openNAS("443"), nasLAN)
		w.wantDials("192.168.1.9:443")
		st := w.status()
		if !st.Plain || st.State != StateConnected || len(st.Conns) != 52 || st.Conns[0].Target != "nas:80" || st.Conns[0].Route != nasLAN {
			t.Errorf("status %+v", st)
		}
	})
}

// TestPlainFallsBackAndLearns: a dead LAN costs one head start, and the network's memory spares the next race that.
func TestPlainFallsBackAndLearns(t *testing.T) {
	memory := map[string]route.Memory{}
	keep := func(c *Config) {
		c.Recall = func(key string) route.Memory { return memory[key] }
		c.Remember = func(key string, m route.Memory) { memory[key] = m }
	}
	inNAS(t, both, keep, func(t *testing.T, w *world) {
		w.nas(nasLAN, "80").Hang(true)
		wantRoute(t, w.openNAS("80"), nasTailnet)
		wantTime(t, "the connection and its echo", w.since(), route.SlotStep+80*ms)
		w.wantDials("192.168.1.9:80", "100.64.0.3:80")
		time.Sleep(time.Second) // the grace for a better class
	})
	m := memory["plain:nas"]
	if len(memory) != 1 || len(m.Networks) != 1 || m.Networks[0].Last != nasTailnet.ID() {
		t.Fatalf("remembered %+v", memory)
	}
	inNAS(t, both, keep, func(t *testing.T, w *world) {
		wantRoute(t, w.openNAS("80"), nasTailnet)
		w.wantDials("100.64.0.3:80")
	})
}

// TestPlainClimbsBack: while a worse class is in use, the next connection a minute after looks at the better one as well.
func TestPlainClimbsBack(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		w.nas(nasLAN, "80").Hang(true)
		wantRoute(t, w.openNAS("80"), nasTailnet)
		time.Sleep(time.Second)
		w.nas(nasLAN, "80").Hang(false)
		w.dialled()
		time.Sleep(route.CheckEvery - 2*time.Second)
		wantRoute(t, w.openNAS("80"), nasTailnet)
		w.wantDials("100.64.0.3:80")
		time.Sleep(time.Second)
		wantRoute(t, w.openNAS("80"), nasLAN)
		w.wantDials("100.64.0.3:80", "192.168.1.9:80")
		wantRoute(t, w.openNAS("80"), nasLAN)
		w.wantDials("192.168.1.9:80")
	})
}

// TestPlainLooksInVain: looking at a better class that is still dead costs the app nothing, and nothing is said of it.
func TestPlainLooksInVain(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		w.nas(nasLAN, "80").Hang(true)
		wantRoute(t, w.openNAS("80"), nasTailnet)
		time.Sleep(route.CheckEvery)
		w.dialled()
		began := w.since()
		wantRoute(t, w.openNAS("80"), nasTailnet)
		wantTime(t, "the connection and its echo", w.since()-began, 80*ms)
		w.wantDials("100.64.0.3:80", "192.168.1.9:80")
		time.Sleep(20 * time.Second)
		if st := w.status(); st.Err != nil || st.State != StateConnected {
			t.Errorf("%s, %v", st.State, st.Err)
		}
		// The tailnet dies while the LAN is looked at: that race is for all then.
		time.Sleep(time.Minute)
		w.nas(nasTailnet, "80").Hang(true)
		w.wg.Go(func() {
			time.Sleep(time.Second)
			w.nas(nasLAN, "80").Hang(false)
		})
		began = w.since()
		wantRoute(t, w.openNAS("80"), nasLAN)
		wantTime(t, "the connection and its echo", w.since()-began, time.Second+20*ms)
	})
}

// TestPlainPinIsReturnedTo: what is pinned is preferred, is not waited for while it is down, and is found again.
func TestPlainPinIsReturnedTo(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		if err := w.d.Use(t.Context(), "nas", "tailnet", false); err != nil {
			t.Fatal(err)
		}
		wantRoute(t, w.openNAS("80"), nasTailnet)
		w.nas(nasTailnet, "80").Hang(true)
		wantRoute(t, w.openNAS("80"), nasLAN)
		time.Sleep(time.Minute)
		w.nas(nasTailnet, "80").Hang(false)
		time.Sleep(2 * route.FailureWindow)
		wantRoute(t, w.openNAS("80"), nasLAN)
		time.Sleep(time.Second)
		wantRoute(t, w.openNAS("80"), nasTailnet)
	})
}

// TestPlainRouteDies: the dials over a route that has died are joined by a race after 250 ms, and who comes then waits for it.
func TestPlainRouteDies(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		w.openNAS("80")
		w.nas(nasLAN, "80").Hang(true)
		w.dialled()
		began := w.since()
		wantRoute(t, w.openNAS("80"), nasTailnet)
		wantTime(t, "the connection and its echo", w.since()-began, route.SlotStep+80*ms)
		w.wantDials("192.168.1.9:80", "192.168.1.9:80", "100.64.0.3:80")
		wantRoute(t, w.openNAS("80"), nasTailnet)
		w.wantDials("100.64.0.3:80")
	})
}

// TestPlainDeadHost: fifty apps at a dead host cost what one would, wait for their time, and are told why.
func TestPlainDeadHost(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		w.nas(nasLAN, "80").Hang(true)
		w.nas(nasTailnet, "80").Hang(true)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := w.d.DialContext(t.Context(), "nas", "127.0.0.1:80")
				wantReason(t, err, reasonNoRoute)
				wantTime(t, "the failure", w.since(), DefaultWait)
				if text := err.Error(); !strings.Contains(text, "waited 60s: ") || !strings.Contains(text, "see that nas is on") || strings.Contains(text, "linkproxy host") {
					t.Error(text)
				}
			})
		}
		wg.Wait()
		n := len(w.dialled())
		if most := route.BudgetSize + int(DefaultWait/route.RefillWaiting); n > most || n < 4 {
			t.Errorf("%d dials in a minute, want at most %d", n, most)
		}
		synctest.Wait()
		if st := w.status(); st.State != StateIdle || st.Err == nil || st.Waiting != 0 {
			t.Errorf("status %+v", st)
		}
		time.Sleep(time.Hour)
		w.wantDials()
	})
}

// TestPlainComesBack: an app that waits gets its connection soon after a route works again.
func TestPlainComesBack(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		for _, r := range []route.Route{nasLAN, nasTailnet} {
			w.nas(r, "80").Unreachable(true)
		}
		w.wg.Go(func() {
			time.Sleep(10 * time.Second)
			w.nas(nasLAN, "80").Unreachable(false)
		})
		wantRoute(t, w.openNAS("80"), nasLAN)
		if at := w.since(); at < 10*time.Second || at > 16*time.Second {
			t.Errorf("it came after %s", at)
		}
	})
}

// TestPlainNoPatience: without patience the first race decides.
func TestPlainNoPatience(t *testing.T) {
	inNAS(t, both, func(c *Config) { c.Wait = -1 }, func(t *testing.T, w *world) {
		for _, r := range []route.Route{nasLAN, nasTailnet} {
			w.nas(r, "80").Unreachable(true)
		}
		_, err := w.d.DialContext(t.Context(), "nas", "nas:80")
		wantReason(t, err, reasonNoRoute)
		wantTime(t, "the failure", w.since(), 0)
	})
}

// TestPlainRefused: a port that is closed everywhere is told at once, also beside a dead route, and costs no budget; one that only
// a worse route has is reached there, which is not taken for the way to the peer.
func TestPlainRefused(t *testing.T) {
	inNAS(t, ports{nasLAN: {"80"}, nasTailnet: {"80", "443"}}, nil, func(t *testing.T, w *world) {
		wantRoute(t, w.openNAS("80"), nasLAN)
		for range 20 {
			began := w.since()
			c := w.openNAS("443")
			wantRoute(t, c, nasTailnet)
			if took := w.since() - began; took > 90*ms {
				t.Errorf("port 443 after %s", took)
			}
			c.Close()
		}
		if last := w.status().Here[0].Last; last != nasLAN.ID() {
			t.Errorf("%s is what is remembered", last)
		}
		w.nas(nasTailnet, "443").Hang(true)
		w.d.SetPeers([]Peer{{Name: "nas", Routes: []route.Route{nasTailnet, nasLAN}}})
		synctest.Wait()
		for range 20 {
			began := w.since()
			_, err := w.d.DialContext(t.Context(), "nas", "nas:443")
			wantReason(t, err, reasonRefused)
			wantTime(t, "the refusal", w.since()-began, 10*ms+refusalGrace)
			if !strings.Contains(err.Error(), "nas refused the connection (lan:192.168.1.9: ") {
				t.Error(err)
			}
		}
	})
}

// TestPlainEndsWithItsRoute: a connection is reset 3 s after its own address has left, not before, and its reader is told why; so is
// one whose peer is taken out of the config, and what is open when the dialer closes.
func TestPlainEndsWithItsRoute(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		c := w.openNAS("80")
		w.d.SetPath(home("192.0.2.7"))
		time.Sleep(route.AbsentLimit - 20*ms)
		echo(t, c, "still there")
		w.d.SetPath(home("192.0.2.1"))
		time.Sleep(route.AbsentLimit)
		echo(t, c, "and it came back")
		w.d.SetPath(home("192.0.2.7"))
		began := w.since()
		_, err := c.Read(make([]byte, 1))
		wantTime(t, "the end", w.since()-began, route.AbsentLimit)
		wantReason(t, err, reasonLost)
		if errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "no longer has 192.0.2.1") {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if n := w.nas(nasLAN, "80").Live(); n != 0 {
			t.Errorf("%d sockets live", n)
		}
		why, err := w.d.Why(t.Context(), "nas")
		if err != nil || why[len(why)-1].What != "reset a connection to nas:80 over lan:192.168.1.9" {
			t.Errorf("told last: %+v, %v", why[len(why)-1], err)
		}
		w.d.SetPath(home("192.0.2.1"))
		c = w.openNAS("80")
		w.d.SetPeers(nil)
		_, err = c.Read(make([]byte, 1))
		wantReason(t, err, reasonUnknownPeer)
		w.d.SetPeers([]Peer{{Name: "nas", Routes: []route.Route{nasLAN}}})
		c = w.openNAS("80")
		w.d.Close()
		if _, err = c.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestPlainPathChange: what this machine has learned on one network does not bind it on another: the next connection races.
func TestPlainPathChange(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		w.openNAS("80")
		w.nas(nasLAN, "80").Hang(true)
		w.dialled()
		cell := route.Path{Tailnet: true, Interfaces: []route.Interface{{
			Name: "wwan0", Kind: route.Cell, Default: true, Network: route.Network{Kind: route.Cell},
			Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")},
		}}}
		w.d.SetPath(cell)
		began := w.since()
		wantRoute(t, w.openNAS("80"), nasTailnet)
		wantTime(t, "over the tailnet, as a LAN address can hardly work there", w.since()-began, 80*ms)
		w.wantDials("100.64.0.3:80")
	})
}

// TestPlainAppLeaves: who has left gets nothing, keeps nothing open, and leaves the race to the others.
func TestPlainAppLeaves(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		ctx, cancel := contextWithTimeout(t, 5*ms)
		defer cancel()
		_, err := w.d.DialContext(ctx, "nas", "nas:80")
		if !errors.Is(err, errLeft) {
			t.Error(err)
		}
		wantTime(t, "the app", w.since(), 5*ms)
		wantRoute(t, w.openNAS("80"), nasLAN)
		w.wantDials("192.168.1.9:80")
		ctx, cancel = contextWithTimeout(t, 5*ms)
		defer cancel()
		if _, err := w.d.DialContext(ctx, "nas", "nas:80"); !errors.Is(err, errLeft) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if n := w.nas(nasLAN, "80").Live(); n != 1 || len(w.status().Conns) != 1 {
			t.Errorf("%d sockets, %d connections", n, len(w.status().Conns))
		}
	})
}

// TestPlainTargets: only the peer itself can be reached, and a closed connection is forgotten.
func TestPlainTargets(t *testing.T) {
	inNAS(t, both, nil, func(t *testing.T, w *world) {
		for _, host := range []string{"nas", "localhost", "[::1]", "192.168.1.9", "100.64.0.3"} {
			c, err := w.d.OpenContext(t.Context(), "nas", host+":80", OpenOptions{})
			if err != nil {
				t.Fatalf("%s: %v", host, err)
			}
			echo(t, c, "hello")
			c.Close()
		}
		if st := w.status(); len(st.Conns) != 0 || st.State != StateIdle {
			t.Errorf("status %+v", st)
		}
		_, err := w.d.DialContext(t.Context(), "nas", "db.internal:80")
		wantReason(t, err, reasonNotAllowed)
		if want := "nas has no agent, so nobody there can connect to db.internal:80 for this machine"; !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
		_, err = w.d.Dial(t.Context(), "nas", "nas:80", OpenOptions{})
		wantReason(t, err, reasonNotAllowed)
	})
}

// TestPlainCheckUseWhy: the words about it: a check proves no key, a refusal is an answer, a pin is obeyed, and each race is told.
func TestPlainCheckUseWhy(t *testing.T) {
	inNAS(t, ports{nasLAN: {"443"}, nasTailnet: {"80", "443"}}, nil, func(t *testing.T, w *world) {
		w.openNAS("443")
		w.nas(nasTailnet, "443").Unreachable(true)
		list, err := w.d.Check(t.Context(), "nas")
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		if c := list[0]; c.Outcome != route.Won || !c.NoKey || c.RoundTrip != 10*ms || c.Address != "192.168.1.9:443" || c.Stage != route.Handshake {
			t.Errorf("%+v", c)
		}
		if c := list[1]; c.Outcome != route.Failed || c.Err == nil || c.Stage != route.Open {
			t.Errorf("%+v", c)
		}
		w.nas(nasTailnet, "443").Unreachable(false)
		if err := w.d.Use(t.Context(), "nas", "tailnet", false); err != nil {
			t.Fatal(err)
		}
		wantRoute(t, w.openNAS("443"), nasTailnet)
		if err := w.d.Use(t.Context(), "nas", "direct", false); err == nil {
			t.Error("a class that it has not was pinned")
		}
		time.Sleep(time.Second) // the grace for a better class
		why, err := w.d.Why(t.Context(), "nas")
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, d := range why {
			told = append(told, d.What)
		}
		if want := "[race: lan:192.168.1.9 leads race: lan:192.168.1.9 won race: tailnet:100.64.0.3 leads race: tailnet:100.64.0.3 won]"; fmt.Sprint(told) != want {
			t.Errorf("told %v", told)
		}
	})
}

// TestPlainWeather: whatever routes, networks, config and apps do, every call ends in its time, what it returns works or says why
// not, and no socket is left that nobody has.
func TestPlainWeather(t *testing.T) {
	for seed := range uint64(20) {
		inNAS(t, both, func(c *Config) { c.Wait = 20 * time.Second }, func(t *testing.T, w *world) {
			random := rand.New(rand.NewPCG(seed, 0))
			var apps sync.WaitGroup
			var served atomic.Int32
			for range 300 {
				time.Sleep(time.Duration(random.IntN(400)) * ms)
				switch r := []route.Route{nasLAN, nasTailnet}[random.IntN(2)]; random.IntN(9) {
				case 0:
					w.nas(r, "80").Hang(random.IntN(2) == 0)
				case 1:
					w.nas(r, "443").Unreachable(random.IntN(2) == 0)
				case 2:
					_ = w.nas(r, "80").Refuse(random.IntN(2) == 0)
				case 3:
					w.d.SetPath(home([]string{"192.0.2.1", "192.0.2.1", "192.0.2.9"}[random.IntN(3)]))
				case 4:
					w.d.SetPeers([]Peer{{Name: "nas", Routes: [][]route.Route{{nasLAN}, {nasTailnet}, {nasLAN, nasTailnet}}[random.IntN(3)]}})
				default:
					patience, port := time.Duration(random.IntN(30_000))*ms, []string{"80", "443", "9"}[random.IntN(3)]
					apps.Go(func() {
						if plainApp(t, w, patience, port) {
							served.Add(1)
						}
					})
				}
			}
			apps.Wait()
			if got := served.Load(); got < 20 || got > 150 {
				t.Errorf("seed %d: %d apps got a connection: no weather", seed, got)
			}
			time.Sleep(time.Minute)
			st := w.status()
			if st.Waiting != 0 || len(st.Conns) != 0 || st.State != StateIdle {
				t.Errorf("seed %d: %d wait, %d are open, %s", seed, st.Waiting, len(st.Conns), st.State)
			}
			for _, r := range []route.Route{nasLAN, nasTailnet} {
				for _, port := range []string{"80", "443", "9"} {
					if n := w.nas(r, port).Live(); n != 0 {
						t.Errorf("seed %d: %d sockets to port %s over %s", seed, n, port, r)
					}
				}
			}
		})
	}
}

// plainApp opens a connection, uses it if it gets one, and closes it.
func plainApp(t *testing.T, w *world, patience time.Duration, port string) (served bool) {
	ctx, cancel := contextWithTimeout(t, patience)
	defer cancel()
	began := w.since()
	c, err := w.d.DialContext(ctx, "nas", "nas:"+port)
	if took := w.since() - began; took > min(patience, 20*time.Second) {
		t.Errorf("port %s after %s, with a patience of %s", port, took, patience)
	}
	if err != nil {
		var why interface{ Reason() string }
		if !errors.Is(err, errLeft) && !errors.As(err, &why) {
			t.Errorf("port %s: %v", port, err)
		}
		return false
	}
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, "x"); err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
		if errors.Is(err, io.EOF) {
			t.Errorf("port %s ended cleanly", port)
		}
	}
	c.Close()
	return true
}

// TestPlainLookBecomesTheRace: when the route in use dies while a better one is looked at in vain, the rest join that race.
func TestPlainLookBecomesTheRace(t *testing.T) {
	nasDirect := mustPlain("direct:198.51.100.9")
	inNAS(t, both, func(c *Config) { c.Peers[0].Routes = append(c.Peers[0].Routes, nasDirect) }, func(t *testing.T, w *world) {
		w.nas(nasDirect, "80").SetDelay(30 * ms)
		w.listen("198.51.100.9:80", echoConn)
		w.nas(nasLAN, "80").Hang(true)
		wantRoute(t, w.openNAS("80"), nasTailnet)
		time.Sleep(route.CheckEvery)
		w.nas(nasTailnet, "80").Hang(true)
		began := w.since()
		wantRoute(t, w.openNAS("80"), nasDirect)
		wantTime(t, "the connection and its echo", w.since()-began, route.SlotStep+120*ms)
	})
}
