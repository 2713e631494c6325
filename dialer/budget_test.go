package dialer

import (
	"context"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"linkproxy/dialer/route"
)

// TestSecondCarriersKeepToTheBudget: each change of the config makes the next dial for a second carrier due at once, and a
// config that is written all the time must not become a flood. What this machine refused by itself floods nobody.
func TestSecondCarriersKeepToTheBudget(t *testing.T) {
	if isWindows {
		t.Skip("the system's numbers differ there")
	}
	for _, test := range []struct {
		name    string
		standby Standby
		to      route.Route // that the second carrier would take
	}{
		{"standby", StandbyAuto, tailnet},
		{"bulk", StandbyNever, lan},
	} {
		t.Run(test.name, func(t *testing.T) {
			var w *world
			var offline atomic.Bool
			var refused atomic.Int32
			change := func(c *Config) {
				dial := c.Dial
				c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if offline.Load() {
						refused.Add(1)
						return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
					}
					return dial(ctx, network, address)
				}
			}
			inWith(t, &w, delays{lan: 5 * ms, tailnet: 10 * ms}, change, func(t *testing.T) {
				w.handle = serveBulk
				w.route(lan).SetRate(bulkRate)
				tick := w.open(tickTarget)
				if test.to == lan { // beside bulk, a tick wants a carrier for that
					bulk := w.open(bulkTarget)
					w.wg.Go(func() { _, _ = io.Copy(io.Discard, bulk) })
				}
				edits := 0
				edit := func(n int) {
					for range n {
						edits++
						w.setPeer(Peer{Routes: []route.Route{lan, tailnet}, Standby: test.standby, Hold: time.Hour + time.Duration(edits)})
						stall(t, tick, 100*ms)
					}
				}
				offline.Store(true)
				stall(t, tick, time.Second)
				edit(30)
				if n := refused.Load(); n < 30 {
					t.Errorf("%d dials that cost nothing after 30 edits", n)
				}
				offline.Store(false)
				_ = w.route(test.to).Refuse(true)
				w.dialled()
				edit(50)
				list := w.dialled()
				if least, most := route.BudgetSize-route.BudgetReserve, route.BudgetSize-route.BudgetReserve+int(5*time.Second/route.RefillIdle); len(list) < least || len(list) > most {
					t.Errorf("%d dials in 5 s, want %d to %d", len(list), least, most)
				}
				for _, d := range list {
					if d.address != test.to.Address {
						t.Errorf("dialled %s", d.address)
					}
				}
			})
		})
	}
}

// TestBulkCarrierOfARouteThatWasLeft: the link moves to its standby while a carrier for bulk is dialled.
func TestBulkCarrierOfARouteThatWasLeft(t *testing.T) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, func(c *Config) { c.Peers[0].Standby = StandbyAuto }, func(t *testing.T, w *world) {
		w.handle = serveBulk
		for _, r := range []route.Route{lan, tailnet} {
			w.route(r).SetRate(bulkRate)
		}
		bulk := w.open(bulkTarget)
		flow(t, bulk, time.Second)
		if n := w.attached(); n != 2 {
			t.Fatalf("%d carriers, want one and a standby", n)
		}
		w.wg.Go(func() { _, _ = io.Copy(io.Discard, bulk) })
		w.dialled()
		tick := w.open(tickTarget)
		for range 1000 {
			if len(w.dialled()) > 0 {
				break
			}
			stall(t, tick, ms)
		}
		w.route(lan).Conns()[0].Reset(0)
		_ = w.route(lan).Refuse(true) // else the link goes back to the better class
		stall(t, tick, 20*time.Second)
		for _, c := range w.status().Link.Carriers {
			if c.Bulk && c.Name == lan.ID() {
				t.Error("the carrier for bulk on the route that was left is still there")
			}
		}
		if got := w.bulkCarriers(); w.active() != tailnet.ID() || len(got) != 1 || got[0] != tailnet.ID() {
			t.Errorf("on %s, carriers for bulk: %v", w.active(), got)
		}
		_, _ = tick.Close(), bulk.Close()
	})
}
