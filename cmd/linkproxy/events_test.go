package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/control"
	"linkproxy/dialer"
	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/state/identity"
)

// TestEventsAreToldOnce: who follows hears what is kept, then what comes, each once and in its order.
func TestEventsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, err := identity.NewKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		d := dialer.New(dialer.Config{
			Key: key, Process: link.Process{Instance: [16]byte{1}, Boot: 1}, Wait: -1, Seed: 1,
			Peers: []dialer.Peer{{Name: "devbox", ID: key.Fingerprint(), Routes: []route.Route{lanRoute}}},
			Dial:  func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
		})
		defer d.Close()
		u := &up{dialer: d, cfg: &config.Config{Peers: []config.Peer{{Name: "devbox"}}}}
		ask := func() {
			if _, err := d.DialContext(t.Context(), "devbox", "127.0.0.1:1"); err == nil {
				t.Error("a dead route was reached")
			}
			synctest.Wait()
		}
		kept := func() (list []control.Event) {
			if err := u.events(t.Context(), false, func(e control.Event) error { list = append(list, e); return nil }); err != nil {
				t.Error(err)
			}
			return list
		}
		ask()
		before := len(kept())
		ctx, cancel := context.WithCancel(t.Context())
		var heard []control.Event
		done := make(chan error)
		go func() {
			done <- u.events(ctx, true, func(e control.Event) error { heard = append(heard, e); return nil })
		}()
		synctest.Wait()
		ask()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
		all := kept()
		if before == 0 || len(all) <= before || len(heard) != len(all) {
			t.Fatalf("%d events, then %d; heard %d", before, len(all), len(heard))
		}
		for i := range all {
			if keyOf(heard[i]) != keyOf(all[i]) {
				t.Errorf("event %d is %v, want %v", i, heard[i], all[i])
			}
		}
	})
}
