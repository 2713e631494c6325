package core

import (
	"time"

	"linkproxy/link/frame"
)

// Signs of life: when a carrier is asked, suspected, left and closed (docs/wire.md, Signs of life).
const (
	// askAfterIdle: the first write after so long an idle time takes a PING along, so that its answer tells at once.
	askAfterIdle = 2 * time.Second
	// keepIdleFirst is the first idle time after which the client sends a PING: below the 30 s of the shortest NAT
	// time-outs. Each answered one doubles it, up to keepIdleMost, which keeps an idle link below 9 kB an hour.
	keepIdleFirst = 27 * time.Second
	keepIdleMost  = 110 * time.Second
	// standbyPing is how often an idle standby is asked.
	standbyPing = 10 * time.Second
	// rollbackTime is how long a drained carrier is kept in case the new one disappoints.
	rollbackTime = 10 * time.Second
	// closeSilence is the least silence after which a carrier is closed while another lives.
	closeSilence = 3 * time.Second
	// holeSuspect and holeSwitch are the least ages of an un-SEEN frame, on a carrier on which bytes arrive, for suspicion
	// and for leaving it.
	holeSuspect = 2 * time.Second
	holeSwitch  = 10 * time.Second
	// drainPatience is the least time that a drained carrier in doubt is given to deliver what is left on it.
	drainPatience = 2 * time.Second
	// closeGrace is how long a carrier that was told to close may take to write its CLOSE.
	closeGrace = time.Second
	// flowing: while stream bytes came within this (or 2 B), the receiver asks every flowingPing (or half a round trip).
	flowing     = 250 * time.Millisecond
	flowingPing = 50 * time.Millisecond
	// bulkAsk is how long the carrier in use may say nothing while bytes come on the one for bulk, where they belong.
	bulkAsk = time.Second
)

// Advance does what is due by now: suspicion, moves, pings, closes, hold times.
func (c *Core) Advance(now Time) {
	if c.err != nil {
		for _, k := range c.list() {
			c.finish(now, k)
		}
		return
	}
	var few [8]*Carrier // what is done to one may remove others
	for _, k := range append(few[:0], c.carriers...) {
		if !k.dead && k.attached && !k.closing {
			c.watch(now, k)
		}
		if !k.dead && !k.closing {
			c.ask(now, k)
		}
		c.finish(now, k)
	}
	if c.lost {
		c.expire(now)
	}
	if !c.cfg.Client && c.lost && now >= c.HoldUntil() {
		c.End(now, ErrHoldOver, [16]byte{}, 0)
	}
}

// list is a copy of the carriers: what is done to one may remove others.
func (c *Core) list() []*Carrier { return append([]*Carrier(nil), c.carriers...) }

// finish gives up on a carrier that cannot even write its CLOSE.
func (c *Core) finish(now Time, k *Carrier) {
	if k.closing && !k.dead && now >= k.closedAt+closeGrace {
		c.Dead(now, k)
	}
}

// silentAt is when k will have been silent for n B, unless a byte or a SEEN comes first: its oldest frame that wants SEEN
// is then older than n B, and no byte came for n (B − srtt).
func (k *Carrier) silentAt(n int) (Time, bool) {
	e, since, ok := k.oldest()
	if !ok {
		return 0, false
	}
	b := k.b(e)
	quiet := max(b-k.rtt.srtt, 0)
	return max(since+time.Duration(n)*b, k.lastRecv+time.Duration(n)*quiet), true
}

// holed is when k is taken to have a hole: where another carrier can take copies, which costs little, as soon as SEEN is late.
func (k *Carrier) holed() (Time, bool) {
	if k.c.tx() == k && k.c.other(k) != nil {
		return k.holeAt(1, 0)
	}
	return k.holeAt(4, holeSuspect)
}

// holeAt is when the oldest un-SEEN frame will be so old that bytes which do arrive no longer excuse it.
func (k *Carrier) holeAt(n int, least time.Duration) (Time, bool) {
	e, since, ok := k.oldest()
	if !ok {
		return 0, false
	}
	return since + max(time.Duration(n)*k.b(e), least), true
}

func reached(now, at Time, ok bool) bool { return ok && now >= at }

// watch applies the table of docs/wire.md to one carrier.
func (c *Core) watch(now Time, k *Carrier) {
	was := k.doubtful()
	if at, ok := k.silentAt(1); reached(now, at, ok) {
		k.suspect = true
	}
	if at, ok := k.holed(); reached(now, at, ok) {
		k.hole = true
	}
	if k.doubtful() && !was {
		c.doubt(now, k)
	}
	if !k.doubtful() || !c.cfg.Client {
		return
	}
	o := c.other(k)
	if o == nil {
		return
	}
	proof := o.hedgeSeen > k.doubtAt || k.suspect && o.lastData > k.doubtAt
	at2, ok2 := k.silentAt(2)
	atHole, okHole := k.holeAt(8, holeSwitch)
	silent, hole := k.suspect && reached(now, at2, ok2), k.hole && reached(now, atHole, okHole)
	if c.tx() == k && proof && !o.doubtful() && (silent || hole) { // from one in doubt to another: to and fro for ever
		c.switchTo(now, o, false, "silent while another delivers")
	}
	if at, ok := c.closeAt(k); k.suspect && reached(now, at, ok) {
		c.CloseCarrier(now, k)
	}
}

// closeAt is when a silent carrier is closed while another is attached: after 3 B and 3 s; a standby, or one for bulk, already after 2 B,
// unless the carrier in use is silent too: then the silence may be this machine's.
func (c *Core) closeAt(k *Carrier) (Time, bool) {
	_, since, ok := k.oldest()
	if !ok {
		return 0, false
	}
	if tx := c.tx(); tx != k && k.role != frame.Active && k.draining == 0 && tx != nil && !tx.doubtful() {
		return k.silentAt(2)
	}
	at, _ := k.silentAt(3)
	return max(at, max(since, k.lastRecv)+closeSilence), true
}

// doubt begins the time in which another carrier takes copies.
func (c *Core) doubt(now Time, k *Carrier) {
	k.doubtAt = now
	c.out.Changed = true
	tx := c.tx()
	if tx != k {
		if tx != nil {
			tx.kick() // it carries bulk again, if that was k's
		}
		return
	}
	if o := c.other(k); o != nil {
		k.hedge(o)
	}
}

// cameOn tells the host that something new came on k. If that is not the carrier it sends on, and not what is left of the one
// before, the client is in doubt of that one: then so is the host, whose answer would else be lost first and be late by
// another B. A SEEN ends that.
func (c *Core) cameOn(now Time, k *Carrier) {
	tx := c.tx()
	if c.cfg.Client || tx == nil || tx == k || k.role == frame.Bulk || tx.doubtful() || k.left != 0 && now < k.left+rollbackTime {
		return
	}
	tx.hole = true
	c.doubt(now, tx)
}

// ask plans PINGs.
func (c *Core) ask(now Time, k *Carrier) {
	if !k.attached {
		return
	}
	if at, ok := c.pingAt(now, k); ok && now >= at && !k.pingDue {
		if k.idleFor(now) >= k.keepIdle {
			k.keepIdle = min(2*k.keepIdle, k.keepMost)
		}
		k.pingDue = true
		k.urge()
	}
	if k.ackAt != 0 && now >= k.ackAt {
		k.urge()
	}
	if at, ok := c.retireAt(k); reached(now, at, ok) {
		c.CloseCarrier(now, k)
	}
}

// retireAt is when the client closes a carrier that the link has moved off as planned: a healthy one is kept for a while in
// case the new one disappoints; one that is not goes once nothing is left on it, or when it had its time.
func (c *Core) retireAt(k *Carrier) (Time, bool) {
	if !c.cfg.Client || k.draining == 0 || c.tx() == k || k.role == frame.Standby {
		return 0, false
	}
	if !k.doubtful() {
		return k.drainAt + rollbackTime, true
	}
	if _, _, outstanding := k.oldest(); !outstanding && k.peerDrained {
		return k.drainAt, true
	}
	return k.drainAt + min(max(3*k.rtt.base(), drainPatience), rollbackTime), true
}

func (k *Carrier) idleFor(now Time) time.Duration { return now - max(k.lastSend, k.lastRecv) }

// pingAt is when k is to be asked next.
func (c *Core) pingAt(now Time, k *Carrier) (Time, bool) {
	if _, _, outstanding := k.oldest(); outstanding {
		return 0, false // its clock runs already
	}
	if k.lastData != 0 && now < k.lastData+max(flowing, 2*k.rtt.base()) {
		return k.lastPing + max(k.rtt.srtt/2, flowingPing), true
	}
	if !c.cfg.Client {
		return 0, false
	}
	if c.tx() != k {
		return k.lastRecv + standbyPing, true
	}
	if c.elsewhere(k) {
		return now, true
	}
	return max(k.lastSend, k.lastRecv) + k.keepIdle, k.keepMost >= 0
}

// elsewhere says that stream bytes came on another carrier since k, the one in use, last brought anything or was asked: the
// host may be in doubt of k, of which only the client can let go, and which it has no other reason to ask.
func (c *Core) elsewhere(k *Carrier) bool {
	for _, o := range c.carriers {
		asked := max(k.lastRecv, k.lastPing)
		if o.role == frame.Bulk {
			asked += bulkAsk
		}
		if o != k && !o.dead && o.lastData > asked {
			return true
		}
	}
	return false
}

// SetKeepAlive bounds the idle time after which k is asked; it begins at 27 s or at most, and doubles up to most. Through
// relays and NATs, which forget after 30 s, most is 27 s; zero: 110 s, for a path that bears it; negative: k is never asked.
func (k *Carrier) SetKeepAlive(most time.Duration) {
	if most == 0 {
		most = keepIdleMost
	}
	k.keepMost = most
	if most > 0 {
		k.keepIdle = min(k.keepIdle, most)
	}
}

// expire ends the streams whose hold time is over.
func (c *Core) expire(now Time) {
	for _, s := range c.ordered() {
		if s.err == nil && now >= c.lostAt+s.Hold {
			s.endReset(CodeHold)
			s.stop(CodeHold)
			s.fail(ErrHoldOver)
			c.out.Changed = true
		}
	}
}

// CodeHold is the RESET code of a stream whose hold time is over.
const CodeHold = 16

// HoldUntil is when a host may forget a link without carriers.
func (c *Core) HoldUntil() Time {
	if !c.opened {
		return c.lostAt + emptyHold
	}
	return c.lostAt + c.cfg.Hold
}

// Wake is when Advance is to be called next; false: nothing is planned.
func (c *Core) Wake(now Time) (Time, bool) {
	const never = Time(1<<63 - 1)
	at := never
	sooner := func(t Time, ok bool) {
		if ok {
			at = min(at, t)
		}
	}
	for _, k := range c.carriers {
		if k.closing {
			sooner(k.closedAt+closeGrace, true)
			continue
		}
		if k.attached && c.err == nil {
			k.wake(now, sooner)
		}
	}
	if c.lost && c.err == nil {
		for _, s := range c.streams {
			sooner(c.lostAt+s.Hold, s.err == nil)
		}
		sooner(c.HoldUntil(), !c.cfg.Client)
	}
	return at, at != never
}

func (k *Carrier) wake(now Time, sooner func(Time, bool)) {
	c := k.c
	sooner(k.ackAt, k.ackAt != 0 && !k.urgent && !k.woken && !k.writing) // a writer at work looks by itself
	if at, ok := c.pingAt(now, k); ok && !k.pingDue {
		sooner(at, true)
	}
	sooner(c.retireAt(k))
	at, ok := k.silentAt(1)
	sooner(at, ok && !k.suspect)
	at, ok = k.holed()
	sooner(at, ok && !k.hole)
	if !k.doubtful() || !c.cfg.Client || c.other(k) == nil {
		return
	}
	at, ok = k.silentAt(2)
	sooner(at, ok && k.suspect && at > now)
	at, ok = c.closeAt(k)
	sooner(at, ok && k.suspect)
	at, ok = k.holeAt(8, holeSwitch)
	sooner(at, ok && k.hole && at > now)
}

// Ask has every attached carrier asked at once, as after a wake-up: all may be dead, none is.
func (c *Core) Ask(now Time) {
	for _, k := range c.carriers {
		if k.attached && !k.closing {
			k.pingDue = true
			k.urge()
		}
	}
}

// Prove sends a PING with 4 KiB of padding on k; Proven tells when the padded answer came.
func (c *Core) Prove(k *Carrier) {
	k.proving, k.pingDue = true, true
	k.urge()
}

// SetStandby marks k as a standby, which is kept, or as one that is closed some time after the link moved off it.
func (k *Carrier) SetStandby(on bool) {
	if k.role == frame.Bulk {
		return
	}
	k.role = frame.Active
	if on {
		k.role = frame.Standby
	}
}

// Status is what a status shows of a link.
type Status struct {
	Carriers  []CarrierStatus
	Streams   int
	Lost      bool
	LostAt    Time
	LastByte  Time
	Epoch     uint64
	Counts    Counts
	Switches  []SwitchRecord
	Err       error
	Doubtful  bool // the carrier in use is silent or has a hole
	HasOther  bool // another is attached
	Confirmed bool // the host has acknowledged the link
	WantsBulk bool // somebody has conversed beside bulk for a while, up to BesideAt: that wants a carrier for bulk
	BesideAt  Time
}

// Status returns a copy of what is known.
func (c *Core) Status() Status {
	st := Status{
		Streams: len(c.streams), Lost: c.lost, LostAt: c.lostAt, LastByte: c.lastByte, Epoch: c.epoch, Counts: c.counts,
		Switches: append([]SwitchRecord(nil), c.switches...), Err: c.err, Confirmed: c.newOK,
		WantsBulk: c.wantsBulk(), BesideAt: c.besideAt,
	}
	for _, k := range c.carriers {
		st.Carriers = append(st.Carriers, k.status())
	}
	if k := c.tx(); k != nil {
		st.Doubtful, st.HasOther = k.doubtful(), c.other(k) != nil
	}
	return st
}

// Streams calls f for every live stream.
func (c *Core) Streams(f func(*Stream)) {
	for _, s := range c.streams {
		f(s)
	}
}
