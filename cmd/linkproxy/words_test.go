package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/link/core"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func TestPlainly(t *testing.T) {
	for in, want := range map[string]string{
		"dialer: no route: link: handshake":                               "no route: handshake",
		"after 31.123456ms, or 5m0s, or 4ms":                              "after 31ms, or 5m0s, or 4ms",
		"1.234567ms 12.3456789s 1h2m3.456s":                               "1.2ms 12.3s 1h2m3s",
		"lan:10.0.0.5:7000 and host-1.5 at 1.5":                           "lan:10.0.0.5:7000 and host-1.5 at 1.5",
		"at 10.0.0.5:1: dial tcp 10.0.0.5:1: connect: connection refused": "at 10.0.0.5:1: connection refused",
		"812.5µs": "800µs",
	} {
		if got := plainly(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestWhen(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		want string
	}{
		{noon.Add(-time.Hour), "11:00"},
		{noon.Add(-24 * time.Hour), "3 May 12:00"},
		{noon.AddDate(-1, 0, 0), "4 May 12:00"},
		{noon.Add(time.Hour).In(time.FixedZone("", 3600)), "13:00"},
	} {
		if got := when(noon, c.t); got != c.want {
			t.Errorf("%v: %q, want %q", c.t, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := wrap("aaa bbb ccc dddddddddddddddd e", 11, "  ")
	if want := "aaa bbb ccc\n  dddddddddddddddd\n  e"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOutcomesHaveWords(t *testing.T) {
	for o := route.NotTried; o <= route.Cancelled; o++ {
		if outcomes[o] == "" {
			t.Errorf("%s has no words", o)
		}
	}
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 21: "21st", 113: "113th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"devbox", "attic", "nas", "devbox2"}
	for name, want := range map[string]string{
		"devbx": "devbox", "DEVBOX1": "devbox", "edvbox": "devbox", "atic": "attic", "nsa": "nas", "na": "nas",
		"devbox": "devbox2", "cloud": "", "s": "", "mas2": "", "example.com": "",
	} {
		if got := nearest(name, known); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestUnmistyped: a name that leads nowhere gets a hint; one that was found does not, whatever failed then.
func TestUnmistyped(t *testing.T) {
	known := []string{"devbox"}
	notFound := &net.DNSError{Err: "no such host", Name: "devbx", IsNotFound: true}
	for _, c := range []struct {
		err  error
		name string
		want string
	}{
		{notFound, "devbx:8000", "no peer devbx; did you mean devbox? (" + notFound.Error() + ")"},
		{&config.TargetError{Msg: "no peer of this machine"}, "devbx.linkproxy.internal:22", "no peer devbx; did you mean devbox? (no peer of this machine)"},
		{notFound, "example.com:443", notFound.Error()},
		{&net.DNSError{Err: "slow", IsTimeout: true}, "devbx:1", "lookup : slow"},
		{errors.New("refused"), "devbx:8000", "refused"},
	} {
		err := unmistyped(c.err, c.name, known)
		if err.Error() != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, want %q", c.name, err, c.want)
		}
	}
	if err := unmistyped(nil, "devbx:1", known); err != nil {
		t.Errorf("nothing wrong gives %v", err)
	}
}

func TestFlagsFirst(t *testing.T) {
	commands := []*cli.Command{
		{Name: "use", Flags: append(globalFlags(nil), &cli.BoolFlag{Name: "only"}, &cli.IntFlag{Name: "last"})},
		{Name: "connect"},
	}
	for in, want := range map[string]string{
		"p use devbox lan --only":              "p use --only devbox lan",
		"p --config f use devbox --last 3 lan": "p --config f use --last 3 devbox lan",
		"p use devbox --last=3":                "p use --last=3 devbox",
		"p use devbox -- --only":               "p use devbox -- --only",
		"p use devbox --last":                  "p use --last devbox",
		"p connect a:1 --only":                 "p connect a:1 --only",
		"p --config":                           "p --config",
		"p":                                    "p",
	} {
		if got := strings.Join(flagsFirst(strings.Fields(in), commands, "use"), " "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

var (
	lanRoute     = route.Route{Class: route.LAN, Address: "10.0.0.5:7000"}
	tailnetRoute = route.Route{Class: route.Tailnet, Address: "100.64.0.9:7000"}
)

// TestRouteState: how a route stands, in the words of docs/routes.md.
func TestRouteState(t *testing.T) {
	at := func(min int) time.Time { return noon.Add(time.Duration(min) * time.Minute) }
	fell := route.Penalty{}.Fell(at(-12), "lost after 3m0s").Fell(at(-5), "silent after 1m2.3456s")
	attempt := func(o route.Outcome, err error) dialer.PeerStatus {
		return dialer.PeerStatus{RaceEnded: at(-1), Attempts: []route.Attempt{{Route: lanRoute, Outcome: o, Err: err}}}
	}
	remembered := func(r route.RouteMemory) dialer.PeerStatus {
		return dialer.PeerStatus{Here: []route.NetworkMemory{{Routes: map[string]route.RouteMemory{lanRoute.ID(): r}}}}
	}
	pinned := func(p route.Pin) dialer.PeerStatus { return dialer.PeerStatus{Pin: p} }
	for _, c := range []struct {
		st   dialer.PeerStatus
		why  route.Why
		want string
	}{
		{dialer.PeerStatus{}, route.Why{}, "not tried yet"},
		{
			dialer.PeerStatus{},
			route.Why{Penalty: fell, Penalized: true},
			"penalized until 12:05: dropped twice within 5 min after a switch (lost after 3m0s; silent after 1m2s)",
		},
		{
			remembered(route.RouteMemory{Penalty: route.Penalty{}.Cooled(at(-1))}),
			route.Why{},
			"left alone until 12:04: it answered a check but did not attach",
		},
		{
			attempt(route.Failed, errors.New("dialer: connection refused")),
			route.Why{Failing: true, LastFailure: at(-1)},
			"failing: 2 times, last 11:59: connection refused",
		},
		{attempt(route.Silent, nil), route.Why{LastFailure: at(-1)}, "failed once, 11:59: no answer"},
		{dialer.PeerStatus{}, route.Why{Implausible: "this machine has no tailnet now"}, "tried last: this machine has no tailnet now"},
		{
			pinned(route.Pin{Class: route.LAN}),
			route.Why{Implausible: "this machine has no tailnet now"},
			"pinned; can hardly work here: this machine has no tailnet now",
		},
		{attempt(route.WrongPeer, errors.New("x")), route.Why{}, "did not work at 11:59: another key answered there"},
		{attempt(route.Lost, nil), route.Why{}, "another was faster, 11:59"},
		{
			attempt(route.Lost, nil),
			route.Why{LastSuccess: at(-60), Handshake: 12345678},
			"worked 11:00, after 12ms; another was faster last time",
		},
		{attempt(route.NotTried, nil), route.Why{}, "not tried: another was there first"},
		{pinned(route.Pin{Class: route.LAN}), route.Why{}, "pinned; not tried yet"},
		{pinned(route.Pin{Class: route.Direct}), route.Why{}, "not tried yet"},
		{pinned(route.Pin{Class: route.Direct, Only: true}), route.Why{}, "not to be used: direct --only is pinned"},
	} {
		if got := routeState(c.st, route.Ranked{Route: lanRoute, Why: c.why}, noon); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestReasonsAndPlaces(t *testing.T) {
	for in, want := range map[string]string{
		"connect: an app asked":               "an app asked",
		"user":                                "the user wants it",
		"path change: interfaces changed":     "interfaces changed",
		"the user wants direct":               "the user wants direct",
		"loss":                                "the last carrier was gone",
		"lan:10.0.0.5:7000 is in doubt: why?": "lan:10.0.0.5:7000 is in doubt: why?",
	} {
		if got := reason(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for trigger := route.ForConnect; trigger <= route.ForUser; trigger++ {
		if got := reason(trigger.String()); got == trigger.String() {
			t.Errorf("%s has no words", trigger)
		}
	}
	const text = "x: first, as pinned by the user: lan; tried last: this machine has no tailnet now; tried last: failed"
	if got, want := place(text), "x: first, as pinned by the user: lan; otherwise tried last: this machine has no tailnet now; otherwise tried last: failed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := place("x: tried last: failed"); got != "x: tried last: failed" {
		t.Errorf("%q", got)
	}
}

// TestPeerStatusListsEveryRoute: those that would be tried, in their order, then those that would not, with the reason.
func TestPeerStatusListsEveryRoute(t *testing.T) {
	p := peerStatus(dialer.PeerStatus{
		Ranked:  []route.Ranked{{Route: tailnetRoute, Why: route.Why{Class: route.Relay, Relayed: true}}},
		Refused: []route.Refusal{{Route: lanRoute, Why: "another key answered there: ignored for 9m3.123s more"}},
		Routes:  []route.Route{lanRoute, tailnetRoute, {Class: route.Direct, Address: "d.example:1"}},
		Pin:     route.Pin{Class: route.Tailnet, Only: true},
	}, noon)
	want := []string{
		"1 tailnet:100.64.0.9:7000 relay: pinned; not tried yet; the tailnet relays it here, so it is no better than a relay",
		"0 lan:10.0.0.5:7000 lan: not tried: another key answered there: ignored for 9m3s more",
		"0 direct:d.example:1 direct: not to be used: tailnet --only is pinned",
	}
	var got []string
	for _, r := range p.Routes {
		got = append(got, fmt.Sprintf("%d %s %s: %s", r.Place, r.Route, r.Class, r.State))
	}
	if !slices.Equal(got, want) || p.Pin != "tailnet --only" {
		t.Errorf("pin %q, got:\n%s", p.Pin, strings.Join(got, "\n"))
	}
}

// TestStanding: where a peer is, why, and what would move it.
func TestStanding(t *testing.T) {
	lan := route.Ranked{Route: lanRoute, Why: route.Why{Class: route.LAN}}
	tail := route.Ranked{Route: tailnetRoute, Why: route.Why{Class: route.Tailnet}}
	held := lan
	held.Why.Penalty = route.Penalty{}.Fell(noon.Add(-time.Minute), "lost after 3m0s")
	on := func(r route.Route, ranked ...route.Ranked) dialer.PeerStatus {
		c := link.CarrierStatus{CarrierStatus: core.CarrierStatus{Gen: 1, Attached: true, Active: true, RTT: 20 * time.Millisecond}, Name: r.ID()}
		return dialer.PeerStatus{Name: "devbox", Ranked: ranked, Link: &link.Status{Carriers: []link.CarrierStatus{c}}}
	}
	withPin := func(st dialer.PeerStatus, pin route.Pin) dialer.PeerStatus { st.Pin = pin; return st }
	reserve := on(lanRoute, lan, tail)
	reserve.Link.Carriers = append(reserve.Link.Carriers, link.CarrierStatus{CarrierStatus: core.CarrierStatus{Gen: 2, Attached: true}, Name: tailnetRoute.ID()})
	for _, c := range []struct {
		name      string
		st        dialer.PeerStatus
		is, moves string
	}{
		{
			"idle",
			dialer.PeerStatus{Name: "devbox", State: dialer.StateIdle, Ranked: []route.Ranked{lan}},
			"devbox is not connected: no app asks for it.", "Tried first: lan:10.0.0.5:7000: never worked here.",
		},
		{
			"waiting",
			dialer.PeerStatus{Name: "devbox", State: dialer.StateWaiting, Next: noon.Add(3 * time.Second), NextWhy: "2 failed in a row", Err: errors.New("dialer: it is off")},
			"devbox is not connected; it is tried again in 4 s (2 failed in a row). It is off.", "",
		},
		{"best", on(lanRoute, lan, tail), "no better class is known", "to whichever answers first of " + tail.Route.ID() + " if " + lan.Route.ID() + " stops answering"},
		{"reserve", reserve, "no better class is known", "to " + tail.Route.ID() + ", which is in reserve, if"},
		{"alone", on(lanRoute, lan), "no better class is known", "There is no other route: if this one stops answering, connections are held"},
		{"worse", on(tailnetRoute, tail, lan), "devbox is on " + tail.Route.ID() + " because", "to " + lan.Route.ID() + " once it answers a check within 50ms ("},
		{"penalized", on(tailnetRoute, tail, held), "", "once nothing is held against it (penalized until 12:04: dropped once within 5 min after a switch (lost after 3m0s)), and it answers"},
		{"pinned", withPin(on(tailnetRoute, tail, lan), route.Pin{Class: route.Tailnet}), "because tailnet is pinned", "if " + tail.Route.ID() + " stops answering"},
		{"pinned, elsewhere", withPin(on(tailnetRoute, tail, lan), route.Pin{Class: route.LAN}), "", "to lan, which is pinned, once that answers"},
		{"only", withPin(on(tailnetRoute, tail), route.Pin{Class: route.Tailnet, Only: true}), "tailnet --only is pinned", "It would move only after `linkproxy use devbox auto`"},
	} {
		is, moves := standing(c.st, noon)
		if !strings.Contains(is, c.is) || !strings.Contains(moves, c.moves) || c.moves == "" && moves != "" {
			t.Errorf("%s:\n%s\n%s", c.name, is, moves)
		}
	}
}

func TestWhyText(t *testing.T) {
	why := control.Why{
		Now: "devbox is on lan.", Moves: "It would move to tailnet when lan stops answering.",
		Decisions: []control.Decision{{
			At: noon.Add(-time.Minute), What: "race: lan leads", Why: "connect: an app asked", Facts: []control.Fact{{Name: "tailnet", Value: "no"}},
			Routes: []string{"lan: never worked here, which is a long line that does not fit"}, Changes: []string{"a tailnet"},
		}},
	}
	want := `devbox is on lan.
It would move to tailnet when lan stops answering.

The last 1 of 9 decisions, the newest last (more: --last 9):

11:59:00  race: lan leads
          why: an app asked
          tailnet: no
          1. lan: never worked here, which is a long line that
            does not fit
          would change with: a tailnet
`
	if got := whyText(why, 9, 62, noon); got != want {
		t.Errorf("got:\n%s", got)
	}
	if got := whyText(control.Why{Now: "idle."}, 0, 62, noon); !strings.Contains(got, "Nothing has been decided") {
		t.Error(got)
	}
}

func TestEventText(t *testing.T) {
	e := control.Event{Peer: "devbox", Missed: 3, Decision: control.Decision{At: noon, What: "close x", Why: "route: it is not needed"}}
	want := "          3 events before this one cannot be told: they came faster than they were read\n12:00:00  devbox  close x (it is not needed)\n"
	if got := eventText(e, noon); got != want {
		t.Errorf("got %q", got)
	}
}

func TestUsedText(t *testing.T) {
	for want, p := range map[string]control.Peer{
		"devbox is on lan:x now; lan is pinned until `linkproxy use devbox auto` or a restart of `linkproxy up`": {Name: "devbox", Pin: "lan", Active: "lan:x"},
		"devbox is not connected now: lan --only is used once an app asks; pinned until":                         {Name: "devbox", Pin: "lan --only"},
		"devbox is on lan:x now; nothing is pinned: it moves when another is better":                             {Name: "devbox", Active: "lan:x"},
		"devbox is not connected now; nothing is pinned":                                                         {Name: "devbox"},
	} {
		if got := usedText(p); !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestCheckText(t *testing.T) {
	got := checkText([]control.Checked{
		{Route: "lan:a:1", Works: true, InUse: true, RoundTripMicros: 4100, HandshakeMicros: 9000, Local: "10.0.0.2", Through: "wlan0, wifi 10.0.0.0/24", Address: "10.0.0.5:1", Place: 1, Rank: "worked here 5m ago"},
		{Route: "direct:b:1", Error: "b:1 is not devbox: another key answered", Rank: "it would not be tried: another key answered there"},
	}, 100)
	want := `lan:a:1  works, in use
    right key; round trip 4.1ms, handshake 9ms
    from 10.0.0.2 (wlan0, wifi 10.0.0.0/24) to 10.0.0.5:1
    1st in a race now: worked here 5m ago
direct:b:1  does not work
    b:1 is not devbox: another key answered
    it would not be tried: another key answered there
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
}
