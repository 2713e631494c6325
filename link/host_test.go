package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/link/frame"
	"linkproxy/state/identity"
	"linkproxy/testenv"
)

// hostWorld is a host that is asked in raw frames, by two clients that it trusts and by strangers.
type hostWorld struct {
	t          *testing.T
	net        testenv.Net
	hostKey    *identity.Key
	key, other *identity.Key
	host       *Host
	revoked    sync.Map // fingerprints
	streams    atomic.Int64
	ln         net.Listener
	wg         sync.WaitGroup
}

var hostProcess = Process{Instance: [16]byte{0xaa}, Boot: 7}

// newHostWorld starts the host at this very moment; edit may change its config.
func newHostWorld(t *testing.T, edit func(*HostConfig)) *hostWorld {
	w := &hostWorld{t: t, hostKey: testKey(t), key: testKey(t), other: testKey(t)}
	cfg := HostConfig{
		Key: w.hostKey, Process: hostProcess,
		Trusted: func(fp identity.Fingerprint) bool {
			_, gone := w.revoked.Load(fp)
			return !gone && (fp == w.key.Fingerprint() || fp == w.other.Fingerprint())
		},
		Handle: func(_ identity.Fingerprint, s *Stream) {
			w.streams.Add(1)
			echo(s)
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	w.host = NewHost(cfg)
	ln, err := w.net.Listen("lan")
	if err != nil {
		t.Fatal(err)
	}
	w.ln = ln
	w.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { _ = w.host.ServeConn(context.Background(), c) })
		}
	})
	return w
}

func (w *hostWorld) close() {
	_ = w.host.Close()
	_ = w.ln.Close()
	w.wg.Wait()
}

// rawConn is a client's carrier, frame by frame.
type rawConn struct {
	*Transport
	buf [2 * frame.Max]byte
	n   int
}

func (w *hostWorld) dial(key *identity.Key) *rawConn {
	w.t.Helper()
	conn, err := w.net.Dial(w.t.Context(), "lan")
	if err != nil {
		w.t.Fatal(err)
	}
	tr, err := Dial(w.t.Context(), conn, key, w.hostKey.Fingerprint())
	if err != nil {
		w.t.Fatal(err)
	}
	return &rawConn{Transport: tr}
}

func (r *rawConn) say(frames ...frame.Frame) error {
	var b []byte
	for _, f := range frames {
		b = frame.Append(b, &f)
	}
	_, err := r.tls.Write(b)
	return err
}

// next reads one frame.
func (r *rawConn) next() (frame.Frame, error) {
	for {
		var f frame.Frame
		k, err := frame.Parse(r.buf[:r.n], &f)
		if err != nil {
			return f, err
		}
		if k > 0 {
			r.n = copy(r.buf[:], r.buf[k:r.n])
			return f, nil
		}
		m, err := r.tls.Read(r.buf[r.n:])
		r.n += m
		if m == 0 && err != nil {
			return f, err
		}
	}
}

// await reads until a frame of the kind comes.
func (r *rawConn) await(kind frame.Kind) (frame.Frame, error) {
	for {
		f, err := r.next()
		if err != nil || f.Kind == kind {
			return f, err
		}
	}
}

func helloOf(p Process) frame.Frame {
	return frame.Frame{Kind: frame.Hello, Version: frame.Version, Instance: p.Instance, Boot: p.Boot}
}

// ask sends HELLO and f and returns the host's word on f.
func (w *hostWorld) ask(key *identity.Key, p Process, f frame.Frame) (*rawConn, frame.Frame) {
	w.t.Helper()
	r := w.dial(key)
	if err := r.say(helloOf(p), f); err != nil {
		w.t.Fatal(err)
	}
	hello, err := r.next()
	if err != nil || hello.Kind != frame.Hello || hello.Instance != hostProcess.Instance || hello.Boot != hostProcess.Boot {
		w.t.Fatalf("the host's HELLO is %+v, %v", hello, err)
	}
	answer, err := r.next()
	if err != nil {
		w.t.Fatal(err)
	}
	return r, answer
}

// want asks and checks what comes: a kind and, for a refusal, its code.
func (w *hostWorld) want(what string, key *identity.Key, p Process, f frame.Frame, kind frame.Kind, code Code) *rawConn {
	w.t.Helper()
	r, a := w.ask(key, p, f)
	if a.Kind != kind || Code(a.Code) != code || kind != frame.Bye && (a.Link != f.Link || a.Gen != f.Gen) {
		w.t.Fatalf("%s: answer 0x%02x %s, want 0x%02x %s", what, byte(a.Kind), Code(a.Code), byte(kind), code)
	}
	return r
}

// wantClose checks that a CLOSE of the whole link with code is what comes next but for small talk.
func (r *rawConn) wantClose(t *testing.T, what string, link [16]byte, code Code) {
	t.Helper()
	f, err := r.await(frame.Close)
	if err != nil || f.Link != link || Code(f.Code) != code {
		t.Errorf("%s: CLOSE %x %s, %v; want %s", what, f.Link[:1], Code(f.Code), err, code)
	}
	_ = r.Close()
}

func newFrame(link byte, gen uint64, age time.Duration) frame.Frame {
	return frame.Frame{
		Kind: frame.New, Link: [16]byte{link}, Gen: gen, Epoch: 1, Age: age,
		Keep: frame.Keep{Below: gen + 1, List: []uint64{gen}},
	}
}

func attachFrame(link byte, gen uint64, below uint64, list ...uint64) frame.Frame {
	return frame.Frame{
		Kind: frame.Attach, Link: [16]byte{link}, Gen: gen, Epoch: 1, Role: frame.Standby,
		Keep: frame.Keep{Below: below, List: list},
	}
}

var client1 = Process{Instance: [16]byte{1}, Boot: 1}

func (w *hostWorld) links() int { return len(w.host.Status()) }

func TestNewByAge(t *testing.T) {
	for _, c := range []struct {
		up, age time.Duration
		ok      bool
	}{
		{0, 0, true}, // carried no app frames yet: cannot run twice
		{time.Minute, 0, true},
		{time.Minute, 30 * time.Second, true},
		{time.Hour, 60*time.Second - time.Millisecond, true},
		{time.Hour, 60 * time.Second, false},
		{time.Hour, 61 * time.Second, false},
		{10*time.Second + time.Millisecond, 10 * time.Second, true},
		{10 * time.Second, 10 * time.Second, false}, // the process before this one may have run it
		{time.Second, 10 * time.Second, false},
	} {
		t.Run(fmt.Sprintf("up %v age %v", c.up, c.age), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHostWorld(t, nil)
				defer w.close()
				time.Sleep(c.up)
				if c.ok {
					w.want("NEW", w.key, client1, newFrame(9, 1, c.age), frame.NewOK, CodeNone).Close()
					return
				}
				w.want("NEW", w.key, client1, newFrame(9, 1, c.age), frame.AttachNo, CodeUnknown).Close()
				if n := w.links(); n != 0 {
					t.Errorf("%d links are held", n)
				}
			})
		})
	}
}

// TestNewAfterTheEnd: the id of a link that has ended is known for two minutes, so that what its carrier brought twice runs
// once.
func TestNewAfterTheEnd(t *testing.T) { synctest.Test(t, testNewAfterTheEnd) }

func testNewAfterTheEnd(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	time.Sleep(time.Hour)
	for id, wait := range map[byte]time.Duration{1: 0, 2: time.Minute, 3: endedFor, 4: endedFor + 1} {
		w.want("NEW", w.key, client1, newFrame(id, 1, 0), frame.NewOK, CodeNone).Close()
		if !w.host.Drop(ID{id}) {
			t.Fatal("no link to drop")
		}
		synctest.Wait()
		time.Sleep(wait)
		if wait <= endedFor {
			w.want("NEW again", w.key, client1, newFrame(id, 2, time.Second), frame.AttachNo, CodeUnknown).Close()
		} else {
			w.want("NEW again", w.key, client1, newFrame(id, 2, time.Second), frame.NewOK, CodeNone).Close()
		}
		w.want("ATTACH", w.key, client1, attachFrame(99, 1, 1), frame.AttachNo, CodeUnknown).Close()
	}
}

// TestNewAgainAfterALostAnswer: whatever carrier NEW comes on again, there is one link, and its streams run once.
func TestNewAgainAfterALostAnswer(t *testing.T) { synctest.Test(t, testNewAgainAfterALostAnswer) }

func testNewAgainAfterALostAnswer(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	time.Sleep(time.Minute)
	opening := []frame.Frame{
		{Kind: frame.Open, Stream: 1, Target: "127.0.0.1:7"},
		{Kind: frame.Data, Stream: 1, Data: []byte("once")},
	}
	lost := w.dial(w.key)
	if err := lost.say(append([]frame.Frame{helloOf(client1), newFrame(5, 1, 0)}, opening...)...); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	_ = lost.Close() // with NEW_OK unread
	time.Sleep(3 * time.Second)
	second := newFrame(5, 2, 3*time.Second)
	second.Keep = frame.Keep{Below: 3, List: []uint64{2}}
	r := w.want("NEW again", w.key, client1, second, frame.NewOK, CodeNone)
	defer r.Close()
	if err := r.say(opening...); err != nil {
		t.Fatal(err)
	}
	f, err := r.await(frame.Data)
	if err != nil || string(f.Data) != "once" {
		t.Fatalf("%q, %v", f.Data, err)
	}
	synctest.Wait()
	if n := w.streams.Load(); n != 1 {
		t.Errorf("the stream ran %d times", n)
	}
	if st := w.host.Status(); len(st) != 1 || st[0].Counts.BytesIn != 4 {
		t.Errorf("links: %+v", st)
	}
	// By ATTACH as well, and with an age that would make no new link.
	w.want("ATTACH", w.key, client1, attachFrame(5, 3, 4, 2, 3), frame.AttachOK, CodeNone).Close()
	w.want("old NEW", w.key, client1, newFrame(5, 4, 10*time.Minute), frame.NewOK, CodeNone).Close()
}

// TestHigherBootSupersedes: only a higher boot of the same instance of the same key ends its older links, and only by NEW.
func TestHigherBootSupersedes(t *testing.T) { synctest.Test(t, testHigherBootSupersedes) }

func testHigherBootSupersedes(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	boot := func(b uint64) Process { return Process{Instance: [16]byte{1}, Boot: b} }
	first := w.want("boot 2", w.key, boot(2), newFrame(1, 1, 0), frame.NewOK, CodeNone)
	_ = w.want("equal boot", w.key, boot(2), newFrame(2, 1, 0), frame.NewOK, CodeNone)
	_ = w.want("lower boot", w.key, boot(1), newFrame(3, 1, 0), frame.NewOK, CodeNone)
	_ = w.want("other instance", w.key, Process{Instance: [16]byte{2}, Boot: 9}, newFrame(4, 1, 0), frame.NewOK, CodeNone)
	_ = w.want("other key", w.other, boot(9), newFrame(5, 1, 0), frame.NewOK, CodeNone)
	_ = w.want("ATTACH of a higher boot", w.key, boot(3), attachFrame(1, 2, 3, 1, 2), frame.AttachOK, CodeNone)
	_ = w.want("known NEW of a higher boot", w.key, boot(3), newFrame(2, 2, 0), frame.NewOK, CodeNone)
	_ = w.want("CHECK of a higher boot", w.key, boot(9), frame.Frame{Kind: frame.Check}, frame.CheckOK, CodeNone)
	if n := w.links(); n != 5 {
		t.Fatalf("%d links are held, want 5", n)
	}
	_ = w.want("boot 3", w.key, boot(3), newFrame(6, 1, 0), frame.NewOK, CodeNone)
	first.wantClose(t, "boot 2", [16]byte{1}, CodeSuperseded)
	synctest.Wait()
	left := map[ID]bool{}
	for _, l := range w.host.Status() {
		left[l.ID] = true
	}
	for id, want := range map[byte]bool{1: false, 2: false, 3: false, 4: true, 5: true, 6: true} {
		if left[ID{id}] != want {
			t.Errorf("link %d is held: %v, want %v", id, !want, want)
		}
	}
	w.want("the superseded", w.key, boot(2), attachFrame(1, 3, 4, 3), frame.AttachNo, CodeUnknown).Close()
}

// TestGenerations: keep says which carriers go; a generation is used once; racing attaches come in any order.
func TestGenerations(t *testing.T) { synctest.Test(t, testGenerations) }

func testGenerations(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	first := w.want("NEW", w.key, client1, newFrame(1, 3, 0), frame.NewOK, CodeNone)
	w.want("used", w.key, client1, attachFrame(1, 3, 4, 3), frame.AttachNo, CodeStale).Close()
	w.want("below keep", w.key, client1, attachFrame(1, 2, 4, 3), frame.AttachNo, CodeStale).Close()
	_ = w.want("6 before 5", w.key, client1, attachFrame(1, 6, 7, 3, 4, 5, 6), frame.AttachOK, CodeNone)
	_ = w.want("5 after 6", w.key, client1, attachFrame(1, 5, 6, 3, 4, 5), frame.AttachOK, CodeNone)
	_ = w.want("4, listed", w.key, client1, attachFrame(1, 4, 7, 3, 4, 5, 6), frame.AttachOK, CodeNone)
	if n := len(w.host.Status()[0].Carriers); n != 4 {
		t.Fatalf("%d carriers, want 4", n)
	}
	_ = w.want("8 leaves 3 and 5 out", w.key, client1, attachFrame(1, 8, 7, 4, 6), frame.AttachOK, CodeNone)
	for { // what is closed by keep is cut
		if _, err := first.next(); err != nil {
			break
		}
	}
	var gens []uint64
	for _, c := range w.host.Status()[0].Carriers {
		gens = append(gens, c.Gen)
	}
	if fmt.Sprint(gens) != "[4 6 8]" {
		t.Errorf("carriers %v, want 4 6 8", gens)
	}
	w.want("3, left out", w.key, client1, attachFrame(1, 3, 9, 3, 8), frame.AttachNo, CodeStale).Close()
	_ = w.want("7, at or above below", w.key, client1, attachFrame(1, 7, 7, 4, 6), frame.AttachOK, CodeNone)
}

func TestOtherKeyIsDenied(t *testing.T) { synctest.Test(t, testOtherKeyIsDenied) }
func testOtherKeyIsDenied(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	mine := w.want("NEW", w.key, client1, newFrame(1, 1, 0), frame.NewOK, CodeNone)
	w.want("ATTACH", w.other, client1, attachFrame(1, 2, 3, 1, 2), frame.AttachNo, CodeDenied).Close()
	w.want("NEW", w.other, client1, newFrame(1, 2, 0), frame.AttachNo, CodeDenied).Close()
	if err := mine.say(frame.Frame{Kind: frame.Ping, ID: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := mine.await(frame.Pong); err != nil {
		t.Errorf("the link's own carrier: %v", err)
	}
	if st := w.host.Status(); len(st) != 1 || len(st[0].Carriers) != 1 || st[0].Client != w.key.Fingerprint() {
		t.Errorf("links: %+v", st)
	}
}

// TestChecksArePaced: ten at once and ten a second; a refused one does not count.
func TestChecksArePaced(t *testing.T) { synctest.Test(t, testChecksArePaced) }

func testChecksArePaced(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	check := func(key *identity.Key) Code {
		r, a := w.ask(key, client1, frame.Frame{Kind: frame.Check})
		defer r.Close()
		if a.Kind == frame.CheckOK && (a.Instance != hostProcess.Instance || a.Boot != hostProcess.Boot) {
			t.Errorf("CHECK_OK of %x %d", a.Instance, a.Boot)
		}
		return Code(a.Code)
	}
	for i := range 30 {
		if c := check(w.key); (c == CodeNone) != (i < perSecond) || c != CodeNone && c != CodeBusy {
			t.Fatalf("check %d: %s", i+1, c)
		}
	}
	if c := check(w.other); c != CodeNone {
		t.Errorf("another key's check: %s", c)
	}
	time.Sleep(100 * time.Millisecond)
	if a, b := check(w.key), check(w.key); a != CodeNone || b != CodeBusy {
		t.Errorf("after 100 ms: %s, %s", a, b)
	}
	if n := w.links(); n != 0 {
		t.Errorf("checks made %d links", n)
	}
	// The client's own function says the same.
	time.Sleep(time.Second)
	res, err := Check(t.Context(), w.dial(w.key).Transport, client1)
	if err != nil || res.Host != hostProcess {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestAttachesWait: beyond ten at once attaches wait for their turn, a second at most, and none is refused.
func TestAttachesWait(t *testing.T) { synctest.Test(t, testAttachesWait) }

func testAttachesWait(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	start := time.Now()
	const n = 30
	var mu sync.Mutex
	took := map[time.Duration]int{}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r := w.dial(w.key)
			if err := r.say(helloOf(client1), attachFrame(1, uint64(i)+1, 1)); err != nil {
				t.Error(err)
			}
			if i == 0 {
				_ = r.Close() // one that leaves while others wait takes nobody's turn
				return
			}
			if f, err := r.await(frame.AttachNo); err != nil || Code(f.Code) != CodeUnknown {
				t.Errorf("attach: %+v, %v", f, err)
			}
			mu.Lock()
			took[time.Since(start).Round(time.Millisecond)]++
			mu.Unlock()
			_ = r.Close()
		})
	}
	wg.Wait()
	early := 0
	for d, k := range took {
		if d == 0 {
			early += k
		}
		if d > attachWait {
			t.Errorf("%d waited %v", k, d)
		}
	}
	missing := perSecond - early // the one that left may have had any place
	for d := 100 * time.Millisecond; d < attachWait; d += 100 * time.Millisecond {
		if took[d] > 1 {
			t.Errorf("%d came after %v", took[d], d)
		}
		missing += 1 - took[d]
	}
	if missing < 0 || missing > 1 || took[attachWait] < n-2*perSecond || took[attachWait] > n-2*perSecond+1 {
		t.Errorf("waits: %v", took)
	}
}

// TestLinksOfAKey: at the bound the oldest link without a carrier yields; if there is none, busy.
func TestLinksOfAKey(t *testing.T) {
	for _, limit := range []int{0, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testLinksOfAKey(t, limit) })
		})
	}
}

func testLinksOfAKey(t *testing.T, limit int) {
	w := newHostWorld(t, func(c *HostConfig) { c.Links = limit })
	defer w.close()
	if limit == 0 {
		limit = 64
	}
	conns := map[byte]*rawConn{}
	for id := range byte(limit) {
		conns[id] = w.want("NEW", w.key, client1, newFrame(id, 1, 0), frame.NewOK, CodeNone)
		time.Sleep(time.Second)
	}
	w.want("one more", w.key, client1, newFrame(100, 1, 0), frame.AttachNo, CodeTooMany).Close()
	_ = w.want("another key", w.other, client1, newFrame(101, 1, 0), frame.NewOK, CodeNone)
	_ = conns[2].Close()
	_ = conns[1].Close()
	time.Sleep(time.Second)
	_ = w.want("link 1 yields", w.key, client1, newFrame(102, 1, 0), frame.NewOK, CodeNone)
	w.want("link 1", w.key, client1, attachFrame(1, 2, 3, 2), frame.AttachNo, CodeUnknown).Close()
	_ = w.want("link 2", w.key, client1, attachFrame(2, 2, 3, 2), frame.AttachOK, CodeNone)
	w.want("one more", w.key, client1, newFrame(103, 1, 0), frame.AttachNo, CodeTooMany).Close()
	if n := w.links(); n != limit+1 {
		t.Errorf("%d links are held, want %d", n, limit+1)
	}
}

// TestGivenUpLinks: a client ends links it gave up while it had no carrier of theirs; only its own, of the same instance.
func TestGivenUpLinks(t *testing.T) { synctest.Test(t, testGivenUpLinks) }

func testGivenUpLinks(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	r := w.want("NEW", w.key, client1, newFrame(1, 1, 0), frame.NewOK, CodeNone)
	if err := r.say(frame.Frame{Kind: frame.Open, Stream: 1, Target: "127.0.0.1:7"}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	_ = r.Close()
	for what, by := range map[string]struct {
		key *identity.Key
		p   Process
	}{
		"another key":      {w.other, client1},
		"another instance": {w.key, Process{Instance: [16]byte{2}, Boot: 9}},
	} {
		if err := Forget(t.Context(), w.dial(by.key).Transport, by.p, ID{1}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		synctest.Wait()
		if n := w.links(); n != 1 {
			t.Fatalf("%s ended the link", what)
		}
	}
	later := Process{Instance: client1.Instance, Boot: 2}
	if err := Forget(t.Context(), w.dial(w.key).Transport, later, ID{1}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if n := w.links(); n != 0 {
		t.Errorf("%d links are held", n)
	}
	w.want("ATTACH", w.key, client1, attachFrame(1, 2, 3, 2), frame.AttachNo, CodeUnknown).Close()
}

// TestReasonsComeBeforeTheEnd: whatever the host refuses, its reason is read, also by a client that sends on and on before it
// reads.
func TestReasonsComeBeforeTheEnd(t *testing.T) {
	stranger := testKey(t)
	v2 := helloOf(client1)
	v2.Version = 2
	for what, c := range map[string]struct {
		key    *identity.Key
		frames []frame.Frame
		kind   frame.Kind
		code   Code
	}{
		"unpaired":          {stranger, []frame.Frame{helloOf(client1), newFrame(1, 1, 0)}, frame.Bye, CodeUnpaired},
		"version":           {nil, []frame.Frame{v2, newFrame(1, 1, 0)}, frame.Bye, CodeVersion},
		"no HELLO":          {nil, []frame.Frame{newFrame(1, 1, 0)}, frame.Bye, CodeProtocol},
		"two HELLOs":        {nil, []frame.Frame{helloOf(client1), helloOf(client1)}, frame.Bye, CodeProtocol},
		"a stream at once":  {nil, []frame.Frame{helloOf(client1), {Kind: frame.Open, Stream: 1}}, frame.Bye, CodeProtocol},
		"a host's frame":    {nil, []frame.Frame{helloOf(client1), {Kind: frame.NewOK}}, frame.Bye, CodeProtocol},
		"unknown":           {nil, []frame.Frame{helloOf(client1), attachFrame(1, 1, 2, 1)}, frame.AttachNo, CodeUnknown},
		"an opening of 5 K": {nil, []frame.Frame{{Kind: frame.Hello, Version: 1}, {Kind: frame.Ping, Data: make([]byte, 5<<10)}}, frame.Bye, CodeProtocol},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHostWorld(t, nil)
				defer w.close()
				w.net.Route("lan").SetDelay(20 * time.Millisecond)
				w.net.Route("lan").SetBuffer(64 << 10)
				key := c.key
				if key == nil {
					key = w.key
				}
				r := w.dial(key)
				defer r.Close()
				if err := r.say(c.frames...); err != nil {
					t.Fatal(err)
				}
				for range 12 {
					if err := r.say(frame.Frame{Kind: frame.Data, Stream: 1, Data: make([]byte, 15<<10)}); err != nil {
						break
					}
				}
				f, err := r.await(c.kind)
				if err != nil || Code(f.Code) != c.code {
					t.Errorf("the reason: 0x%02x %s, %v; want 0x%02x %s", byte(f.Kind), Code(f.Code), err, byte(c.kind), c.code)
				}
				if n := w.links(); n != 0 {
					t.Errorf("%d links are held", n)
				}
			})
		})
	}
}

// TestClientReadsWhyAfterAFailedWrite: a host may stop reading before the client has read its reason.
func TestClientReadsWhyAfterAFailedWrite(t *testing.T) {
	synctest.Test(t, testClientReadsWhyAfterAFailedWrite)
}

func testClientReadsWhyAfterAFailedWrite(t *testing.T) {
	hostKey := testKey(t)
	near, far := testenv.Pipe()
	done := make(chan error, 1)
	go func() {
		tr, err := accept(t.Context(), far, hostKey, false)
		if err == nil {
			_, err = tr.tls.Write(append(hello(hostProcess), bye(CodeUnpaired)...))
		}
		done <- err
	}()
	tr, err := Dial(t.Context(), &failingWrites{Conn: near}, testKey(t), hostKey.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	tr.raw.(*failingWrites).now.Store(true)
	c := NewClient(ClientConfig{Process: client1, Peer: hostKey.Fingerprint()})
	defer c.Close()
	start := time.Now()
	_, err = c.Attach(t.Context(), tr, AttachOptions{})
	var no *AttachError
	if !errors.As(err, &no) || no.Code != CodeUnpaired || time.Since(start) != 0 {
		t.Errorf("attaching: %v after %v", err, time.Since(start))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	_ = far.Close()
}

// TestClientGivesUpOnASilentHostAfterAFailedWrite: it waits a second for the reason, no longer.
func TestClientGivesUpOnASilentHostAfterAFailedWrite(t *testing.T) {
	synctest.Test(t, testGivesUpOnASilentHost)
}

func testGivesUpOnASilentHost(t *testing.T) {
	hostKey := testKey(t)
	near, far := testenv.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := accept(t.Context(), far, hostKey, false)
		done <- err
	}()
	tr, err := Dial(t.Context(), &failingWrites{Conn: near}, testKey(t), hostKey.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	tr.raw.(*failingWrites).now.Store(true)
	c := NewClient(ClientConfig{Process: client1, Peer: hostKey.Fingerprint()})
	defer c.Close()
	start := time.Now()
	if _, err = c.Attach(t.Context(), tr, AttachOptions{}); !errors.Is(err, io.ErrClosedPipe) || time.Since(start) != refuseTime {
		t.Errorf("attaching: %v after %v", err, time.Since(start))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	_ = far.Close()
}

// failingWrites is a connection whose writes fail from some moment on, while reading goes on.
type failingWrites struct {
	*testenv.Conn
	now atomic.Bool
}

func (c *failingWrites) Write(p []byte) (int, error) {
	if c.now.Load() {
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

// TestRevokedWhileAttaching: a key that is revoked between the handshake and the attach gets no link.
func TestRevokedWhileAttaching(t *testing.T) { synctest.Test(t, testRevokedWhileAttaching) }

func testRevokedWhileAttaching(t *testing.T) {
	var asked atomic.Int64
	w := newHostWorld(t, func(c *HostConfig) {
		c.Trusted = func(identity.Fingerprint) bool { return asked.Add(1) == 1 }
	})
	defer w.close()
	w.want("NEW", w.key, client1, newFrame(1, 1, 0), frame.AttachNo, CodeRevoked).Close()
	synctest.Wait()
	if n := w.links(); n != 0 {
		t.Errorf("%d links are held", n)
	}
}

// TestRevokeEndsLinks: at once, streams and all, and the client is told why.
func TestRevokeEndsLinks(t *testing.T) { synctest.Test(t, testRevokeEndsLinks) }

func testRevokeEndsLinks(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	r := w.want("NEW", w.key, client1, newFrame(1, 1, 0), frame.NewOK, CodeNone)
	_ = w.want("another key", w.other, client1, newFrame(2, 1, 0), frame.NewOK, CodeNone)
	if err := r.say(frame.Frame{Kind: frame.Open, Stream: 1, Target: "127.0.0.1:7"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.await(frame.Opened); err != nil {
		t.Fatal(err)
	}
	w.revoked.Store(w.key.Fingerprint(), true)
	w.host.Revoke(w.key.Fingerprint())
	r.wantClose(t, "revoked", [16]byte{1}, CodeRevoked)
	synctest.Wait()
	if st := w.host.Status(); len(st) != 1 || st[0].Client != w.other.Fingerprint() {
		t.Errorf("links: %+v", st)
	}
	w.want("coming back", w.key, client1, attachFrame(1, 2, 3, 2), frame.Bye, CodeUnpaired).Close()
}

// TestStrangersAreCutOff: five seconds to prove a key and to say what is wanted.
func TestStrangersAreCutOff(t *testing.T) { synctest.Test(t, testStrangersAreCutOff) }

func testStrangersAreCutOff(t *testing.T) {
	w := newHostWorld(t, nil)
	defer w.close()
	silent, err := w.net.Dial(t.Context(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := silent.Read(make([]byte, 1)); err == nil || time.Since(start) != handshakeTime {
		t.Errorf("without a handshake: %v after %v", err, time.Since(start))
	}
	_ = silent.Close()
	r := w.dial(w.key)
	start = time.Now()
	if f, err := r.await(frame.Bye); err != nil || Code(f.Code) != CodeProtocol || time.Since(start) != handshakeTime {
		t.Errorf("without an opening: %+v, %v after %v", f, err, time.Since(start))
	}
	if _, err := r.next(); err == nil {
		t.Error("more follows the reason")
	}
	_ = r.Close()
}

// TestHandshakeMemory: a stranger cannot have a certificate of 256 KiB gathered.
func TestHandshakeMemory(t *testing.T) { synctest.Test(t, testHandshakeMemory) }

func testHandshakeMemory(t *testing.T) {
	near, far := testenv.Pipe()
	go func() {
		for range 100 { // records of a ClientHello that never ends
			record := append([]byte{22, 3, 1, 0x10, 0}, make([]byte, 0x1000)...)
			record[5], record[6] = 1, 0
			record[7], record[8] = 0xff, 0xff
			if _, err := near.Write(record); err != nil {
				return
			}
		}
	}()
	if _, err := accept(t.Context(), far, testKey(t), false); !errors.Is(err, errHandshakeBytes) {
		t.Errorf("accept: %v", err)
	}
	_ = near.Close()
}

// FuzzOpening: whatever a client with a paired key says first, the host neither panics nor hangs.
func FuzzOpening(f *testing.F) {
	for _, frames := range [][]frame.Frame{
		{helloOf(client1), newFrame(1, 1, 0)},
		{helloOf(client1), attachFrame(1, 1, 2, 1)},
		{helloOf(client1), {Kind: frame.Check}},
		{helloOf(client1), {Kind: frame.Close, Link: [16]byte{1}}},
		{helloOf(client1), newFrame(1, 1, 0), {Kind: frame.Open, Stream: 1, Target: "x:1"}, {Kind: frame.Data, Stream: 1, Data: []byte("x")}},
		{newFrame(1, 1, 0)},
	} {
		var b []byte
		for _, fr := range frames {
			b = frame.Append(b, &fr)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, opening []byte) {
		synctest.Test(t, func(t *testing.T) {
			w := newHostWorld(t, nil)
			defer w.close()
			r := w.dial(w.key)
			_, _ = r.tls.Write(opening)
			_ = r.closeWrite()
			start := time.Now()
			_, _ = io.Copy(io.Discard, r.tls)
			if d := time.Since(start); d > handshakeTime+2*time.Second {
				t.Errorf("the host took %v", d)
			}
			_ = r.Close()
		})
	})
}

// TestReasonsComeBeforeTheResetOfTCP: a real socket that is closed with unread bytes resets, and the reset overtakes what was
// written. The host reads on for a while instead.
func TestReasonsComeBeforeTheResetOfTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	key, stranger := testKey(t), testKey(t)
	host := NewHost(HostConfig{
		Key: key, Process: hostProcess, Trusted: func(identity.Fingerprint) bool { return false }, Handle: func(identity.Fingerprint, *Stream) {},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10 {
			c, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_ = host.ServeConn(context.Background(), c)
		}
	}()
	for range 10 {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		tr, err := Dial(t.Context(), conn, stranger, key.Fingerprint())
		if err != nil {
			t.Fatal(err)
		}
		r := &rawConn{Transport: tr}
		_ = r.say(helloOf(client1), newFrame(1, 1, 0))
		for range 10 {
			_ = r.say(frame.Frame{Kind: frame.Data, Stream: 1, Data: make([]byte, 15<<10)})
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if f, err := r.await(frame.Bye); err != nil || Code(f.Code) != CodeUnpaired {
			t.Errorf("the reason: %+v, %v", f, err)
		}
		_ = r.Close()
	}
	<-done
	_ = host.Close()
	_ = ln.Close()
}
