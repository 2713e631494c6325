package core

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"linkproxy/link/frame"
)

func (s *Stream) describe() string {
	return fmt.Sprintf("written %d sent %d base %d limit %d ended %d final %d acked %v queued %v; next %d read %d granted %d peerEnd %d final %d stopped %v err %v",
		s.out.end, s.sent, s.out.base, s.limit, s.ended, s.final, s.endAcked, s.queued, s.in.next, s.in.read, s.granted, s.peerEnd, s.peerFinal, s.stopped, s.err)
}

// play lets the schedule rule, then calm.
func (w *world) play() {
	w.stat.schedules++
	w.open()
	for !w.t.done() && !w.crashed {
		w.step()
		w.pump()
	}
	w.stat.switched += len(w.side[client].c2().switches)
	if w.crashed {
		w.mourn()
	} else {
		w.settle()
		if w.crashed { // the host had forgotten the link
			w.mourn()
		}
	}
	w.finishCheck()
	for _, s := range w.side {
		w.stat.refusedCredit += s.acct.refused
	}
}

func (s *side) c2() *Core {
	if s.c == nil {
		return &Core{}
	}
	return s.c
}

var writes = []int{1, 1, 100, 1000, 3000, 20000, 20000, 200000}

// step is one choice of the schedule.
func (w *world) step() {
	op := w.t.n(64)
	switch {
	case op < 14:
		if len(w.conns) == 0 {
			w.attach(false)
		}
		w.run(1+w.t.n(6), w.now+time.Minute)
	case op < 34:
		w.appStep(op)
	case op < 35:
		w.open()
	case op < 43:
		if len(w.conns) < 5 {
			w.attach(false)
		}
	case op < 53:
		w.cutStep()
	case op < 54:
		if c := w.anyConn(); c != nil {
			n := 1 + w.t.n(3)
			c.pipe[0].hole, c.pipe[1].hole = n&1 != 0, n&2 != 0
			w.log("carrier %d swallows everything: %v %v", c.k[client].gen, c.pipe[0].hole, c.pipe[1].hole)
		}
	case op < 55:
		for _, c := range w.conns {
			c.pipe[0].hole, c.pipe[1].hole = false, false
		}
	case op < 59:
		w.decideStep()
	case op < 63:
		d := []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 4 * time.Second, 35 * time.Second}
		w.sleep(d[w.t.n(len(d))])
	default:
		w.rareStep()
	}
}

func (w *world) appStep(op int) {
	p, i := w.pick()
	if p == nil {
		return
	}
	switch {
	case op < 22:
		w.writeApp(p, i, writes[w.t.n(len(writes))])
	case op < 28:
		if !p.lazy[i] {
			w.readApp(p, i, []int{1 << 20, 1, 1000, 40000}[w.t.n(4)])
		}
	case op < 29:
		w.lend(p, i, 1000)
	case op < 30:
		w.giveBack(p, i)
	case op < 32:
		w.closeApp(p, i)
	case op < 33 && i == host && w.t.n(2) == 0:
		p.s[host].Accept(w.now)
	case op < 33:
		w.quitApp(p, i, w.t.n(2) == 0)
	default:
		if i == host && w.t.n(4) == 1 {
			w.refuse(p)
		}
	}
}

func (w *world) anyConn() *conn {
	if len(w.conns) == 0 {
		return nil
	}
	return w.conns[w.t.n(len(w.conns))]
}

// cutStep cuts a connection, one with something in flight if there is one.
func (w *world) cutStep() {
	c := w.anyConn()
	if c == nil {
		return
	}
	if len(c.pipe[0].data)+len(c.pipe[1].data) == 0 {
		for _, o := range w.conns {
			if len(o.pipe[0].data)+len(o.pipe[1].data) > 0 {
				c = o
			}
		}
	}
	notices := []time.Duration{0, time.Millisecond, 100 * time.Millisecond, 3 * time.Second, -1}
	w.sever(c, [2]time.Duration{notices[w.t.n(len(notices))], notices[w.t.n(len(notices))]})
}

// decideStep is a decision of the client's peer loop.
func (w *world) decideStep() {
	c := w.anyConn()
	if c == nil {
		return
	}
	k, cl := c.k[client], w.side[client].c
	if k.dead {
		return
	}
	switch n := w.t.n(10); {
	case n < 7:
		w.log("client: switch to %d, planned %v", k.gen, n < 5)
		cl.SwitchTo(w.now, k, n < 5, "told to")
	case n < 8:
		w.log("client: closes %d", k.gen)
		cl.CloseCarrier(w.now, k)
	case n < 9:
		cl.Prove(k)
	default:
		k.SetStandby(w.t.n(2) == 1)
	}
}

func (w *world) rareStep() {
	switch n := w.t.n(8); {
	case n < 3:
		w.log("both: woke up")
		for _, s := range w.side {
			s.c.Ask(w.now)
		}
	case n < 5:
		w.sleep(10 * time.Second)
	case n < 6:
		for _, c := range append([]*conn(nil), w.conns...) {
			w.sever(c, [2]time.Duration{0, 0})
		}
		w.sleep(6 * time.Second)
	case n < 7 && w.t.n(4) == 1:
		w.crash(w.t.n(2))
	}
}

// crash: a side is gone with all it knew; the other side ends its streams when it learns.
func (w *world) crash(i int) {
	if w.crashed {
		return
	}
	w.log("%s: crashes", names[i])
	w.stat.crashes++
	w.crashed = true
	for _, c := range append([]*conn(nil), w.conns...) {
		w.sever(c, [2]time.Duration{0, 0})
		c.over[i] = true
	}
	w.side[i].c = nil
}

func (w *world) mourn() {
	w.sleep(time.Second)
	for i, s := range w.side {
		if s.c == nil {
			s.acct = &account{}
			continue
		}
		for _, p := range w.pairs {
			p.abandoned = true
		}
		s.c.End(w.now, errCrash, [16]byte{1}, 3)
		w.sleep(5 * time.Second)
		if len(s.c.carriers) > 0 {
			w.fail("%s: %d carriers outlive the link", names[i], len(s.c.carriers))
		}
		for _, p := range w.pairs {
			if p.s[i] == nil {
				continue
			}
			w.giveBack(p, i)
			w.readApp(p, i, 1<<30)
			p.s[i].Reset(1)
		}
	}
}

// settle: the apps do their part to the end, and one good carrier is there. Connections that die silently stay so: to notice
// that is the cores' part.
func (w *world) settle() {
	w.log("calm")
	for _, c := range w.conns {
		c.pipe[0].hole, c.pipe[1].hole = false, false
	}
	w.attach(true)
	w.settleAccepts()
	w.calm = true
	for range 200 {
		for _, p := range w.pairs {
			for i := range 2 {
				w.finishApp(p, i)
			}
		}
		w.pump()
		w.sleep(3 * time.Second)
		if w.crashed {
			return
		}
		if w.finished() {
			w.sleep(15 * time.Second)
			return
		}
	}
	// finishCheck says what is missing.
}

// settleAccepts: the client learns of every target that has answered, though nothing else is said of its stream.
func (w *world) settleAccepts() {
	for _, p := range w.pairs {
		if p.s[host] != nil && !p.damaged[host] {
			p.s[host].Accept(w.now)
		}
	}
	for range 300 {
		w.pump()
		if w.crashed || w.accepted() == nil {
			return
		}
		w.sleep(time.Second)
	}
	w.fail("the client never learns that stream %d was accepted", w.accepted().id)
}

// accepted is a stream that was accepted and whose client does not know; nil: there is none.
func (w *world) accepted() *pair {
	for _, p := range w.pairs {
		if p.s[host] != nil && p.s[host].accepted && !p.s[client].accepted && !p.damaged[host] && !p.damaged[client] {
			return p
		}
	}
	return nil
}

func (w *world) finished() bool {
	return len(w.side[client].c.streams)+len(w.side[host].c.streams) == 0
}

var (
	schedules = flag.Int("schedules", 10500, "how many random schedules TestSchedules plays")
	shrinking = flag.Bool("shrink", true, "simplify a schedule that breaks a promise")
	firstSeed = flag.Uint64("seed", 1, "the first seed of TestSchedules")
)

// allKinds are the kinds of frame that a link's carriers see.
var allKinds = []frame.Kind{
	frame.New, frame.NewOK, frame.Attach, frame.AttachOK, frame.AttachNo, frame.Open, frame.Opened, frame.Refused, frame.Data,
	frame.State, frame.Fin, frame.Reset, frame.Stop, frame.Gone, frame.Seen, frame.Ping, frame.Pong, frame.Switch,
	frame.Drain, frame.Close,
}

// TestSchedules plays random schedules; every byte arrives once and in order, or the stream ends with an error that somebody
// caused, whatever happens to the carriers, and nothing waits for ever.
func TestSchedules(t *testing.T) {
	n := *schedules
	if testing.Short() {
		n /= 10
	}
	st, begin := newStats(), time.Now()
	for i := range n {
		seed := *firstSeed + uint64(i)
		if broken := runTape(tapeOf(seed), st, nil); broken != "" {
			report(t, fmt.Sprintf("seed %d", seed), tapeOf(seed), broken)
		}
	}
	t.Logf("%d schedules in %v: %d kill points, %d attaches, %d switches, %d crashes, %d holds over, credit refused %d times, %d reads",
		st.schedules, time.Since(begin).Round(time.Millisecond), st.kills, st.attaches, st.switched, st.crashes, st.held, st.refusedCredit, st.reads)
	for _, kind := range allKinds {
		t.Logf("%-10v cut %7d, delivered %8d", kind, st.cut[kind], st.delivered[kind])
		if st.cut[kind] == 0 || st.delivered[kind] == 0 {
			t.Errorf("%v: cut %d times, delivered %d times", kind, st.cut[kind], st.delivered[kind])
		}
	}
	if *schedules >= 10500 && !testing.Short() && st.kills < 100_000 {
		t.Errorf("%d kill points, want 100000", st.kills)
	}
}

// TestKeptSchedules plays what once broke a promise.
func TestKeptSchedules(t *testing.T) {
	for name, tape := range keptTapes(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if broken := runTape(tape, newStats(), nil); broken != "" {
				report(t, name, tape, broken)
			}
		})
	}
}

// FuzzSchedules lets the fuzzer look for schedules that a generator of random ones does not find.
func FuzzSchedules(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(tapeOf(seed + 1))
	}
	for _, tape := range keptTapes(f) {
		f.Add(tape)
	}
	f.Fuzz(func(t *testing.T, tape []byte) {
		if len(tape) > 4000 {
			return
		}
		if broken := runTape(tape, newStats(), nil); broken != "" {
			report(t, "fuzz", tape, broken)
		}
	})
}
