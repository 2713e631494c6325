package dialer

import (
	"io"
	"testing"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// flow reads a stream that sends for ever and returns how much came in d.
func flow(t *testing.T, s *link.Stream, d time.Duration) (n int) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for end := time.Now().Add(d); time.Now().Before(end); {
		m, err := s.Read(buf)
		if err != nil {
			t.Fatalf("after %d bytes: %v", n, err)
		}
		n += m
	}
	return n
}

// bulkWorld has a stream that ticks and one that sends for ever, at 20 Mbit/s.
func bulkWorld(t *testing.T, f func(w *world, tick, bulk *link.Stream)) {
	in(t, delays{lan: 5 * ms, tailnet: 10 * ms}, nil, func(t *testing.T, w *world) {
		w.handle = serveBulk
		for _, r := range []route.Route{lan, tailnet} {
			w.route(r).SetRate(bulkRate)
		}
		bulk := w.open(bulkTarget)
		flow(t, bulk, 3*time.Second)
		if n := w.attached(); n != 1 {
			t.Errorf("%d carriers for bulk alone", n)
		}
		tick := w.open(tickTarget)
		w.dialled()
		f(w, tick, bulk)
		_, _ = tick.Close(), bulk.Close()
	})
}

// serveBulk is serve with a target that sends for ever.
func serveBulk(s *link.Stream) {
	if s.Target() != bulkTarget {
		serve(s)
		return
	}
	s.Accept()
	_, _ = io.Copy(s, endless{})
	_ = s.Close()
}

const (
	bulkTarget = "127.0.0.1:300"
	bulkRate   = 20e6 / 8 // bytes a second
)

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// bulkCarriers are the routes of the attached carriers for bulk, without those that are being left.
func (w *world) bulkCarriers() (list []string) {
	for _, c := range w.status().Link.Carriers {
		if c.Attached && c.Bulk && !c.Draining {
			list = append(list, c.Name)
		}
	}
	return list
}

func TestBulkGetsACarrierBesideAConversation(t *testing.T) {
	bulkWorld(t, func(w *world, tick, bulk *link.Stream) {
		t := w.t
		go func() { _, _ = io.Copy(io.Discard, bulk) }()
		from := w.since()
		stall(t, tick, 5*time.Second)
		list := w.dialled()
		if len(list) != 1 || list[0].address != lan.Address {
			t.Fatalf("dialled %v, want the route in use once", list)
		}
		// Two ticks make a conversation; after 250 ms of it the carrier is wanted.
		if at := list[0].at - from; at < 250*ms || at > 400*ms {
			t.Errorf("dialled %v after the conversation began", at)
		}
		if got := w.bulkCarriers(); len(got) != 1 || got[0] != lan.ID() || w.active() != lan.ID() {
			t.Fatalf("carriers for bulk: %v, in use: %s", got, w.active())
		}
		before := w.status().Link.Carriers
		// The route holds what bulk may have on its way beside a conversation: twice what fits its 10 ms, and 32 KiB, are 33 ms.
		if worst := stall(t, tick, 2*time.Second); worst > tickEvery+33*ms {
			t.Errorf("a tick waited %v behind bulk", worst)
		}
		for i, c := range w.status().Link.Carriers {
			got := c.BytesIn - before[i].BytesIn
			if c.Bulk && got < bulkRate || !c.Bulk && got > bulkRate/10 {
				t.Errorf("carrier %d (bulk %v) brought %d bytes in 2 s", c.Gen, c.Bulk, got)
			}
		}
	})
}

func TestBulkMovesWithItsLink(t *testing.T) {
	bulkWorld(t, func(w *world, tick, bulk *link.Stream) {
		t := w.t
		ended := make(chan struct{})
		var n int64
		go func() { defer close(ended); n, _ = io.Copy(io.Discard, bulk) }()
		stall(t, tick, 2*time.Second)
		if err := w.d.Use(t.Context(), "devbox", tailnet.ID(), false); err != nil {
			t.Fatal(err)
		}
		if worst := stall(t, tick, 2*time.Second); worst > tickEvery+2*33*ms {
			t.Errorf("a planned move took %v", worst)
		}
		if got := w.bulkCarriers(); len(got) != 1 || got[0] != tailnet.ID() {
			t.Errorf("carriers for bulk after the move: %v", got)
		}
		stall(t, tick, 11*time.Second)
		if got := w.attached(); got != 2 {
			t.Errorf("%d carriers are left, want one and one for bulk", got)
		}
		w.route(tailnet).BlackHole(true, true) // both its carriers
		if worst := stall(t, tick, 10*time.Second); worst > 500*ms {
			t.Errorf("a black hole took %v", worst)
		}
		if got := w.bulkCarriers(); w.active() != lan.ID() || len(got) != 1 || got[0] != lan.ID() {
			t.Errorf("on %s, carriers for bulk: %v", w.active(), got)
		}
		_ = bulk.Close()
		<-ended
		if want := int64(15 * bulkRate * 2 / 3); n < want {
			t.Errorf("%d bytes came in 15 s, want more than %d", n, want)
		}
	})
}

// TestBulkCarrierFallsSilent: only that connection is dead, not its route.
func TestBulkCarrierFallsSilent(t *testing.T) {
	bulkWorld(t, func(w *world, tick, bulk *link.Stream) {
		t := w.t
		stalled := make(chan time.Duration)
		go func() {
			buf := make([]byte, 64<<10)
			last, worst := time.Now(), time.Duration(0)
			for {
				if _, err := bulk.Read(buf); err != nil {
					stalled <- worst
					return
				}
				worst, last = max(worst, time.Since(last)), time.Now()
			}
		}()
		stall(t, tick, 2*time.Second)
		conns := w.route(lan).Conns()
		conns[len(conns)-1].Reset(0)
		if worst := stall(t, tick, 2*time.Second); worst > 100*ms {
			t.Errorf("a conversation on another carrier stood still for %v", worst)
		}
		if w.active() != lan.ID() {
			t.Errorf("the link has moved to %s", w.active())
		}
		if got := w.bulkCarriers(); len(got) != 0 {
			t.Errorf("a carrier for bulk again %v after the last dial: %v", 4*time.Second, got)
		}
		stall(t, tick, 5*time.Second)
		if got := w.bulkCarriers(); len(got) != 1 {
			t.Errorf("no carrier for bulk after %v: %v", 2*seekMin, got)
		}
		_ = bulk.Close()
		if worst := <-stalled; worst > 100*ms {
			t.Errorf("bulk stood still for %v", worst)
		}
	})
}

func TestBulkCarrierGoesWhenNobodyTalks(t *testing.T) {
	bulkWorld(t, func(w *world, tick, bulk *link.Stream) {
		t := w.t
		go func() { _, _ = io.Copy(io.Discard, bulk) }()
		stall(t, tick, time.Second)
		_ = tick.Close()
		time.Sleep(59 * time.Second)
		if got := w.bulkCarriers(); len(got) != 1 {
			t.Errorf("carriers for bulk 59 s after the conversation: %v", got)
		}
		time.Sleep(2 * time.Second)
		if got := w.bulkCarriers(); len(got) != 0 || w.attached() != 1 {
			t.Errorf("carriers for bulk 61 s after the conversation: %v", got)
		}
		w.dialled()
		time.Sleep(time.Minute)
		if d := w.dialled(); len(d) != 0 {
			t.Errorf("dials: %v", d)
		}
	})
}
