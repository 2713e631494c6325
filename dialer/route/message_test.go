package route

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func attempt(class Class, address string, outcome Outcome, stage Stage, cause string) Attempt {
	a := Attempt{Route: Route{Class: class, Address: address}, Outcome: outcome, Stage: stage, Start: epoch, Duration: OpenLimit}
	if cause != "" {
		a.Err = errors.New(cause)
	}
	return a
}

func TestDescribe(t *testing.T) {
	lan := func(o Outcome, s Stage, cause string) Attempt { return attempt(LAN, "10.0.0.2:7000", o, s, cause) }
	direct := func(o Outcome, s Stage, cause string) Attempt { return attempt(Direct, "h.example:7000", o, s, cause) }
	relay := func(o Outcome, s Stage, cause string) Attempt { return attempt(Relay, "wss://r.example", o, s, cause) }
	for name, c := range map[string]struct {
		attempts []Attempt
		text     string
		next     string // a part of it
		hint     bool
	}{
		"no route": {nil, "no route to devbox is configured", "pair with it again", false},
		"socket never opened": {
			[]Attempt{lan(Failed, Open, "connection refused")},
			"could not reach devbox at 10.0.0.2:7000: connection refused", "`linkproxy host` runs on devbox", true,
		},
		"socket never opened, silent": {
			[]Attempt{lan(Silent, Open, "")},
			"could not reach devbox at 10.0.0.2:7000: no answer within 5s", "", true,
		},
		"socket never opened, race over": {
			[]Attempt{lan(Unfinished, Open, "")},
			"could not reach devbox at 10.0.0.2:7000: no answer within 5s", "", true,
		},
		"local stack refuses": {
			[]Attempt{lan(NoRoute, Open, "")},
			"could not reach devbox at 10.0.0.2:7000: this machine has no route there", "on a network that reaches it", true,
		},
		"opened, then closed": {
			[]Attempt{lan(Failed, Handshake, "connection reset")},
			"devbox disconnected at 10.0.0.2:7000: connection reset", "what `linkproxy host` prints on devbox", false,
		},
		"opened, then closed without a cause": {
			[]Attempt{lan(Failed, Attach, "")},
			"devbox disconnected at 10.0.0.2:7000: closed during set-up", "", false,
		},
		"opened, stopped answering": {
			[]Attempt{lan(Silent, Handshake, "")},
			"devbox is not responding at 10.0.0.2:7000: no answer within 5s", "", false,
		},
		"opened, unfinished": {
			[]Attempt{lan(Unfinished, Attach, "")},
			"devbox is not responding at 10.0.0.2:7000: no answer within 5s", "", false,
		},
		"no route answered": {
			[]Attempt{lan(Failed, Open, "connection refused"), direct(Silent, Open, "")},
			"none of 2 routes to devbox answered: lan:10.0.0.2:7000: connection refused; direct:h.example:7000: no answer within 5s", "", false,
		},
		"none answered, one not tried": {
			[]Attempt{lan(Unfinished, Open, ""), {Route: Route{Class: Direct, Address: "h.example:7000"}, Err: ErrRaceOver}},
			"none of 2 routes to devbox answered: lan:10.0.0.2:7000: no answer within 5s; direct:h.example:7000: the race ended before its turn", "", false,
		},
		"budget spent": {
			[]Attempt{{Route: Route{Class: LAN, Address: "10.0.0.2:7000"}, Err: ErrBudgetSpent}},
			"could not reach devbox at 10.0.0.2:7000: too many dials to this peer lately", "", false,
		},
		"set-up timed out, a relay among the routes": {
			[]Attempt{lan(Silent, Open, ""), relay(Unfinished, Handshake, "")},
			"no answer from devbox during set-up: relay:wss://r.example: no answer within 5s; lan:10.0.0.2:7000: no answer within 5s", "", true,
		},
		"set-up timed out, but one answered": {
			[]Attempt{lan(Failed, Handshake, "connection reset"), relay(Unfinished, Open, "")},
			"devbox disconnected at 10.0.0.2:7000: connection reset (also tried: relay:wss://r.example: no answer within 5s)", "", false,
		},
		"set-up timed out, but the relay was refused": {
			[]Attempt{lan(Unfinished, Open, ""), relay(NoToken, Handshake, "the token of token_file was refused")},
			"could not reach devbox: the relay wss://r.example wants a token: the token of token_file was refused (also tried: lan:10.0.0.2:7000: no answer within 5s)", "sign in", false,
		},
		"no token": {
			[]Attempt{relay(NoToken, Open, "")},
			"could not reach devbox: the relay wss://r.example wants a token: no token, or it was refused or has expired", "relay's token", false,
		},
		"foreign certificates everywhere": {
			[]Attempt{lan(Foreign, Handshake, ""), direct(Silent, Open, "")},
			"this network wants a sign-in before it lets anything through to devbox", "sign in", false,
		},
		"the relay shows a foreign certificate": {
			[]Attempt{lan(Failed, Handshake, "EOF"), relay(Foreign, Handshake, "")},
			"this network wants a sign-in before it lets anything through to devbox", "sign in", false,
		},
		"one foreign certificate among answers": {
			[]Attempt{lan(Foreign, Handshake, ""), direct(Blocked, Attach, "removed")},
			"devbox does not let this machine in: removed (also tried: lan:10.0.0.2:7000: a certificate of somebody else)", "only devbox", false,
		},
		"the own address left": {
			[]Attempt{{Route: Route{Class: LAN, Address: "10.0.0.2:7000"}, Outcome: Cancelled, Err: ErrVanished}},
			"could not reach devbox: this machine lost the address that it came from", "tried again", false,
		},
		"another key": {
			[]Attempt{lan(WrongPeer, Handshake, "")},
			"10.0.0.2:7000 is not devbox: another key answered", "correct the address", false,
		},
		"blocked": {
			[]Attempt{lan(Blocked, Attach, "this machine was removed there")},
			"devbox does not let this machine in: this machine was removed there", "only devbox", false,
		},
		"busy": {
			[]Attempt{lan(Busy, Attach, "64 links are open")},
			"devbox is busy: 64 links are open", "tried again", false,
		},
		"superseded leads alone": {
			[]Attempt{lan(Cancelled, Open, ""), direct(Superseded, Attach, ""), {Route: Route{Class: Relay, Address: "r"}, Err: ErrRaceOver}},
			"devbox now serves a newer linkproxy of this machine", "end the other linkproxy", false,
		},
		"answered before blocked before wrong before unreachable": {
			[]Attempt{
				lan(Failed, Open, "refused"), attempt(LAN, "10.0.0.3:7000", WrongPeer, Handshake, ""),
				attempt(Tailnet, "100.64.0.9:7000", Blocked, Attach, "revoked"), direct(Failed, Handshake, "EOF"),
			},
			"devbox disconnected at h.example:7000: EOF (also tried: tailnet:100.64.0.9:7000: revoked; lan:10.0.0.3:7000: another key answered; lan:10.0.0.2:7000: refused)", "tried again", false,
		},
		"blocked is not hidden behind a dead route": {
			[]Attempt{lan(Silent, Open, ""), direct(Blocked, Attach, "revoked")},
			"devbox does not let this machine in: revoked (also tried: lan:10.0.0.2:7000: no answer within 5s)", "only devbox", false,
		},
		"wrong key is not hidden behind a dead route": {
			[]Attempt{direct(Silent, Open, ""), lan(WrongPeer, Handshake, "")},
			"10.0.0.2:7000 is not devbox: another key answered (also tried: direct:h.example:7000: no answer within 5s)", "correct", false,
		},
		"given up": {
			[]Attempt{lan(Cancelled, Open, ""), {Route: Route{Class: Direct, Address: "h.example:7000"}, Err: ErrRaceOver}},
			"the attempt to reach devbox was given up", "", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := Describe("devbox", c.attempts)
			if m.Text != c.text {
				t.Errorf("said %q\nwant %q", m.Text, c.text)
			}
			if !strings.Contains(m.Next, c.next) || m.Hint != c.hint {
				t.Errorf("next %q, hint %v; want %q, %v", m.Next, m.Hint, c.next, c.hint)
			}
		})
	}
}

// Whatever became of the routes, there is a sentence, and with a failure in it
// a next step.
func TestDescribeIsTotal(t *testing.T) {
	for o := range Outcome(len(outcomeNames) + 1) {
		for s := range Stage(len(stageNames)) {
			a := Attempt{Route: Route{Class: LAN, Address: "h:1"}, Outcome: o, Stage: s, Duration: time.Second}
			m := Describe("devbox", []Attempt{a})
			if !strings.Contains(m.Text, "devbox") {
				t.Errorf("%s in %s: %q", o, s, m.Text)
			}
			if a.finding() != nothing && m.Next == "" {
				t.Errorf("%s in %s has no next step", o, s)
			}
		}
	}
}
