package core

import (
	"fmt"
	"math/rand/v2"
	"time"

	"linkproxy/link/frame"
)

// A world is two cores, joined by carriers that a schedule makes, delays, stalls and cuts, and apps that a schedule drives.
// Time is a number. What the apps wrote and read is compared with a plain byte string.
type world struct {
	t       *tape
	now     Time
	side    [2]*side // client, host
	conns   []*conn
	pairs   []*pair
	stat    *stats
	calm    bool // chaos is over: apps finish, carriers are good
	crashed bool
	trace   func(string)
	buf     []byte
}

const client, host = 0, 1

var names = [2]string{"client", "host"}

type side struct {
	c     *Core
	acct  *account
	mem   *memory
	epoch uint64
	all   []*Stream
}

// stats are what a run of many schedules has seen.
type stats struct {
	kills, reads, schedules, held, switched, crashes, refusedCredit, attaches int
	cut, delivered                                                            map[frame.Kind]int
}

func newStats() *stats { return &stats{cut: map[frame.Kind]int{}, delivered: map[frame.Kind]int{}} }

// account is a key's share with a limit small enough to be hit.
type account struct {
	limit, used         int
	maxStreams, streams int
	refused             int
}

func (a *account) Charge(n int) bool {
	if n < 0 {
		panic(failure(fmt.Sprintf("charge of %d bytes", n)))
	}
	if a.used+n > a.limit {
		a.refused++
		return false
	}
	a.used += n
	return true
}

func (a *account) Release(n int) {
	a.used -= n
	if n < 0 || a.used < 0 {
		panic(failure(fmt.Sprintf("release of %d bytes leaves a charge of %d", n, a.used)))
	}
}

func (a *account) AddStream() bool {
	if a.streams >= a.maxStreams {
		return false
	}
	a.streams++
	return true
}

func (a *account) RemoveStream() {
	a.streams--
	if a.streams < 0 {
		panic(failure("more streams removed than added"))
	}
}

// memory lends buffers again as soon as they came back, spoilt, so that whoever still uses one is found out.
type memory struct {
	size int
	free [][]byte
	lent map[*byte]bool
}

func (m *memory) Get(n int) []byte {
	if k := len(m.free); k > 0 && len(m.free[k-1]) <= n {
		b := m.free[k-1]
		m.free = m.free[:k-1]
		m.lent[&b[0]] = true
		return b
	}
	b := make([]byte, min(n, m.size))
	m.lent[&b[0]] = true
	return b
}

func (m *memory) Put(b []byte) {
	if !m.lent[&b[0]] {
		panic(failure("a buffer came back twice"))
	}
	delete(m.lent, &b[0])
	for i := range b {
		b[i] = 0xdd
	}
	m.free = append(m.free, b)
}

// pair is both ends of one stream and what their apps did.
type pair struct {
	id          uint64
	s           [2]*Stream
	wrote, read [2]uint64
	closed      [2]bool // said CloseWrite
	ended       [2]bool // read EOF or an error
	eof         [2]bool
	quit        [2]bool // said Reset or Stop: reads no more
	damaged     [2]bool // the direction from this side may lose bytes: somebody ended it early
	lazy        [2]bool // does not read before the calm
	lent        [2][]byte
	abandoned   bool // the link ended
}

// pattern is what apps write, over and over: a prime number of bytes, so that no usual mistake about an offset fits.
var pattern = func() []byte {
	r := rand.New(rand.NewPCG(3, 5))
	b := make([]byte, 2*65521)
	for i := range b[:65521] {
		b[i] = byte(r.Uint32())
	}
	copy(b[65521:], b)
	return b
}()

// content is some of the bytes that side writes from off on, at most n.
func (p *pair) content(side int, off uint64, n int) []byte {
	at := (off + p.id*4241 + uint64(side)*30011) % 65521
	return pattern[at:min(at+uint64(n), uint64(len(pattern)))]
}

func (p *pair) damage() { p.damaged = [2]bool{true, true} }

func newWorld(t *tape, st *stats, trace func(string)) *world {
	w := &world{t: t, stat: st, trace: trace, buf: make([]byte, 0, frame.Max)}
	limits := []int{1 << 30, 256 << 10, 64 << 10, 0}
	for i := range w.side {
		acct := &account{limit: limits[t.n(len(limits))], maxStreams: []int{100, 3}[t.n(2)]}
		s := &side{acct: acct, mem: &memory{size: []int{4096, 700, 64}[t.n(3)], lent: map[*byte]bool{}}}
		w.side[i] = s
		s.c = w.newCore(i)
	}
	w.side[client].acct.maxStreams = 100
	return w
}

func (w *world) newCore(i int) *Core {
	s := w.side[i]
	return New(Config{Client: i == client, Memory: s.mem, Account: s.acct, Rand: rand.New(rand.NewPCG(1, 2))})
}

func (w *world) fail(format string, a ...any) {
	panic(failure(fmt.Sprintf("at %v: ", w.now) + fmt.Sprintf(format, a...)))
}

func (w *world) log(format string, a ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%12v ", w.now) + fmt.Sprintf(format, a...))
	}
}

// --- time

// next is when something happens by itself.
func (w *world) next() (Time, bool) {
	at, found := Time(0), false
	sooner := func(t Time) {
		if !found || t < at {
			at, found = t, true
		}
	}
	for _, c := range w.conns {
		c.events(sooner)
	}
	for i := range w.side {
		if w.side[i].c == nil {
			continue
		}
		if t, ok := w.side[i].c.Wake(w.now); ok {
			sooner(t)
		}
	}
	return max(at, w.now), found
}

// run lets up to n events happen, none later than until.
func (w *world) run(n int, until Time) {
	for range n {
		at, ok := w.next()
		if !ok || at > until {
			return
		}
		w.now = at
		for _, c := range append([]*conn(nil), w.conns...) {
			w.happen(c)
		}
		w.pump()
	}
}

// sleep lets d pass.
func (w *world) sleep(d time.Duration) {
	until := w.now + d
	for range 20000 {
		at, ok := w.next()
		if !ok || at > until {
			w.now = until
			w.pump()
			return
		}
		w.run(1, until)
	}
	w.fail("20000 events within %v", d)
}

// pump does what the cores ask for until they ask for nothing.
func (w *world) pump() {
	for range 100 {
		busy := false
		for i, s := range w.side {
			if s.c == nil {
				continue
			}
			s.c.Advance(w.now)
			for _, st := range s.all {
				if st.err == ErrHoldOver {
					w.heldOver(i, st)
				}
			}
			out := s.c.Take()
			for _, k := range out.Wake {
				if c := w.connOf(i, k); c != nil {
					busy = w.write(c, i) || busy
				}
			}
			for _, k := range out.Closed {
				if c := w.connOf(i, k); c != nil {
					w.hangUp(c, i)
					busy = true
				}
			}
			for _, st := range out.Incoming {
				w.incoming(st)
			}
			for _, st := range append(out.Readable, out.Writable...) {
				busy = w.signalled(i, st) || busy
			}
			if at, ok := s.c.Wake(w.now); ok && at <= w.now {
				busy = true // what was done just now may make something due
			}
		}
		if !busy {
			w.check()
			return
		}
	}
	w.fail("the cores never come to rest")
}

func (w *world) incoming(st *Stream) {
	p := w.pairs[st.ID-1]
	if p.s[host] != nil {
		w.fail("stream %d reached the target twice", st.ID)
	}
	p.s[host] = st
	w.side[host].all = append(w.side[host].all, st)
	st.Ctx = p
	w.log("host: stream %d came in", st.ID)
}

// signalled is the app's reaction to Readable and Writable: at once when all is calm, else when the schedule says so.
func (w *world) signalled(i int, st *Stream) bool {
	p, ok := st.Ctx.(*pair)
	if !ok || !w.calm {
		return false
	}
	return w.finishApp(p, i)
}

// --- what must always hold

func (w *world) check() {
	for i, s := range w.side {
		if s.c == nil {
			continue
		}
		if at, ok := s.c.Wake(w.now); ok && at <= w.now {
			w.fail("%s wants to be woken at %v: a busy loop", names[i], at)
		}
		if s.c.epoch < s.epoch {
			w.fail("%s: epoch %d after %d", names[i], s.c.epoch, s.epoch)
		}
		s.epoch = s.c.epoch
		held := 0
		for _, st := range s.all {
			held += st.sendHeld + st.recvHeld
			if kept := int(st.out.end - st.out.base); kept > implicit+st.sendHeld {
				w.fail("%s: stream %d keeps %d bytes, %d are charged", names[i], st.ID, kept, st.sendHeld)
			}
		}
		if held != s.acct.used {
			w.fail("%s: %d bytes charged, streams hold %d", names[i], s.acct.used, held)
		}
		for _, k := range s.c.carriers {
			sum := 0
			for j := range k.log {
				sum += k.log[j].n
			}
			want := 0
			for want < len(k.log) && !k.log[want].wants {
				want++
			}
			if want != k.want {
				w.fail("%s: carrier %d: the oldest that wants to be SEEN is %d, not %d", names[i], k.gen, want, k.want)
			}
			if sum != k.unseen || k.flushed > len(k.log) {
				w.fail("%s: carrier %d has %d bytes un-SEEN, %d in its log (flushed %d of %d)", names[i], k.gen, k.unseen, sum, k.flushed, len(k.log))
			}
		}
	}
	if !w.crashed && w.side[host].c.epoch > w.side[client].c.epoch {
		w.fail("the host's epoch is ahead of the client's")
	}
	for _, p := range w.pairs {
		for d := range 2 {
			w.checkDirection(p, d)
		}
	}
}

// checkDirection holds I2 and I3 for the bytes from side d.
func (w *world) checkDirection(p *pair, d int) {
	a, b := p.s[d], p.s[1-d]
	if a == nil || b == nil || p.abandoned || w.crashed {
		return
	}
	if a.ended != reset && a.err == nil && a.out.base > b.in.next {
		w.fail("stream %d from %s: %d acknowledged, %d delivered", p.id, names[d], a.out.base, b.in.next)
	}
	if b.in.next > a.sent || a.sent > a.out.end || a.sent > b.granted || a.limit > b.granted {
		w.fail("stream %d from %s: next %d, sent %d, written %d, limit %d, granted %d", p.id, names[d], b.in.next, a.sent, a.out.end, a.limit, b.granted)
	}
	held := int(b.in.next - b.in.read)
	for _, q := range b.in.pieces {
		held += len(q.b)
	}
	if b.in.read+uint64(held) > b.granted {
		w.fail("stream %d from %s: %d bytes beyond %d held, %d granted", p.id, names[d], held, b.in.read, b.granted)
	}
	if b.peerEnd == open && int(b.granted-b.in.read) > implicit+b.recvHeld {
		w.fail("stream %d from %s: credit of %d, %d charged", p.id, names[d], b.granted-b.in.read, b.recvHeld)
	}
}

// heldOver checks that a stream whose hold time is said to be over had no carrier for so long.
func (w *world) heldOver(i int, st *Stream) {
	p, ok := st.Ctx.(*pair)
	if !ok || p.damaged[0] && p.damaged[1] {
		return
	}
	c := w.side[i].c
	if !c.lost || w.now < c.lostAt+st.Hold {
		w.fail("%s: stream %d held over after %v of %v", names[i], st.ID, w.now-c.lostAt, st.Hold)
	}
	w.stat.held++
	w.log("%s: hold of stream %d is over", names[i], st.ID)
	p.damage()
}
