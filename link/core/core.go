// Package core is the pure heart of a link: which bytes and which frames go on which carrier, what has arrived, what must be
// said again, when a carrier is suspect and when the link moves to another. It takes events and the time and hands out
// frames, signals and a wake-up time. It reads no clock, starts nothing, locks nothing and does no I/O; its caller does, and
// calls it from one place at a time. The rules are those of docs/wire.md.
package core

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"linkproxy/link/frame"
)

// Account is one key's share of the process's memory for stream bytes and of its streams.
type Account interface {
	// Charge takes n bytes of the pool; false: not to be had now. Release gives them back.
	Charge(n int) bool
	Release(n int)
	// AddStream counts a stream; false: the key has too many.
	AddStream() bool
	RemoveStream()
}

// Config is what a core is made of. Every field but Hold and BreakReplay is needed.
type Config struct {
	Client  bool
	Memory  Memory
	Account Account
	Rand    *rand.Rand
	// Hold is how long a stream survives without any carrier. Zero: DefaultHold.
	Hold time.Duration
	// BreakReplay is a planted fault, for the negative control of `linkproxy demo` only: whenever stream bytes are carried
	// again, the first of them is left out and the last is said twice.
	BreakReplay bool
}

// Bounds and times of a link; each says what it is measured against.
const (
	// DefaultHold outlives a night and a working day in a bag.
	DefaultHold = 24 * time.Hour
	// emptyHold is how long a host keeps a link that never carried an OPEN.
	emptyHold = 60 * time.Second
	// implicit is the credit every stream has without asking, in bytes; it lies outside the pool.
	implicit = 32 << 10
	// maxWindow is the most credit a stream is given beyond what its app has read: 500 Mbit/s at 200 ms are 12.5 MB.
	maxWindow = 16 << 20
	// minUnsent to maxUnsent is how far a stream reads ahead of what could be sent: what the carrier delivers in unsentTime,
	// so that its writer always finds something and the app is read in a few long goes, not woken for each buffer.
	minUnsent  = 128 << 10
	maxUnsent  = 1 << 20
	unsentTime = 3 * time.Millisecond
	// racingBytes is the most app bytes that a carrier gets before the host has accepted it.
	racingBytes = 16 << 10
	// ackBytes (more at a high rate, where the sender's window has grown by more) and ackDelay bound how late bulk is
	// acknowledged; ackSmall is for single small frames: long enough for the
	// answer to carry it, short against B, which it is taken out of.
	ackBytes = 64 << 10
	ackDelay = 25 * time.Millisecond
	ackSmall = 2 * time.Millisecond
	// smallData is the largest DATA that is acknowledged as a small one.
	smallData = 4 << 10
	// provePad is the padding of the PING and PONG that prove that large segments pass.
	provePad = 4 << 10
)

// Errors a link or a stream ends with.
var (
	ErrProtocol = errors.New("link: the peer broke the protocol")
	ErrHoldOver = errors.New("link: no route to the peer for longer than the hold time")
	ErrReset    = errors.New("link: stream reset by the peer")
)

// Core is one side of one link.
type Core struct {
	cfg      Config
	streams  map[uint64]*Stream // live: not retired
	seen     intervals          // host: ids that were opened or reset
	lastID   uint64             // client: the last id it gave out
	carriers []*Carrier         // pending and attached, by generation
	lastGen  uint64             // client: the last generation it gave out
	epoch    uint64             // the highest decision known
	named    uint64             // the generation it names
	planned  bool               // client: how the last decision left the carrier before
	racing   bool               // client: this epoch is a race that nobody has won yet
	newOK    bool               // client: NEW_OK has come
	newAt    Time               // client: when the first NEW with app frames left; -1: none did
	keep     frame.Keep         // host: what the client last said it knows
	used     map[uint64]bool    // host: generations that were attached, from keep on
	keys     queue              // streams with few new interactive bytes
	fast     queue              // with more
	bulk     queue              // streams with new bulk bytes
	orphans  *Carrier           // what waits to be said again while no carrier lives
	lost     bool               // no attached carrier
	lostAt   Time
	opened   bool // an OPEN was ever carried
	pingID   uint64
	// host: streams refused for want of room whose end the client has not acknowledged
	turnedAway int
	err        error // why the link ended
	out        Out
	counts     Counts
	switches   []SwitchRecord
	lastByte   Time
	lively     bool // somebody converses, as of livelyAt
	livelyAt   Time
	bulkAt     Time // when bulk last moved, either way; 0: never
	// when somebody last conversed beside bulk, and since when that goes on
	besideAt, besideSince Time
}

// Out is what the caller has to do after a call: wake writers, tell apps, close connections. Take empties it.
type Out struct {
	Wake     []*Carrier // have something to write
	Closed   []*Carrier // ended: their connections are to be closed
	Readable []*Stream
	Writable []*Stream
	Incoming []*Stream // host: newly opened
	Changed  bool      // something a status shows has changed
}

// Counts are totals since the link began.
type Counts struct {
	BytesIn, BytesOut uint64 // stream bytes delivered to memory once, and handed to a carrier for the first time
	Repeated          uint64 // stream bytes handed to a carrier again
	Opened            uint64 // streams ever opened
}

// SwitchRecord tells of one move of the link.
type SwitchRecord struct {
	At         Time
	From, To   uint64 // generations; From 0: none was attached
	Planned    bool
	UnseenFrom int // stream bytes not SEEN on From at that moment
	Reason     string
}

// keptSwitches is how many moves a status can look back on.
const keptSwitches = 32

// New returns a core at time 0 without carriers.
func New(cfg Config) *Core {
	if cfg.Hold == 0 {
		cfg.Hold = DefaultHold
	}
	c := &Core{cfg: cfg, streams: map[uint64]*Stream{}, used: map[uint64]bool{}, newAt: -1, lost: true}
	c.orphans = newCarrier(c, 0)
	return c
}

// Take returns what is to be done and forgets it.
func (c *Core) Take() Out {
	out := c.out
	c.out = Out{}
	for _, k := range out.Wake {
		k.woken = false
	}
	for _, s := range out.Readable {
		s.toldReadable = false
	}
	for _, s := range out.Writable {
		s.toldWritable = false
	}
	return out
}

// Err is why the link ended; nil while it lives.
func (c *Core) Err() error { return c.err }

// End ends the link: every stream fails with err, every carrier is closed, after a CLOSE with code if one lives.
func (c *Core) End(now Time, err error, link [16]byte, code uint32) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, s := range c.ordered() {
		s.fail(err)
		s.retire()
	}
	for _, k := range c.carriers {
		k.closeCode, k.closeLink, k.closing, k.closedAt = code, link, true, now
		k.urge()
	}
	c.out.Changed = true
}

// ordered is a copy of the live streams by id, so that the same events always have the same effects.
func (c *Core) ordered() []*Stream {
	list := make([]*Stream, 0, len(c.streams))
	for _, s := range c.streams {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Stream) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// tx is the carrier this side sends on: the named one, else the attached one of the highest generation, one for bulk only if
// there is no other; nil: none.
func (c *Core) tx() *Carrier {
	var last *Carrier
	for _, k := range c.carriers {
		if !k.attached || k.closing {
			continue
		}
		if k.gen == c.named {
			return k
		}
		if last == nil || k.role != frame.Bulk || last.role == frame.Bulk {
			last = k
		}
	}
	return last
}

// bulkTx is the carrier that bulk is sent on in place of tx; nil: there is none, or it is in doubt or was left. The host sends
// nothing on it before the client has: a client that never learned of the attach could not tell it of the carrier's end.
func (c *Core) bulkTx(tx *Carrier) *Carrier {
	for _, k := range c.carriers {
		if k.role == frame.Bulk && k != tx && k.attached && !k.closing && k.draining == 0 && !k.doubtful() &&
			(c.cfg.Client || k.recvN > 0) {
			return k
		}
	}
	return nil
}

// other is the best attached carrier besides k: not suspect before suspect, one for bulk last, then by preference, then the
// newest.
func (c *Core) other(k *Carrier) *Carrier {
	var best *Carrier
	for _, o := range c.carriers {
		if o != k && o.attached && !o.closing && (best == nil || o.betterThan(best)) {
			best = o
		}
	}
	return best
}

func (k *Carrier) betterThan(o *Carrier) bool {
	switch {
	case k.doubtful() != o.doubtful():
		return o.doubtful()
	case (k.role == frame.Bulk) != (o.role == frame.Bulk):
		return o.role == frame.Bulk
	}
	return k.pref <= o.pref
}

func (c *Core) find(gen uint64) *Carrier {
	for _, k := range c.carriers {
		if k.gen == gen {
			return k
		}
	}
	return nil
}

// --- attaching

// Begin starts a carrier on the client: it returns it, pending, with the NEW or ATTACH that opens it. handshake is how long
// its handshake's round trip took; pref orders carriers for failover, lower is better.
func (c *Core) Begin(now Time, role frame.Role, pref int, handshake time.Duration) (*Carrier, frame.Frame) {
	c.lastGen++
	k := newCarrier(c, c.lastGen)
	k.role, k.pref, k.lastRecv, k.lastSend, k.since = role, pref, now, now, now
	k.rtt.sample(now, handshake, handshake)
	if role == frame.Active && c.tx() == nil && !c.racing {
		c.epoch++
		c.racing = true
	}
	c.carriers = append(c.carriers, k)
	f := frame.Frame{Kind: frame.Attach, Role: role, Gen: k.gen, Epoch: c.epoch, Keep: c.known()}
	if !c.newOK {
		f.Kind, f.Role, k.role = frame.New, frame.Active, frame.Active
		if c.newAt >= 0 {
			f.Age = now - c.newAt
		}
	}
	if c.tx() == nil && role == frame.Active {
		k.budget = racingBytes
		c.orphans.preload(k)
		k.urge()
	}
	return k, f
}

// known is the keep of this client now: all generations given out, with those that still live. With more of these than a
// list may name, what it cannot name lies at or above Below, so that the host closes none of them.
func (c *Core) known() frame.Keep {
	keep := frame.Keep{Below: c.lastGen + 1}
	for _, k := range c.carriers {
		if k.closing {
			continue
		}
		if len(keep.List) == frame.MaxKeep {
			keep.Below = k.gen
			break
		}
		keep.List = append(keep.List, k.gen)
	}
	return keep
}

// Accepted tells that the host answered NEW_OK or ATTACH_OK on k.
func (c *Core) Accepted(now Time, k *Carrier) {
	if k.dead || k.closing || k.attached || c.err != nil {
		return
	}
	c.newOK = true
	old := c.tx()
	k.attached, k.since = true, now
	k.budget = 0
	c.lost = false
	c.out.Changed = true
	if old == nil {
		c.switchTo(now, k, false, "attached")
		return
	}
	if old.doubtful() {
		old.hedge(k)
	}
	k.pingDue = k.pingDue || k.role == frame.Bulk
	k.urge()
}

// Admit attaches a carrier on the host with what its NEW or ATTACH said. false: the generation is stale.
func (c *Core) Admit(now Time, f *frame.Frame, handshake time.Duration) (*Carrier, bool) {
	if c.used[f.Gen] || !c.keep.Holds(f.Gen) || c.err != nil {
		return nil, false
	}
	k := newCarrier(c, f.Gen)
	k.role, k.attached, k.lastRecv, k.lastSend, k.since = f.Role, true, now, now, now
	k.rtt.sample(now, handshake, handshake)
	old := c.tx()
	c.insert(k)
	c.used[f.Gen] = true
	c.keepOnly(now, f.Keep)
	c.yield(now, k)
	c.lost = false
	c.out.Changed = true
	if f.Role == frame.Active && f.Epoch > c.epoch || old == nil {
		c.epoch = max(c.epoch, f.Epoch)
		c.adopt(now, old, k, false, "attached")
	} else if old.doubtful() {
		old.hedge(k)
	}
	return k, true
}

// maxCarriers bounds the carriers of a link at the host. A client has a few; more than a keep can name it would not know how
// to speak of.
const maxCarriers = frame.MaxKeep

// yield has the oldest carrier make room for k, which has just attached: an attach is never refused for their number.
func (c *Core) yield(now Time, k *Carrier) {
	tx := c.tx()
	for _, o := range c.carriers {
		if len(c.carriers) > maxCarriers && o != k && o != tx {
			c.Dead(now, o)
			return
		}
	}
}

func (c *Core) insert(k *Carrier) {
	i := len(c.carriers)
	for i > 0 && c.carriers[i-1].gen > k.gen {
		i--
	}
	c.carriers = append(c.carriers, nil)
	copy(c.carriers[i+1:], c.carriers[i:])
	c.carriers[i] = k
}

// keepOnly closes, on the host, the carriers that the client no longer knows.
func (c *Core) keepOnly(now Time, keep frame.Keep) {
	if keep.Below < c.keep.Below {
		return // an older word that came late
	}
	c.keep = keep
	for g := range c.used {
		if g < keep.Below && !keep.Holds(g) {
			delete(c.used, g)
		}
	}
	for _, k := range append([]*Carrier(nil), c.carriers...) {
		if !keep.Holds(k.gen) {
			c.Dead(now, k)
		}
	}
}

// --- moving

// SwitchTo moves the link to the attached carrier k; planned: the old one is drained, otherwise left at once.
func (c *Core) SwitchTo(now Time, k *Carrier, planned bool, reason string) bool {
	if k.dead || !k.attached || k.closing || c.err != nil {
		return false
	}
	if c.tx() != k {
		c.switchTo(now, k, planned, reason)
	}
	return true
}

// switchTo is the client's decision: the next epoch names k, and every carrier is told.
func (c *Core) switchTo(now Time, k *Carrier, planned bool, reason string) {
	old := c.tx()
	if old == k && c.named != k.gen {
		old = nil // k was alone and got attached just now
	}
	c.epoch++
	c.racing, c.planned = false, planned
	c.announce()
	c.adopt(now, old, k, planned, reason)
}

// announce has the last decision, and which carriers there are, said on every one.
func (c *Core) announce() {
	for _, o := range c.carriers {
		if o.attached && !o.closing {
			o.switchDue = true
			o.urge()
		}
	}
}

// adopt makes k the carrier this side sends on and moves to it what it must carry now.
func (c *Core) adopt(now Time, old, k *Carrier, planned bool, reason string) {
	rec := SwitchRecord{At: now, To: k.gen, Planned: planned, Reason: reason}
	if old != nil && old != k {
		rec.From, rec.UnseenFrom = old.gen, old.unseen
		old.left = now
	}
	c.named = k.gen
	k.draining, k.drainDue, k.peerDrained, k.served = 0, 0, false, c.epoch
	if k.role == frame.Bulk {
		k.role = frame.Active
	}
	if planned && old != nil && old != k {
		limit := 256 << 10
		if r := k.rate.during(old.rtt.minRTT()); r > 0 {
			limit = min(limit, max(r, racingBytes))
		}
		old.handOver(k)
		old.copyTo(k, limit)
		old.drain(now)
		c.orphans.moveTo(k)
		for _, o := range c.carriers {
			if o.role == frame.Bulk && o.attached && o.draining == 0 {
				o.handOver(k) // what it has sent it delivers; the next route gets one of its own
				o.drain(now)
			}
		}
	} else {
		c.orphans.own(k)
		for _, o := range c.carriers {
			switch {
			case o == k:
			case o.attached:
				o.moveTo(k)
				if o.role == frame.Bulk {
					o.drain(now)
				}
			default:
				o.forget() // still racing: the winner answers for all now
			}
		}
	}
	if rec.From != rec.To {
		if len(c.switches) == keptSwitches {
			c.switches = append(c.switches[:0], c.switches[1:]...)
		}
		c.switches = append(c.switches, rec)
	}
	c.out.Changed = true
	k.urge()
}

// drain ends DATA on k for this epoch.
func (k *Carrier) drain(now Time) {
	k.drainDue, k.draining, k.drainAt = k.c.epoch, k.c.epoch, now
	k.urge()
}

// recvSwitch obeys the client, on the host: the highest epoch rules.
func (c *Core) recvSwitch(now Time, f *frame.Frame) {
	if f.Epoch <= c.epoch {
		return
	}
	old := c.tx()
	c.epoch = f.Epoch
	c.keepOnly(now, f.Keep)
	k := c.find(f.Gen)
	if k == nil || k.closing {
		// Dead here: the highest living generation serves until a higher epoch comes.
		c.named = f.Gen
		if k = c.tx(); k == nil {
			return
		}
	}
	if old != nil && old.dead {
		old = nil
	}
	if old == k && c.named == k.gen {
		return
	}
	c.adopt(now, old, k, f.Planned, "the client decided")
}

// --- ends of carriers

// Dead tells that k's connection has ended, or that it is to be closed; what it had not delivered is said again elsewhere.
func (c *Core) Dead(now Time, k *Carrier) {
	if k.dead {
		return
	}
	wasTx := c.tx() == k
	k.dead = true
	for i, o := range c.carriers {
		if o == k {
			c.carriers = append(c.carriers[:i:i], c.carriers[i+1:]...)
			break
		}
	}
	c.out.Closed = append(c.out.Closed, k)
	c.out.Changed = true
	if c.err != nil {
		return
	}
	if !k.attached || k.closing {
		return // it only carried copies, or was left before
	}
	if wasTx && c.cfg.Client {
		if o := c.other(nil); o != nil {
			k.moveTo(o)
			c.switchTo(now, o, false, "carrier ended")
			last := &c.switches[len(c.switches)-1]
			last.From, last.UnseenFrom = k.gen, k.unseen
			return
		}
	}
	c.leave(now, k)
}

// leave has what k holds carried by the carrier that serves now. The host names it: were it only the highest living
// generation, one that attaches later would take its place without anybody being told. The client tells the host, who may
// not notice by itself: what it has said on k and wants no SEEN for, as credit, would be lost.
func (c *Core) leave(now Time, k *Carrier) {
	next := c.tx()
	if next == nil {
		next = c.orphans
		if !c.lost {
			c.lost, c.lostAt = true, now
		}
	} else {
		c.named = next.gen
		if c.cfg.Client && !next.switchDue {
			c.epoch++
			c.announce()
		}
	}
	k.moveTo(next)
	next.urge()
}

// CloseCarrier ends k politely: CLOSE is its last frame. What it had not delivered is said again elsewhere.
func (c *Core) CloseCarrier(now Time, k *Carrier) {
	if k.dead || k.closing {
		return
	}
	wasTx := c.tx() == k
	if o := c.other(k); o != nil && wasTx && c.cfg.Client {
		c.switchTo(now, o, false, "carrier closed") // before closing: k still carries the SWITCH
	}
	k.closing, k.closedAt = true, now
	k.urge()
	c.out.Changed = true
	if !k.attached {
		return
	}
	c.leave(now, k)
}

// Lost tells since when no carrier is attached.
func (c *Core) Lost() (since Time, lost bool) { return c.lostAt, c.lost }

func protocol(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, a...))
}

// TakeInto is Take into slices that can be used again.
func (c *Core) TakeInto(out *Out) {
	out.Wake = append(out.Wake, c.out.Wake...)
	out.Closed = append(out.Closed, c.out.Closed...)
	out.Readable = append(out.Readable, c.out.Readable...)
	out.Writable = append(out.Writable, c.out.Writable...)
	out.Incoming = append(out.Incoming, c.out.Incoming...)
	out.Changed = out.Changed || c.out.Changed
	for _, k := range c.out.Wake {
		k.woken = false
	}
	for _, s := range c.out.Readable {
		s.toldReadable = false
	}
	for _, s := range c.out.Writable {
		s.toldWritable = false
	}
	c.out = c.out.Reset()
}

// Reset returns o emptied, with its memory.
func (o Out) Reset() Out {
	clear(o.Wake)
	clear(o.Closed)
	clear(o.Readable)
	clear(o.Writable)
	clear(o.Incoming)
	return Out{Wake: o.Wake[:0], Closed: o.Closed[:0], Readable: o.Readable[:0], Writable: o.Writable[:0], Incoming: o.Incoming[:0]}
}

// Carriers are the living ones, by generation.
func (c *Core) Carriers() []*Carrier { return c.carriers }
