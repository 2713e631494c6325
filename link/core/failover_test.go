package core

import (
	"slices"
	"strings"
	"testing"

	"linkproxy/link/frame"
)

// TestOrderOfFailover: a carrier that is not in doubt before one that is, one for bulk last, then by preference, then the newest.
func TestOrderOfFailover(t *testing.T) {
	type spec struct {
		role  frame.Role
		pref  int
		doubt bool
	}
	const standby, bulk = frame.Standby, frame.Bulk
	for _, test := range []struct {
		name string
		list []spec
		want int
	}{
		{"the preferred one", []spec{{standby, 2, false}, {standby, 1, false}, {standby, 3, false}}, 1},
		{"the newest of two alike", []spec{{standby, 1, false}, {standby, 1, false}}, 1},
		{"a sound one before the preferred one", []spec{{standby, 1, true}, {standby, 2, false}}, 1},
		{"the preferred one of two in doubt", []spec{{standby, 1, true}, {standby, 2, true}}, 0},
		{"one for bulk after a worse standby", []spec{{bulk, 1, false}, {standby, 2, false}, {bulk, 1, false}}, 1},
		{"one for bulk before a standby in doubt", []spec{{standby, 1, true}, {bulk, 2, false}}, 1},
	} {
		r, k, _ := idle(t)
		var others []*Carrier
		for _, s := range test.list {
			o := r.carrier(s.role, 100*ms)
			o.pref, o.suspect = s.pref, s.doubt
			others = append(others, o)
		}
		r.c.Dead(r.now, k)
		if got := slices.Index(others, r.c.tx()); got != test.want {
			t.Errorf("%s: number %d takes over, want %d", test.name, got, test.want)
		}
	}
}

// TestOpenIsSaidAgainByItself: nobody has bytes yet, so nothing else would take the OPEN along.
func TestOpenIsSaidAgainByItself(t *testing.T) {
	r, k, _ := idle(t)
	if _, ok := r.c.Open(r.now, "t:1", 0, 0); !ok {
		t.Fatal("no stream")
	}
	r.pump()
	r.wantSaid(k, "OPEN")
	r.c.Dead(r.now, k)
	o := r.carrier(frame.Active, 100*ms)
	r.wantSaid(o, "SWITCH OPEN")
	p := r.carrier(frame.Standby, 100*ms)
	r.took(p)
	r.c.Dead(r.now, o)
	r.pump()
	r.wantSaid(p, "SWITCH OPEN")
	r.seen(p)
	r.c.Dead(r.now, p)
	q := r.carrier(frame.Active, 100*ms)
	r.wantSaid(q, "SWITCH") // it was SEEN
}

// TestNotFromOneInDoubtToAnother: the link would go to and fro for ever.
func TestNotFromOneInDoubtToAnother(t *testing.T) {
	r, k, o, s := pair2(t)
	o.rtt = rtt{}
	o.rtt.sample(r.now, 10*ms, 10*ms)
	const b10 = 110 * ms
	r.write(s, 1)
	r.due(1*sec + b100)
	r.at(r.now + 10*ms)
	r.seen(o) // it delivers
	r.write(s, 1)
	r.due(r.now + b10) // and does so no more
	if !k.suspect || !o.suspect {
		t.Fatalf("in doubt: %v, %v", k.suspect, o.suspect)
	}
	r.skip(1*sec + 2*b100 + 50*ms)
	if r.c.tx() != k {
		t.Fatal("the link has gone to a carrier that is in doubt itself")
	}
	r.seen(o)
	if r.c.tx() != o {
		t.Fatal("the link does not go to the one that came back")
	}
}

// TestCarrierAttachedInTheDoubtTakesCopies: nobody else could, and the bytes wait already.
func TestCarrierAttachedInTheDoubtTakesCopies(t *testing.T) {
	for name, client := range map[string]bool{"client": true, "host": false} {
		r := newRig(t, client)
		k := r.carrier(frame.Active, 100*ms)
		s := r.open(k)
		r.skip(1 * sec)
		r.write(s, 5)
		at, ok := k.silentAt(1)
		if !ok {
			t.Fatal("nothing is outstanding")
		}
		r.skip(at)
		if !k.suspect {
			t.Fatalf("%s: not in doubt", name)
		}
		o := r.carrier(frame.Standby, 100*ms)
		if got := kinds(r.took(o)); !strings.Contains(got, "DATA") || !strings.Contains(got, "PING") {
			t.Errorf("%s: the new carrier says %q, want the bytes and a PING", name, got)
		}
	}
}
