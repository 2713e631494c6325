package route

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestClassOrderAndNames(t *testing.T) {
	classes := []Class{LAN, Tailnet, Direct, Relay}
	for i, c := range classes {
		if i > 0 && c <= classes[i-1] {
			t.Errorf("%s is not after %s", c, classes[i-1])
		}
		got, err := ParseClass(strings.ToUpper(c.String()))
		if err != nil || got != c {
			t.Errorf("ParseClass(%s) = %v, %v", c, got, err)
		}
	}
	for _, bad := range []string{"", "none", "wan", "lan ", "lan:"} {
		if c, err := ParseClass(bad); !errors.Is(err, ErrBadRoute) {
			t.Errorf("ParseClass(%q) = %v, %v; want ErrBadRoute", bad, c, err)
		}
	}
}

func TestNamesAreTotal(t *testing.T) {
	for got, want := range map[string]string{
		Class(0).String():    "none",
		Relay.String():       "relay",
		Class(9).String():    "class 9",
		Attach.String():      "attach",
		Stage(9).String():    "stage 9",
		Cancelled.String():   "cancelled",
		Outcome(99).String(): "outcome 99",
		Done.String():        "done",
		Verb(9).String():     "verb 9",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRouteIdentity(t *testing.T) {
	r := Route{Class: LAN, Address: "192.168.1.20:7000", Source: Configured}
	if got := r.ID(); got != "lan:192.168.1.20:7000" || got != r.String() {
		t.Errorf("ID = %q", got)
	}
	learned := r
	learned.Source = "peer"
	if !r.Same(learned) {
		t.Error("another source made another route")
	}
	if r.Same(Route{Class: Direct, Address: r.Address}) || r.Same(Route{Class: LAN, Address: "192.168.1.20:7001"}) {
		t.Error("another class or port is the same route")
	}
}

func TestWhatCountsAsFailure(t *testing.T) {
	want := map[Outcome]bool{Failed: true, Silent: true, WrongPeer: true, Foreign: true, Unfinished: true}
	for o := range Outcome(len(outcomeNames)) {
		if got := (Attempt{Outcome: o, Duration: FairTry}).IsFailure(); got != want[o] {
			t.Errorf("%s after %s: failure = %v", o, FairTry, got)
		}
	}
	if (Attempt{Outcome: Unfinished, Duration: FairTry - 1}).IsFailure() {
		t.Error("unfinished after less than a fair try is a failure")
	}
}

func TestAttemptString(t *testing.T) {
	r := Route{Class: Direct, Address: "h.example:7000"}
	for _, c := range []struct {
		a    Attempt
		want string
	}{
		{Attempt{Route: r, Err: ErrRaceOver}, "direct:h.example:7000 not tried: the race ended before its turn"},
		{Attempt{Route: r, Outcome: Won, Stage: Handshake, Start: epoch, Duration: 31 * time.Millisecond}, "direct:h.example:7000 won after 31ms"},
		{Attempt{Route: r, Outcome: Failed, Stage: Handshake, Start: epoch, Duration: time.Second, Err: errors.New("EOF")}, "direct:h.example:7000 failed in handshake after 1s: EOF"},
	} {
		if got := c.a.String(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}
