package core

import (
	"bytes"
	"testing"
	"time"

	"linkproxy/link/frame"
)

func TestBreachesOfTheProtocol(t *testing.T) {
	type side bool
	const atHost, atClient side = false, true
	full := func(n int) (f []frame.Frame) {
		for i := range n {
			f = append(f, data(1, uint64(2*i+1), 1))
		}
		return f
	}
	for _, test := range []struct {
		name string
		at   side
		in   []frame.Frame // all but the last are fine
	}{
		{"bytes beyond the credit", atHost, []frame.Frame{data(1, 0, 16<<10), data(1, 16<<10, 16<<10), data(1, 32<<10, 1)}},
		{"bytes far beyond the credit", atClient, []frame.Frame{data(1, 1<<60, 1)}},
		{"bytes beyond the end", atHost, []frame.Frame{{Kind: frame.Fin, Stream: 1, Offset: 5}, data(1, 0, 5), data(1, 0, 6)}},
		{"an end before what has come", atHost, []frame.Frame{data(1, 0, 6), {Kind: frame.Fin, Stream: 1, Offset: 5}}},
		{"an end before what waits behind a gap", atHost, []frame.Frame{data(1, 10, 6), {Kind: frame.Fin, Stream: 1, Offset: 15}}},
		{"a second FIN elsewhere", atHost, []frame.Frame{{Kind: frame.Fin, Stream: 1, Offset: 5}, {Kind: frame.Fin, Stream: 1, Offset: 6}}},
		{"a RESET elsewhere", atClient, []frame.Frame{{Kind: frame.Fin, Stream: 1, Offset: 5}, {Kind: frame.Reset, Stream: 1, Offset: 4}}},
		{"an end beyond the credit", atHost, []frame.Frame{{Kind: frame.Fin, Stream: 1, Offset: 32<<10 + 1}}},
		{"a RESET beyond the credit", atHost, []frame.Frame{{Kind: frame.Reset, Stream: 1, Offset: 32<<10 + 1}}},
		{"SEEN of more than was sent", atClient, []frame.Frame{{Kind: frame.Seen, Count: 1 << 40}}},
		{"bytes acknowledged that were not sent", atClient, []frame.Frame{{Kind: frame.State, Stream: 1, Offset: 1}}},
		{"too many gaps in a stream", atHost, full(1025)},
		{"a stream never opened, at the client", atClient, []frame.Frame{data(2, 0, 1)}},
		{"DATA before OPEN", atHost, []frame.Frame{data(2, 0, 1)}},
		{"STATE before OPEN", atHost, []frame.Frame{{Kind: frame.State, Stream: 2}}},
		{"FIN before OPEN", atHost, []frame.Frame{{Kind: frame.Fin, Stream: 2}}},
		{"STOP before OPEN", atHost, []frame.Frame{{Kind: frame.Stop, Stream: 2}}},
		{"stream 0", atHost, []frame.Frame{{Kind: frame.Open}}},
		{"OPEN from a host", atClient, []frame.Frame{{Kind: frame.Open, Stream: 1}}},
		{"OPEN of an unknown stream from a host", atClient, []frame.Frame{{Kind: frame.Open, Stream: 77}}},
		{"OPENED from a client", atHost, []frame.Frame{{Kind: frame.Opened, Stream: 1}}},
		{"REFUSED from a client", atHost, []frame.Frame{{Kind: frame.Refused, Stream: 1}}},
		{"SWITCH from a host", atClient, []frame.Frame{{Kind: frame.Switch, Epoch: 100, Gen: 1}}},
		{"GONE while the stream lives", atClient, []frame.Frame{{Kind: frame.Gone, Stream: 1}}},
		{"GONE after the peer's end alone", atHost, []frame.Frame{{Kind: frame.Fin, Stream: 1}, {Kind: frame.Gone, Stream: 1}}},
		{"NEW on an attached carrier", atHost, []frame.Frame{{Kind: frame.New}}},
		{"HELLO on an attached carrier", atHost, []frame.Frame{{Kind: frame.Hello}}},
		{"an unknown critical kind", atHost, []frame.Frame{{Kind: 0x3f}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, bool(test.at))
			k := r.carrier(frame.Active, 100*ms)
			r.open(k)
			for i := range test.in {
				err := r.recv(k, test.in[i])
				if i < len(test.in)-1 {
					r.must(err)
					continue
				}
				wantProtocol(t, err)
			}
		})
	}
}

func TestAcknowledgedFinThatWasNeverSaid(t *testing.T) {
	r, k, s := idle(t)
	s.limit = 0
	r.write(s, 10)
	s.CloseWrite()
	wantProtocol(t, r.recv(k, frame.Frame{Kind: frame.State, Stream: s.ID, Offset: 11}))
}

func TestTooManyGapsInStreamIDs(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	for i := range uint64(maxGaps + 1) {
		r.must(r.recv(k, frame.Frame{Kind: frame.Reset, Stream: 1 + 2*i}))
	}
	wantProtocol(t, r.recv(k, frame.Frame{Kind: frame.Reset, Stream: 1 << 40}))
}

func TestIgnorableFramesAreSkippedAndCounted(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	r.must(r.recv(k, frame.Frame{Kind: 0x40}, frame.Frame{Kind: 0xff}, frame.Frame{Kind: frame.Ping}))
	f := r.wantSaid(k, "PONG SEEN")
	if f[1].Count != 3 {
		t.Fatalf("SEEN of %d frames", f[1].Count)
	}
}

func TestFramesOfClosedCarriersAreIgnored(t *testing.T) {
	r, k, o, s := pair2(t)
	r.c.CloseCarrier(r.now, k)
	r.must(r.recv(k, data(s.ID, 0, 1), frame.Frame{Kind: 0x3f}))
	if s.in.next != 0 {
		t.Fatal("a closed carrier delivered")
	}
	r.c.Dead(r.now, k)
	r.must(r.recv(k, data(s.ID, 0, 1)))
	if s.in.next != 0 || r.c.tx() != o {
		t.Fatal("a dead carrier delivered, or no other serves")
	}
}

// --- ends of streams

func TestFinAcknowledgedBothWaysRetires(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 5)
	s.CloseWrite()
	r.pump()
	f := r.wantSaid(k, "DATA FIN")
	if f[1].Offset != 5 {
		t.Fatalf("FIN %+v", f[1])
	}
	r.must(r.recv(k, frame.Frame{Kind: frame.State, Stream: s.ID, Offset: 5}))
	r.must(r.recv(k, frame.Frame{Kind: frame.State, Stream: s.ID, Offset: 6}))
	if s.retired {
		t.Fatal("retired before the peer's end")
	}
	r.must(r.recv(k, frame.Frame{Kind: frame.Fin, Stream: s.ID, Offset: 0}))
	if !s.retired {
		t.Fatal("not retired")
	}
	if eof, err := s.ReadEnd(); !eof || err != nil {
		t.Fatalf("read end %v %v", eof, err)
	}
	r.took(k)
	// What comes late is answered GONE, but for what tells nothing new.
	for _, kind := range []frame.Kind{frame.Data, frame.Fin, frame.Reset, frame.Stop} {
		r.must(r.recv(k, frame.Frame{Kind: kind, Stream: s.ID}))
		r.wantSaid(k, "GONE")
	}
	for _, kind := range []frame.Kind{frame.State, frame.Gone, frame.Opened} {
		r.must(r.recv(k, frame.Frame{Kind: kind, Stream: s.ID}))
		r.wantSaid(k, "")
	}
	if r.acct.streams != 0 || r.acct.used != 0 {
		t.Fatalf("%d streams, %d bytes", r.acct.streams, r.acct.used)
	}
}

func TestGoneCompletes(t *testing.T) {
	r, k, s := idle(t)
	s.CloseWrite()
	r.must(r.recv(k, frame.Frame{Kind: frame.Fin, Stream: s.ID}))
	r.must(r.recv(k, frame.Frame{Kind: frame.Gone, Stream: s.ID}))
	if eof, err := s.ReadEnd(); !s.retired || !eof || err != nil {
		t.Fatalf("retired %v, %v %v", s.retired, eof, err)
	}
}

func TestAbortIsResetAndStop(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 100)
	r.took(k)
	s.Reset(42)
	r.pump()
	f := r.wantSaid(k, "RESET STOP")
	if f[0].Offset != 100 || f[0].Code != 42 || f[1].Code != 42 {
		t.Fatalf("%+v", f)
	}
	r.must(r.recv(k, frame.Frame{Kind: frame.State, Stream: s.ID, Offset: 101}))
	r.must(r.recv(k, frame.Frame{Kind: frame.Reset, Stream: s.ID, Code: 42}))
	if !s.retired || s.WriteErr() != ErrReset {
		t.Fatal("not over")
	}
}

func TestResetAfterFinKeepsItsFinal(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 10)
	s.CloseWrite()
	r.pump()
	r.took(k)
	s.Reset(1)
	r.pump()
	if f := r.wantSaid(k, "RESET STOP"); f[0].Offset != 10 {
		t.Fatalf("%+v", f[0])
	}
}

func TestResetOfUnsentBytesEndsAtWhatWasSent(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 40<<10) // 32 KiB of credit
	s.CloseWrite()
	r.pump()
	r.took(k)
	s.Reset(1)
	r.pump()
	if f := r.wantSaid(k, "RESET STOP"); f[0].Offset != 32<<10 {
		t.Fatalf("%+v", f[0])
	}
	if r.acct.used != 0 {
		t.Fatalf("%d bytes still charged", r.acct.used)
	}
}

func TestResetDropsUndeliveredBytes(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.must(r.recv(k, data(1, 0, 10), data(1, 20, 5)))
	r.must(r.recv(k, frame.Frame{Kind: frame.Reset, Stream: 1, Code: 9, Offset: 30}))
	if len(s.Peek()) != 0 || s.nextOffset() != 31 || s.PeerCode() != 9 {
		t.Fatalf("peek %d, next %d", len(s.Peek()), s.nextOffset())
	}
	if _, err := s.ReadEnd(); err != ErrReset {
		t.Fatal(err)
	}
	r.must(r.recv(k, data(1, 25, 5))) // late
	if s.nextOffset() != 31 {
		t.Fatal("late bytes count")
	}
}

func TestResetAfterDeliveredFinChangesNothing(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.must(r.recv(k, data(1, 0, 3), frame.Frame{Kind: frame.Fin, Stream: 1, Offset: 3}))
	r.must(r.recv(k, frame.Frame{Kind: frame.Reset, Stream: 1, Offset: 3}))
	if len(s.Peek()) != 3 {
		t.Fatal("delivered bytes were dropped")
	}
	s.Discard(r.now, 3)
	if eof, err := s.ReadEnd(); !eof || err != nil {
		t.Fatalf("%v %v", eof, err)
	}
}

func TestStop(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 7)
	r.took(k)
	r.must(r.recv(k, frame.Frame{Kind: frame.Stop, Stream: s.ID, Code: 3}))
	if f := r.wantSaid(k, "RESET"); f[0].Code != 3 || f[0].Offset != 7 {
		t.Fatalf("%+v", f[0])
	}
	if s.WriteErr() != ErrReset || s.Room() != 0 {
		t.Fatal("still writable")
	}
	if _, err := s.ReadEnd(); err != nil {
		t.Fatal("the other direction ended too")
	}
	r.must(r.recv(k, frame.Frame{Kind: frame.Stop, Stream: s.ID, Code: 4}))
	r.wantSaid(k, "")
}

func TestStopAfterAcknowledgedFinIsIgnored(t *testing.T) {
	r, k, s := idle(t)
	s.CloseWrite()
	r.pump()
	r.took(k)
	r.must(r.recv(k, frame.Frame{Kind: frame.State, Stream: s.ID, Offset: 1}, frame.Frame{Kind: frame.Stop, Stream: s.ID}))
	r.wantSaid(k, "")
	if s.ended != finished {
		t.Fatal("no longer finished")
	}
}

func TestStoppedStreamDropsWhatComes(t *testing.T) {
	r, k, s := idle(t)
	r.must(r.recv(k, data(s.ID, 0, 5)))
	s.Stop(1)
	r.pump()
	r.must(r.recv(k, data(s.ID, 5, 5), frame.Frame{Kind: frame.Fin, Stream: s.ID, Offset: 10}))
	if len(s.Peek()) != 0 || s.nextOffset() != 11 {
		t.Fatalf("%d bytes kept, next %d", len(s.Peek()), s.nextOffset())
	}
	if eof, err := s.ReadEnd(); eof || err == nil {
		t.Fatalf("EOF %v, %v though bytes were dropped", eof, err)
	}
}

func TestAbortBeforeOpenDialsNothing(t *testing.T) {
	c := newRig(t, true)
	k := c.carrier(frame.Active, 100*ms)
	c.took(k)
	s, _ := c.c.Open(c.now, "t:1", 0, 0)
	s.Reset(5)
	c.pump()
	said := c.wantSaid(k, "RESET")
	h := newRig(t, false)
	hk := h.carrier(frame.Active, 100*ms)
	h.must(h.recv(hk, said...))
	h.wantSaid(hk, "GONE")
	h.must(h.recv(hk, frame.Frame{Kind: frame.Open, Stream: s.ID, Target: "late:1"}))
	h.wantSaid(hk, "GONE")
	if len(h.out.Incoming) != 0 {
		t.Fatal("dialled")
	}
	c.must(c.recv(k, frame.Frame{Kind: frame.Gone, Stream: s.ID}))
	if !s.retired || c.acct.streams != 0 {
		t.Fatal("not over")
	}
}

func TestRefused(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 3)
	r.took(k)
	r.must(r.recv(k, frame.Frame{Kind: frame.Refused, Stream: s.ID, Code: 1}))
	f := r.wantSaid(k, "RESET STATE")
	if f[0].Offset != 3 || f[1].Offset != 1 {
		t.Fatalf("%+v", f)
	}
	if code, refused := s.Refusal(); code != 1 || !refused || s.Accepted() {
		t.Fatalf("%d %v", code, refused)
	}
	r.must(r.recv(k, frame.Frame{Kind: frame.State, Stream: s.ID, Offset: 4}))
	if !s.retired {
		t.Fatal("not over")
	}
}

func TestRefuse(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.took(k)
	s.Refuse(2)
	r.pump()
	if f := r.wantSaid(k, "REFUSED"); f[0].Code != 2 {
		t.Fatalf("%+v", f[0])
	}
	// Lost with its carrier, it is said again.
	r.c.Dead(r.now, k)
	o := r.carrier(frame.Active, 100*ms)
	r.wantSaid(o, "REFUSED OPENED"[:7])
	r.must(r.recv(o, frame.Frame{Kind: frame.Reset, Stream: 1}, frame.Frame{Kind: frame.State, Stream: 1, Offset: 1}))
	if !s.retired || r.acct.streams != 0 {
		t.Fatal("not over")
	}
}

func TestRefuseAfterStopEndsTheOtherDirectionToo(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.must(r.recv(k, frame.Frame{Kind: frame.Stop, Stream: 1}))
	r.took(k)
	s.Refuse(2)
	r.pump()
	r.wantSaid(k, "STOP")
}

func TestStreamsBeyondTheBoundAreRefused(t *testing.T) {
	r := newRig(t, false)
	r.acct.maxStreams = 1
	k := r.carrier(frame.Active, 100*ms)
	r.open(k)
	r.took(k)
	r.must(r.recv(k, frame.Frame{Kind: frame.Open, Stream: 2}))
	if f := r.wantSaid(k, "REFUSED"); f[0].Code != CodeBusy {
		t.Fatalf("%+v", f[0])
	}
	if len(r.out.Incoming) != 1 {
		t.Fatalf("%d streams came in", len(r.out.Incoming))
	}
	r.must(r.recv(k, frame.Frame{Kind: frame.Reset, Stream: 2}, frame.Frame{Kind: frame.State, Stream: 2, Offset: 1}))
	if r.c.turnedAway != 0 || r.acct.streams != 1 {
		t.Fatalf("%d turned away, %d streams", r.c.turnedAway, r.acct.streams)
	}
	for i := range uint64(maxTurnedAway) {
		r.must(r.recv(k, frame.Frame{Kind: frame.Open, Stream: 10 + i}))
	}
	wantProtocol(t, r.recv(k, frame.Frame{Kind: frame.Open, Stream: 1 << 20}))
}

// --- what goes where

func TestKeystrokePassesBulk(t *testing.T) {
	r, k, bulk := idle(t)
	bulk.limit = 1 << 30
	key := r.open(k)
	bulk.Write(r.now, make([]byte, 100<<10))
	bulk.interactive = false
	bulk.queued, r.c.fast.list = false, nil // it counts as bulk from the start
	bulk.enqueue()
	b := r.c.Pull(r.now, k, nil) // one record of bulk leaves first
	key.Write(r.now, []byte("x"))
	r.keep(k, b)
	r.took(k)
	r.pump()
	f := r.took(k)
	i := 0
	for i < len(f) && f[i].Kind != frame.Data {
		i++
	}
	if f[i].Stream != key.ID {
		t.Fatalf("the keystroke waits behind bulk: %v first", f[i])
	}
}

func TestBulkIsToldFromInteractive(t *testing.T) {
	r, _, s := idle(t)
	if !s.interactive {
		t.Fatal("a fresh stream is no bulk")
	}
	r.write(s, 32<<10)
	if s.interactive {
		t.Fatal("32 KiB at once are bulk")
	}
	r.now += 600 * ms // the bucket leaks 64 KiB a second
	s.classify(r.now, 1)
	if !s.interactive {
		t.Fatal("still bulk")
	}
}

func TestUnseenWindow(t *testing.T) {
	r, k, s := idle(t)
	s.limit = 1 << 30
	s.Write(r.now, make([]byte, maxUnsent))
	s.interactive = false
	r.pump()
	if k.unseen < 64<<10 || k.unseen > 64<<10+frame.Max {
		t.Fatalf("%d bytes un-SEEN, the window is 64 KiB while no rate is known", k.unseen)
	}
	r.at(r.now + 100*ms)
	r.seen(k)
	// 64 KiB in 100 ms: 2 × 655 kB/s × 102 ms + 64 KiB.
	w := 64<<10 + 2*int(float64(k.delivered)/0.1*0.102)
	if got := k.window(); got < w-100 || got > w+100 {
		t.Fatalf("window %d, want about %d", got, w)
	}
	if k.unseen == 0 {
		t.Fatal("SEEN did not make it go on")
	}
}

func TestFrameBytesFitFiftyMilliseconds(t *testing.T) {
	_, k, _ := idle(t)
	for _, test := range []struct{ rate, want int }{{0, frame.Max}, {1000, 1 << 10}, {100 << 10, 5 << 10}, {100 << 20, frame.Max}} {
		k.rate = rate{now: float64(test.rate)}
		if got := k.frameBytes(); got != test.want {
			t.Errorf("at %d B/s: %d bytes a frame, want %d", test.rate, got, test.want)
		}
	}
}

func TestPlannedSwitchCopies(t *testing.T) {
	r, k, o, key := pair2(t)
	bulk := r.open(k)
	bulk.limit, bulk.interactive = 1<<30, false
	k.rate = rate{now: 100 << 20, since: r.now}
	o.rate = rate{now: 100 << 20, since: r.now}
	for range 6 { // more than may be copied
		bulk.Write(r.now, make([]byte, 64<<10))
		bulk.interactive = false
		r.pump()
	}
	r.write(key, 10)
	unseen := k.unseen
	if unseen < 300<<10 {
		t.Fatalf("only %d bytes un-SEEN", unseen)
	}
	r.took(k)
	sent := bulk.sent
	r.c.SwitchTo(r.now, o, true, "test")
	r.pump()
	r.wantSaid(k, "SWITCH DRAIN")
	var first, copied uint64
	next := uint64(0)
	for _, f := range r.took(o) {
		if f.Kind != frame.Data {
			continue
		}
		if first == 0 {
			first = f.Stream
		}
		if f.Stream == bulk.ID {
			if f.Offset != next && f.Offset != sent {
				t.Fatalf("copies out of order: %d after %d", f.Offset, next)
			}
			next = f.Offset + uint64(len(f.Data))
			if f.Offset >= sent {
				continue
			}
		}
		copied += uint64(len(f.Data))
	}
	if first != key.ID {
		t.Fatal("the interactive stream was not copied first")
	}
	if copied > 256<<10 || copied < 200<<10 {
		t.Fatalf("%d bytes copied, want close to 256 KiB", copied)
	}
	r.c.Dead(r.now, k) // now the new one answers for the rest
	r.seen(o)
	r.pump()
	r.seen(o)
	var total uint64
	for _, f := range r.took(o) {
		total += uint64(len(f.Data))
	}
	if total+copied < uint64(unseen) {
		t.Fatalf("%d + %d bytes of %d were said again", copied, total, unseen)
	}
}

func TestOpenGoesBeforeAnythingElseOnEachCarrier(t *testing.T) {
	r, k, o, _ := pair2(t)
	s, _ := r.c.Open(r.now, "t:1", 0, 0)
	r.write(s, 3)
	r.wantSaid(k, "OPEN DATA")
	r.c.SwitchTo(r.now, o, true, "test")
	r.pump()
	r.wantSaid(o, "SWITCH OPEN DATA")
	s.CloseWrite()
	r.pump()
	r.wantSaid(o, "FIN") // said once on this one
	r.seen(o)
	p := r.carrier(frame.Standby, 100*ms)
	r.took(p)
	r.c.SwitchTo(r.now, p, false, "test")
	r.pump()
	for _, f := range r.took(p) {
		if f.Kind == frame.Open && f.Stream == s.ID {
			t.Fatal("OPEN again though it was SEEN")
		}
	}
}

func TestOpenGoesBeforeDataInARace(t *testing.T) {
	r := newRig(t, true)
	s, _ := r.c.Open(0, "t:1", 0, 0)
	r.write(s, 20<<10)
	a, _ := r.c.Begin(0, frame.Active, 0, 100*ms)
	b, _ := r.c.Begin(0, frame.Active, 0, 100*ms)
	r.pump()
	for _, k := range []*Carrier{a, b} {
		f := r.took(k)
		n := 0
		for i, f := range f {
			if (i == 0) != (f.Kind == frame.Open) {
				t.Fatalf("carrier %d: frame %d is %v", k.gen, i, f.Kind)
			}
			n += len(f.Data)
		}
		if n != 16<<10 {
			t.Fatalf("carrier %d carries %d bytes before it is accepted", k.gen, n)
		}
	}
	r.c.Accepted(0, b)
	r.pump()
	n := uint64(16 << 10)
	for _, f := range r.took(b) {
		if f.Kind == frame.Data {
			if f.Offset != n {
				t.Fatalf("goes on at %d, not at %d", f.Offset, n)
			}
			n += uint64(len(f.Data))
		}
	}
	if n != 20<<10 {
		t.Fatalf("sent up to %d", n)
	}
	r.wantSaid(a, "")
}

func TestStateOfARaceIsSaidWithItsNewestValue(t *testing.T) {
	r, k, s := idle(t)
	r.must(r.recv(k, data(s.ID, 0, 30<<10)))
	r.c.Dead(r.now, k)
	s.Write(r.now, make([]byte, 20<<10)) // exhausts what a candidate may carry
	o, _ := r.c.Begin(r.now, frame.Active, 0, 100*ms)
	r.pump()
	s.Peek()
	s.Discard(r.now, 30<<10)
	r.pump()
	r.c.Accepted(r.now, o)
	r.pump()
	limit := uint64(0)
	for _, f := range r.took(o) {
		if f.Kind == frame.State {
			limit = f.Limit
		}
	}
	if limit != s.granted || limit <= 32<<10 {
		t.Fatalf("the last STATE grants %d, not %d", limit, s.granted)
	}
}

func TestSwitchToADeadCarrierWakesTheOneThatServes(t *testing.T) {
	r := newRig(t, false)
	a := r.carrier(frame.Active, 100*ms)
	b := r.carrier(frame.Standby, 100*ms)
	s := r.open(a)
	s.limit = 1 << 30
	s.Write(r.now, make([]byte, maxUnsent))
	s.interactive = false
	r.pump() // fills a's window
	r.took(a)
	r.took(b)
	r.must(r.recv(b, frame.Frame{Kind: frame.Switch, Epoch: 9, Gen: 77, Keep: frame.Keep{}}))
	if r.c.tx() != b {
		t.Fatal("not on the highest generation that lives")
	}
	if len(r.took(b)) < 5 {
		t.Fatal("it was not told that it serves")
	}
}

func TestEpochsAndGenerationsOnlyGrow(t *testing.T) {
	r := newRig(t, false)
	a := r.carrier(frame.Active, 100*ms)
	b := r.carrier(frame.Standby, 100*ms)
	sw := func(epoch uint64, k *Carrier) {
		r.must(r.recv(a, frame.Frame{Kind: frame.Switch, Epoch: epoch, Gen: k.gen}))
	}
	sw(5, b)
	sw(4, a)
	sw(5, a)
	if r.c.tx() != b {
		t.Fatal("an older decision was obeyed")
	}
	sw(6, a)
	if r.c.tx() != a {
		t.Fatal("a newer decision was not obeyed")
	}
	for _, test := range []struct {
		gen  uint64
		keep frame.Keep
		want bool
	}{
		{b.gen, frame.Keep{}, false}, // attached already
		{9, frame.Keep{Below: 10, List: []uint64{a.gen, 7, 9}}, true},
		{7, frame.Keep{Below: 8, List: []uint64{a.gen, b.gen, 7}}, true}, // began earlier, came later
		{8, frame.Keep{Below: 9, List: []uint64{8}}, false},              // the client no longer knows it
		{12, frame.Keep{Below: 12}, true},
	} {
		_, ok := r.c.Admit(r.now, &frame.Frame{Gen: test.gen, Role: frame.Standby, Keep: test.keep}, 0)
		if ok != test.want {
			t.Fatalf("generation %d with %v: admitted %v", test.gen, test.keep, ok)
		}
		if test.gen == 9 && (!b.dead || a.dead) {
			t.Fatal("keep closed the wrong carriers")
		}
	}
	if !a.dead {
		t.Fatal("a carrier that the client no longer knows lives")
	}
}

func TestFirstOfARaceServes(t *testing.T) {
	r := newRig(t, false)
	admit := func(gen, epoch uint64) *Carrier {
		k, ok := r.c.Admit(r.now, &frame.Frame{Gen: gen, Role: frame.Active, Epoch: epoch}, 0)
		if !ok {
			t.Fatal("not admitted")
		}
		return k
	}
	first := admit(2, 1)
	admit(1, 1)
	admit(3, 1)
	if r.c.tx() != first {
		t.Fatal("not the first that arrived")
	}
	if k := admit(4, 2); r.c.tx() != k {
		t.Fatal("a later race was not obeyed")
	}
}

func TestClientTellsOfADeadStandby(t *testing.T) {
	r, k, o, _ := pair2(t)
	epoch := r.c.epoch
	r.c.Dead(r.now, o)
	r.pump()
	f := r.wantSaid(k, "SWITCH")
	if f[0].Gen != k.gen || f[0].Epoch <= epoch || f[0].Keep.Holds(o.gen) || !f[0].Keep.Holds(k.gen) {
		t.Fatalf("%+v", f[0])
	}
}

func TestKeepNeverNamesTooMany(t *testing.T) {
	r := newRig(t, true)
	var all []*Carrier
	for range 40 {
		k, _ := r.c.Begin(0, frame.Standby, 0, 0)
		all = append(all, k)
	}
	keep := r.c.known()
	if len(keep.List) > frame.MaxKeep {
		t.Fatalf("%d generations", len(keep.List))
	}
	for _, k := range all {
		if !keep.Holds(k.gen) {
			t.Fatalf("generation %d would be closed", k.gen)
		}
	}
}

// --- credit

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

// --- the end of a link

func TestEnd(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 100<<10)
	r.must(r.recv(k, data(s.ID, 0, 10)))
	r.took(k)
	id := [16]byte{1, 2, 3}
	r.c.End(r.now, errCrash, id, 7)
	r.pump()
	f := r.wantSaid(k, "CLOSE")
	if f[0].Link != id || f[0].Code != 7 {
		t.Fatalf("%+v", f[0])
	}
	if s.WriteErr() != errCrash || len(s.Peek()) != 10 {
		t.Fatalf("%v", s.WriteErr())
	}
	s.Discard(r.now, 10)
	if _, err := s.ReadEnd(); err != errCrash {
		t.Fatal(err)
	}
	if r.acct.used != 0 || r.acct.streams != 0 {
		t.Fatalf("%d bytes, %d streams", r.acct.used, r.acct.streams)
	}
	if k.dead {
		t.Fatal("no time for the last word")
	}
	r.due(r.now + closeGrace)
	if !k.dead {
		t.Fatal("outlives the link")
	}
	if _, ok := r.c.Open(r.now, "t", 0, 0); ok {
		t.Fatal("a stream on an ended link")
	}
	r.c.Accepted(r.now, k)
	if _, ok := r.c.Wake(r.now); ok {
		t.Fatal("an ended link wants to be woken")
	}
}
