package core

import (
	"bytes"
	"testing"
	"time"

	"linkproxy/link/frame"
)

func TestCreditGrowsWithAFastReader(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	off, most := uint64(0), 0
	for range 400 {
		n := min(int(s.granted-off), 16<<10)
		r.must(r.recv(k, data(1, off, n)))
		off += uint64(n)
		s.Peek()
		for b := s.Peek(); len(b) > 0; b = s.Peek() {
			s.Discard(r.now, len(b))
		}
		r.pump()
		r.seen(k)
		r.now += 200 * time.Microsecond
		if s.window < most {
			t.Fatal("credit was taken back")
		}
		most = s.window
		if s.recvHeld != s.window-implicit || r.acct.used != s.recvHeld {
			t.Fatalf("window %d, %d charged", s.window, r.acct.used)
		}
	}
	if s.window < 2<<20 || s.window > maxWindow {
		t.Fatalf("window %d after %d bytes", s.window, off)
	}
}

func TestCreditStaysWithASlowReader(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 10*ms)
	s := r.open(k)
	r.skip(1 * sec)
	off := uint64(0)
	for range 20 {
		n := min(int(s.granted-off), 16<<10)
		r.must(r.recv(k, data(1, off, n)))
		off += uint64(n)
		for b := s.Peek(); len(b) > 0; b = s.Peek() {
			s.Discard(r.now, len(b))
		}
		r.pump()
		r.skipSeeing(k, r.now+100*ms)
	}
	if s.window != implicit {
		t.Fatalf("window %d", s.window)
	}
}

func TestCreditGoesOnWithoutAPool(t *testing.T) {
	r := newRig(t, false)
	r.acct.limit = 0
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.skip(1 * sec)
	off := uint64(0)
	for range 200 {
		n := min(int(s.granted-off), 16<<10)
		if n == 0 {
			t.Fatalf("no credit after %d bytes", off)
		}
		r.must(r.recv(k, data(1, off, n)))
		off += uint64(n)
		for b := s.Peek(); len(b) > 0; b = s.Peek() {
			s.Discard(r.now, len(b))
		}
		r.pump()
		r.seen(k)
	}
	if s.window != implicit || r.acct.refused == 0 {
		t.Fatalf("window %d, refused %d times", s.window, r.acct.refused)
	}
}

func TestFullPoolStopsReadingFromTheApp(t *testing.T) {
	r, k, s := idle(t)
	r.acct.limit = 0
	if n := s.Write(r.now, make([]byte, 100<<10)); n != 32<<10 {
		t.Fatalf("took %d bytes", n)
	}
	if b := s.Tail(10); b != nil {
		t.Fatal("lent room that is not there")
	}
	r.pump()
	r.seen(k)
	if n := s.Write(r.now, make([]byte, 1)); n != 0 {
		t.Fatal("took a byte for which there is no room")
	}
	r.out = Out{}
	r.must(r.recv(k, frame.Frame{Kind: frame.State, Stream: s.ID, Offset: 32 << 10, Limit: 64 << 10}))
	if len(r.out.Writable) != 1 {
		t.Fatal("the app was not told that there is room")
	}
	if n := s.Write(r.now, make([]byte, 100<<10)); n != 32<<10 {
		t.Fatalf("took %d bytes", n)
	}
}

func TestLentRoom(t *testing.T) {
	r, k, s := idle(t)
	b := s.Tail(40 << 10)
	if len(b) == 0 || r.acct.used == 0 {
		t.Fatalf("%d bytes lent, %d charged", len(b), r.acct.used)
	}
	s.Grow(r.now, 0)
	if r.acct.used != 0 || len(s.out.chunks) != 0 {
		t.Fatalf("%d bytes charged and %d buffers held for nothing", r.acct.used, len(s.out.chunks))
	}
	b = s.Tail(10)
	copy(b, "hello")
	s.Grow(r.now, 5)
	r.pump()
	if f := r.wantSaid(k, "DATA"); !bytes.Equal(f[0].Data, []byte("hello")) {
		t.Fatalf("%q", f[0].Data)
	}
	s.Tail(10)
	s.Reset(1)
	s.Grow(r.now, 10)
	if s.out.end != 5 {
		t.Fatal("bytes after the end")
	}
}

func TestPeekedBytesDroppedMeanwhile(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.must(r.recv(k, data(1, 0, 100)))
	s.Peek()
	s.Stop(1)
	r.must(r.recv(k, data(1, 100, 100)))
	s.Discard(r.now, 100) // of what is no longer there
	if s.in.read != 200 {
		t.Fatalf("read %d", s.in.read)
	}
}

// TestCreditOfAFinAheadIsReleased: nothing comes any more on a link that has ended, though its stream's FIN came ahead of
// bytes that were lost.
func TestCreditOfAFinAheadIsReleased(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.skip(sec)
	for range 12 { // a fast reader
		n := int(s.granted - s.in.next)
		for n > 0 {
			m := min(n, 16<<10)
			r.must(r.recv(k, data(s.ID, s.in.next, m)))
			n -= m
		}
		for b := s.Peek(); len(b) > 0; b = s.Peek() {
			s.Discard(r.now, len(b))
		}
		r.pump()
	}
	if s.recvHeld == 0 {
		t.Fatal("nothing is charged")
	}
	r.must(r.recv(k, frame.Frame{Kind: frame.Fin, Stream: s.ID, Offset: s.granted}))
	r.c.End(r.now, ErrHoldOver, [16]byte{}, 0)
	if r.acct.used != 0 {
		t.Errorf("%d bytes are still charged", r.acct.used)
	}
}
