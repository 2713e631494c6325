package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"linkproxy/link/frame"
)

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
	s.Write(r.now, make([]byte, minUnsent))
	s.interactive = false
	r.pump()
	if k.unseen < 64<<10 || k.unseen > 64<<10+frame.Max {
		t.Fatalf("%d bytes un-SEEN, the window is 64 KiB while no rate is known", k.unseen)
	}
	r.at(r.now + 100*ms)
	r.seen(k)
	// Twice what the route holds and 64 KiB; what is added to the round trip for a busy machine is little beside 100 ms.
	w := 2*int(k.delivered) + 64<<10
	if got := k.window(); got < w || got > w+w/20 {
		t.Fatalf("window %d, want about %d", got, w)
	}
	if k.unseen == 0 {
		t.Fatal("SEEN did not make it go on")
	}
}

// turns pulls what two bulk streams have to say at a rate of so many bytes a second and returns how much each said in a row.
func turns(t *testing.T, bytesPerSecond float64, lively bool) (list []int) {
	r, k, a := idle(t)
	b := r.open(k)
	k.rate = rate{now: bytesPerSecond}
	for _, s := range []*Stream{a, b} {
		s.limit = 1 << 30
		s.Priority = 1
		s.Write(r.now, make([]byte, minUnsent))
	}
	r.c.lively, r.c.livelyAt = lively, r.now
	r.pump()
	last := uint64(0)
	for _, f := range r.took(k) {
		switch {
		case f.Kind != frame.Data:
			continue
		case f.Stream != last:
			list = append(list, 0)
		}
		last = f.Stream
		list[len(list)-1] += len(f.Data)
	}
	return list
}

func TestBulkTakesTurns(t *testing.T) {
	const record = frame.Max - frame.DataOverhead
	for _, test := range []struct {
		name   string
		rate   float64
		lively bool
		most   int
	}{
		{"nothing is known of the rate", 0, false, record},
		{"a record takes longer than 0.5 ms", 1 << 20, false, record},
		{"0.5 ms carry 40 KiB", 80 << 20, false, 40<<10 + record},
		{"never more than 64 KiB and what completes a record", 10 << 30, false, 64<<10 + record},
		{"beside a conversation", 10 << 30, true, record},
	} {
		list := turns(t, test.rate, test.lively)
		if len(list) < 2 {
			t.Errorf("%s: one stream said all: %d", test.name, list)
			continue
		}
		first := list[0]
		if first > test.most || first <= test.most-record && test.most > record {
			t.Errorf("%s: a turn of %d bytes, want at most %d and not a record less", test.name, first, test.most)
		}
	}
}

func TestAheadGrowsWithTheRate(t *testing.T) {
	_, k, s := idle(t)
	for _, test := range []struct{ rate, want int }{{0, 128 << 10}, {10 << 20, 128 << 10}, {100e6, 300e3}, {10 << 30, 1 << 20}} {
		k.rate = rate{now: float64(test.rate)}
		if got := s.Room(); got != test.want {
			t.Errorf("at %d B/s an app is read %d bytes ahead, want %d", test.rate, got, test.want)
		}
	}
	k.rate = rate{}
	s.Write(0, make([]byte, minUnsent))
	if n := s.Write(0, make([]byte, 1)); n != 0 || !s.blocked {
		t.Fatalf("%d bytes taken beyond what is read ahead", n)
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
	s.Write(r.now, make([]byte, minUnsent))
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

func TestEarlyOpenWaitsForItsBytes(t *testing.T) {
	r, k, _ := idle(t)
	open := func() *Stream {
		s, ok := r.c.OpenEarly(r.now, "t:1", 0, 0)
		if !ok {
			t.Fatal("no stream")
		}
		r.pump()
		r.wantSaid(k, "")
		return s
	}
	s := open()
	r.write(s, 5)
	r.wantSaid(k, "OPEN DATA")
	r.seen(k)
	open()
	r.due(r.now + ackSmall)
	r.wantSaid(k, "OPEN") // by itself: the app has nothing to say
	r.seen(k)
	s = open()
	s.Announce()
	r.pump()
	r.wantSaid(k, "OPEN")
	s.Announce()
	r.pump()
	r.wantSaid(k, "")
}

func TestOpenedWaitsForCompanyWhereNobodyWaitsForIt(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 100*ms)
	early, asks := r.open(k), r.open(k)
	r.must(r.recv(k, data(early.ID, 0, 5)))
	r.skip(r.now + sec)
	r.took(k)
	early.Accept(r.now)
	r.pump()
	r.wantSaid(k, "")
	r.due(r.now + ackSmall)
	r.wantSaid(k, "OPENED")
	asks.Accept(r.now)
	r.pump()
	r.wantSaid(k, "OPENED")
}

func TestKeystrokePassesWhoHasMuchToSay(t *testing.T) {
	r, k, page := idle(t)
	key := r.open(k)
	page.limit = 1 << 30
	page.Write(r.now, make([]byte, 20<<10)) // no bulk yet
	if !page.interactive {
		t.Fatal("20 KiB are bulk")
	}
	key.Write(r.now, []byte("x"))
	r.pump()
	for _, f := range r.took(k) {
		if f.Kind == frame.Data {
			if f.Stream != key.ID {
				t.Fatalf("stream %d goes first", f.Stream)
			}
			return
		}
	}
	t.Fatal("nothing was said")
}

func TestBulkCarrier(t *testing.T) {
	r := newRig(t, true)
	k := r.carrier(frame.Active, 10*ms)
	key, bulk := r.open(k), r.open(k)
	bulk.Priority, bulk.limit = 1, 1<<30
	o := r.carrier(frame.Bulk, 10*ms)
	if f := r.took(o); kinds(f) != "PING" {
		t.Fatalf("said first: %s", kinds(f))
	}
	r.seen(o)
	r.write(bulk, 40<<10)
	r.write(key, 10)
	if a, b := kinds(r.took(k)), kinds(r.took(o)); strings.Count(a, "DATA") != 1 || !strings.Contains(b, "DATA") {
		t.Fatalf("said %q and, for bulk, %q", a, b)
	}
	// In doubt, it carries no more; what it has delivered it need not say again, and bulk goes on beside the keystrokes.
	r.seen(k)
	at, _ := o.silentAt(1)
	r.skip(at)
	if !o.doubtful() || k.doubtful() {
		t.Fatalf("in doubt: the carrier for bulk %v, the other %v", o.doubtful(), k.doubtful())
	}
	r.took(k)
	r.write(bulk, 10<<10)
	if a := kinds(r.took(k)); !strings.Contains(a, "DATA") {
		t.Fatalf("bulk waits for a carrier in doubt: %q", a)
	}
	before := r.c.counts.Repeated
	r.c.Dead(r.now, o)
	r.pump()
	if got := r.c.counts.Repeated - before; got != 40<<10 {
		t.Fatalf("%d bytes are said again, want what it had not delivered", got)
	}
}

// TestHostWaitsForItsClientOnACarrierForBulk: a client that never learned of the attach could not tell of the carrier's end.
func TestHostWaitsForItsClientOnACarrierForBulk(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 10*ms)
	s := r.open(k)
	s.Priority, s.limit = 1, 1<<30
	o := r.carrier(frame.Bulk, 10*ms)
	r.write(s, 1000)
	if a, b := kinds(r.took(k)), kinds(r.took(o)); !strings.Contains(a, "DATA") || b != "" {
		t.Fatalf("said %q and, for bulk, %q", a, b)
	}
	r.must(r.recv(o, frame.Frame{Kind: frame.Ping, ID: 1}))
	r.took(o)
	r.write(s, 1000)
	if a, b := kinds(r.took(k)), kinds(r.took(o)); strings.Contains(a, "DATA") || !strings.Contains(b, "DATA") {
		t.Fatalf("after the PING: said %q and, for bulk, %q", a, b)
	}
}

func TestWindowBesideAConversation(t *testing.T) {
	r := newRig(t, true)
	k := r.carrier(frame.Active, 10*ms)
	for _, test := range []struct {
		name string
		rtt  time.Duration
		rate float64 // bytes a second
		want int
	}{
		{"nothing is known", 20 * ms, 0, 32 << 10},
		{"a slow route holds 100 ms beyond", 100 * ms, 40_000, 8_000 + 4_000 + 96}, // at least 4 KiB
		{"a middling one", 100 * ms, 200_000, 40_000 + 20_000},
		{"a fast one 32 KiB", 20 * ms, 10_000_000, 400_000 + 32<<10},
		{"a local network", ms, 100_000_000, 100_000 + 32<<10}, // not twice what it holds
	} {
		k.rtt, k.rate = rtt{}, rate{now: test.rate}
		k.rtt.sample(r.now, test.rtt, test.rtt)
		r.c.lively = true
		if got := k.window(); got != test.want {
			t.Errorf("%s: window %d, want %d", test.name, got, test.want)
		}
		r.c.lively = false
		if got, want := k.window(), 2*k.rate.during(test.rtt+busyMachine)+64<<10; got != want {
			t.Errorf("%s: window %d without a conversation, want %d", test.name, got, want)
		}
	}
	o := r.carrier(frame.Bulk, 10*ms)
	r.seen(o)
	r.c.lively = true
	if got, want := k.window(), 2*k.rate.during(ms+busyMachine)+64<<10; got != want {
		t.Errorf("window %d where bulk has a carrier of its own, want %d", got, want)
	}
}

// TestCarriersOfALinkAreBounded: a client with more of them than it can name loses the oldest; the newest is let in.
func TestCarriersOfALinkAreBounded(t *testing.T) {
	r := newRig(t, false)
	k := r.carrier(frame.Active, 10*ms)
	var last *Carrier
	for range 3 * maxCarriers {
		last = r.carrier(frame.Bulk, 10*ms)
	}
	if n := len(r.c.carriers); n != maxCarriers || last.dead || k.dead || r.c.tx() != k {
		t.Errorf("%d carriers, the newest dead: %v, the one in use: %v", n, last.dead, k.dead)
	}
	if n := len(r.out.Closed); n != 2*maxCarriers+1 {
		t.Errorf("%d are closed", n)
	}
}

// TestUnseenFramesOfALinkAreBounded, on all its carriers together: each is remembered until the peer has SEEN it.
func TestUnseenFramesOfALinkAreBounded(t *testing.T) {
	r := newRig(t, false)
	r.carrier(frame.Active, 10*ms)
	ks := []*Carrier{r.carrier(frame.Standby, 10*ms), r.carrier(frame.Standby, 10*ms)}
	for id := uint64(1); id < 2*maxLog; id++ {
		if err := r.recv(ks[id%2], frame.Frame{Kind: frame.Reset, Stream: id}); err != nil { // answered by GONE
			if n := r.c.unsaidTo(); !errors.Is(err, ErrProtocol) || n < maxLog || n > maxLog+10 {
				t.Errorf("%v with %d frames", err, n)
			}
			return
		}
		r.said[ks[id%2]] = nil
	}
	t.Error("no bound")
}

// TestClassOfAStreamDoesNotFlutter: bytes that go to and fro between the carrier in use and that for bulk come with a gap each
// time, and a host takes 1024.
func TestClassOfAStreamDoesNotFlutter(t *testing.T) {
	_, _, s := idle(t)
	s.classify(0, bulkVolume)
	flips, was := 0, s.interactive
	for now := Time(0); now < 10*sec; now += ms {
		s.classify(now, bulkLeak/1000)
		if s.interactive != was {
			flips, was = flips+1, s.interactive
		}
	}
	if was || flips != 0 {
		t.Errorf("%d changes at 64 KiB a second, interactive at the end: %v", flips, was)
	}
	s.classify(11*sec, 1) // quiet for a second
	if !s.interactive {
		t.Error("still bulk after a quiet second")
	}
}
