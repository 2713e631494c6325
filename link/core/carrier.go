package core

import (
	"time"

	"linkproxy/link/frame"
)

// Carrier is one transport connection as the core sees it. The caller writes what Pull gives, in order, and reports what
// it reads; each carrier has one writer.
type Carrier struct {
	// Ctx is the caller's.
	Ctx any

	c    *Core
	gen  uint64
	pref int
	role frame.Role

	attached bool // client: accepted by the host
	dead     bool
	closing  bool // CLOSE is due or was sent
	closed   bool // CLOSE was handed out: nothing follows
	closedAt Time
	since    Time // attached since
	budget   int  // app bytes it may carry before it is attached

	// Sending.
	log      []sent // frames the peer has not SEEN, oldest first
	logBase  []sent // the array that log is the tail of
	want     int    // index of the oldest entry of log that wants to be SEEN; len(log): none does
	sentN    uint64 // frames handed out
	unseen   int    // stream bytes in log
	flushed  int    // entries of log whose write has returned
	writing  bool
	writeAt  Time
	lastSend Time
	woken    bool
	urgent   bool            // something must go at once
	say      map[uint64]bits // values to say of streams
	sayOrder []uint64
	fast     []span // stream bytes to carry again: interactive
	slow     []span // and bulk

	// Control that is a value, not a queue.
	switchDue   bool
	served      uint64 // epoch in which this side last began to send on it
	left        Time   // when it last stopped; 0: never
	drainDue    uint64 // epoch of a DRAIN to send
	draining    uint64 // epoch in which this side left it
	drainAt     Time
	peerDrained bool
	peerDrainAt Time
	pingDue     bool
	pongDue     bool
	pongID      uint64
	pongPad     int
	proven      bool // a padded PING was answered
	proving     bool
	closeCode   uint32
	closeLink   [16]byte

	// Receiving.
	recvN     uint64 // frames received
	saidN     uint64 // of which SEEN has told
	recvBytes int    // since the last SEEN
	saidAt    Time   // when that was said
	inRate    rate   // of what comes
	lastRecv  Time
	lastFrame Time
	lastData  Time // 0: none
	ackAt     Time // SEEN and lazy STATEs are due; 0: not

	// Signs of life.
	rtt         rtt
	rate        rate
	delivered   uint64 // stream bytes SEEN, and when last, or when the first of a new burst was handed out
	deliveredAt Time
	suspect     bool // silent > 1 B
	hole        bool // bytes arrive, but what we sent is not SEEN
	doubtAt     Time
	hedgeSeen   Time // when a copy made for a doubtful carrier was last SEEN here
	lastPing    Time
	keepIdle    time.Duration // how long it may be idle before a PING
	keepMost    time.Duration // to which keepIdle grows; negative: no PING

	bytesIn, bytesOut uint64
}

// sent is one frame the peer has not SEEN.
type sent struct {
	kind      frame.Kind
	wants     bool // wants to be SEEN: starts the carrier's clock
	moved     bool // another carrier answers for it now
	hedge     bool // a copy made because another carrier is doubtful
	stream    uint64
	off       uint64
	n         int
	ahead     int    // stream bytes un-SEEN when it was handed out
	at, began Time   // when the write that carried it returned, and began
	delivered uint64 // stream bytes SEEN when it was handed out, and when
	refAt     Time
}

type span struct {
	s        *Stream
	from, to uint64
	hedge    bool
}

func newCarrier(c *Core, gen uint64) *Carrier {
	return &Carrier{c: c, gen: gen, say: map[uint64]bits{}, keepIdle: keepIdleFirst, keepMost: keepIdleMost}
}

// Gen is the carrier's generation.
func (k *Carrier) Gen() uint64 { return k.gen }

// SetCloseCode sets the code that k's CLOSE will carry.
func (k *Carrier) SetCloseCode(code uint32) { k.closeCode = code }

// Attached says whether the host has accepted it.
func (k *Carrier) Attached() bool { return k.attached }

// Ended says whether it is dead or told to close.
func (k *Carrier) Ended() bool { return k.dead || k.closing }

// Finished says whether CLOSE was handed out: the connection may be shut once it is written.
func (k *Carrier) Finished() bool { return k.closed }

// Proven says whether a large segment passed both ways.
func (k *Carrier) Proven() bool { return k.proven }

func (k *Carrier) doubtful() bool { return k.suspect || k.hole }

// emptying says that the link has moved off k as planned and that what is left on it may still be on its way.
func (k *Carrier) emptying(now Time) bool {
	return k.draining != 0 && now < k.drainAt+rollbackTime || k.peerDrained && now < k.peerDrainAt+rollbackTime
}

// urge makes the writer run and send all that is due, acknowledgements too.
func (k *Carrier) urge() {
	k.urgent = true
	k.kick()
}

// kick makes the writer look for something to send.
func (k *Carrier) kick() {
	if !k.woken && k.gen != 0 && !k.dead {
		k.woken = true
		k.c.out.Wake = append(k.c.out.Wake, k)
	}
}

// tell puts values of a stream on the list of what to say here.
func (k *Carrier) tell(id uint64, b bits) {
	old := k.say[id]
	if old == 0 {
		k.sayOrder = append(k.sayOrder, id)
	}
	k.say[id] = old | b
}

// again puts what e carried on the list of what to say here.
func (k *Carrier) again(e *sent, hedge bool) {
	if e.kind == frame.Data {
		if s := k.c.streams[e.stream]; s != nil {
			k.carry(span{s, e.off, e.off + uint64(e.n), hedge})
		}
		return
	}
	if b := bitOf(e.kind); b != 0 {
		k.tell(e.stream, b)
	} // A SWITCH is not said again: whenever a carrier ends, a newer one is.
}

// carry puts stream bytes on the list to be sent here again, joined to the last span where they follow it.
func (k *Carrier) carry(p span) {
	list := &k.slow
	if p.s.interactive {
		list = &k.fast
	}
	if n := len(*list); n > 0 {
		if l := &(*list)[n-1]; l.s == p.s && l.to == p.from && l.hedge == p.hedge {
			l.to = p.to
			return
		}
	}
	*list = append(*list, p)
}

// copyTo makes to answer for what k has not been SEEN to deliver: values all, stream bytes up to limit, interactive first.
// k may still deliver the rest.
func (k *Carrier) copyTo(to *Carrier, limit int) {
	for pass := range 2 {
		for i := range k.log {
			e := &k.log[i]
			if e.moved || e.hedge {
				continue
			}
			if e.kind == frame.Data {
				s := k.c.streams[e.stream]
				if s == nil || s.interactive != (pass == 0) {
					continue
				}
				if limit < e.n {
					limit = 0 // no gap for the sake of a smaller one
					continue
				}
				limit -= e.n
			} else if pass == 1 {
				continue
			}
			to.again(e, false)
			e.moved = true // to answers for it now; k's own delivery, if it comes first, only makes the copy needless
		}
	}
}

// preload lets to, a carrier of a race, carry what k holds; k keeps answering for it.
func (k *Carrier) preload(to *Carrier) {
	for _, id := range k.sayOrder {
		if b := k.say[id]; b != 0 {
			to.tell(id, b)
		}
	}
	for _, list := range [][]span{k.fast, k.slow} {
		for _, p := range list {
			p.hedge = true
			to.carry(p)
		}
	}
}

// own makes to, which has won a race, answer for all that k (the orphans) holds, leaving out what to has sent already.
// A STATE is said again whatever to has sent: its value may have changed since.
func (k *Carrier) own(to *Carrier) {
	to.fast, to.slow = owned(to.fast), owned(to.slow)
	for i := range to.log {
		e := &to.log[i]
		e.hedge = false
		if b := bitOf(e.kind) &^ sayState; b != 0 && k.say[e.stream] != 0 {
			k.say[e.stream] &^= b
		}
		if e.kind == frame.Data {
			k.fast = without(k.fast, e.stream, e.off, e.off+uint64(e.n))
			k.slow = without(k.slow, e.stream, e.off, e.off+uint64(e.n))
		}
	}
	k.handOver(to)
}

// forget drops what k was to carry: it answers for nothing.
func (k *Carrier) forget() {
	clear(k.say)
	k.sayOrder, k.fast, k.slow, k.budget = k.sayOrder[:0], nil, nil, 0
}

// owned returns the spans that are no mere copies.
func owned(list []span) []span {
	var out []span
	for _, p := range list {
		if !p.hedge {
			out = append(out, p)
		}
	}
	return out
}

// without returns the spans less [from, to) of a stream.
func without(list []span, id, from, to uint64) []span {
	var out []span
	for _, p := range list {
		if p.s.ID != id || p.to <= from || p.from >= to {
			out = append(out, p)
			continue
		}
		if p.from < from {
			out = append(out, span{p.s, p.from, from, p.hedge})
		}
		if p.to > to {
			out = append(out, span{p.s, to, p.to, p.hedge})
		}
	}
	return out
}

// handOver moves what k has not begun to send: it will not send it any more.
func (k *Carrier) handOver(to *Carrier) {
	for _, id := range k.sayOrder {
		if b := k.say[id]; b != 0 {
			to.tell(id, b)
		}
	}
	clear(k.say)
	k.sayOrder = k.sayOrder[:0]
	for _, list := range [][]span{k.fast, k.slow} {
		for _, p := range list {
			p.hedge = false
			to.carry(p)
		}
	}
	k.fast, k.slow = nil, nil
}

// moveTo makes to answer for all that k has not been SEEN to deliver.
func (k *Carrier) moveTo(to *Carrier) {
	k.handOver(to)
	for i := range k.log {
		e := &k.log[i]
		if !e.moved && !e.hedge {
			to.again(e, false)
			e.moved = true
		}
	}
}

// hedge lets to carry what k, being doubtful, may not deliver: values, interactive bytes, and the oldest bulk frame as a
// proof that to delivers.
func (k *Carrier) hedge(to *Carrier) {
	bulk := true
	for i := range k.log {
		e := &k.log[i]
		if e.moved {
			continue
		}
		if e.kind == frame.Data {
			s := k.c.streams[e.stream]
			if s == nil {
				continue
			}
			if !s.interactive {
				if !bulk {
					continue
				}
				bulk = false
			}
		}
		to.again(e, true)
	}
	for _, id := range k.sayOrder {
		if b := k.say[id]; b != 0 {
			to.tell(id, b)
		}
	}
	for _, p := range k.fast {
		p.hedge = true
		to.carry(p)
	}
	to.pingDue = true
	to.urge()
}

// oldest is the oldest frame that wants to be SEEN and since when it does: since its write returned, or, while that write
// is blocked, since it began.
func (k *Carrier) oldest() (e *sent, since Time, ok bool) {
	if k.want == len(k.log) {
		return nil, 0, false
	}
	e = &k.log[k.want]
	if k.want < k.flushed {
		return e, e.at, true
	}
	return e, k.writeAt, k.writing
}

// remember appends e to the log. The room of entries that were SEEN is used again once it is half of the array, so that
// neither a frame nor a SEEN costs in proportion to what is on its way.
func (k *Carrier) remember(e sent) {
	if free := cap(k.logBase) - cap(k.log); len(k.log) == cap(k.log) && free > 0 && free >= len(k.log) {
		k.log = k.logBase[:copy(k.logBase[:len(k.log)], k.log)]
	}
	if k.want == len(k.log) && !e.wants {
		k.want++
	}
	grows := len(k.log) == cap(k.log)
	k.log = append(k.log, e)
	if grows {
		k.logBase = k.log
	}
}

// forgetSeen drops the n oldest entries of the log.
func (k *Carrier) forgetSeen(n int) {
	k.log = k.log[n:]
	k.flushed = max(0, k.flushed-n)
	k.want = max(0, k.want-n)
	for k.want < len(k.log) && !k.log[k.want].wants {
		k.want++
	}
	if len(k.log) == 0 {
		k.log = k.logBase[:0]
		if cap(k.log) > 64 {
			k.log, k.logBase = nil, nil // an idle carrier holds nothing
		}
	}
}

// slowStart is the delivery rate, in bytes a second, that a carrier is trusted to have before one was measured: else the
// first bulk on a slow uplink looked like silence.
const slowStart = 64 << 10

// b is B for frame e: see docs/wire.md, Signs of life. What lay ahead of e counts as far as it takes longer than a round
// trip: on a trickle the measured rate is only what the app had to send, and what was ahead is one round trip's worth of it.
func (k *Carrier) b(e *sent) time.Duration {
	ahead, r, free := e.ahead, k.rate.bytesPerSecond(), k.rtt.minRTT()
	if r == 0 {
		r, free = slowStart, 0
		if ahead += e.n; ahead <= smallData {
			ahead = 0
		}
	}
	return k.rtt.base() + max(0, time.Duration(float64(ahead)/r*float64(time.Second))-free)
}

// CarrierStatus is what a status shows of a carrier.
type CarrierStatus struct {
	Gen               uint64
	Attached, Active  bool
	Suspect, Draining bool
	Bulk              bool // for the bytes of bulk, beside the one in use
	RTT, B            time.Duration
	Unseen            int // stream bytes sent and not SEEN
	BytesIn, BytesOut uint64
	Since             Time
	LastRecv          Time
}

func (k *Carrier) status() CarrierStatus {
	return CarrierStatus{
		Gen: k.gen, Attached: k.attached, Active: k.c.tx() == k, Suspect: k.doubtful(), Draining: k.draining != 0, Bulk: k.role == frame.Bulk,
		RTT: k.rtt.srtt, B: k.rtt.base(), Unseen: k.unseen, BytesIn: k.bytesIn, BytesOut: k.bytesOut,
		Since: k.since, LastRecv: k.lastRecv,
	}
}
