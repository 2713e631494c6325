package dialer

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// TestWhyTellsDecisionsAndMoves: what roam has decided and where the link went, in one story, each on its facts.
func TestWhyTellsDecisionsAndMoves(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
		events, stop := w.d.Watch()
		defer stop()
		w.open(echoTarget)
		time.Sleep(time.Second)
		if err := w.d.Use(t.Context(), "devbox", tailnet.ID(), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		list, err := w.d.Why(t.Context(), "devbox")
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, d := range list {
			told = append(told, fmt.Sprintf("%s (%s)", d.What, d.Why))
		}
		text := strings.Join(told, "\n")
		at := 0
		for _, want := range []string{
			"race: " + lan.ID() + " leads (connect: an app asked)",
			"connected over " + lan.ID() + " (the first carrier that was attached)",
			"race: " + tailnet.ID() + " leads (user: ",
			"move to " + tailnet.ID() + " (",
			"moved from " + lan.ID() + " to " + tailnet.ID() + " (as planned",
		} {
			i := strings.Index(text[at:], want)
			if i < 0 {
				t.Fatalf("%q is not told, or not in its place:\n%s", want, text)
			}
			at += i + len(want)
		}
		for _, d := range list {
			if strings.HasPrefix(d.What, "move to") && (len(d.Changes) == 0 || !hasFact(d, "in use", lan.ID()) || !hasFact(d, "pinned", tailnet.ID())) {
				t.Errorf("a decision without its facts or what would change it: %+v", d)
			}
		}
		for i, d := range list {
			if e := <-events; e.Peer != "devbox" || e.What != d.What || !e.At.Equal(d.At) || e.Missed != 0 {
				t.Errorf("event %d is %+v, want %+v", i, e, d)
			}
		}
	})
}

func hasFact(d route.Decision, name, part string) bool {
	for _, f := range d.Facts {
		if f.Name == name && strings.Contains(f.Value, part) {
			return true
		}
	}
	return false
}

// TestExplainEveryAction: each decision is told in words, with no number of a carrier alone.
func TestExplainEveryAction(t *testing.T) {
	p := &peer{names: map[uint64]string{3: lan.ID()}}
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	ranked := []route.Ranked{{Route: lan}, {Route: tailnet}}
	for _, c := range []struct {
		action route.RoamAction
		want   string
	}{
		{route.JoinRace{Plan: ranked, Why: "w"}, "race: goes on with " + lan.ID() + ", " + tailnet.ID()},
		{route.TryAgain{Routes: []route.Route{lan}, Why: "w"}, "race: dial again " + lan.ID()},
		{route.DialStandby{Route: lan, Why: "w"}, "dial " + lan.ID() + ", to have it in reserve"},
		{route.Check{Routes: []route.Route{lan, tailnet}, Why: "w"}, "check " + lan.ID() + ", " + tailnet.ID()},
		{route.Prove{ID: 3, Within: time.Second, Why: "w"}, "ask for a sign of life on " + lan.ID() + " (carrier 3)"},
		{route.Switch{ID: 3, Route: lan, Why: "w"}, "move to " + lan.ID()},
		{route.KeepStandby{ID: 3, Route: lan, Why: "w"}, "keep " + lan.ID() + " (carrier 3) in reserve"},
		{route.Release{ID: 4, Route: lan, Why: "w"}, "let carrier 4 go once nothing needs it"},
		{route.Drop{ID: 3, Route: lan, Why: "w"}, "close " + lan.ID() + " (carrier 3)"},
		{
			route.Remember{RouteID: lan.ID(), Penalty: route.Penalty{}.Fell(now, "lost after 3m0s"), Why: "w"},
			"remember of " + lan.ID() + " on an unknown network: penalized until 12:05: dropped once within 5 min after a switch (lost after 3m0s)",
		},
		{route.Remember{RouteID: lan.ID(), Why: "w"}, "remember of " + lan.ID() + " on an unknown network: nothing is held against it"},
	} {
		if d := p.explain(now, c.action); d.What != c.want || d.Why != "w" || !d.At.Equal(now) {
			t.Errorf("%T: %q because %q, want %q", c.action, d.What, d.Why, c.want)
		}
	}
}

// TestStatusTellsWhereThisMachineIs: the path, and what is remembered about the routes there.
func TestStatusTellsWhereThisMachineIs(t *testing.T) {
	own := netip.MustParsePrefix("192.168.1.7/24")
	home := route.Path{Interfaces: []route.Interface{{
		Name: "wlan0", Kind: route.WiFi, Addrs: []netip.Prefix{own}, Default: true,
		Network: route.Network{Kind: route.WiFi, Prefix: own.Masked()},
	}}}
	in(t, delays{lan: 5 * ms}, func(c *Config) { c.Path = home }, func(t *testing.T, w *world) {
		w.open(echoTarget)
		st, err := w.d.PeerStatus(t.Context(), "devbox")
		if err != nil || len(st.Path.Interfaces) != 1 || w.d.Path().Interfaces[0].Network != home.Interfaces[0].Network {
			t.Fatalf("%+v, %v", st.Path, err)
		}
		if len(st.Here) != 1 || st.Here[0].Routes[lan.ID()].LastSuccess.IsZero() {
			t.Errorf("remembered here: %+v", st.Here)
		}
		if _, err := w.d.PeerStatus(t.Context(), "nobody"); err == nil {
			t.Error("a peer that is none has a status")
		}
	})
}

// TestCheckByHandSettlesWhoseAddressItIs: a check that meets another key has the address left out, and one that meets the right
// key has it used again at once.
func TestCheckByHandSettlesWhoseAddressItIs(t *testing.T) {
	twoRoutes := func(c *Config) { c.Peers[0].Routes = append(c.Peers[0].Routes, direct) }
	in(t, delays{lan: 5 * ms}, twoRoutes, func(t *testing.T, w *world) {
		other := link.NewHost(link.HostConfig{Key: testKey(t), Process: link.Process{Instance: [16]byte{9}, Boot: 1}})
		defer other.Close()
		wrong := atomic.Bool{}
		wrong.Store(true)
		w.listen(direct.Address, func(c net.Conn) {
			if wrong.Load() {
				_ = other.ServeConn(context.Background(), c) // the dialer closes it
				return
			}
			w.serveConn(c)
		})
		w.open(echoTarget)
		for _, want := range []struct {
			wrong   bool
			outcome route.Outcome
			refused int
		}{{true, route.WrongPeer, 1}, {false, route.Won, 0}} {
			wrong.Store(want.wrong)
			list, err := w.d.Check(t.Context(), "devbox")
			if err != nil {
				t.Fatal(err)
			}
			st, err := w.d.PeerStatus(t.Context(), "devbox")
			if err != nil {
				t.Fatal(err)
			}
			if got := list[1]; got.Route != direct || got.Outcome != want.outcome || len(st.Refused) != want.refused {
				t.Errorf("wrong key %t: %s %s, left out: %v", want.wrong, got.Route, got.Outcome, st.Refused)
			}
		}
	})
}
