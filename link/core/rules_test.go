package core

import (
	"testing"

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
