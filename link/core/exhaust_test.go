package core

import (
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"linkproxy/link/frame"
)

// The explorer goes through every order of a few events on the real cores: what apps do, deliveries frame by frame, switches,
// doubts, deaths noticed by one side before the other, attaches. Time stands still; acknowledgements go at once.

var exhaust = flag.Int("exhaust", 5000, "how many states of each scenario TestEveryOrder visits at most")

// small is a world of the explorer.
type small struct {
	side  [2]*Core
	acct  [2]*account
	conns [3]smallConn
	s     [2]*Stream
	more  [2]*Stream // a second stream, without bytes
	left  string     // events that may still happen, a letter each
	got   [2]int     // bytes read
	fin   [2]bool
	cut   [2]bool // the direction from this side was ended early
	wrote [2]int
	path  []string
}

type smallConn struct {
	k    [2]*Carrier
	q    [2][][]frame.Frame // records on their way to client, to host
	gone [2]bool            // that side has noticed its end
	used bool
}

type scenario struct {
	name   string
	events string // each letter may happen once for each time it is there, in any order
	write  int    // bytes a write
	alone  bool   // only carrier 0 is attached at first
	race   bool   // none is
}

// Letters: C H write at client, host; c h close there (without the letter the client closes with its last write, the host when
// it has read everything); A accept; X R abort by client, host; T stop by client; F refuse; P planned, U unplanned switch to
// carrier 1, B planned, V unplanned back to 0; K carrier 0 dies for the client, L for the host; M N carrier 1; D E doubt about
// carrier 0 at client, host; r the host reads; O a second stream; 0 1 2 attach of that carrier.
var scenarios = []scenario{
	{name: "planned switch", events: "CPKL", write: 1},
	{name: "unplanned switch", events: "CUKL", write: 1},
	{name: "there and back", events: "CPV", write: 1},
	{name: "there and back as planned", events: "CPB", write: 1},
	{name: "back from a carrier that dies", events: "CPMN", write: 1},
	{name: "both ways", events: "CHKL", write: 1},
	{name: "two bytes", events: "CCKL", write: 1},
	{name: "half-close", events: "CcKL", write: 1},
	{name: "abort by the client", events: "CXKL", write: 1},
	{name: "abort by the host", events: "CRKL", write: 1},
	{name: "stop", events: "CTKL", write: 1},
	{name: "stop of a host that writes", events: "CHTU", write: 1},
	{name: "refusal", events: "CFKL", write: 1},
	{name: "refusal and a switch", events: "CFU", write: 1},
	{name: "accept", events: "CAKL", write: 1},
	{name: "doubt", events: "CDKL", write: 1},
	{name: "doubt at the host", events: "CEKL", write: 1},
	{name: "doubt, then a switch", events: "CDU", write: 1},
	{name: "credit", events: "CrKL", write: 40 << 10},
	{name: "credit and a switch", events: "CrU", write: 40 << 10},
	{name: "attach after a death", events: "CKL1", write: 1, alone: true},
	{name: "race after a death", events: "CKL12", write: 1, alone: true},
	{name: "race", events: "C01", write: 1, race: true},
	{name: "race with a death", events: "C01KL", write: 1, race: true},
	{name: "abort in a race", events: "CX01", write: 1, race: true},
	{name: "two streams", events: "cOKL", write: 0},
	{name: "two streams and a switch", events: "cOU", write: 0},
	{name: "two streams, one aborted", events: "XOKL", write: 0},
	{name: "everything at once", events: "CHhPUBKLD", write: 1},
}

const still = Time(1e9)

func newSmall(sc scenario) *small {
	w := &small{left: sc.events}
	for i := range w.side {
		w.acct[i] = &account{limit: 1 << 30, maxStreams: 10}
		w.side[i] = New(Config{Client: i == client, Memory: plainMemory{}, Account: w.acct[i]})
	}
	if !sc.race {
		w.attach(0)
		w.rest()
		if !sc.alone {
			w.attach(1)
			w.rest()
		}
	}
	w.s[client], _ = w.side[client].Open(still, "t", 0, 0)
	if sc.write > 100 {
		w.deliverAll()
	}
	w.pump()
	w.path = nil
	return w
}

// plainMemory is no pool: states are copied.
type plainMemory struct{}

func (plainMemory) Get(n int) []byte { return make([]byte, min(n, 16<<10)) }
func (plainMemory) Put([]byte)       {}

func (w *small) attach(i int) {
	c := &w.conns[i]
	role := frame.Standby
	if w.side[client].tx() == nil {
		role = frame.Active
	}
	var f frame.Frame
	c.k[client], f = w.side[client].Begin(still, role, i, ms)
	c.q[host] = append(c.q[host], []frame.Frame{f})
	c.used = true
}

// rest delivers everything, and deliverAll does so once.
func (w *small) rest() {
	w.pump()
	w.deliverAll()
}

func (w *small) deliverAll() {
	for range 1000 {
		busy := false
		for i := range w.conns {
			for d := range 2 {
				if len(w.conns[i].q[d]) > 0 {
					w.deliver(i, d)
					w.pump()
					busy = true
				}
			}
		}
		if !busy {
			return
		}
	}
	panic(failure("frames without end"))
}

func (w *small) deliver(i, d int) {
	c := &w.conns[i]
	record := c.q[d][0]
	c.q[d] = c.q[d][1:]
	for _, f := range record {
		w.take(c, d, f)
	}
}

func (w *small) take(c *smallConn, d int, f frame.Frame) {
	core := w.side[d]
	switch f.Kind {
	case frame.New, frame.Attach:
		k, ok := core.Admit(still, &f, ms)
		if !ok {
			panic(failure("an attach was turned down"))
		}
		c.k[host] = k
		c.q[client] = append(c.q[client], []frame.Frame{{Kind: f.Kind + 1}})
		return
	case frame.New + 1, frame.Attach + 1:
		core.Accepted(still, c.k[client])
		return
	}
	core.Arrived(still, c.k[d], 1)
	if err := core.Recv(still, c.k[d], &f); err != nil {
		panic(failure(fmt.Sprintf("%s: %v", names[d], err)))
	}
}

// pump lets writers write, acknowledgements go and apps read what there is.
func (w *small) pump() {
	buf := make([]byte, 0, frame.Max)
	for range 100 {
		busy := false
		for d, c := range w.side {
			for i := range w.conns {
				// An acknowledgement waits for what is about to come.
				if k := w.conns[i].k[d]; k != nil && k.ackAt != 0 && len(w.conns[i].q[d]) == 0 {
					k.urge()
				}
			}
			out := c.Take()
			for _, s := range out.Incoming {
				came := &w.s[host]
				if s.ID > 1 {
					came = &w.more[host]
				}
				if *came != nil {
					panic(failure("a stream reached the target twice"))
				}
				*came = s
			}
			for _, k := range out.Closed {
				busy = true
				w.lose(d, k)
			}
			for _, k := range out.Wake {
				for i := range w.conns {
					if w.conns[i].k[d] == k {
						for b := c.Pull(still, k, buf); len(b) > 0; b = c.Pull(still, k, buf) {
							w.queue(i, 1-d, slices.Clone(b))
							c.Wrote(still, k)
							busy = true
						}
					}
				}
			}
		}
		if !busy {
			return
		}
	}
	panic(failure("the cores never come to rest"))
}

// lose: side d has let go of k; what was on its way to it is lost, what it sent may still arrive.
func (w *small) lose(d int, k *Carrier) {
	for i := range w.conns {
		if w.conns[i].k[d] == k {
			w.conns[i].gone[d] = true
			w.conns[i].q[d] = nil
		}
	}
}

func (w *small) queue(i, to int, b []byte) {
	var record []frame.Frame
	for len(b) > 0 {
		var f frame.Frame
		n, err := frame.Parse(b, &f)
		if err != nil || n == 0 {
			panic(failure("a frame that does not parse"))
		}
		b = b[n:]
		record = append(record, f)
	}
	if !w.conns[i].gone[to] {
		w.conns[i].q[to] = append(w.conns[i].q[to], record)
	}
}

// events lists what may happen next.
func (w *small) events(sc scenario) []string {
	var list []string
	for i := range w.conns {
		for d := range 2 {
			if len(w.conns[i].q[d]) > 0 {
				list = append(list, fmt.Sprintf("deliver %d to %s", i, names[d]))
			}
		}
	}
	// An end of a connection is noticed by both sides in the end.
	for i := range w.conns {
		for d := range 2 {
			c := &w.conns[i]
			if c.gone[1-d] && !c.gone[d] && c.k[d] != nil && len(c.q[d]) == 0 && !strings.ContainsAny(w.left, "KLMN") {
				list = append(list, fmt.Sprintf("notice %d %s", i, names[d]))
			}
		}
	}
	for i, e := range w.left {
		if !strings.ContainsRune(w.left[:i], e) && w.may(e, sc) {
			list = append(list, string(e))
		}
	}
	return list
}

func (w *small) may(e rune, sc scenario) bool {
	cl, ho := w.s[client], w.s[host]
	conn := func(i, d int) bool { return w.conns[i].k[d] != nil && !w.conns[i].gone[d] }
	up := func(i int) bool { return conn(i, client) && w.conns[i].k[client].attached }
	switch e {
	case 'C':
		return cl.ended == open
	case 'H', 'A', 'R', 'F':
		return ho != nil
	case 'c':
		return !strings.ContainsRune(w.left, 'C')
	case 'h':
		return ho != nil && !strings.ContainsRune(w.left, 'H')
	case 'r':
		return ho != nil && len(ho.Peek()) > 0
	case 'P', 'U':
		return up(1)
	case 'B', 'V':
		return up(0) && !strings.ContainsAny(w.left, "PU")
	case 'K', 'L':
		// The last carrier does not die, so that every path has an end.
		return conn(0, int(e-'K')) && (up(1) || sc.alone)
	case 'M', 'N':
		return conn(1, int(e-'M')) && (w.conns[1].gone[int('N'-e)] || up(0))
	case 'D', 'E':
		k := w.conns[0].k[int(e-'D')]
		return conn(0, int(e-'D')) && k.attached && !k.suspect
	case '0', '1', '2':
		i := int(e - '0')
		return !w.conns[i].used && (!sc.alone || w.conns[0].gone[client])
	}
	return true
}

func (w *small) do(e string, sc scenario) {
	w.path = append(w.path, e)
	var i int
	var name string
	if n, _ := fmt.Sscanf(e, "deliver %d to %s", &i, &name); n == 2 {
		w.deliver(i, slices.Index(names[:], name))
	} else if n, _ := fmt.Sscanf(e, "notice %d %s", &i, &name); n == 2 {
		w.die(i, slices.Index(names[:], name))
	} else {
		w.left = strings.Replace(w.left, e, "", 1)
		w.act(e[0], sc)
	}
	w.pump()
	w.check(sc)
}

func (w *small) die(i, d int) {
	c := &w.conns[i]
	c.gone[d] = true
	c.q[d] = nil
	w.side[d].Dead(still, c.k[d])
}

func (w *small) act(e byte, sc scenario) {
	cl, ho := w.s[client], w.s[host]
	quit := func(d int) { w.cut[1-d] = true }
	switch e {
	case 'C':
		w.write(client, sc.write)
		if !strings.ContainsRune(w.left, 'C') && !strings.ContainsRune(sc.events, 'c') {
			cl.CloseWrite()
		}
	case 'H':
		w.write(host, sc.write)
	case 'c':
		cl.CloseWrite()
	case 'h':
		ho.CloseWrite()
	case 'A':
		ho.Accept(still)
	case 'X':
		quit(client)
		quit(host)
		cl.Reset(1)
	case 'R':
		quit(client)
		quit(host)
		ho.Reset(1)
	case 'T':
		quit(client)
		cl.Stop(1)
	case 'F':
		quit(client)
		quit(host)
		ho.Refuse(1)
	case 'r':
		w.read(host)
	case 'P', 'U', 'B', 'V':
		i := 1
		if e == 'B' || e == 'V' {
			i = 0
		}
		w.side[client].SwitchTo(still, w.conns[i].k[client], e == 'P' || e == 'B', "")
	case 'K', 'L':
		w.die(0, int(e-'K'))
	case 'M', 'N':
		w.die(1, int(e-'M'))
	case 'D', 'E':
		k := w.conns[0].k[int(e-'D')]
		k.suspect = true
		w.side[e-'D'].doubt(still, k)
	case '0', '1', '2':
		w.attach(int(e - '0'))
	case 'O':
		w.more[client], _ = w.side[client].Open(still, "t", 0, 0)
		w.more[client].CloseWrite()
	}
}

func (w *small) write(d, n int) {
	w.wrote[d] += w.s[d].Write(still, make([]byte, n))
}

func (w *small) read(d int) {
	s := w.s[d]
	for b := s.Peek(); len(b) > 0; b = s.Peek() {
		w.got[d] += len(b)
		s.Discard(still, len(b))
	}
}

func (w *small) check(sc scenario) {
	for d := range 2 {
		s, o := w.s[d], w.s[1-d]
		if s == nil {
			continue
		}
		if !strings.ContainsRune(w.left, 'r') || d == client {
			w.read(d)
		}
		eof, err := s.ReadEnd()
		if err != nil && !w.cut[1-d] {
			panic(failure(fmt.Sprintf("%s: %v though nobody ended it", names[d], err)))
		}
		if eof && (o == nil || o.ended == open || w.got[d] != w.wrote[1-d]) && !w.cut[1-d] {
			panic(failure(fmt.Sprintf("%s: EOF after %d of %d bytes", names[d], w.got[d], w.wrote[1-d])))
		}
		if o != nil && !w.cut[d] && s.out.base > o.in.next {
			panic(failure(fmt.Sprintf("%s: %d bytes acknowledged, %d delivered", names[d], s.out.base, o.in.next)))
		}
	}
	if s := w.s[host]; s != nil && s.ended == open && !strings.ContainsAny(sc.events, "h") && !strings.ContainsAny(w.left, "HA") {
		if eof, err := s.ReadEnd(); eof || err != nil {
			s.CloseWrite()
		}
	}
	if s := w.more[host]; s != nil {
		if eof, _ := s.ReadEnd(); eof {
			s.CloseWrite()
		}
	}
	for _, s := range w.more {
		if s == nil {
			continue
		}
		if _, err := s.ReadEnd(); err != nil {
			panic(failure(fmt.Sprintf("second stream: %v though nobody ended it", err)))
		}
	}
	w.pump()
}

// finished is what must hold once nothing more can happen.
func (w *small) finished() {
	for d, s := range w.more {
		if s != nil && !s.retired || (s == nil) != (w.more[client] == nil) {
			panic(failure(fmt.Sprintf("%s: the second stream never ends, or never came in", names[d])))
		}
	}
	for d, s := range w.s {
		if s == nil {
			if !w.cut[client] {
				panic(failure("the stream never came in"))
			}
			continue
		}
		if !s.retired {
			panic(failure(fmt.Sprintf("%s: waits for ever: %s", names[d], s.describe())))
		}
		if !w.cut[1-d] && w.got[d] != w.wrote[1-d] {
			panic(failure(fmt.Sprintf("%s: %d of %d bytes", names[d], w.got[d], w.wrote[1-d])))
		}
		if w.acct[d].used != 0 || w.acct[d].streams != 0 {
			panic(failure(fmt.Sprintf("%s: %d bytes, %d streams charged", names[d], w.acct[d].used, w.acct[d].streams)))
		}
	}
}

// key tells worlds apart by what matters for what may still happen: times and totals do not.
func (w *small) key(seed maphash.Seed) uint64 {
	var b []byte
	put := func(format string, a ...any) { b = fmt.Appendf(b, format, a...) }
	put("%s%v%v%v%v;", w.left, w.got, w.fin, w.cut, w.wrote)
	for d, c := range w.side {
		put("E%d %d %v%v%v%v %v %v;", c.epoch, c.named, c.racing, c.planned, c.lost, c.newOK, c.seen, c.keep)
		for _, k := range append(c.carriers[:len(c.carriers):len(c.carriers)], c.orphans) {
			put("k%d %v%v%v%v%v%v %v %d %d %v|", k.gen, k.attached, k.closing, k.closed, k.suspect, k.switchDue, k.pingDue, k.draining, k.served, k.budget, k.peerDrained)
			for i := range k.log {
				e := &k.log[i]
				put("%d.%d.%d.%d%v%v,", e.kind, e.stream, e.off, e.n, e.moved, e.hedge)
			}
			for _, id := range k.sayOrder {
				put("s%d=%d,", id, k.say[id])
			}
			for _, p := range append(k.fast[:len(k.fast):len(k.fast)], k.slow...) {
				put("p%d-%d%v,", p.from, p.to, p.hedge)
			}
		}
		for _, s := range []*Stream{w.s[d], w.more[d]} {
			if s == nil {
				continue
			}
			put("S%d %d %d %d %d%v%v %v%v%v %d;%d %d %d %d %d %v%v%v %v%v;", s.out.base, s.out.end, s.sent, s.limit, s.ended, s.refused, s.endAcked, s.queued, s.openSeen, s.openOn, s.final, s.in.next, s.in.read, s.granted, s.peerEnd, s.peerFinal, s.stopped, s.stopCame, s.accepted, s.retired, s.interactive)
			for _, p := range s.in.pieces {
				put("g%d+%d,", p.off, len(p.b))
			}
		}
	}
	for i := range w.conns {
		c := &w.conns[i]
		put("c%v%v", c.gone, c.used)
		for d := range 2 {
			base := uint64(0) // counts are told from what the sender knows to be SEEN
			if k := c.k[1-d]; k != nil {
				base = k.sentN - uint64(len(k.log))
			}
			if k := c.k[d]; k != nil {
				put("r%d,%d", k.recvN-base, k.recvN-k.saidN)
			}
			back := uint64(0)
			if k := c.k[d]; k != nil {
				back = k.sentN - uint64(len(k.log))
			}
			for _, f := range slices.Concat(c.q[d]...) {
				if f.Kind == frame.Seen {
					put("n%d,", f.Count-back)
					continue
				}
				put("f%d.%d.%d.%d.%d.%d.%d%v,", f.Kind, f.Stream, f.Offset, len(f.Data), f.Limit, f.Epoch, f.Gen, f.Keep)
			}
		}
	}
	return maphash.Bytes(seed, b)
}

// TestEveryOrder goes through every order of the events of each scenario, deepest first, as far as -exhaust allows.
func TestEveryOrder(t *testing.T) {
	most := *exhaust
	if testing.Short() {
		most /= 10
	}
	for _, sc := range scenarios {
		t.Run(strings.ReplaceAll(sc.name, " ", "_"), func(t *testing.T) {
			explore(t, sc, most)
		})
	}
}

func explore(t *testing.T, sc scenario, most int) {
	seed := maphash.MakeSeed()
	var at *small
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%v\nafter %s", p, strings.Join(at.path, ", "))
		}
	}()
	first := newSmall(sc)
	seen := map[uint64]bool{first.key(seed): true}
	stack := []*small{first}
	ends, edges := 0, 0
	for len(stack) > 0 && len(seen) < most {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		events := w.events(sc)
		if len(events) == 0 {
			at = w
			w.finished()
			ends++
		}
		for i, e := range events {
			next := w
			if i < len(events)-1 {
				next = clone(w)
			}
			at = next
			next.do(e, sc)
			edges++
			if k := next.key(seed); !seen[k] {
				seen[k] = true
				stack = append(stack, next)
			}
		}
	}
	whole := "all"
	if len(seen) >= most {
		whole = "the first"
	}
	t.Logf("%s %d states, %d steps, %d ends", whole, len(seen), edges, ends)
}
