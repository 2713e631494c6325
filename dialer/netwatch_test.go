package dialer

import (
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/discovery/netwatch"
)

func TestPathOf(t *testing.T) {
	prefix := netip.MustParsePrefix
	s := netwatch.Snapshot{Known: true, Tailnet: true, Interfaces: []netwatch.Interface{
		{
			Name: "wlan0", Kind: netwatch.WiFi, Addrs: []netip.Prefix{prefix("192.168.1.7/24")}, Default: true,
			Network: netwatch.Network{Kind: netwatch.WiFi, Prefix: prefix("192.168.1.0/24"), Router: "5f3a"},
		},
		{Name: "wwan0", Kind: netwatch.Cell, Metered: true, Network: netwatch.Network{Kind: netwatch.Cell}},
		{Name: "tailscale0", Kind: netwatch.Tunnel, Addrs: []netip.Prefix{prefix("100.64.0.7/32")}},
		{Name: "eth0", Kind: netwatch.Wired},
		{Name: "x0", Kind: netwatch.Other},
		{Name: "lo", Kind: netwatch.Loopback},
	}}
	want := route.Path{Tailnet: true, Interfaces: []route.Interface{
		{
			Name: "wlan0", Kind: route.WiFi, Addrs: []netip.Prefix{prefix("192.168.1.7/24")}, Default: true,
			Network: route.Network{Kind: route.WiFi, Prefix: prefix("192.168.1.0/24"), Router: "5f3a"},
		},
		{Name: "wwan0", Kind: route.Cell, Metered: true, Network: route.Network{Kind: route.Cell}},
		{Name: "tailscale0", Kind: route.Tunnel, Addrs: []netip.Prefix{prefix("100.64.0.7/32")}},
		{Name: "eth0", Kind: route.Wired},
		{Name: "x0", Kind: route.OtherKind},
		{Name: "lo", Kind: route.Loopback},
	}}
	if got := PathOf(s); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := PathOf(netwatch.Snapshot{}); len(got.Interfaces) != 0 {
		t.Errorf("what could not be read is %+v", got)
	}
}

// machine is a network that a watcher sees, and that changes.
type machine struct {
	reading netwatch.Reading
	changed chan struct{}
}

func wifi() netwatch.Link {
	return netwatch.Link{Name: "wlan0", Index: 1, Kind: netwatch.WiFi, Running: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.1.7/24")}}
}

func wired() netwatch.Link {
	return netwatch.Link{Name: "eth0", Index: 2, Kind: netwatch.Wired, Running: true, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/24")}}
}

// TestFollow: a change of the network is taken over after the watcher has looked, and a wake-up has the carrier asked; a stream makes
// the watcher watchful.
func TestFollow(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
		m := &machine{reading: netwatch.Reading{Links: []netwatch.Link{wifi()}}, changed: make(chan struct{}, 1)}
		var slept atomic.Int64
		watch := netwatch.New(netwatch.Config{
			Read:    func() (netwatch.Reading, error) { return m.reading, nil },
			Changed: func() <-chan struct{} { return m.changed },
			Wall:    func() time.Time { return time.Now().Add(time.Duration(slept.Load())) },
		})
		w.d.SetPath(PathOf(watch.Snapshot()))
		w.wg.Go(func() { watch.Run(t.Context()) })
		w.wg.Go(func() { w.d.Follow(watch) })
		defer watch.Close()
		s := w.open(echoTarget)
		echo(t, s, "on the Wi-Fi")
		if n := len(w.dialled()); n != 1 {
			t.Errorf("%d dials to connect", n)
		}
		m.reading = netwatch.Reading{Links: []netwatch.Link{wifi(), wired()}}
		m.changed <- struct{}{}
		time.Sleep(time.Second)
		if got := w.d.path(); len(got.Interfaces) != 2 {
			t.Errorf("the dialer knows %d interfaces", len(got.Interfaces))
		}
		if n := len(w.dialled()); n == 0 {
			t.Error("no race after a change of the network")
		}
		before := w.status().Link.Carriers
		slept.Store(int64(8 * time.Hour))
		time.Sleep(1100 * ms) // a watchful watcher looks at the clock each second
		synctest.Wait()
		if n := len(w.dialled()); n == 0 {
			t.Error("no race after waking up")
		}
		if len(before) == 0 || w.active() != lan.ID() {
			t.Errorf("on %s after waking up", w.active())
		}
		echo(t, s, "still here")
		_ = s.Close()
	})
}

// TestWhatARaceTeachesIsRemembered: the next dialer, on the same network, begins with what worked, and gives the dead route no head
// start; elsewhere it begins anew.
func TestWhatARaceTeachesIsRemembered(t *testing.T) {
	var memory route.Memory
	routers := []string{"5f3a", "5f3a", "77aa"}
	at := func(router string) route.Path {
		prefix := netip.MustParsePrefix("192.168.1.0/24")
		return route.Path{Tailnet: true, Interfaces: []route.Interface{{
			Name: "wlan0", Kind: route.WiFi, Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.1.7/24")}, Default: true,
			Network: route.Network{Kind: route.WiFi, Prefix: prefix, Router: router},
		}}}
	}
	for i, c := range []struct {
		first route.Route
		took  time.Duration
	}{
		{lan, 250*ms + 3*2*10*ms}, // nothing is known: the other route starts after its head start
		{tailnet, 3 * 2 * 10 * ms},
		{tailnet, 3 * 2 * 10 * ms}, // another home: what worked last anywhere leads
	} {
		in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, func(c *Config) {
			c.Path = at(routers[i])
			c.Recall = func(string) route.Memory { return memory }
			c.Remember = func(_ string, m route.Memory) { memory = m }
		}, func(t *testing.T, w *world) {
			w.route(lan).Hang(true)
			start := time.Now()
			s := w.open(echoTarget)
			wantTime(t, "open with router "+routers[i], time.Since(start), c.took)
			if d := w.dialled(); len(d) == 0 || d[0].address != c.first.Address {
				t.Errorf("run %d dialled %v, want %s first", i, d, c.first)
			}
			_ = s.Close()
		})
	}
}
