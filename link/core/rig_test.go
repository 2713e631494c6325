package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"linkproxy/link/frame"
)

// rig drives one core by hand, at exact times; the other side is the test.
type rig struct {
	t    *testing.T
	c    *Core
	now  Time
	said map[*Carrier][]frame.Frame // what was said since said was last cleared
	sent map[*Carrier]uint64        // frames said in all
	acct *account
	out  Out // all signals since it was last cleared
}

func newRig(t *testing.T, client bool) *rig {
	t.Helper()
	acct := &account{limit: 1 << 30, maxStreams: 1 << 20}
	c := New(Config{Client: client, Memory: &memory{size: 16 << 10, lent: map[*byte]bool{}}, Account: acct})
	return &rig{t: t, c: c, said: map[*Carrier][]frame.Frame{}, sent: map[*Carrier]uint64{}, acct: acct}
}

// carrier attaches one with a handshake of rtt.
func (r *rig) carrier(role frame.Role, rtt time.Duration) *Carrier {
	r.t.Helper()
	if r.c.cfg.Client {
		k, _ := r.c.Begin(r.now, role, 0, rtt)
		r.c.Accepted(r.now, k)
		r.pump()
		return k
	}
	gen := uint64(1)
	for _, k := range r.c.carriers {
		gen = max(gen, k.gen+1)
	}
	for r.c.used[gen] {
		gen++
	}
	k, ok := r.c.Admit(r.now, &frame.Frame{Kind: frame.Attach, Gen: gen, Role: role, Epoch: r.c.epoch}, rtt)
	if !ok {
		r.t.Fatalf("generation %d was not admitted", gen)
	}
	r.pump()
	return k
}

// at lets the time be now, which must not be later than the core asked for.
func (r *rig) at(now Time) {
	r.t.Helper()
	if at, ok := r.c.Wake(r.now); ok && at < now {
		r.t.Fatalf("at %v: the core wants to be woken at %v, not at %v", r.now, at, now)
	}
	r.now = now
	r.c.Advance(now)
	r.pump()
}

// due lets the time be now and asserts that the core asked for exactly that.
func (r *rig) due(now Time) {
	r.t.Helper()
	if at, ok := r.c.Wake(r.now); !ok || at != now {
		r.t.Fatalf("at %v: the core wants to be woken at %v (%v), want %v", r.now, at, ok, now)
	}
	r.at(now)
}

// skip wakes the core whenever it likes until now.
func (r *rig) skip(now Time) {
	r.t.Helper()
	for range 10000 {
		at, ok := r.c.Wake(r.now)
		if !ok || at >= now {
			r.at(now)
			return
		}
		r.at(at)
	}
	r.t.Fatal("the core never sleeps")
}

// skipSeeing does so while everything said on k is SEEN at once.
func (r *rig) skipSeeing(k *Carrier, now Time) {
	r.t.Helper()
	for range 10000 {
		if _, _, ok := k.oldest(); ok {
			r.seen(k)
		}
		at, ok := r.c.Wake(r.now)
		if !ok || at >= now {
			r.at(now)
			return
		}
		r.at(at)
	}
	r.t.Fatal("the core never sleeps")
}

func (r *rig) pump() {
	r.t.Helper()
	buf := make([]byte, 0, frame.Max)
	for range 100 {
		out := r.c.Take()
		r.out.Closed = append(r.out.Closed, out.Closed...)
		r.out.Readable = append(r.out.Readable, out.Readable...)
		r.out.Writable = append(r.out.Writable, out.Writable...)
		r.out.Incoming = append(r.out.Incoming, out.Incoming...)
		if len(out.Wake) == 0 {
			return
		}
		for _, k := range out.Wake {
			for range 1000 {
				b := r.c.Pull(r.now, k, buf)
				if len(b) == 0 {
					break
				}
				r.keep(k, slices.Clone(b))
				r.c.Wrote(r.now, k)
			}
		}
	}
	r.t.Fatal("the core never rests")
}

func (r *rig) keep(k *Carrier, b []byte) {
	for len(b) > 0 {
		var f frame.Frame
		n, err := frame.Parse(b, &f)
		if err != nil || n == 0 {
			r.t.Fatalf("said %x: %v", b, err)
		}
		b = b[n:]
		r.said[k] = append(r.said[k], f)
		r.sent[k]++
	}
}

// recv has frames come on k.
func (r *rig) recv(k *Carrier, frames ...frame.Frame) error {
	r.c.Arrived(r.now, k, 100)
	for i := range frames {
		if err := r.c.Recv(r.now, k, &frames[i]); err != nil {
			return err
		}
	}
	r.c.Advance(r.now)
	r.pump()
	return nil
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// seen says that all that was said on k has arrived.
func (r *rig) seen(k *Carrier) {
	r.t.Helper()
	r.must(r.recv(k, frame.Frame{Kind: frame.Seen, Count: r.sent[k]}))
}

// took returns the kinds said on k since it was last asked.
func (r *rig) took(k *Carrier) []frame.Frame {
	f := r.said[k]
	r.said[k] = nil
	return f
}

func kinds(frames []frame.Frame) string {
	var s []string
	for _, f := range frames {
		s = append(s, f.Kind.String())
	}
	return strings.Join(s, " ")
}

// wantSaid takes what was said on k; a SEEN rides with anything and counts only where it is wanted.
func (r *rig) wantSaid(k *Carrier, want string) []frame.Frame {
	r.t.Helper()
	f := r.took(k)
	if !strings.Contains(want, "SEEN") {
		f = slices.DeleteFunc(f, func(f frame.Frame) bool { return f.Kind == frame.Seen })
	}
	if got := kinds(f); got != want {
		r.t.Fatalf("at %v: carrier %d said %q, want %q", r.now, k.gen, got, want)
	}
	return f
}

// open opens a stream and has it reach the host.
func (r *rig) open(k *Carrier) *Stream {
	r.t.Helper()
	if !r.c.cfg.Client {
		id := uint64(1)
		for r.c.seen.has(id) {
			id++
		}
		r.must(r.recv(k, frame.Frame{Kind: frame.Open, Stream: id, Target: "t:1"}))
		return r.c.streams[id]
	}
	s, ok := r.c.Open(r.now, "t:1", 0, 0)
	if !ok {
		r.t.Fatal("no stream")
	}
	r.pump()
	r.seen(k)
	r.took(k)
	return s
}

func (r *rig) write(s *Stream, n int) {
	r.t.Helper()
	if got := s.Write(r.now, make([]byte, n)); got != n {
		r.t.Fatalf("%d of %d bytes were taken", got, n)
	}
	r.pump()
}

func data(id, off uint64, n int) frame.Frame {
	return frame.Frame{Kind: frame.Data, Stream: id, Offset: off, Data: make([]byte, n)}
}

func wantProtocol(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrProtocol) {
		t.Fatalf("got %v, want a breach of the protocol", err)
	}
}
