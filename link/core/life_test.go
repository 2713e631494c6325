package core

import (
	"strings"
	"testing"
	"time"

	"linkproxy/link/frame"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// With a handshake of 100 ms: srtt 100 ms, rttvar 50 ms, B = min(100 + 200, 200 + 500) = 300 ms.
const b100 = 300 * ms

// idle brings a client with one carrier to rest at 1 s: nothing outstanding.
func idle(t *testing.T) (*rig, *Carrier, *Stream) {
	r := newRig(t, true)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.skip(1 * sec)
	r.took(k)
	// The samples of the exchange above are left out: the estimate is that of the handshake.
	k.rtt = rtt{}
	k.rtt.sample(r.now, 100*ms, 100*ms)
	return r, k, s
}

// pair2 is idle with a second carrier, a standby.
func pair2(t *testing.T) (r *rig, k, o *Carrier, s *Stream) {
	r, k, s = idle(t)
	o = r.carrier(frame.Standby, 100*ms)
	r.took(o)
	r.took(k)
	return r, k, o, s
}

func TestB(t *testing.T) {
	for _, test := range []struct{ handshake, want time.Duration }{
		{10 * ms, 110 * ms},   // 4 × rttvar is less than 100 ms
		{100 * ms, 300 * ms},  // srtt + 4 × rttvar
		{1 * sec, 2500 * ms},  // 2 × least + 500 ms
		{2 * sec, 4500 * ms},  // the same
		{0, 100*ms + 1000*ns}, // a microsecond at least
	} {
		var r rtt
		r.sample(0, test.handshake, test.handshake)
		if got := r.base(); got != test.want {
			t.Errorf("handshake %v: B = %v, want %v", test.handshake, got, test.want)
		}
	}
}

const ns = time.Nanosecond

func TestSuspectAfterB(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 1)
	r.at(1*sec + b100 - 1)
	if k.doubtful() {
		t.Fatal("suspect before B")
	}
	r.due(1*sec + b100)
	if !k.suspect {
		t.Fatal("not suspect after B")
	}
	if st := r.c.Status(); !st.Doubtful || st.HasOther {
		t.Fatalf("status %+v", st)
	}
	r.now += 1 * ms
	r.c.Arrived(r.now, k, 1)
	if k.suspect {
		t.Fatal("still suspect though a byte came")
	}
	r.due(r.now + b100 - 100*ms) // silent again for B − srtt
	if !k.suspect {
		t.Fatal("not suspect again")
	}
}

func TestBytesAheadAreNoSilence(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 16<<10) // at 64 KiB a second, as long as nothing is known
	n := k.log[k.want].n
	if n < 15<<10 {
		t.Fatalf("a frame of %d bytes", n)
	}
	r.due(1*sec + b100 + time.Duration(n)*sec/(64<<10))
	if !k.suspect {
		t.Fatal("not suspect")
	}
	r.at(r.now + 100*ms)
	r.seen(k)
	k.rate = rate{now: 1 << 20, since: r.now}
	k.rtt = rtt{}
	k.rtt.sample(r.now, 100*ms, 100*ms)
	start := r.now
	r.write(s, 1)
	k.log[k.want].ahead = 512 << 10       // a bufferful was on its way: half a second
	r.due(start + b100 + 500*ms - 100*ms) // as far as it takes longer than a round trip
	if !k.suspect {
		t.Fatal("not suspect")
	}
}

func TestBlockedWriteIsSilence(t *testing.T) {
	r, k, s := idle(t)
	s.Write(r.now, []byte("x"))
	r.c.Take()
	if len(r.c.Pull(r.now, k, nil)) == 0 {
		t.Fatal("nothing to write")
	}
	r.due(1*sec + b100) // the write never returned
	if !k.suspect {
		t.Fatal("not suspect")
	}
}

func TestSwitchAfterTwoB(t *testing.T) {
	r, k, o, s := pair2(t)
	r.write(s, 1)
	r.wantSaid(k, "DATA")
	r.due(1*sec + b100)
	r.wantSaid(o, "PING DATA")
	r.at(1*sec + b100 + 10*ms)
	r.seen(o) // the standby delivers what the other does not
	r.at(1*sec + 2*b100 - 1)
	if r.c.tx() != k {
		t.Fatal("left before 2 B")
	}
	r.due(1*sec + 2*b100)
	if r.c.tx() != o {
		t.Fatal("not left after 2 B")
	}
	f := r.wantSaid(o, "SWITCH DATA")
	if f[0].Gen != o.gen || f[0].Planned || f[0].Epoch != r.c.epoch {
		t.Fatalf("SWITCH %+v", f[0])
	}
}

func TestProofAfterTwoBSwitchesAtOnce(t *testing.T) {
	r, k, o, s := pair2(t)
	r.write(s, 1)
	r.skip(1*sec + 2*b100 + 50*ms)
	if r.c.tx() != k {
		t.Fatal("left without a proof that the other delivers")
	}
	r.seen(o)
	if r.c.tx() != o {
		t.Fatal("not left though silent for 2 B while another delivers")
	}
}

func TestPingProvesToo(t *testing.T) {
	r, _, o, _ := pair2(t)
	r.c.Ask(r.now)
	r.pump()
	r.seen(o)
	r.skip(1*sec + b100)
	r.at(r.now + 1*ms)
	r.seen(o)
	r.skip(1*sec + 2*b100)
	if r.c.tx() != o {
		t.Fatal("not left though its PING is silent while another answers")
	}
}

func TestCloseAfterThreeSeconds(t *testing.T) {
	r, k, o, s := pair2(t)
	r.skipSeeing(o, 20*sec) // the last byte on k is long gone, but nothing was asked of it
	r.took(k)
	r.write(s, 1)
	start := r.now
	o.lastRecv = start // the standby is not asked meanwhile
	r.skip(start + 3*sec - 1)
	if k.closing {
		t.Fatal("closed before 3 s")
	}
	r.due(start + 3*sec)
	if !k.closing || r.c.tx() != o {
		t.Fatal("not closed after 3 s")
	}
	f := r.took(k)
	if f[len(f)-1].Kind != frame.Close {
		t.Fatalf("said %v", kinds(f))
	}
	r.due(start + 3*sec + closeGrace)
	if !k.dead {
		t.Fatal("not given up though its CLOSE is stuck")
	}
}

func TestCloseAfterThreeB(t *testing.T) {
	r, k, s := idle(t)
	o := r.carrier(frame.Standby, 100*ms)
	k.rtt = rtt{}
	k.rtt.sample(r.now, 2*sec, 2*sec) // B = 4.5 s
	r.write(s, 1)
	for r.now < 14*sec { // the standby lives
		r.skip(r.now + 500*ms)
		r.c.Arrived(r.now, o, 1)
	}
	r.skip(1*sec + 3*4500*ms - 1)
	if k.closing {
		t.Fatal("closed before 3 B")
	}
	r.skip(1*sec + 3*4500*ms)
	if !k.closing {
		t.Fatal("not closed after 3 B")
	}
}

func TestAloneIsNeverClosed(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 1)
	r.skip(600 * sec)
	if k.closing || k.dead || !k.suspect {
		t.Fatal("the only carrier was closed, or is not suspect")
	}
}

func TestHole(t *testing.T) {
	for _, test := range []struct{ handshake, suspect, leave time.Duration }{
		{100 * ms, 300 * ms, 10 * sec}, // B, and 8 B = 2.4 s
		{1 * sec, 2500 * ms, 20 * sec}, // B = 2.5 s
	} {
		r, k, o, s := pair2(t)
		k.rtt = rtt{}
		k.rtt.sample(r.now, test.handshake, test.handshake)
		r.write(s, 1)
		start := r.now
		alive := func(until Time) {
			for r.now+50*ms < until {
				r.skip(r.now + 50*ms)
				r.c.Arrived(r.now, k, 1)
				if _, _, asked := o.oldest(); asked && k.hole {
					r.seen(o)
				}
			}
			r.skip(until)
		}
		alive(start + test.suspect - 1)
		if k.doubtful() {
			t.Fatalf("%v: in doubt too early", test)
		}
		alive(start + test.suspect)
		if !k.hole || k.suspect {
			t.Fatalf("%v: no hole found", test)
		}
		alive(r.now + 1*ms)
		r.seen(o)
		alive(start + test.leave - 1)
		if r.c.tx() != k {
			t.Fatalf("%v: left too early", test)
		}
		alive(start + test.leave)
		if r.c.tx() != o {
			t.Fatalf("%v: not left", test)
		}
	}
}

// TestHoleAlone: where nobody could take copies, doubt means a race, for which there is more time.
func TestHoleAlone(t *testing.T) {
	for _, test := range []struct{ handshake, suspect time.Duration }{
		{100 * ms, 2 * sec}, // 4 B = 1.2 s
		{1 * sec, 10 * sec}, // B = 2.5 s
	} {
		r, k, s := idle(t)
		k.rtt = rtt{}
		k.rtt.sample(r.now, test.handshake, test.handshake)
		r.write(s, 1)
		start := r.now
		for _, until := range []Time{start + test.suspect - 1, start + test.suspect} {
			for r.now+50*ms < until {
				r.skip(r.now + 50*ms)
				r.c.Arrived(r.now, k, 1)
			}
			r.skip(until)
			if k.hole != (until == start+test.suspect) || k.suspect {
				t.Fatalf("%v: %v after the write: hole %v, suspect %v", test, r.now-start, k.hole, k.suspect)
			}
		}
	}
}

// TestHostDoubtsWithItsClient: what comes on the standby first tells the host that its own answers may be lost.
func TestHostDoubtsWithItsClient(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	o := r.carrier(frame.Standby, 100*ms)
	r.skip(sec)
	r.took(k)
	r.took(o)
	r.must(r.recv(o, data(s.ID, 0, 1)))
	if !k.doubtful() || o.doubtful() {
		t.Fatal("the host does not doubt what its client doubts")
	}
	r.took(k)
	r.took(o)
	r.write(s, 1)
	if a, b := kinds(r.took(k)), kinds(r.took(o)); !strings.Contains(a, "DATA") || !strings.Contains(b, "DATA") {
		t.Fatalf("the answer went as %q and %q", a, b)
	}
	r.seen(k)
	if k.doubtful() {
		t.Fatal("a SEEN did not end the doubt")
	}
	// What is left of a carrier that the link has moved off says nothing.
	r.must(r.recv(o, frame.Frame{Kind: frame.Switch, Epoch: r.c.epoch + 1, Gen: o.gen, Planned: true, Keep: frame.Keep{Below: 1}}))
	r.must(r.recv(k, data(s.ID, 1, 1)))
	if o.doubtful() {
		t.Fatal("bytes that were on their way made the host doubt the new carrier")
	}
}

func TestSeenEndsHole(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 1)
	for r.now < 3*sec {
		r.skip(r.now + 50*ms)
		r.c.Arrived(r.now, k, 1)
	}
	if !k.hole {
		t.Fatal("no hole found")
	}
	r.seen(k)
	if k.doubtful() {
		t.Fatal("still in doubt")
	}
}

func TestReceiverAsksWhileDataFlows(t *testing.T) {
	r, k, s := idle(t)
	r.must(r.recv(k, data(s.ID, 0, 1)))
	r.wantSaid(k, "PING SEEN STATE")
	r.at(1*sec + 10*ms)
	r.seen(k)
	r.due(1*sec + 50*ms)
	r.wantSaid(k, "PING")
	r.at(1*sec + 60*ms)
	r.seen(k)
	k.rtt = rtt{}
	k.rtt.sample(r.now, 400*ms, 400*ms) // B = 1.2 s: flowing for 2.4 s, a PING every 200 ms
	r.must(r.recv(k, data(s.ID, 1, 1)))
	r.took(k)
	r.due(1*sec + 62*ms) // the acknowledgement
	r.wantSaid(k, "SEEN STATE")
	r.due(1*sec + 250*ms)
	r.wantSaid(k, "PING")
}

func TestPingAheadAfterIdle(t *testing.T) {
	r, k, s := idle(t)
	last := max(k.lastSend, k.lastRecv)
	r.at(last + 2*sec - 1)
	r.write(s, 1)
	r.wantSaid(k, "DATA")
	r.seen(k)
	r.at(r.now + 2*sec)
	r.write(s, 1)
	r.wantSaid(k, "PING DATA")
	r.seen(k)
	r.at(r.now + 2*sec)
	s.CloseWrite()
	r.pump()
	r.wantSaid(k, "PING FIN")
}

func TestKeepAliveStretches(t *testing.T) {
	r, k, _ := idle(t)
	last := max(k.lastSend, k.lastRecv)
	for _, d := range []time.Duration{27 * sec, 54 * sec, 108 * sec, 110 * sec, 110 * sec} {
		r.due(last + d)
		r.wantSaid(k, "PING")
		r.at(r.now + 100*ms)
		r.seen(k)
		last = r.now
	}
}

func TestKeepAliveThroughARelay(t *testing.T) {
	r, k, _ := idle(t)
	k.SetKeepAlive(27 * sec)
	last := max(k.lastSend, k.lastRecv)
	for range 3 {
		r.due(last + 27*sec)
		r.wantSaid(k, "PING")
		r.seen(k)
		last = r.now
	}
	k.SetKeepAlive(-1)
	if at, ok := r.c.Wake(r.now); ok {
		t.Fatalf("asked at %v though that is off", at)
	}
}

func TestHostSendsNoKeepAlive(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	if at, ok := r.c.Wake(r.now); ok {
		t.Fatalf("an idle host wants to be woken at %v", at)
	}
	r.open(k)
	r.skip(sec)
	if at, ok := r.c.Wake(r.now); ok {
		t.Fatalf("an idle host wants to be woken at %v", at)
	}
}

func TestStandbyIsAsked(t *testing.T) {
	r, _, o, _ := pair2(t)
	r.seen(o)
	for range 2 {
		r.due(r.now + standbyPing)
		r.wantSaid(o, "PING")
		r.seen(o)
	}
}

func TestSilentStandbyIsDropped(t *testing.T) {
	r, k, o, _ := pair2(t)
	r.seen(o)
	r.due(r.now + standbyPing)
	r.wantSaid(o, "PING")
	asked := r.now
	r.due(asked + o.rtt.base())
	r.due(asked + 2*o.rtt.base())
	r.wantSaid(o, "CLOSE")
	if f := r.wantSaid(k, "SWITCH"); f[0].Gen != k.gen {
		t.Fatalf("SWITCH %+v", f[0])
	}
}

func TestAcknowledgementDelays(t *testing.T) {
	for _, test := range []struct {
		name  string
		in    []frame.Frame
		delay time.Duration
		want  string
	}{
		{"small", []frame.Frame{data(1, 0, 100)}, 2 * ms, "SEEN STATE"},
		{"largest small", []frame.Frame{data(1, 0, 4<<10)}, 2 * ms, "SEEN STATE"},
		{"bulk", []frame.Frame{data(1, 0, 4<<10+1)}, 25 * ms, "SEEN STATE"},
		{"bulk, then small", []frame.Frame{data(1, 0, 8<<10), data(1, 8<<10, 1)}, 2 * ms, "SEEN STATE"},
		{"PING", []frame.Frame{{Kind: frame.Ping, ID: 7}}, 0, "PONG SEEN"},
		{"FIN", []frame.Frame{{Kind: frame.Fin, Stream: 1}}, 0, "SEEN STATE"},
		{"STOP", []frame.Frame{{Kind: frame.Stop, Stream: 1}}, 0, "SEEN RESET"},
		{"SEEN asks for nothing", []frame.Frame{{Kind: frame.Seen}}, -1, ""},
		{"STATE asks for nothing", []frame.Frame{{Kind: frame.State, Stream: 1}}, -1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, false)
			k := r.carrier(frame.Active, 100*ms)
			r.open(k)
			r.skip(1 * sec)
			r.took(k)
			k.lastPing = r.now // no question while data flows: that is another test
			r.must(r.recv(k, test.in...))
			if test.delay > 0 {
				r.wantSaid(k, "")
				r.due(r.now + test.delay)
			}
			f := r.wantSaid(k, test.want)
			for _, f := range f {
				if f.Kind == frame.Seen && f.Delay != max(test.delay, 0) {
					t.Errorf("SEEN says a delay of %v, want %v", f.Delay, test.delay)
				}
			}
		})
	}
}

func TestBulkIsAcknowledgedEvery64KiB(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	s := r.open(k)
	r.skip(1 * sec)
	r.took(k)
	k.lastPing = r.now
	s.granted = 1 << 20
	for i := range 7 {
		r.must(r.recv(k, data(1, uint64(i)*(8<<10), 8<<10)))
		r.wantSaid(k, "")
	}
	r.must(r.recv(k, data(1, 7*(8<<10), 8<<10)))
	if f := r.wantSaid(k, "SEEN STATE"); f[1].Offset != 64<<10 {
		t.Fatalf("STATE %+v", f[1])
	}
}

func TestRollbackTime(t *testing.T) {
	r, k, s := idle(t)
	o := r.carrier(frame.Standby, 100*ms)
	r.seen(o)
	r.took(o)
	r.write(s, 1)
	r.took(k)
	r.c.SwitchTo(r.now, o, true, "test")
	r.pump()
	f := r.wantSaid(k, "SWITCH DRAIN")
	if f[1].Epoch != r.c.epoch {
		t.Fatalf("DRAIN %+v", f[1])
	}
	r.wantSaid(o, "SWITCH DATA")
	r.seen(k)
	r.seen(o)
	moved := k.drainAt
	r.skip(moved + rollbackTime - 1)
	if k.closing {
		t.Fatal("closed before its time")
	}
	r.skip(moved + rollbackTime)
	if f := r.took(k); !k.closing || f[len(f)-1].Kind != frame.Close {
		t.Fatalf("not closed; said %v", kinds(f))
	}
}

func TestDrainedCarrierInDoubt(t *testing.T) {
	for _, drained := range []bool{false, true} {
		r, k, s := idle(t)
		o := r.carrier(frame.Standby, 100*ms)
		r.write(s, 1)
		r.c.SwitchTo(r.now, o, true, "test")
		r.pump()
		start := r.now
		want := start + 2*sec // it had its time: 3 B = 0.9 s, 2 s at least
		if drained {
			want = start + b100 + 1*ms
		}
		r.skip(start + b100)
		r.seen(o)
		r.took(o)
		if !k.suspect {
			t.Fatal("not suspect")
		}
		r.at(start + b100 + 1*ms)
		if drained {
			r.must(r.c.Recv(r.now, k, &frame.Frame{Kind: frame.Drain, Epoch: r.c.epoch}))
			r.must(r.c.Recv(r.now, k, &frame.Frame{Kind: frame.Seen, Count: r.sent[k]}))
			r.c.Advance(r.now)
		}
		r.skip(want - 1)
		if closed := k.closing; closed != drained {
			t.Fatalf("drained %v: closed %v at %v", drained, closed, r.now)
		}
		r.skip(want)
		if !k.closing {
			t.Fatalf("drained %v: not closed at %v", drained, r.now)
		}
	}
}

func TestHoldTime(t *testing.T) {
	for _, client := range []bool{true, false} {
		r := newRig(t, client)
		r.c.cfg.Hold = 10 * sec
		k := r.carrier(frame.Active, 100*ms)
		long, short := r.open(k), (*Stream)(nil)
		if client {
			short, _ = r.c.Open(r.now, "t", 0, 4*sec)
		} else {
			r.must(r.recv(k, frame.Frame{Kind: frame.Open, Stream: 9, Hold: 4 * sec}))
			short = r.c.streams[9]
			r.must(r.recv(k, frame.Frame{Kind: frame.Open, Stream: 10, Hold: 40 * sec}))
			if got := r.c.streams[10].Hold; got != 10*sec {
				t.Fatalf("hold of %v, want the smaller", got)
			}
		}
		r.pump()
		r.skip(1 * sec)
		r.c.Dead(r.now, k)
		r.skip(5*sec - 1)
		if short.err != nil {
			t.Fatal("ended too early")
		}
		r.skip(5 * sec)
		if short.WriteErr() != ErrHoldOver || long.WriteErr() != nil {
			t.Fatalf("client %v: %v, %v", client, short.WriteErr(), long.WriteErr())
		}
		if _, err := short.ReadEnd(); err != ErrHoldOver {
			t.Fatalf("read: %v", err)
		}
		o := r.carrier(frame.Active, 100*ms)
		said := map[frame.Kind]bool{}
		for _, f := range r.took(o) {
			if f.Stream == short.ID {
				said[f.Kind] = true
			}
		}
		if !said[frame.Reset] || !said[frame.Stop] {
			t.Fatalf("client %v: of the ended stream was said %v", client, said)
		}
		r.skip(6 * sec)
		r.c.Dead(r.now, o)
		r.skip(16*sec - 1)
		if long.WriteErr() != nil || r.c.Err() != nil {
			t.Fatal("ended too early: the time counts from the last carrier")
		}
		r.skip(16 * sec)
		if long.WriteErr() != ErrHoldOver {
			t.Fatal("not ended")
		}
		if !client && r.c.Err() != ErrHoldOver {
			t.Fatal("the host keeps the link for ever")
		}
	}
}

func TestEmptyLinkIsHeldAMinute(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	r.skip(1 * sec)
	r.c.Dead(r.now, k)
	if got := r.c.HoldUntil(); got != 61*sec {
		t.Fatalf("held until %v", got)
	}
	r.skip(61*sec - 1)
	if r.c.Err() != nil {
		t.Fatal("given up too early")
	}
	r.skip(61 * sec)
	if r.c.Err() != ErrHoldOver {
		t.Fatal("not given up")
	}
}

func TestAskAsksAllAndKillsNone(t *testing.T) {
	r, k, o, _ := pair2(t)
	r.seen(o)
	r.c.Ask(r.now)
	r.pump()
	r.wantSaid(k, "PING")
	r.wantSaid(o, "PING")
	if k.Ended() || o.Ended() {
		t.Fatal("killed by a question")
	}
}

func TestProve(t *testing.T) {
	r, _, o, _ := pair2(t)
	r.c.Prove(o)
	r.pump()
	f := r.took(o)
	ping := f[0]
	if ping.Kind != frame.Ping || len(ping.Data) != 4<<10 {
		t.Fatalf("said %v with %d bytes", kinds(f), len(ping.Data))
	}
	r.must(r.recv(o, frame.Frame{Kind: frame.Pong, ID: ping.ID, Data: make([]byte, 100)}))
	if o.Proven() {
		t.Fatal("proven by a small answer")
	}
	r.c.Ask(r.now) // of two PINGs that come together only the newest is answered
	r.pump()
	if f := r.took(o); f[0].Kind != frame.Ping || len(f[0].Data) != 4<<10 {
		t.Fatalf("said %v with %d bytes while it is not proven", kinds(f), len(f[0].Data))
	}
	r.must(r.recv(o, frame.Frame{Kind: frame.Pong, ID: ping.ID, Data: ping.Data}))
	if !o.Proven() {
		t.Fatal("not proven")
	}
	r.c.Ask(r.now)
	r.pump()
	if f := r.took(o); f[0].Kind != frame.Ping || len(f[0].Data) != 0 {
		t.Fatalf("said %v with %d bytes once it is proven", kinds(f), len(f[0].Data))
	}
}

// TestAttachedWhileInDoubtIsAsked: who joins beside a carrier in doubt gets copies and a PING, whose SEEN lets the link move.
func TestAttachedWhileInDoubtIsAsked(t *testing.T) {
	r, k, s := idle(t)
	r.write(s, 1)
	at, _ := k.silentAt(1)
	r.skip(at)
	for _, role := range []frame.Role{frame.Standby, frame.Bulk} {
		o := r.carrier(role, 100*ms)
		if f := kinds(r.took(o)); !strings.Contains(f, "PING") || !strings.Contains(f, "DATA") {
			t.Errorf("role %d: said %s", role, f)
		}
	}
}

// TestLateReturnOfAWrite: a busy machine may see a write return long after its bytes have left; the least round trip, which
// the window is made of, does not believe what that would make of it.
func TestLateReturnOfAWrite(t *testing.T) {
	r, k, s := idle(t)
	if n := s.Write(r.now, []byte("x")); n != 1 {
		t.Fatal("no room")
	}
	for b := r.c.Pull(r.now, k, nil); len(b) > 0; b = r.c.Pull(r.now, k, nil) {
		r.keep(k, b)
	}
	r.now += 95 * ms
	r.c.Wrote(r.now, k)
	r.now += 5 * ms
	r.seen(k)
	if got := k.rtt.minRTT(); got != 100*ms {
		t.Errorf("the least round trip is %v, want 100 ms", got)
	}
	if k.rtt.srtt >= 100*ms {
		t.Errorf("the smoothed one is %v", k.rtt.srtt)
	}
}
