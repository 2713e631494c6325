package core

import (
	"fmt"
	"slices"
	"time"

	"linkproxy/link/frame"
)

// conn is one connection between the two sides.
type conn struct {
	k       [2]*Carrier // the host's once it was admitted
	pipe    [2]*pipe    // by the side that writes to it
	over    [2]bool     // that side has let go of it
	verdict int         // what the host will answer
	late    time.Duration
	ask     frame.Frame
	asked   bool
	admitAt Time // when the host answers; valid while asked && !told
	told    bool
	batch   bool // the writer pulls several times before it writes
}

const (
	accept = iota
	reject
	never
)

// pipe is one direction: bytes in order, late, perhaps stalled, perhaps cut.
type pipe struct {
	delay   time.Duration
	rate    int // bytes a second
	free    Time
	room    int // bytes in flight before the writer blocks
	data    []byte
	segs    []seg
	marks   []mark
	off     int // offset of data[0]
	got     []byte
	hole    bool
	cut     bool // nothing written any more arrives
	eofAt   Time // cut: when the reader learns of it; 0: never
	blocked bool
	woken   bool
}

type seg struct {
	at Time
	n  int
}

// mark is one frame in flight.
type mark struct {
	kind       frame.Kind
	start, end int
}

func (p *pipe) push(now Time, b []byte) {
	if p.cut {
		return
	}
	p.free = max(p.free, now) + time.Duration(len(b))*time.Second/time.Duration(p.rate)
	end := p.off + len(p.data)
	p.data = append(p.data, b...)
	p.segs = append(p.segs, seg{p.free + p.delay, len(b)})
	for len(b) > 0 {
		var f frame.Frame
		n, err := frame.Parse(b, &f)
		if n == 0 || err != nil {
			panic(failure("a core made a frame that does not parse"))
		}
		p.marks = append(p.marks, mark{f.Kind, end, end + n})
		b, end = b[n:], end+n
	}
}

// events tells when something happens on c by itself.
func (c *conn) events(sooner func(Time)) {
	for i, p := range c.pipe {
		if c.over[1-i] {
			continue
		}
		if len(p.segs) > 0 && !p.hole {
			sooner(p.segs[0].at)
		}
		if p.cut && len(p.segs) == 0 && p.eofAt != 0 {
			sooner(p.eofAt)
		}
	}
	if c.asked && !c.told && !c.over[host] {
		sooner(c.admitAt)
	}
}

// attach begins a connection.
func (w *world) attach(good bool) *conn {
	cl := w.side[client].c
	delays := []time.Duration{time.Millisecond, 100 * time.Microsecond, 10 * time.Millisecond, 40 * time.Millisecond, 250 * time.Millisecond}
	rates := []int{100 << 20, 1 << 20, 64 << 10}
	rooms := []int{1 << 20, 16 << 10, 1 << 10}
	c := &conn{}
	for i := range c.pipe {
		c.pipe[i] = &pipe{delay: delays[0], rate: rates[0], room: rooms[0], off: 0}
		if !good {
			c.pipe[i].delay = delays[w.t.n(len(delays))]
		}
	}
	role := frame.Standby
	if cl.tx() == nil {
		role = frame.Active
	}
	pref := 0
	if !good {
		rate, room := rates[w.t.n(len(rates))], rooms[w.t.n(len(rooms))]
		c.pipe[0].rate, c.pipe[1].rate, c.pipe[0].room, c.pipe[1].room = rate, rate, room, room
		c.verdict = []int{accept, accept, accept, accept, accept, reject, never}[w.t.n(7)]
		c.late = []time.Duration{0, time.Millisecond, 50 * time.Millisecond, time.Second}[w.t.n(4)]
		c.batch = w.t.n(4) == 1
		pref = w.t.n(3)
		switch w.t.n(8) {
		case 1, 2:
			role = frame.Standby
		case 3, 4:
			role = frame.Bulk // whatever there is beside it
		}
	}
	k, f := cl.Begin(w.now, role, pref, c.pipe[0].delay+c.pipe[1].delay)
	c.k[client] = k
	w.conns = append(w.conns, c)
	w.stat.attaches++
	w.log("client: carrier %d begins, kind %#x role %d, delays %v %v, verdict %d after %v", k.gen, f.Kind, role, c.pipe[0].delay, c.pipe[1].delay, c.verdict, c.late)
	c.pipe[client].push(w.now, frame.Append(nil, &f))
	return c
}

func (w *world) connOf(i int, k *Carrier) *conn {
	for _, c := range w.conns {
		if c.k[i] == k {
			return c
		}
	}
	return nil
}

// write is the writer of one side at work; true: it wrote something.
func (w *world) write(c *conn, i int) bool {
	k, p := c.k[i], c.pipe[i]
	p.woken = true
	if c.over[i] || p.blocked {
		return false
	}
	p.woken = false
	wrote := false
	for range 10000 {
		b := w.side[i].c.Pull(w.now, k, w.buf)
		if len(b) == 0 {
			if wrote && c.batch && !p.blocked {
				w.side[i].c.Wrote(w.now, k)
			}
			return wrote
		}
		if len(b) > frame.Max {
			w.fail("a record of %d bytes", len(b))
		}
		wrote = true
		p.push(w.now, b)
		if w.trace != nil {
			w.log("%s: carrier %d writes %s", names[i], k.gen, framesOf(b))
		}
		if len(p.data) > p.room {
			p.blocked = true
			return true
		}
		if !c.batch {
			w.side[i].c.Wrote(w.now, k)
		}
	}
	w.fail("%s: carrier %d never has enough", names[i], k.gen)
	return false
}

func framesOf(b []byte) (s string) {
	for len(b) > 0 {
		var f frame.Frame
		n, _ := frame.Parse(b, &f)
		b = b[n:]
		s += f.Kind.String()
		if f.Kind >= frame.Open && f.Kind <= frame.Gone {
			s += fmt.Sprintf("(%d off %d len %d lim %d)", f.Stream, f.Offset, len(f.Data), f.Limit)
		} else if f.Kind == frame.Seen {
			s += fmt.Sprintf("(%d)", f.Count)
		} else if f.Kind == frame.Switch {
			s += fmt.Sprintf("(epoch %d gen %d planned %v)", f.Epoch, f.Gen, f.Planned)
		}
		s += " "
	}
	return s
}

// happen lets everything on c happen that is due now.
func (w *world) happen(c *conn) {
	for i, p := range c.pipe {
		to := 1 - i
		for len(p.segs) > 0 && p.segs[0].at <= w.now && !p.hole && !c.over[to] {
			n := p.segs[0].n
			p.segs = p.segs[1:]
			w.arrive(c, i, n)
			if p.blocked && len(p.data) <= p.room {
				p.blocked = false
				w.side[i].c.Wrote(w.now, c.k[i])
				w.write(c, i)
			}
		}
		if p.cut && len(p.segs) == 0 && p.eofAt != 0 && p.eofAt <= w.now && !c.over[to] {
			w.log("%s: connection of carrier %d has ended", names[to], c.k[client].gen)
			w.hangUp(c, to)
			if c.k[to] != nil {
				w.side[to].c.Dead(w.now, c.k[to])
			}
		}
	}
	if c.asked && !c.told && !c.over[host] && w.now >= c.admitAt {
		w.answer(c)
	}
}

// arrive moves n bytes of a pipe to their reader.
func (w *world) arrive(c *conn, from, n int) {
	p, to := c.pipe[from], 1-from
	p.got = append(p.got, p.data[:n]...)
	p.data = p.data[n:]
	p.off += n
	for len(p.marks) > 0 && p.marks[0].end <= p.off {
		w.stat.delivered[p.marks[0].kind]++
		p.marks = p.marks[1:]
	}
	if k := c.k[to]; k != nil && !k.dead {
		w.side[to].c.Arrived(w.now, k, n)
	}
	w.parse(c, from)
}

func (w *world) parse(c *conn, from int) {
	p, to := c.pipe[from], 1-from
	for !c.over[to] && (to == client || c.told || !c.asked) {
		var f frame.Frame
		n, err := frame.Parse(p.got, &f)
		if err != nil {
			w.fail("%s: %v", names[to], err)
		}
		if n == 0 {
			return
		}
		w.take(c, to, &f)
		p.got = p.got[n:]
	}
}

func (w *world) take(c *conn, to int, f *frame.Frame) {
	switch f.Kind {
	case frame.New, frame.Attach:
		c.ask, c.asked, c.admitAt = *f, true, w.now+c.late
		c.ask.Keep.List = slices.Clone(f.Keep.List)
		return
	case frame.NewOK, frame.AttachOK:
		w.log("client: carrier %d accepted", c.k[client].gen)
		w.side[client].c.Accepted(w.now, c.k[client])
		return
	case frame.AttachNo:
		w.log("client: carrier %d turned down", c.k[client].gen)
		w.hangUp(c, client)
		w.side[client].c.Dead(w.now, c.k[client])
		return
	}
	if err := w.side[to].c.Recv(w.now, c.k[to], f); err != nil {
		w.fail("%s: carrier %d: %v", names[to], c.k[to].gen, err)
	}
}

// answer is the host's word on NEW or ATTACH.
func (w *world) answer(c *conn) {
	if c.verdict == never {
		c.admitAt = w.now + time.Hour
		return
	}
	c.told = true
	f := frame.Frame{Kind: frame.AttachNo, Gen: c.ask.Gen}
	forgot := w.side[host].c.err != nil
	if forgot && c.ask.Kind == frame.New && !w.crashed { // it held an empty link for long enough; NEW makes it anew
		w.side[host].c, w.side[host].epoch = w.newCore(host), 0
		forgot = false
	}
	if c.verdict == accept && !forgot {
		k, ok := w.side[host].c.Admit(w.now, &c.ask, c.pipe[0].delay+c.pipe[1].delay)
		if ok {
			c.k[host] = k
			f.Kind = frame.AttachOK
			if c.ask.Kind == frame.New {
				f.Kind = frame.NewOK
			}
		}
	}
	w.log("host: answers %v on carrier %d", f.Kind, c.ask.Gen)
	c.pipe[host].push(w.now, frame.Append(nil, &f))
	if c.k[host] == nil {
		w.hangUp(c, host)
		if forgot {
			w.crash(host)
		}
		return
	}
	w.parse(c, client)
}

// hangUp: a side lets go of the connection. What it wrote may or may not arrive before the end is noticed.
func (w *world) hangUp(c *conn, i int) {
	if c.over[i] {
		return
	}
	c.over[i] = true
	p := c.pipe[i]
	if !p.cut {
		if n := len(p.data); n > 0 && w.t.n(3) == 1 { // a reset overtakes what was written
			at := w.t.wide(n)
			w.kill(p, p.off+at)
			p.truncate(at)
		}
		p.cut = true
		p.eofAt = max(w.now, p.free) + p.delay
	}
	c.pipe[1-i].data, c.pipe[1-i].segs, c.pipe[1-i].marks = nil, nil, nil
	if c.over[1-i] {
		w.conns = slices.DeleteFunc(w.conns, func(o *conn) bool { return o == c })
	}
}

// sever cuts a connection at a byte of each direction. notice: when each reader learns of it after the last byte, negative:
// never by itself.
func (w *world) sever(c *conn, notice [2]time.Duration) {
	for i, p := range c.pipe {
		if p.cut {
			continue
		}
		at := 0
		if len(p.data) > 0 {
			at = w.t.wide(len(p.data))
			w.kill(p, p.off+at)
		}
		p.truncate(at)
		p.cut = true
		p.hole = false
		if notice[i] >= 0 {
			p.eofAt = max(w.now, p.free) + p.delay + notice[i]
		}
	}
	w.log("carrier %d is cut", c.k[client].gen)
}

// kill counts the frame that is cut at off.
func (w *world) kill(p *pipe, off int) {
	for _, m := range p.marks {
		if off < m.end {
			w.stat.kills++
			w.stat.cut[m.kind]++
			return
		}
	}
}

// truncate lets only the first n bytes in flight arrive.
func (p *pipe) truncate(n int) {
	p.data = p.data[:n]
	for i := range p.segs {
		if n <= p.segs[i].n {
			p.segs[i].n = n
			p.segs = p.segs[:i+1]
			break
		}
		n -= p.segs[i].n
	}
	if k := len(p.segs); k > 0 && p.segs[k-1].n == 0 {
		p.segs = p.segs[:k-1]
	}
	end := p.off + len(p.data)
	p.marks = slices.DeleteFunc(p.marks, func(m mark) bool { return m.end > end })
}
