package core

import (
	"slices"
	"time"

	"linkproxy/link/frame"
)

// CodeBusy is the REFUSED code of a bound that was reached.
const CodeBusy = 6

// room for the largest control frame: SWITCH with a full keep list, OPEN with the longest target.
const controlRoom = 512

// Pull writes the next frames for k behind b[:0] and returns them: whole frames, at most frame.Max bytes, that fit one TLS
// record. Empty: nothing to send now. The caller writes them and then calls Wrote; it may pull several times before.
func (c *Core) Pull(now Time, k *Carrier, b []byte) []byte {
	b = b[:0]
	if k.dead || k.closed {
		return b
	}
	if k.closing {
		return k.pullClose(now, b)
	}
	if c.err != nil {
		return b
	}
	c.lively = c.lively && now < c.livelyAt+c.livelyFor()
	data := c.hasData(k)
	if !k.urgent && !data && (k.ackAt == 0 || now < k.ackAt) {
		return b
	}
	if (data || len(k.sayOrder) > 0) && k.attached && now-max(k.lastSend, k.lastRecv) >= askAfterIdle {
		k.pingDue = true
	}
	b = k.pullControl(now, b)
	b, done := k.pullSay(now, b)
	if done {
		k.urgent = false // what the data below adds sets it again
		if data {
			b = k.pullData(now, b)
		}
	} else {
		k.urgent = true // the rest goes with the next record, whoever asked for this one
	}
	if len(b) > 0 {
		if !k.writing {
			k.writing, k.writeAt = true, now
		}
		k.lastSend = now
		k.bytesOut += uint64(len(b))
	}
	return b
}

func (k *Carrier) pullClose(now Time, b []byte) []byte {
	k.closed = true
	k.lastSend = now
	if !k.writing {
		k.writing, k.writeAt = true, now
	}
	f := frame.Frame{Kind: frame.Close, Link: k.closeLink, Code: k.closeCode}
	return frame.Append(b, &f)
}

// Wrote tells that all that was pulled is written: the clocks of its frames start.
func (c *Core) Wrote(now Time, k *Carrier) {
	for i := k.flushed; i < len(k.log); i++ {
		k.log[i].at, k.log[i].began = now, k.writeAt
	}
	k.flushed, k.writing = len(k.log), false
}

// put appends f to b and logs it.
func (k *Carrier) put(now Time, b []byte, f *frame.Frame) []byte {
	b = frame.Append(b, f)
	k.note(now, sent{kind: f.Kind, stream: f.Stream})
	return b
}

// note logs a frame that was handed out.
func (k *Carrier) note(now Time, e sent) {
	e.wants = wants(e.kind)
	e.ahead = k.unseen
	if k.unseen == 0 {
		k.deliveredAt = now // nothing outstanding: the time until now says nothing of the rate
	}
	e.delivered, e.refAt = k.delivered, k.deliveredAt
	if !k.attached && k.c.newAt < 0 {
		k.c.newAt = now
	}
	k.remember(e)
	k.sentN++
}

// pullControl appends what concerns the carrier itself.
func (k *Carrier) pullControl(now Time, b []byte) []byte {
	c := k.c
	if k.switchDue {
		k.switchDue = false
		b = k.put(now, b, &frame.Frame{Kind: frame.Switch, Epoch: c.epoch, Gen: c.named, Planned: c.planned, Keep: c.known()})
	}
	if k.pongDue {
		k.pongDue = false
		pad := min(k.pongPad, provePad)
		b = k.put(now, b, &frame.Frame{Kind: frame.Pong, ID: k.pongID, Data: padding[:pad]})
	}
	if k.pingDue {
		k.pingDue = false
		c.pingID++
		f := frame.Frame{Kind: frame.Ping, ID: c.pingID}
		if k.proving {
			f.Data = padding[:provePad] // each one: of several only the newest is answered
		}
		b = k.put(now, b, &f)
		k.lastPing = now
		if tx := c.tx(); tx != nil && tx != k && tx.doubtful() {
			k.log[len(k.log)-1].hedge = true // its SEEN proves that k delivers while tx does not
		}
	}
	if k.recvN > k.saidN {
		b = k.put(now, b, &frame.Frame{Kind: frame.Seen, Count: k.recvN, Delay: now - k.lastFrame})
		k.inRate.sample(now, uint64(k.recvBytes), now-k.saidAt)
		k.saidN, k.saidAt, k.recvBytes = k.recvN, now, 0
	}
	k.ackAt = 0
	if k.drainDue != 0 {
		b = k.put(now, b, &frame.Frame{Kind: frame.Drain, Epoch: k.drainDue})
		k.drainDue = 0
	}
	return b
}

var padding [provePad]byte

// pullSay appends the values to say of streams; done: all were.
func (k *Carrier) pullSay(now Time, b []byte) (_ []byte, done bool) {
	n := 0
	for ; n < len(k.sayOrder); n++ {
		if len(b) > frame.Max-2*controlRoom {
			break
		}
		id := k.sayOrder[n]
		v := k.say[id]
		delete(k.say, id)
		if v != 0 {
			b = k.pullValues(now, b, id, v)
		}
	}
	k.sayOrder = append(k.sayOrder[:0], k.sayOrder[n:]...)
	return b, len(k.sayOrder) == 0
}

// pullValues appends the values v of one stream as they are now.
func (k *Carrier) pullValues(now Time, b []byte, id uint64, v bits) []byte {
	s := k.c.streams[id]
	if s == nil {
		return k.put(now, b, &frame.Frame{Kind: frame.Gone, Stream: id})
	}
	if s.neverOpened() {
		return k.put(now, b, &frame.Frame{Kind: frame.Reset, Stream: id, Code: s.endCode, Offset: s.final})
	}
	if v&(sayOpen|sayState|sayFin|sayStop) != 0 {
		b = k.openFirst(now, b, s)
	}
	if v&sayOpened != 0 && s.ended != reset {
		b = k.put(now, b, &frame.Frame{Kind: frame.Opened, Stream: id})
	}
	if v&sayReset != 0 && !s.endAcked {
		if s.refused && !k.c.cfg.Client {
			b = k.put(now, b, &frame.Frame{Kind: frame.Refused, Stream: id, Code: s.endCode})
		} else {
			b = k.put(now, b, &frame.Frame{Kind: frame.Reset, Stream: id, Code: s.endCode, Offset: s.final})
		}
	}
	if v&sayFin != 0 && s.ended == finished && !s.endAcked {
		b = k.put(now, b, &frame.Frame{Kind: frame.Fin, Stream: id, Offset: s.final})
	}
	if v&sayStop != 0 && s.peerEnd == open {
		b = k.put(now, b, &frame.Frame{Kind: frame.Stop, Stream: id, Code: s.stopCode})
	}
	if v&sayState != 0 {
		b = k.put(now, b, &frame.Frame{Kind: frame.State, Stream: id, Offset: s.nextOffset(), Limit: s.granted})
	}
	return b
}

// neverOpened says that s was aborted before its OPEN went anywhere: its RESET alone ends it, and nothing is dialled.
func (s *Stream) neverOpened() bool {
	return s.c.cfg.Client && s.ended == reset && s.stopped && !s.openSeen && len(s.openOn) == 0
}

// openFirst sees that no frame of s goes on k before its OPEN: SEEN on any carrier, or sent on this one.
func (k *Carrier) openFirst(now Time, b []byte, s *Stream) []byte {
	if !k.c.cfg.Client || s.openSeen {
		return b
	}
	if slices.Contains(s.openOn, k.gen) {
		return b
	}
	s.openOn = append(slices.DeleteFunc(s.openOn, func(g uint64) bool { return k.c.find(g) == nil }), k.gen)
	f := frame.Frame{Kind: frame.Open, Stream: s.ID, Priority: s.Priority, Hold: s.Hold, Target: s.Target}
	return k.put(now, b, &f)
}

// --- stream bytes

// window is how many un-SEEN stream bytes k may have: twice what the route holds and 64 KiB. busyMachine is added to
// the round trip.
func (k *Carrier) window() int {
	r := k.rtt.minRTT()
	if !k.c.lively || k.role != frame.Bulk && k.c.bulkTx(k) != nil { // or bulk has a carrier of its own
		return 2*k.rate.during(r+busyMachine) + 64<<10
	}
	if r > localRTT {
		r *= 2
	}
	beyond := 32 << 10
	if k.rate.bytesPerSecond() > 0 {
		beyond = min(max(k.rate.during(livelyQueue), 4<<10), beyond)
	}
	return k.rate.during(r) + beyond
}

// busyMachine is what a busy machine adds to a round trip that is itself shorter.
const busyMachine = 500 * time.Microsecond

// While somebody converses beside bulk, bulk may not queue ahead of keystrokes: then there is no allowance for a busy
// machine, acknowledgements come with every record, and a write takes one. On a local network, where the round trip is
// far shorter than what a queue of 64 KiB takes, not even twice what the route holds. On a slow one, no more than 100 ms beyond.
const (
	livelyTime  = 100 * time.Millisecond
	livelyMost  = 2 * time.Second
	livelyQueue = 100 * time.Millisecond
	localRTT    = 2 * time.Millisecond
)

// livelyFor is how long after a small frame somebody still converses: on a slow route a conversation is slow, too, and the
// window that opens at its end is in the way for long.
func (c *Core) livelyFor() time.Duration {
	k := c.tx()
	if k == nil {
		return livelyTime
	}
	d := 2 * k.rtt.srtt
	if r := k.rate.bytesPerSecond(); r > 0 {
		d = max(d, time.Duration(float64(64<<10)/r*float64(time.Second)))
	}
	return max(livelyTime, min(d, livelyMost))
}

// converse notes a frame of s, if s is a conversation: little both ways. Two frames in a row begin a lively time, so that
// the request ahead of a download does not. A stream that is bulk one way is not, though small answers come the other way.
func (s *Stream) converse(now Time, bytes int) {
	c := s.c
	bulk := s.written.left(now) >= bulkVolume || s.taken.left(now) >= bulkVolume
	switch {
	case bulk && bytes > smallData:
		c.bulkAt = now
		return
	case bulk || bytes > smallData:
		return
	}
	long := c.livelyFor()
	c.lively = c.lively || c.livelyAt != 0 && now < c.livelyAt+long
	c.livelyAt = now
	if c.lively && c.bulkAt != 0 && now < c.bulkAt+long {
		c.beside(now)
	}
}

// beside notes that somebody converses beside bulk. Once that has gone on for besideTime the client wants a carrier for bulk.
func (c *Core) beside(now Time) {
	if c.besideAt == 0 || now > c.besideAt+besideGap {
		c.besideSince = now
	}
	was := c.wantsBulk()
	c.besideAt = now
	c.out.Changed = c.out.Changed || c.wantsBulk() && !was
}

// A second carrier is worth a handshake to a conversation beside bulk that lasts. It takes a pause of the one or the other.
const (
	besideTime = 250 * time.Millisecond
	besideGap  = 2 * time.Second
)

func (c *Core) wantsBulk() bool { return c.besideAt >= c.besideSince+besideTime }

// besideTalk says whether what k carries of bulk may delay a conversation on k.
func (k *Carrier) besideTalk() bool { return k.c.lively && k.role != frame.Bulk }

// frameBytes bounds one DATA so that it holds the carrier for at most 50 ms at the measured rate.
func (k *Carrier) frameBytes() int {
	if r := k.rate.during(50 * time.Millisecond); r > 0 {
		return min(max(r, 1<<10), frame.Max)
	}
	return frame.Max
}

// FlushBytes is how much may be gathered for one write, for the same 50 ms.
func (k *Carrier) FlushBytes() int {
	if k.besideTalk() {
		return frame.Max
	}
	return max(frame.Max, min(4*frame.Max, k.rate.during(50*time.Millisecond)))
}

// carriesNew says whether k takes new bytes of interactive streams, and of bulk.
func (c *Core) carriesNew(k *Carrier) (fast, bulk bool) {
	tx := c.tx()
	if tx == nil {
		racing := !k.attached && k.budget > 0
		return racing, racing
	}
	apart := c.bulkTx(tx)
	if tx == k {
		return true, apart == nil
	}
	return k.attached && tx.doubtful() && c.other(tx) == k, apart == k
}

// hasData says whether pullData would find anything.
func (c *Core) hasData(k *Carrier) bool {
	if !k.attached && k.budget <= 0 {
		return false
	}
	w := k.window()
	if k.unseen >= w+frame.Max {
		return false
	}
	fast, bulk := c.carriesNew(k)
	if len(k.fast) > 0 || fast && len(c.keys.list)+len(c.fast.list) > 0 {
		return true
	}
	return k.unseen < w && (len(k.slow) > 0 || bulk && len(c.bulk.list) > 0)
}

// pullData appends stream bytes: few interactive ones before many, these before bulk, a stream's repeated bytes before its new ones.
func (k *Carrier) pullData(now Time, b []byte) []byte {
	c := k.c
	w := k.window()
	fast, bulk := c.carriesNew(k)
	ok := true
	for ok && k.unseen < w+frame.Max && len(k.fast) > 0 {
		b, ok = k.pullSpan(now, b, &k.fast)
	}
	for ok && k.unseen < w+frame.Max && fast && len(c.keys.list) > 0 {
		b, ok = k.pullNew(now, b, &c.keys)
	}
	for ok && k.unseen < w+frame.Max && fast && len(c.fast.list) > 0 {
		b, ok = k.pullNew(now, b, &c.fast)
	}
	for ok && k.unseen < w && len(k.slow) > 0 {
		b, ok = k.pullSpan(now, b, &k.slow)
	}
	for ok && k.unseen < w && bulk && len(c.bulk.list) > 0 {
		b, ok = k.pullNew(now, b, &c.bulk)
	}
	return b
}

// room is how many stream bytes the record and the carrier still take.
func (k *Carrier) room(b []byte) int {
	n := min(frame.Max-len(b)-frame.DataOverhead, k.frameBytes())
	if !k.attached {
		n = min(n, k.budget)
	}
	return n
}

// pullSpan appends bytes to be carried again; false: no room.
func (k *Carrier) pullSpan(now Time, b []byte, list *[]span) ([]byte, bool) {
	p := &(*list)[0]
	s := p.s
	p.from = max(p.from, s.out.base)
	p.to = min(p.to, s.sent)
	if s.retired || s.ended == reset || s.err != nil || p.from >= p.to {
		*list = (*list)[1:]
		return b, true
	}
	if len(b) > frame.Max-controlRoom-frame.DataOverhead {
		return b, false
	}
	b = k.openFirst(now, b, s)
	n := k.room(b)
	if n <= 0 {
		return b, false
	}
	n = min(n, int(p.to-p.from))
	at := p.from
	if k.c.cfg.BreakReplay && n > 1 {
		at, n = at+1, n-1
	}
	b = k.data(now, b, sent{stream: s.ID, off: p.from, n: n, hedge: p.hedge}, s, at)
	k.c.counts.Repeated += uint64(n)
	p.from += uint64(n)
	if p.from >= p.to {
		*list = (*list)[1:]
	}
	return b, true
}

// pullNew appends new bytes of the first stream in q; false: no room.
func (k *Carrier) pullNew(now Time, b []byte, q *queue) ([]byte, bool) {
	s := q.list[0]
	if !s.sendable() {
		q.pop()
		s.queued = false
		return b, true
	}
	if len(b) > frame.Max-controlRoom-frame.DataOverhead {
		return b, false
	}
	b = k.openFirst(now, b, s)
	n := k.room(b)
	if n <= 0 {
		return b, false
	}
	n = min(n, int(min(s.out.end, s.limit)-s.sent))
	from := s.sent
	s.sent += uint64(n)
	s.c.counts.BytesOut += uint64(n)
	k.share(span{s, from, s.sent, true})
	b = k.data(now, b, sent{stream: s.ID, off: from, n: n, hedge: !k.attached}, s, from)
	if q.turn += n; q.turn >= k.turnBytes() || q != &k.c.bulk || !s.sendable() {
		q.pop()
		s.queued = false
		s.enqueue()
	}
	if s.ended == finished && s.sent == s.out.end {
		s.say(sayFin)
	}
	s.roomAgain()
	return b, true
}

// turnBytes is how much a bulk stream may send before the next one's turn. Several records of one stream in a row become
// one write to its app on the other side.
func (k *Carrier) turnBytes() int {
	if k.besideTalk() {
		return frame.Max - frame.DataOverhead - controlRoom
	}
	return min(k.rate.during(busyMachine), bulkTurn)
}

// bulkTurn is the longest turn of a bulk stream, and the size of the buffers it is received in.
const bulkTurn = 64 << 10

// share lets those carry new bytes too who must: the other candidates of a race, or the partner of a doubtful carrier.
func (k *Carrier) share(p span) {
	c := k.c
	tx := c.tx()
	if tx == nil {
		p.hedge = false
		c.orphans.carry(p)
		p.hedge = true
		for _, o := range c.carriers {
			if o != k && !o.attached && o.budget > 0 {
				o.carry(p)
				o.kick()
			}
		}
		return
	}
	if !tx.doubtful() || !p.s.interactive {
		return
	}
	o := tx
	if k == tx {
		o = c.other(tx)
	} else {
		p.hedge = false // the doubtful carrier answers for its bytes as well
	}
	if o != nil {
		o.carry(p)
		o.kick()
	}
}

// data appends one DATA, whose bytes lie at offset at of s, and logs it as e.
func (k *Carrier) data(now Time, b []byte, e sent, s *Stream, at uint64) []byte {
	b, start := frame.BeginData(b, e.stream, e.off)
	for left := e.n; left > 0; {
		d := s.out.at(at, left)
		b = append(b, d...)
		at, left = at+uint64(len(d)), left-len(d)
	}
	frame.EndData(b, start)
	s.converse(now, e.n)
	e.kind = frame.Data
	k.note(now, e)
	k.unseen += e.n
	if !k.attached {
		k.budget -= e.n
	}
	return b
}
