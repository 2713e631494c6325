package core

import (
	"strings"
	"testing"

	"linkproxy/link/frame"
)

// apart is a client with a stream of keystrokes on k, one of bulk whose bytes go on o, and more of them than o may carry now.
func apart(t *testing.T) (r *rig, k, o *Carrier, key, bulk *Stream) {
	t.Helper()
	r = newRig(t, true)
	k = r.carrier(frame.Active, 10*ms)
	key, bulk = r.open(k), r.open(k)
	bulk.Priority, bulk.limit = 1, 1<<30
	o = r.carrier(frame.Bulk, 10*ms)
	r.seen(o)
	r.seen(k)
	r.took(k)
	r.took(o)
	for range 2 {
		bulk.Write(r.now, make([]byte, minUnsent))
		r.pump()
	}
	if bulk.sent == 0 || bulk.sent == bulk.out.end || o.unseen != int(bulk.sent) {
		t.Fatalf("%d bytes un-SEEN, %d sent, %d written", o.unseen, bulk.sent, bulk.out.end)
	}
	r.took(k)
	return r, k, o, key, bulk
}

// dataOf counts the stream bytes among frames, from an offset on.
func dataOf(frames []frame.Frame, id, from uint64) (n int) {
	for _, f := range frames {
		if f.Kind == frame.Data && f.Stream == id && f.Offset >= from {
			n += len(f.Data)
		}
	}
	return n
}

func TestKeystrokesAndBulkGoApart(t *testing.T) {
	r, k, o, key, bulk := apart(t)
	if n := dataOf(r.took(o), key.ID, 0); n != 0 {
		t.Fatal("keystrokes went on the carrier for bulk")
	}
	r.write(key, 10)
	f := r.took(k)
	if n := dataOf(f, key.ID, 0); n != 10 {
		t.Fatalf("%d bytes of keystrokes went on the carrier in use", n)
	}
	if n := dataOf(f, bulk.ID, 0); n != 0 {
		t.Fatalf("%d bytes of bulk went on the carrier in use", n)
	}
	if n := dataOf(r.took(o), key.ID, 0); n != 0 {
		t.Fatal("keystrokes went on the carrier for bulk too")
	}
}

// TestBulkGoesOnWhenItsCarrierFallsSilent: nobody writes anything more, which would wake the carrier in use.
func TestBulkGoesOnWhenItsCarrierFallsSilent(t *testing.T) {
	r, k, o, _, bulk := apart(t)
	sent := bulk.sent
	at, _ := o.silentAt(1)
	r.due(at)
	if !o.suspect || k.doubtful() {
		t.Fatalf("in doubt: the carrier for bulk %v, the one in use %v", o.suspect, k.doubtful())
	}
	if n := dataOf(r.took(k), bulk.ID, sent); n == 0 {
		t.Fatal("bulk waits for a carrier in doubt")
	}
	r.took(o)
	r.seen(k)
	if n := dataOf(r.took(o), bulk.ID, 0); n != 0 {
		t.Fatalf("%d bytes go on a carrier in doubt", n)
	}
}

func TestSwitchLeavesTheCarrierForBulk(t *testing.T) {
	for _, planned := range []bool{true, false} {
		r, _, o, _, bulk := apart(t)
		p := r.carrier(frame.Standby, 10*ms)
		r.took(o)
		r.took(p)
		unseen, sent := o.unseen, bulk.sent
		r.c.SwitchTo(r.now, p, planned, "test")
		r.pump()
		r.wantSaid(o, "SWITCH DRAIN")
		f := r.took(p)
		again := dataOf(f, bulk.ID, 0) - dataOf(f, bulk.ID, sent)
		for range 20 { // all that the window of p held back
			r.seen(p)
			f = r.took(p)
			again += dataOf(f, bulk.ID, 0) - dataOf(f, bulk.ID, sent)
		}
		if want := map[bool]int{true: 0, false: unseen}[planned]; again != want {
			t.Errorf("planned %v: %d bytes are said again, want %d", planned, again, want)
		}
		if bulk.sent != bulk.out.end {
			t.Errorf("planned %v: new bulk waits", planned)
		}
		r.seen(o)
		if f := r.took(o); len(f) != 0 {
			t.Errorf("planned %v: the carrier that was left says %s", planned, kinds(f))
		}
		r.skipSeeing(p, r.now+rollbackTime+sec)
		if !o.Ended() {
			t.Errorf("planned %v: the carrier that was left is kept", planned)
		}
	}
}

func TestCarrierForBulkThatTheLinkMovesTo(t *testing.T) {
	r, k, o, key, bulk := apart(t)
	r.c.SwitchTo(r.now, o, false, "test")
	for _, st := range r.c.Status().Carriers {
		if st.Bulk || st.Active != (st.Gen == o.gen) {
			t.Errorf("carrier %d: in use %v, for bulk %v", st.Gen, st.Active, st.Bulk)
		}
	}
	r.pump()
	r.seen(o)
	r.took(k)
	r.took(o)
	q := r.carrier(frame.Bulk, 10*ms)
	r.seen(q)
	r.took(q)
	sent := bulk.sent
	bulk.Write(r.now, make([]byte, 10<<10))
	r.write(key, 1)
	if a, b := r.took(o), r.took(q); dataOf(a, key.ID, 0) != 1 || dataOf(a, bulk.ID, sent) != 0 || dataOf(b, bulk.ID, sent) == 0 {
		t.Errorf("said %s and, for bulk, %s", kinds(a), kinds(b))
	}
}

func TestHostKeepsBulkApart(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 10*ms)
	s := r.open(k)
	o := r.carrier(frame.Bulk, 10*ms)
	r.must(r.recv(o, frame.Frame{Kind: frame.Ping, ID: 1}, data(s.ID, 0, 1000)))
	if k.doubtful() {
		t.Fatal("bulk where it belongs made the host doubt the carrier in use")
	}
	// A decision for a carrier that is dead: what serves is the best that lives, one for bulk last.
	r.must(r.recv(k, frame.Frame{Kind: frame.Switch, Epoch: 9, Gen: 77, Keep: frame.Keep{}}))
	if r.c.tx() != k {
		t.Fatal("the host sends all on the carrier for bulk")
	}
	r.c.Dead(r.now, k)
	if r.c.tx() != o {
		t.Fatal("the last carrier does not serve")
	}
}

func TestWantsACarrierForBulk(t *testing.T) {
	for _, test := range []struct {
		name       string
		keys, bulk bool
		want       bool
	}{
		{"bulk alone", false, true, false},
		{"a conversation alone", true, false, false},
		{"both", true, true, true},
	} {
		r := newRig(t, true)
		k := r.carrier(frame.Active, 10*ms)
		key, bulk := r.open(k), r.open(k)
		bulk.limit, bulk.Priority = 1<<30, 1
		step := func(to Time) {
			r.skip(to)
			if test.bulk {
				bulk.Write(r.now, make([]byte, 40<<10)) // enough to be known as bulk
			}
			if test.keys {
				key.Write(r.now, []byte("x"))
			}
			r.pump()
			r.seen(k)
		}
		r.skip(sec)
		r.took(k)
		start := r.now
		step(start)
		step(start + 50*ms) // the second keystroke makes a conversation
		for r.now < start+250*ms {
			step(r.now + 50*ms)
			if r.c.Status().WantsBulk {
				t.Fatalf("%s: wanted after %v", test.name, r.now-start-50*ms)
			}
		}
		step(start + 300*ms)
		if st := r.c.Status(); st.WantsBulk != test.want || test.want && st.BesideAt != r.now {
			t.Fatalf("%s: wanted %v at %v, now is %v", test.name, st.WantsBulk, st.BesideAt, r.now)
		}
		step(r.now + besideGap + 100*ms)
		step(r.now + 50*ms)
		if r.c.Status().WantsBulk {
			t.Fatalf("%s: still wanted after a long pause", test.name)
		}
	}
}

// TestDeadCarrierForBulkIsAnsweredFor by the carrier in use, on either side.
func TestDeadCarrierForBulkIsAnsweredFor(t *testing.T) {
	for name, client := range map[string]bool{"client": true, "host": false} {
		r := newRig(t, client)
		k := r.carrier(frame.Active, 10*ms)
		bulk := r.open(k)
		bulk.Priority, bulk.limit = 1, 1<<30
		o := r.carrier(frame.Bulk, 10*ms)
		r.must(r.recv(o, frame.Frame{Kind: frame.Ping, ID: 1}))
		r.write(bulk, 40<<10)
		if n := dataOf(r.took(o), bulk.ID, 0); n != 40<<10 {
			t.Fatalf("%s: %d bytes on the carrier for bulk", name, n)
		}
		r.took(k)
		r.c.Dead(r.now, o)
		r.pump()
		f := r.took(k)
		if n := dataOf(f, bulk.ID, 0); n != 40<<10 {
			t.Errorf("%s: %d bytes are said again (%s)", name, n, strings.TrimSpace(kinds(f)))
		}
	}
}
