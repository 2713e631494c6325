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
		Peers: []control.Peer{
			{Name: "attic", State: "idle"},
			{
				Name: "devbox", State: "connected",
				Routes: []control.Route{{Route: "direct:d.example:1", Outcome: "failed", Error: "no answer"}},
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
						{At: ago(9 * time.Second), From: 1, To: 2, Reason: "broken"},
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

attic  idle: it is reached once an app asks

devbox  connected
  link ab, 1 min old: connected; 1 stream; received 2.0 KiB, sent 10 B (5 B more was sent again, in case it was lost)
    in use      lan:10.0.0.1:1                     round trip 1.5ms, 3 B on the way
    for bulk    lan:10.0.0.1:1                     round trip 2.5ms, 4.0 KiB on the way
    in reserve  tailnet:100.64.0.1:1               round trip 80ms, 0 B on the way, no answer at present
    stream 127.0.0.1:22                 1 s, received 1 B, sent 2 B
    changed its route 9 s ago, because it had to: broken
  route direct:d.example:1                 failed no answer

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
	if p := peerStatus(dialer.PeerStatus{Err: inner}); p.Error != "devbox is away: handshake: reset" {
		t.Errorf("the error is told as %q", p.Error)
	}
}
