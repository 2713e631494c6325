package core

import (
	"time"

	"linkproxy/link/frame"
)

// bits are the values a side may have to say of a stream.
type bits uint8

const (
	sayOpen   bits = 1 << iota // client
	sayOpened                  // host
	sayState
	sayFin
	sayReset // REFUSED, where the host refuses
	sayStop
	sayGone
)

// bitOf is the value that a frame of kind k says.
func bitOf(k frame.Kind) bits {
	switch k {
	case frame.Open:
		return sayOpen
	case frame.Opened:
		return sayOpened
	case frame.State:
		return sayState
	case frame.Fin:
		return sayFin
	case frame.Reset, frame.Refused:
		return sayReset
	case frame.Stop:
		return sayStop
	case frame.Gone:
		return sayGone
	}
	return 0
}

// end is how one direction of a stream ended.
type end uint8

const (
	open     end = iota
	finished     // FIN
	reset        // RESET or REFUSED
)

// Stream is one app connection as the core sees it, on either side.
type Stream struct {
	c        *Core
	ID       uint64
	Target   string
	Priority uint8
	Hold     time.Duration
	// Ctx is the caller's.
	Ctx any

	// Sending.
	out      sendBuf
	sent     uint64 // bytes that were handed to a carrier
	limit    uint64 // the peer's credit
	ended    end
	endCode  uint32
	refused  bool   // host: the RESET is said as REFUSED
	final    uint64 // where it ended
	endAcked bool
	sendHeld int // bytes of the pool charged for what is kept
	queued   bool
	blocked  bool // the app waits for room
	openSeen bool // client: the host has SEEN the OPEN
	openOn   []uint64
	accepted bool   // OPENED was said (host) or has come (client)
	written  bucket // interactive or bulk, by what the app writes

	// Receiving.
	in        recvBuf
	window    int    // credit beyond what the app has read
	granted   uint64 // the limit told to the peer
	recvHeld  int    // bytes of the pool charged for credit
	peerEnd   end
	peerCode  uint32
	peerFinal uint64
	stopped   bool // the app wants no more: STOP
	stopCode  uint32
	stopCame  bool
	roundRead uint64 // window growth: where and when the running round began
	roundAt   Time
	taken     bucket // interactive or bulk, by what the peer sends

	interactive  bool
	uncounted    bool // host: beyond the key's bound, refused
	retired      bool
	err          error // why it ended, where the link or the hold time did it
	toldReadable bool
	toldWritable bool
}

func (c *Core) newStream(id uint64, target string, priority uint8, hold time.Duration) *Stream {
	s := &Stream{
		c: c, ID: id, Target: target, Priority: priority, Hold: c.cfg.Hold, limit: implicit, window: implicit,
		granted: implicit, interactive: true,
	}
	if hold > 0 {
		s.Hold = min(hold, s.Hold)
	}
	s.out.mem, s.in.mem = c.cfg.Memory, c.cfg.Memory
	c.streams[id] = s
	c.counts.Opened++
	return s
}

// Open starts a stream on the client. hold: how long it survives without a carrier, zero for the link's.
func (c *Core) Open(now Time, target string, priority uint8, hold time.Duration) (*Stream, bool) {
	s, ok := c.open(target, priority, hold)
	if ok {
		s.say(sayOpen)
	}
	return s, ok
}

// OpenEarly is Open for an app that most likely has bytes already: its OPEN goes with them, or soon by itself.
func (c *Core) OpenEarly(now Time, target string, priority uint8, hold time.Duration) (*Stream, bool) {
	s, ok := c.open(target, priority, hold)
	if ok {
		s.saySoon(now, sayOpen)
	}
	return s, ok
}

func (c *Core) open(target string, priority uint8, hold time.Duration) (*Stream, bool) {
	if c.err != nil || !c.cfg.Account.AddStream() {
		return nil, false
	}
	c.lastID++
	s := c.newStream(c.lastID, target, priority, hold)
	c.opened = true
	return s, true
}

// Announce has an early OPEN said now: the app has no bytes yet.
func (s *Stream) Announce() {
	if k := s.c.tx(); k != nil && k.say[s.ID]&sayOpen != 0 {
		k.urge()
	}
}

// Accept says, on the host, that the target has answered. A client whose bytes have come already does not wait for that word:
// it goes with what else there is to say.
func (s *Stream) Accept(now Time) {
	if s.accepted || s.retired || s.ended != open {
		return
	}
	s.accepted = true
	if s.in.next > 0 {
		s.saySoon(now, sayOpened)
	} else {
		s.say(sayOpened)
	}
}

// Refuse says, on the host, that there will be no target.
func (s *Stream) Refuse(code uint32) {
	if s.sent > 0 || s.ended != open || s.retired {
		s.Reset(code) // too late: REFUSED says that nothing was sent, and stands for the RESET that STOP is answered by
		return
	}
	s.refused, s.stopped = true, true // REFUSED is RESET and STOP in one
	s.endReset(code)
	s.unwanted()
}

// Accepted says whether OPENED was said or has come. Refused gives the reason the host refused with.
func (s *Stream) Accepted() bool { return s.accepted }

// Refusal is the host's reason for refusing, on the client.
func (s *Stream) Refusal() (code uint32, refused bool) { return s.peerCode, s.refused }

// carrierFor is where something said of s goes: the carrier this side sends on, else the orphans.
func (c *Core) owner() *Carrier {
	if k := c.tx(); k != nil {
		return k
	}
	return c.orphans
}

// say puts values of s on their way at once, twice while the carrier is doubtful.
func (s *Stream) say(b bits) {
	c := s.c
	k := c.owner()
	k.tell(s.ID, b)
	k.urge()
	if k == c.orphans {
		c.sayRacing(s.ID, b)
		return
	}
	if k.doubtful() {
		if o := c.other(k); o != nil {
			o.tell(s.ID, b)
			o.urge()
		}
	}
}

// saySoon has values of s said with what else goes, after ackSmall at the latest. Where nobody sends, or who sends is in doubt,
// it is said at once.
func (s *Stream) saySoon(now Time, b bits) {
	k := s.c.tx()
	if k == nil || k.doubtful() {
		s.say(b)
		return
	}
	k.tell(s.ID, b)
	k.ackBy(now + ackSmall)
}

func (c *Core) sayRacing(id uint64, b bits) {
	for _, k := range c.carriers {
		if !k.attached && k.budget > 0 {
			k.tell(id, b)
			k.urge()
		}
	}
}

// state has a STATE of s told: lazily with what else goes, or at once. It goes where the data came, and on every carrier
// while one is doubtful or draining (docs/wire.md, Signs of life).
func (s *Stream) state(now Time, on *Carrier, urgent bool) {
	c := s.c
	if on == nil || on.Ended() {
		on = c.owner()
	}
	s.stateOn(now, on, urgent)
	if on == c.orphans {
		return
	}
	many := false
	for _, k := range c.carriers {
		many = many || k.attached && (k.doubtful() || k.emptying(now))
	}
	if !many {
		return
	}
	for _, k := range c.carriers {
		if k != on && k.attached && !k.closing {
			s.stateOn(now, k, urgent)
		}
	}
}

func (s *Stream) stateOn(now Time, k *Carrier, urgent bool) {
	k.tell(s.ID, sayState)
	if urgent {
		k.urge()
	} else if k.ackAt == 0 {
		k.ackAt = now + ackSmall
	}
}

// --- what the app does

// Room is how many bytes the app may write now.
func (s *Stream) Room() int {
	if s.ended != open || s.retired || s.err != nil {
		return 0
	}
	if s.stopCame {
		return 0
	}
	return max(0, s.ahead()-int(s.out.end-s.sent))
}

// ahead is how far s is read ahead of what could be sent.
func (s *Stream) ahead() int {
	if k := s.c.tx(); k != nil {
		return max(minUnsent, min(k.rate.during(unsentTime), maxUnsent))
	}
	return minUnsent
}

// roomAgain tells the app of a stream that had no room once half of what it may read ahead is free: enough for a large read.
func (s *Stream) roomAgain() {
	if s.blocked && s.Room() >= s.ahead()/2 {
		s.blocked = false
		s.writable()
	}
}

// charge sees that n more bytes may be kept for saying again; it returns how many may.
func (s *Stream) charge(n int) int {
	over := int(s.out.end-s.out.base) + n - implicit - s.sendHeld
	if over <= 0 {
		return n
	}
	step := (over + implicit - 1) / implicit * implicit
	if s.c.cfg.Account.Charge(step) {
		s.sendHeld += step
		return n
	}
	return max(0, n-over)
}

// releaseKept gives back what is charged beyond what is kept or may yet be.
func (s *Stream) releaseKept() {
	s.release(&s.sendHeld, max(0, int(s.out.end-s.out.base)+s.out.lent-implicit))
}

// Write takes as much of p as there is room for and returns how much; fewer: the app is told by Writable.
func (s *Stream) Write(now Time, p []byte) int {
	n := s.charge(min(len(p), s.Room()))
	if n < len(p) {
		s.blocked = true
	}
	if n > 0 {
		s.out.append(p[:n])
		s.wrote(now, n)
	}
	return n
}

// Tail lends room to read an app's bytes into, and Grow says how many came. Between the two nothing else may write to s.
// An empty tail: no room now, Writable tells when.
func (s *Stream) Tail(want int) []byte {
	n := s.charge(min(want, s.Room()))
	if n == 0 {
		s.blocked = true
		return nil
	}
	b := s.out.tail(n)
	b = b[:min(len(b), n)]
	s.out.lent = len(b)
	return b
}

// Grow ends what Tail began: n bytes of it were filled.
func (s *Stream) Grow(now Time, n int) {
	s.out.lent = 0
	if n > 0 && s.ended == open && !s.retired && s.err == nil {
		s.out.grow(n)
		s.wrote(now, n)
	}
	// What was lent and not filled goes back; if the stream ended meanwhile, the buffer is the garbage collector's.
	s.out.sweep()
	s.releaseKept()
}

func (s *Stream) wrote(now Time, n int) {
	s.classify(now, n)
	s.c.byteMoved(now)
	s.enqueue()
}

// quietTime is how long no byte must have moved for the next one to be told as a change of the status.
const quietTime = 10 * time.Second

func (c *Core) byteMoved(now Time) {
	if c.lastByte == 0 || now >= c.lastByte+quietTime {
		c.out.Changed = true
	}
	c.lastByte = now
}

// bulkVolume and bulkLeak tell interactive from bulk: who sends more than 32 KiB faster than 64 KiB a second is bulk.
const (
	bulkVolume = 32 << 10
	bulkLeak   = 64 << 10
)

// classify keeps a leaky bucket of what the app writes.
func (s *Stream) classify(now Time, n int) {
	level := s.written.add(now, n)
	switch {
	case level >= bulkVolume || s.Priority != 0:
		s.interactive = false
	case level < bulkVolume/4: // not at once: what goes to and fro between two carriers is received with gaps
		s.interactive = true
	}
}

// bucket is a volume that leaks.
type bucket struct {
	level int
	at    Time
}

// add puts n bytes in and returns what is there then.
func (b *bucket) add(now Time, n int) int {
	b.level, b.at = b.left(now)+n, now
	return b.level
}

// left is what has not leaked out.
func (b *bucket) left(now Time) int {
	leak := (now - b.at).Seconds() * bulkLeak
	return max(0, b.level-int(min(leak, 1<<30)))
}

// CloseWrite ends the app's direction with FIN.
func (s *Stream) CloseWrite() {
	if s.ended != open || s.retired || s.err != nil {
		return
	}
	s.ended, s.final = finished, s.out.end
	if s.sent == s.out.end {
		s.say(sayFin)
	}
}

// Reset ends both directions at once: RESET and STOP.
func (s *Stream) Reset(code uint32) {
	if !s.retired && s.err == nil {
		s.endReset(code)
	}
	s.Stop(code)
}

// endReset ends the sending direction and drops what was not delivered.
func (s *Stream) endReset(code uint32) {
	if s.ended == reset || s.endAcked {
		return
	}
	if s.ended == open || s.sent < s.out.end {
		s.final = s.sent // after a FIN that was said, the same final
	}
	s.ended, s.endCode = reset, code
	s.freeOut()
	s.say(sayReset)
}

// Stop says that the app wants no more bytes; it is no abort of what the app sends. Bytes that came are dropped.
func (s *Stream) Stop(code uint32) {
	if !s.retired && s.err == nil {
		s.stop(code)
	}
	s.stopped = true
	s.unwanted()
}

func (s *Stream) stop(code uint32) {
	if s.stopped {
		return
	}
	s.stopped, s.stopCode = true, code
	if s.peerEnd == open {
		s.say(sayStop)
	}
}

func (s *Stream) freeOut() {
	s.out.drop()
	s.release(&s.sendHeld, 0)
}

func (s *Stream) release(held *int, keep int) {
	if *held > keep {
		s.c.cfg.Account.Release(*held - keep)
		*held = keep
	}
}

// Peek is what the app may read now, as far as it lies together; valid until Discard.
func (s *Stream) Peek() []byte { return s.in.peek() }

// Discard takes n peeked bytes off and renews the peer's credit.
func (s *Stream) Discard(now Time, n int) {
	if n <= 0 || !s.in.peeked {
		return // what was peeked has been dropped meanwhile
	}
	s.in.discard(n)
	s.c.lastByte = now
	s.renew(now)
}

// ReadEnd says how reading ends once everything was peeked and discarded; nil error and false: it has not ended.
func (s *Stream) ReadEnd() (eof bool, err error) {
	switch {
	case len(s.in.queue) > 0:
		return false, nil
	case s.peerEnd == finished && s.in.next == s.peerFinal && !s.in.lossy:
		return true, nil
	case s.err != nil:
		return false, s.err
	case s.peerEnd == reset, s.stopped:
		return false, ErrReset
	}
	return false, nil
}

// WriteErr says why writing is over; nil: it is not.
func (s *Stream) WriteErr() error {
	switch {
	case s.err != nil:
		return s.err
	case s.ended == reset, s.stopCame:
		return ErrReset
	case s.retired:
		return ErrReset
	}
	return nil
}

// Stopped says that the peer wants no more bytes.
func (s *Stream) Stopped() bool { return s.stopCame }

// Bytes are how many bytes the app has read and written.
func (s *Stream) Bytes() (read, written uint64) { return s.in.read, s.out.end }

// OpenSent says whether an OPEN of s was ever handed to a carrier.
func (s *Stream) OpenSent() bool { return s.openSeen || len(s.openOn) > 0 }

// Aborted says whether this side has ended both directions at once, so that nobody waits for s any more.
func (s *Stream) Aborted() bool { return s.ended == reset && s.stopped }

// PeerCode is the code of the peer's RESET or REFUSED.
func (s *Stream) PeerCode() uint32 { return s.peerCode }

// --- credit

// renew gives the peer new credit once half a window was read, and widens the window of an app that reads fast.
func (s *Stream) renew(now Time) {
	if s.retired || s.peerEnd != open {
		s.releaseRead()
		return
	}
	s.widen(now)
	limit := s.in.read + uint64(s.window)
	if limit <= s.granted || limit-s.granted < uint64(s.window)/4 {
		return
	}
	waits := s.granted-s.in.next < uint64(s.window)/2 // the peer has used most of what it had
	s.granted = limit
	if k := s.c.tx(); waits && k != nil && now-k.lastData > flowing {
		k.pingDue = true // nothing else may tell that it is lost
	}
	s.state(now, nil, waits)
}

// releaseRead gives back what is charged for credit that cannot be used any more: nothing comes beyond a known end.
func (s *Stream) releaseRead() {
	switch {
	case s.retired || s.peerEnd == reset: // nothing comes any more, though a FIN may be ahead of bytes that were lost
		s.release(&s.recvHeld, max(0, int(s.in.next-s.in.read)-implicit))
	case s.peerEnd == finished:
		s.release(&s.recvHeld, max(0, int(s.peerFinal-s.in.read)-implicit))
	}
}

// widenFloor is the shortest time a window is expected to last: on a local network the round trip says nothing of how
// long an app takes to read.
const widenFloor = 5 * time.Millisecond

func (s *Stream) widen(now Time) {
	if s.in.read-s.roundRead < uint64(s.window) {
		return
	}
	rtt := widenFloor
	if k := s.c.tx(); k != nil {
		rtt = max(rtt, 2*k.rtt.srtt)
	}
	// Doubled only as far as the pool gives: a window that is not there must not delay the credit that is.
	if s.roundAt != 0 && now-s.roundAt <= rtt && s.window < maxWindow && s.c.cfg.Account.Charge(s.window) {
		s.recvHeld += s.window
		s.window *= 2
	}
	s.roundRead, s.roundAt = s.in.read, now
}

// --- sending queues

// queue is a first-in first-out list of streams.
type queue struct {
	list []*Stream
	base []*Stream // the array of an earlier list, to be used again
	turn int       // bytes that the first one has sent in its turn
}

func (q *queue) push(s *Stream) {
	if q.list == nil {
		q.list = q.base[:0]
	}
	q.list = append(q.list, s)
	if len(q.list) == 1 {
		q.base = q.list
	}
}

func (q *queue) pop() *Stream {
	s := q.list[0]
	q.turn = 0
	q.list[0] = nil
	q.list = q.list[1:]
	if len(q.list) == 0 {
		q.list = nil
	}
	return s
}

func (s *Stream) sendable() bool {
	return !s.retired && s.ended != reset && s.err == nil && s.sent < min(s.out.end, s.limit)
}

// enqueue lines s up if it has bytes that may go, and wakes whoever may send them.
func (s *Stream) enqueue() {
	if s.queued || !s.sendable() {
		return
	}
	s.queued = true
	c := s.c
	switch {
	case !s.interactive:
		c.bulk.push(s)
	case s.out.end-s.sent > smallData:
		c.fast.push(s)
	default:
		c.keys.push(s)
	}
	if k := c.tx(); k != nil {
		if o := c.bulkTx(k); o != nil && !s.interactive {
			o.kick()
		} else {
			k.kick()
		}
		if k.doubtful() {
			if o := c.other(k); o != nil {
				o.kick()
			}
		}
		return
	}
	for _, k := range c.carriers {
		if !k.attached && k.budget > 0 {
			k.kick()
		}
	}
}

// --- ends

// tryRetire ends s for the protocol: its own end was acknowledged and the peer's has come whole.
func (s *Stream) tryRetire() {
	if s.endAcked && s.peerEnd != open && (s.peerEnd == reset || s.in.next == s.peerFinal) {
		s.retire()
	}
}

func (s *Stream) retire() {
	if s.retired {
		return
	}
	s.retired = true
	delete(s.c.streams, s.ID)
	if s.uncounted {
		s.c.turnedAway--
	} else {
		s.c.cfg.Account.RemoveStream()
	}
	s.freeOut()
	s.releaseRead()
	s.readable()
	s.writable()
	s.c.out.Changed = true
}

// fail ends s for the app.
func (s *Stream) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.freeOut()
	s.readable()
	s.writable()
}

func (s *Stream) readable() {
	if !s.toldReadable {
		s.toldReadable = true
		s.c.out.Readable = append(s.c.out.Readable, s)
	}
}

func (s *Stream) writable() {
	if !s.toldWritable {
		s.toldWritable = true
		s.c.out.Writable = append(s.c.out.Writable, s)
	}
}

// Wake has both sides of the app told that something changed.
func (s *Stream) Wake() {
	s.readable()
	s.writable()
}
