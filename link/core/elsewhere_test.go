package core

import (
	"testing"
	"time"

	"linkproxy/link/frame"
)

// A client that waits for an answer has nothing un-SEEN on the carrier in use when that goes silent. The host, which has,
// sends its answer on the other carrier too; the client must take that as a reason to ask, and move: of bulk the host
// sends no more than one frame elsewhere until the client has decided.
func TestDataElsewhereAsksTheCarrierInUse(t *testing.T) {
	const rtt = 20 * time.Millisecond
	r := newRig(t, true)
	k, o := r.carrier(frame.Active, rtt), r.carrier(frame.Standby, rtt)
	r.skipSeeing(k, time.Second)
	s := r.open(k)
	r.write(s, 10)
	r.seen(k)
	r.seen(o)
	r.skip(5 * time.Second)
	r.took(k)
	r.took(o)

	r.must(r.recv(o, frame.Frame{Kind: frame.Opened, Stream: s.ID}, data(s.ID, 0, 1000)))
	r.wantSaid(k, "PING")
	r.seen(o)
	at, ok := k.silentAt(1)
	if !ok || at > r.now+time.Second {
		t.Fatalf("the carrier in use is silent at %v (%v), now is %v", at, ok, r.now)
	}
	r.skip(at)
	if !k.suspect {
		t.Fatal("the carrier in use is not suspect")
	}
	r.skip(r.now + rtt)
	r.seen(o) // the PING that went there as a hedge: it delivers
	at, _ = k.silentAt(2)
	r.skip(at)
	if r.c.tx() != o {
		t.Errorf("the link is still on carrier %d at %v", r.c.tx().gen, r.now)
	}
}

// Stream bytes that come on another carrier while the one in use answers are no reason to ask more than once a round trip.
func TestDataElsewhereAsksOnce(t *testing.T) {
	const rtt = 20 * time.Millisecond
	r := newRig(t, true)
	k, o := r.carrier(frame.Active, rtt), r.carrier(frame.Standby, rtt)
	r.skipSeeing(k, time.Second)
	s := r.open(k)
	r.seen(o)
	r.skip(5 * time.Second)
	r.took(k)
	r.must(r.recv(o, frame.Frame{Kind: frame.Opened, Stream: s.ID}, data(s.ID, 0, 1000)))
	r.must(r.recv(o, data(s.ID, 1000, 1000)))
	n := 0
	for _, f := range r.took(k) {
		if f.Kind == frame.Ping {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d PINGs on the carrier in use, want 1", n)
	}
	r.seen(k)
	if at, ok := r.c.pingAt(r.now, k); !ok || at <= r.now {
		t.Errorf("asked again at %v (%v), now is %v", at, ok, r.now)
	}
}
