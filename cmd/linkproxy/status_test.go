package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"linkproxy/control"
	"linkproxy/dialer"
)

// TestStatusText: a status in words that need no knowledge of how linkproxy is built.
func TestStatusText(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	st := control.Status{
		Role: "up", Version: "1.0", PID: 7, Since: ago(3 * time.Minute), Listens: []string{"127.0.0.1:1080 (SOCKS5 and HTTP proxy)"},
		Tailnet: true, Networks: []control.Network{
			{Interface: "lo", Kind: "loopback"}, {Interface: "wlan0", Kind: "wifi", Network: "wifi 10.0.0.0/24, router 5f3a", Metered: true},
		},
		Peers: []control.Peer{
			{Name: "attic", State: "idle", Routes: []control.Route{{Route: "lan:10.0.0.2:1", State: "not tried yet"}}},
			{
				Name: "devbox", State: "connected", Pin: "lan --only", Active: "lan:10.0.0.1:1",
				Routes: []control.Route{
					{Route: "lan:10.0.0.1:1", Attached: true, State: "worked"},
					{Route: "direct:d.example:1", Outcome: "failed", State: "failing: 2 times, last 11:58: no answer"},
				},
				Links: []control.Link{{
					ID: "ab", State: "connected", Since: ago(time.Minute), BytesIn: 2048, BytesOut: 10, Repeated: 5,
					Carriers: []control.Carrier{
						{Route: "lan:10.0.0.1:1", State: "active", RTTMicros: 1500, Unseen: 3},
						{Route: "lan:10.0.0.1:1", State: "bulk", RTTMicros: 2500, Unseen: 4096},
						{Route: "tailnet:100.64.0.1:1", State: "standby", RTTMicros: 80_000, Suspect: true},
					},
					Streams: []control.Stream{{Target: "127.0.0.1:22", Since: ago(time.Second), BytesIn: 1, BytesOut: 2}},
					Switches: []control.Switch{
						{At: ago(time.Minute), To: 1, Reason: "attached"},
						{At: ago(9 * time.Second), From: 1, To: 2, Reason: "broken", FromRoute: "lan:10.0.0.1:1", ToRoute: "tailnet:100.64.0.1:1"},
						{At: ago(2 * time.Second), From: 2, To: 9, Planned: true, Reason: "planned"},
					},
				}},
			},
			{Name: "gone", State: "waiting", Error: "no route\nworks", Next: now.Add(4 * time.Second), Links: []control.Link{
				{ID: "cd", State: "waiting", Since: ago(time.Hour)},
			}},
		},
	}
	want := `linkproxy up 1.0, process 7, up for 3 min
  listening on 127.0.0.1:1080 (SOCKS5 and HTTP proxy)
  this machine is on wifi 10.0.0.0/24, router 5f3a (wlan0, metered), a tailnet

attic  idle: it is reached once an app asks
  routes, in the order of trying:
    lan:10.0.0.2:1                     not tried yet

devbox  connected
  pinned: lan --only, until ` + "`linkproxy use devbox auto` or a restart of `up`" + `
  link ab, 1 min old: connected; 1 stream; received 2.0 KiB, sent 10 B (5 B more was sent again, in case it was lost)
    in use      lan:10.0.0.1:1                     round trip 1.5ms, 3 B on the way
    for bulk    lan:10.0.0.1:1                     round trip 2.5ms, 4.0 KiB on the way
    in reserve  tailnet:100.64.0.1:1               round trip 80ms, 0 B on the way, no answer at present
    stream 127.0.0.1:22                 1 s, received 1 B, sent 2 B
    moved from lan:10.0.0.1:1 to tailnet:100.64.0.1:1 9 s ago, because it had to: broken
    moved 2 s ago, as planned
  other routes, in the order of trying:
    direct:d.example:1                 failing: 2 times, last 11:58: no answer

gone  waiting
  no route
  works
  next try in 5 s
  link cd, 1 h 0 min old: held while no route works; 0 streams; received 0 B, sent 0 B
`
	if got := statusText(st, now); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	many := control.Link{Streams: make([]control.Stream, 21), Since: now}
	var b strings.Builder
	linkText(&b, many, now)
	if got := b.String(); !strings.Contains(got, "… and 1 stream more\n") || !strings.Contains(got, "; 21 streams;") {
		t.Error(got)
	}
	inner := fmt.Errorf("dialer: devbox is away: %w", errors.New("link: handshake: reset"))
	if p := peerStatus(dialer.PeerStatus{Err: inner}, now); p.Error != "devbox is away: handshake: reset" {
		t.Errorf("the error is told as %q", p.Error)
	}
}
