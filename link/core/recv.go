package core

import "linkproxy/link/frame"

// Arrived tells that n bytes came on k: any byte is life.
func (c *Core) Arrived(now Time, k *Carrier, n int) {
	k.lastRecv = now
	k.bytesIn += uint64(n)
	if k.suspect {
		k.suspect = false
		k.kick()
		c.out.Changed = true
	}
}

// Recv takes one frame that came on k. An error means that the peer broke the protocol: the link is to be ended.
func (c *Core) Recv(now Time, k *Carrier, f *frame.Frame) error {
	if k.dead || k.closing || c.err != nil {
		return nil // frames from a closed carrier are ignored
	}
	if !k.attached {
		return protocol("frame 0x%02x before the attach was accepted", byte(f.Kind))
	}
	if len(k.log) > maxLog/maxCarriers {
		if n := c.unsaidTo(); n > maxLog {
			return protocol("%d frames not SEEN", n)
		}
	}
	if k.recvN++; k.recvN == 1 {
		k.kick() // there may be bulk for it
	}
	k.lastFrame = now
	c.ack(now, k, f)
	switch f.Kind {
	case frame.Seen:
		return c.recvSeen(now, k, f)
	case frame.Ping:
		k.pongDue, k.pongID, k.pongPad = true, f.ID, len(f.Data)
		return nil
	case frame.Pong:
		if len(f.Data) >= provePad && k.proving {
			k.proven, k.proving = true, false
			c.out.Changed = true
		}
		return nil
	case frame.Switch:
		if c.cfg.Client {
			return protocol("SWITCH from a host")
		}
		c.recvSwitch(now, f)
		return nil
	case frame.Drain:
		if f.Epoch > k.served && !k.peerDrained {
			k.peerDrained, k.peerDrainAt = true, now
		}
		return nil
	case frame.Close:
		c.Dead(now, k) // a CLOSE of the whole link is the caller's affair
		return nil
	}
	if f.Kind < frame.Open || f.Kind > frame.Gone {
		if f.Kind < 0x40 {
			return protocol("frame 0x%02x on an attached carrier", byte(f.Kind))
		}
		return nil
	}
	if f.Stream == 0 {
		return protocol("stream 0")
	}
	return c.recvStream(now, k, f)
}

// wants says whether a frame wants to be SEEN.
func wants(kind frame.Kind) bool {
	switch kind {
	case frame.Open, frame.Data, frame.Fin, frame.Reset, frame.Stop, frame.Gone, frame.Switch, frame.Drain, frame.Ping:
		return true
	}
	return false
}

// ack plans the SEEN that f wants: bulk every 64 KiB or 25 ms, all else at once but for what the answer may save.
func (c *Core) ack(now Time, k *Carrier, f *frame.Frame) {
	if !wants(f.Kind) {
		if k.recvN-k.saidN >= maxUnsaid {
			k.urge()
		}
		return
	}
	delay := ackSmall
	switch {
	case f.Kind == frame.Data:
		k.recvBytes += len(f.Data)
		if len(f.Data) > smallData {
			delay = ackDelay
		}
	case f.Kind == frame.Ping:
		delay = 0
	}
	k.ackBy(now + delay)
	most := ackBytes + min(k.inRate.during(busyMachine), 2*ackBytes)
	if k.besideTalk() {
		most = frame.Max - frame.DataOverhead - controlRoom
	}
	if delay == 0 || k.recvBytes >= most || k.recvN-k.saidN >= maxUnsaid {
		k.urge()
	}
}

// ackBy sees that what waits for company is said at that time at the latest.
func (k *Carrier) ackBy(at Time) {
	if k.ackAt == 0 || at < k.ackAt {
		k.ackAt = at
	}
}

// maxUnsaid bounds the frames that wait for a SEEN: what the sender must remember of each is small, but not nothing.
const maxUnsaid = 512

// maxLog bounds the frames that a peer has not SEEN on all carriers of a link: far more than any honest one, which says SEEN
// at least every maxUnsaid frames, leaves open.
const maxLog = 64 << 10

// unsaidTo counts the frames that the peer has not SEEN.
func (c *Core) unsaidTo() (n int) {
	for _, k := range c.carriers {
		n += len(k.log)
	}
	return n
}

// recvSeen forgets what the peer has got and learns from how long it took.
func (c *Core) recvSeen(now Time, k *Carrier, f *frame.Frame) error {
	if f.Count > k.sentN {
		return protocol("SEEN of %d frames, %d were sent", f.Count, k.sentN)
	}
	first := k.sentN - uint64(len(k.log))
	if f.Count <= first {
		return nil
	}
	n := int(f.Count - first)
	var data int
	for i := range n {
		e := &k.log[i]
		switch e.kind {
		case frame.Data:
			data += e.n
		case frame.Open:
			if s := c.streams[e.stream]; s != nil {
				s.openSeen, s.openOn = true, nil
			}
		}
		if e.hedge {
			k.hedgeSeen = now
		}
	}
	last := k.log[n-1]
	at, began := last.at, last.began
	if n > k.flushed {
		at, began = k.writeAt, k.writeAt // SEEN came before the write returned
	}
	if took := now - at - f.Delay; at != 0 && took > 0 {
		k.rtt.sample(now, took, now-began-f.Delay)
	}
	k.unseen -= data
	k.delivered += uint64(data)
	if data > 0 {
		k.rate.sample(now, k.delivered-last.delivered, now-last.refAt)
		k.deliveredAt = now
	}
	k.forgetSeen(n)
	if k.hole {
		k.hole = false // judged anew by the oldest that is left
		c.out.Changed = true
	}
	k.kick() // there may be room for more
	return nil
}

// recvStream takes a frame of a stream.
func (c *Core) recvStream(now Time, k *Carrier, f *frame.Frame) error {
	if wrongWay(f.Kind, c.cfg.Client) {
		return protocol("frame 0x%02x from the wrong side", byte(f.Kind))
	}
	s := c.streams[f.Stream]
	if s == nil {
		return c.recvStray(now, k, f)
	}
	switch f.Kind {
	case frame.Opened:
		s.opened()
	case frame.Data:
		return s.recvData(now, k, f)
	case frame.State:
		return s.recvState(f)
	case frame.Fin:
		return s.recvEnd(now, k, finished, f.Offset, 0)
	case frame.Reset:
		return s.recvEnd(now, k, reset, f.Offset, f.Code)
	case frame.Refused:
		if s.peerEnd == open {
			s.refused = true
		}
		s.recvStop(f.Code)
		return s.recvEnd(now, k, reset, 0, f.Code)
	case frame.Stop:
		s.recvStop(f.Code)
	case frame.Gone:
		return s.recvGone()
	}
	return nil
}

// recvStray takes a frame of a stream that is not live: one to open, one that is over, or a breach.
func (c *Core) recvStray(now Time, k *Carrier, f *frame.Frame) error {
	known := f.Stream <= c.lastID
	if !c.cfg.Client {
		known = c.seen.has(f.Stream)
	}
	if !known {
		if c.cfg.Client {
			return protocol("frame of stream %d, which was never opened", f.Stream)
		}
		return c.recvNew(now, k, f)
	}
	switch f.Kind {
	case frame.Gone, frame.State, frame.Opened:
		return nil
	}
	if len(k.say) > maxGone {
		return protocol("more than %d frames of ended streams", maxGone)
	}
	k.tell(f.Stream, sayGone)
	k.urge()
	return nil
}

// wrongWay says whether only the receiver's own side may say a frame of this kind.
func wrongWay(kind frame.Kind, client bool) bool {
	if client {
		return kind == frame.Open
	}
	return kind == frame.Opened || kind == frame.Refused
}

// maxTurnedAway bounds the streams beyond the key's bound that wait for the client to acknowledge their REFUSED.
const maxTurnedAway = 1024

// maxGone bounds the GONEs that wait for a carrier's writer; a peer that reads never lets them come to that.
const maxGone = 32 << 10

// recvNew takes the first frame of a stream on the host.
func (c *Core) recvNew(now Time, k *Carrier, f *frame.Frame) error {
	switch f.Kind {
	case frame.Open, frame.Reset:
	case frame.Gone:
		return nil
	default:
		return protocol("frame 0x%02x of stream %d before its OPEN", byte(f.Kind), f.Stream)
	}
	if !c.seen.add(f.Stream) {
		return protocol("more than %d gaps in stream ids", maxGaps)
	}
	if f.Kind == frame.Reset { // ended before it began: a late OPEN dials nothing
		k.tell(f.Stream, sayGone)
		k.urge()
		return nil
	}
	c.opened = true
	c.cameOn(now, k)
	s := c.newStream(f.Stream, f.Target, f.Priority, f.Hold)
	if !c.cfg.Account.AddStream() {
		c.turnedAway++
		s.uncounted = true
		s.Refuse(CodeBusy)
		if c.turnedAway > maxTurnedAway {
			return protocol("%d streams beyond the bound", c.turnedAway)
		}
		return nil
	}
	c.out.Incoming = append(c.out.Incoming, s)
	c.out.Changed = true
	return nil
}

func (s *Stream) recvData(now Time, k *Carrier, f *frame.Frame) error {
	to := f.Offset + uint64(len(f.Data))
	if to > s.granted {
		return protocol("stream %d: %d bytes beyond its credit", s.ID, to-s.granted)
	}
	k.lastData = now
	if s.peerEnd != open && to > s.peerFinal {
		return protocol("stream %d: bytes beyond its end", s.ID)
	}
	s.opened()
	if s.roundAt == 0 {
		s.roundAt = now
	}
	if s.peerEnd != reset {
		before := s.in.next
		s.in.bulk = s.taken.level >= bulkVolume
		if !s.in.put(f.Offset, f.Data) {
			return protocol("stream %d: more than %d gaps", s.ID, maxPieces)
		}
		if n := s.in.next - before; n > 0 {
			s.c.counts.BytesIn += n
			s.c.cameOn(now, k)
			s.c.byteMoved(now)
			s.taken.add(now, int(n))
			s.converse(now, len(f.Data))
			s.readable()
			s.unwanted()
		}
	}
	s.state(now, k, false)
	s.tryRetire()
	return nil
}

// opened: the client learns that the target has answered. Bytes and a FIN say so too, should OPENED come after them.
func (s *Stream) opened() {
	if !s.c.cfg.Client || s.accepted {
		return
	}
	s.accepted = true
	s.openSeen, s.openOn = true, nil
	s.readable()
}

// unwanted drops bytes that came in order but that no app will read: it has stopped, or its side has failed. They count as
// received, else the peer could not end.
func (s *Stream) unwanted() {
	if !s.stopped && s.err == nil {
		return
	}
	s.in.flush()
	s.releaseRead()
}

func (s *Stream) recvState(f *frame.Frame) error {
	if f.Limit > s.limit {
		s.limit = f.Limit
		s.enqueue()
	}
	switch {
	case s.ended != open && f.Offset == s.final+1 && s.sent >= s.final:
		s.endAcked = true
		if s.ended == finished {
			s.freeOut()
		}
		s.tryRetire()
	case f.Offset > s.sent:
		return protocol("stream %d: %d bytes acknowledged, %d were sent", s.ID, f.Offset, s.sent)
	case s.ended != reset && f.Offset > s.out.base:
		s.out.trim(f.Offset)
		s.releaseKept()
	}
	s.roomAgain()
	return nil
}

// recvEnd takes FIN or RESET. Both carry the same final; after a delivered FIN a RESET changes nothing.
func (s *Stream) recvEnd(now Time, k *Carrier, how end, final uint64, code uint32) error {
	if s.peerEnd != open && s.peerFinal != final || final < s.in.top() {
		return protocol("stream %d: ends at %d, was %d with %d received", s.ID, final, s.peerFinal, s.in.top())
	}
	if final > s.granted {
		return protocol("stream %d: ends beyond its credit", s.ID)
	}
	delivered := s.peerEnd == finished && s.in.next == s.peerFinal
	switch {
	case s.peerEnd == reset || delivered:
	case how == reset:
		s.peerEnd, s.peerFinal, s.peerCode = reset, final, code
		s.in.drop(final)
		s.release(&s.recvHeld, 0)
		s.readable()
		s.c.out.Changed = true
	case s.peerEnd == open:
		s.peerEnd, s.peerFinal = finished, final
		s.opened()
		s.releaseRead()
		s.readable()
	}
	s.state(now, k, true)
	s.tryRetire()
	return nil
}

// recvStop answers STOP with RESET: the peer's app wants no more.
func (s *Stream) recvStop(code uint32) {
	if s.stopCame || s.endAcked {
		return
	}
	s.stopCame = true
	s.endReset(code)
	s.writable()
}

// recvGone: the peer has retired s, so it has got our end and we have got its; or the host never saw its OPEN, only its
// RESET.
func (s *Stream) recvGone() error {
	if s.c.cfg.Client && s.ended == reset && s.peerEnd == open {
		s.peerEnd, s.peerCode = reset, s.endCode
		s.in.drop(s.in.next)
	}
	if s.peerEnd == open || s.peerEnd == finished && s.in.next != s.peerFinal || s.ended == open {
		return protocol("stream %d: gone before both its ends", s.ID)
	}
	s.endAcked = true
	s.retire()
	return nil
}

// nextOffset is what STATE acknowledges: the bytes in memory, and the end as one more.
func (s *Stream) nextOffset() uint64 {
	if s.peerEnd != open && s.in.next == s.peerFinal {
		return s.peerFinal + 1
	}
	return s.in.next
}
