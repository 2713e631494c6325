package main

// coreFaults are planted in the heart of the link: saying again, ends, credit, the order of carriers, timers, doubt.
var coreFaults = []fault{
	// Saying again.
	{
		name: "a planned switch loses the last byte of a copy", file: "link/core/carrier.go", first: "TestSchedules",
		text: "k.carry(span{s, e.off, e.off + uint64(e.n), hedge})", by: "k.carry(span{s, e.off, e.off + uint64(e.n) - 1, hedge})",
	},
	{
		name: "bytes said again overlap by one too many", file: "link/core/buffer.go", first: "TestSchedules",
		text: "		off, p = s.next, p[skip:]", by: "		off, p = s.next, p[skip-1:]",
	},
	{
		name: "duplicate bytes are taken again", file: "link/core/buffer.go", first: "TestSchedules",
		text: "		off, p = s.next, p[skip:]", by: "		off = s.next",
	},
	{
		name: "bytes that wait behind a gap are forgotten", file: "link/core/buffer.go", first: "TestSchedules",
		text: "			s.queue = append(s.queue, recvChunk{b: b, w: len(b)})\n", by: "",
	},
	{
		name: "what an ended carrier held is not said again", file: "link/core/carrier.go", first: "TestSchedules",
		text: "		if !e.moved && !e.hedge {\n			to.again(e, false)", by: "		if !e.moved && !e.hedge {\n			_ = to",
	},
	{
		name: "a switch leaves what was not begun where it is", file: "link/core/carrier.go", first: "TestSchedules",
		text: "func (k *Carrier) handOver(to *Carrier) {", by: "func (k *Carrier) handOver(to *Carrier) {\n	return",
	},
	{
		name: "spans already owned are dropped by a switch", file: "link/core/carrier.go", first: "TestSchedules",
		text: "	to.fast, to.slow = owned(to.fast), owned(to.slow)", by: "	to.fast, to.slow = nil, nil",
	},
	{
		name: "copies for a doubtful carrier count as owned elsewhere", file: "link/core/carrier.go", first: "TestSchedules",
		text: "		to.again(e, true)\n	}", by: "		to.again(e, true)\n		e.moved = true\n	}",
	},
	{
		name: "SEEN tells one frame too many", file: "link/core/send.go", first: "TestSchedules",
		text: "Count: k.recvN, Delay", by: "Count: k.recvN + 1, Delay",
	},
	// OPEN.
	{
		name: "OPEN is not repeated on another carrier", file: "link/core/send.go", first: "TestSchedules",
		text: "	if slices.Contains(s.openOn, k.gen) {", by: "	if len(s.openOn) > 0 {",
	},
	{
		name: "OPEN is not said again by the carrier after the one that lost it", file: "link/core/stream.go", first: "TestOpenIsSaidAgainByItself",
		text: "	case frame.Open:\n		return sayOpen", by: "	case frame.Open:\n		return 0",
	},
	{
		name: "OPEN counts as SEEN once it is sent", file: "link/core/send.go", first: "TestSchedules",
		text: "	s.openOn = append(slices.DeleteFunc", by: "	s.openSeen = true\n	s.openOn = append(slices.DeleteFunc",
	},
	{
		name: "OPENED is not said again", file: "link/core/stream.go", first: "TestSchedules",
		text: "	case frame.Opened:\n		return sayOpened", by: "	case frame.Opened:\n		return 0",
	},
	{
		name: "an id is seen only while its stream lives", file: "link/core/recv.go", first: "TestSchedules",
		text: "		known = c.seen.has(f.Stream)", by: "		known = c.streams[f.Stream] != nil",
	},
	// Ends.
	{
		name: "FIN is dropped where no byte is left to send", file: "link/core/stream.go", first: "TestFinAcknowledgedBothWaysRetires",
		text: "	if s.sent == s.out.end {\n		s.say(sayFin)\n	}", by: "",
	},
	{
		name: "FIN is dropped behind the last byte", file: "link/core/send.go", first: "TestSchedules",
		text: "	if s.ended == finished && s.sent == s.out.end {\n		s.say(sayFin)\n	}", by: "",
	},
	{
		name: "FIN is not said again", file: "link/core/stream.go", first: "TestSchedules",
		text: "	case frame.Fin:\n		return sayFin", by: "	case frame.Fin:\n		return 0",
	},
	{
		name: "RESET is not said again", file: "link/core/stream.go", first: "TestSchedules",
		text: "	case frame.Reset, frame.Refused:\n		return sayReset", by: "	case frame.Reset, frame.Refused:\n		return 0",
	},
	{
		name: "RESET has another final than FIN", file: "link/core/stream.go", first: "TestResetOfUnsentBytesEndsAtWhatWasSent",
		text: "	if s.ended == open || s.sent < s.out.end {", by: "	if true {\n		s.sent += 0\n	}\n	if s.ended == open {",
	},
	{
		name: "STOP is never answered", file: "link/core/recv.go", first: "TestStop",
		text: "	s.stopCame = true\n	s.endReset(code)", by: "	s.stopCame = true",
	},
	{
		name: "GONE is taken for RESET", file: "link/core/recv.go", first: "TestSchedules",
		text: "	s.endAcked = true\n	s.retire()", by: "	s.peerEnd = reset\n	s.in.drop(s.peerFinal)\n	s.endAcked = true\n	s.retire()",
	},
	{
		name: "a frame of a retired stream is not answered", file: "link/core/recv.go", first: "TestFinAcknowledgedBothWaysRetires",
		text: "	k.tell(f.Stream, sayGone)\n	k.urge()\n	return nil\n}\n\n// wrongWay", by: "	return nil\n}\n\n// wrongWay",
	},
	{
		name: "retired once the own end is acknowledged", file: "link/core/stream.go", first: "TestSchedules",
		text: "	if s.endAcked && s.peerEnd != open && (s.peerEnd == reset || s.in.next == s.peerFinal) {", by: "	if s.endAcked {",
	},
	{
		name: "retired once both ends came, whole or not", file: "link/core/stream.go", first: "TestSchedules",
		text: "(s.peerEnd == reset || s.in.next == s.peerFinal) {\n		s.retire()", by: "true {\n		s.retire()",
	},
	{
		name: "bytes dropped after an error end in EOF", file: "link/core/stream.go", first: "TestSchedules",
		text: "s.in.next == s.peerFinal && !s.in.lossy:", by: "s.in.next == s.peerFinal:",
	},
	// Credit and memory.
	{
		name: "credit is said once and never renewed", file: "link/core/stream.go", first: "TestSchedules",
		text: "	s.granted = limit\n", by: "	s.granted = limit\n	if limit > 64<<10 {\n		return\n	}\n",
	},
	{
		name: "credit that was lost with its carrier is not said again", file: "link/core/stream.go", first: "TestSchedules",
		text: "	case frame.State:\n		return sayState", by: "	case frame.State:\n		return 0",
	},
	{
		name: "credit that comes wakes nobody", file: "link/core/recv.go", first: "TestSchedules",
		text: "		s.limit = f.Limit\n		s.enqueue()", by: "		s.limit = f.Limit",
	},
	{
		name: "the client says nothing of a carrier it lets go", file: "link/core/core.go", first: "TestClientTellsOfADeadStandby",
		text: "		if c.cfg.Client && !next.switchDue {", by: "		if false {",
	},
	{
		name: "a window that the pool refuses grows all the same", file: "link/core/stream.go", first: "TestCreditGoesOnWithoutAPool",
		text: "s.window < maxWindow && s.c.cfg.Account.Charge(s.window) {\n		s.recvHeld += s.window",
		by:   "s.window < maxWindow {\n		if s.c.cfg.Account.Charge(s.window) {\n			s.recvHeld += s.window\n		}",
	},
	{
		name: "the charge of bytes kept for a reset stream stays", file: "link/core/stream.go", first: "TestSchedules",
		text: "	s.out.drop()\n	s.release(&s.sendHeld, 0)", by: "	s.out.drop()",
	},
	// Which carrier.
	{
		name: "an older decision is obeyed", file: "link/core/core.go", first: "TestEpochsAndGenerationsOnlyGrow",
		text: "	if f.Epoch <= c.epoch {", by: "	if f.Epoch < c.epoch-1 {",
	},
	{
		name: "the worst carrier takes over, not the best", file: "link/core/core.go", first: "TestOrderOfFailover",
		text: "	return k.pref <= o.pref", by: "	return k.pref >= o.pref",
	},
	{
		name: "a carrier in doubt takes over before a sound one", file: "link/core/core.go", first: "TestOrderOfFailover",
		text: "		return o.doubtful()\n", by: "		return k.doubtful()\n",
	},
	{
		name: "without a decision the host sends on the oldest carrier", file: "link/core/core.go", first: "TestSwitchToADeadCarrierWakesTheOneThatServes",
		text: "		if last == nil || k.role != frame.Bulk || last.role == frame.Bulk {", by: "		if last == nil {",
	},
	{
		name: "from one carrier in doubt to another", file: "link/core/life.go", first: "TestNotFromOneInDoubtToAnother",
		text: "proof && !o.doubtful() &&", by: "proof &&",
	},
	// Timers.
	{
		name: "silence takes twice as long to notice", file: "link/core/life.go", first: "TestSuspectAfterB",
		text: "	return max(since+time.Duration(n)*b,", by: "	return max(since+time.Duration(2*n)*b,",
	},
	{
		name: "a standby is asked half as often", file: "link/core/life.go", first: "TestStandbyIsAsked",
		text: "	standbyPing = 10 * time.Second", by: "	standbyPing = 20 * time.Second",
	},
	{
		name: "a silent carrier is kept twice as long", file: "link/core/life.go", first: "TestCloseAfterThreeSeconds",
		text: "	closeSilence = 3 * time.Second", by: "	closeSilence = 6 * time.Second",
	},
	{
		name: "a drained carrier is kept twice as long", file: "link/core/life.go", first: "TestRollbackTime",
		text: "	rollbackTime = 10 * time.Second", by: "	rollbackTime = 20 * time.Second",
	},
	{
		name: "an idle link is asked twice as late", file: "link/core/life.go", first: "TestKeepAliveStretches",
		text: "	keepIdleFirst = 27 * time.Second", by: "	keepIdleFirst = 54 * time.Second",
	},
	{
		name: "a single frame is acknowledged twice as late", file: "link/core/core.go", first: "TestAcknowledgementDelays",
		text: "	ackSmall = 2 * time.Millisecond", by: "	ackSmall = 4 * time.Millisecond",
	},
	{
		name: "a hold time is over at once", file: "link/core/life.go", first: "TestHoldTime",
		text: "now >= c.lostAt+s.Hold {", by: "now >= c.lostAt {",
	},
	// Doubt (docs/decisions/0009).
	{
		name: "a hole beside a standby is doubted after 2 s only", file: "link/core/life.go", first: "TestHole",
		text: "	if k.c.tx() == k && k.c.other(k) != nil {", by: "	if false {",
	},
	{
		name: "alone, a late SEEN is doubted as early as beside a standby", file: "link/core/life.go", first: "TestHoleAlone",
		text: "	if k.c.tx() == k && k.c.other(k) != nil {", by: "	if k.c.tx() == k {",
	},
	{
		name: "the host does not doubt with its client", file: "link/core/life.go", first: "TestHostDoubtsWithItsClient",
		text: "	if c.cfg.Client || tx == nil", by: "	if true || c.cfg.Client || tx == nil",
	},
	{
		name: "the host doubts for what is left of a drained carrier", file: "link/core/life.go", first: "TestHostDoubtsWithItsClient",
		text: " || k.left != 0 && now < k.left+rollbackTime {", by: " {",
	},
	{
		name: "SEEN does not end the doubt", file: "link/core/recv.go", first: "TestSeenEndsHole",
		text: "		k.hole = false // judged anew", by: "		// judged anew",
	},
	{
		name: "a carrier in doubt has no copies made", file: "link/core/life.go", first: "TestSwitchAfterTwoB",
		text: "		k.hedge(o)\n", by: "		_ = o\n",
	},
	{
		name: "a carrier that is attached in the doubt takes no copies", file: "link/core/core.go", first: "TestCarrierAttachedInTheDoubtTakesCopies",
		text: "	if old.doubtful() {\n		old.hedge(k)\n	}\n	k.pingDue", by: "	k.pingDue",
	},
	{
		name: "a carrier that the host admits in the doubt takes no copies", file: "link/core/core.go", first: "TestCarrierAttachedInTheDoubtTakesCopies",
		text: "	} else if old.doubtful() {\n		old.hedge(k)\n	}", by: "	}",
	},
	{
		name: "new keystrokes go on the carrier in doubt alone", file: "link/core/send.go", first: "TestHostDoubtsWithItsClient",
		text: "	if !tx.doubtful() || !p.s.interactive {", by: "	if true {",
	},
}

// bulkFaults are about the carrier for bulk (docs/decisions/0008).
var bulkFaults = []fault{
	{
		name: "the host sends on the carrier for bulk before its client has spoken there", file: "link/core/core.go", first: "TestHostWaitsForItsClientOnACarrierForBulk",
		text: "			(c.cfg.Client || k.recvN > 0) {", by: "			true {",
	},
	{
		name: "the client does not speak first on the carrier for bulk", file: "link/core/core.go", first: "TestBulkCarrier",
		text: "	k.pingDue = k.pingDue || k.role == frame.Bulk\n", by: "",
	},
	{
		name: "a planned switch does not drain the carrier for bulk", file: "link/core/core.go", first: "TestSwitchLeavesTheCarrierForBulk",
		text: "				o.handOver(k) // what it has sent it delivers; the next route gets one of its own\n				o.drain(now)",
		by:   "				o.handOver(k)",
	},
	{
		name: "a switch that was not planned does not drain the carrier for bulk", file: "link/core/core.go", first: "TestSwitchLeavesTheCarrierForBulk",
		text: "				if o.role == frame.Bulk {\n					o.drain(now)\n				}\n", by: "",
	},
	{
		name: "what a dead carrier for bulk had un-SEEN is not moved", file: "link/core/core.go", first: "TestDeadCarrierForBulkIsAnsweredFor",
		text: "	k.moveTo(next)\n	next.urge()", by: "	if k.role != frame.Bulk {\n		k.moveTo(next)\n	}\n	next.urge()",
	},
	{
		name: "bulk stays on its carrier while that is in doubt", file: "link/core/core.go", first: "TestBulkGoesOnWhenItsCarrierFallsSilent",
		text: "k.draining == 0 && !k.doubtful() &&", by: "k.draining == 0 &&",
	},
	{
		name: "bulk goes on with the carrier that is being left", file: "link/core/core.go", first: "TestSwitchLeavesTheCarrierForBulk",
		text: "!k.closing && k.draining == 0 && !k.doubtful() &&", by: "!k.closing && !k.doubtful() &&",
	},
	{
		name: "the carrier in use is not woken for bulk when bulk's own is in doubt", file: "link/core/life.go", first: "TestBulkGoesOnWhenItsCarrierFallsSilent",
		text: "			tx.kick() // it carries bulk again, if that was k's\n", by: "",
	},
	{
		name: "new bulk wakes the carrier in use, not its own", file: "link/core/stream.go", first: "TestBulkCarrier",
		text: "			o.kick()\n		} else {", by: "			k.kick()\n		} else {",
	},
	{
		name: "bulk goes on the carrier in use as well", file: "link/core/send.go", first: "TestKeystrokesAndBulkGoApart",
		text: "		return true, apart == nil", by: "		return true, true",
	},
	{
		name: "keystrokes go on the carrier for bulk", file: "link/core/send.go", first: "TestCarrierForBulkThatTheLinkMovesTo",
		text: "	return k.attached && tx.doubtful() && c.other(tx) == k, apart == k",
		by:   "	return k.attached && tx.doubtful() && c.other(tx) == k || apart == k, apart == k",
	},
	{
		name: "the carrier for bulk takes over before a standby", file: "link/core/core.go", first: "TestOrderOfFailover",
		text: "	case (k.role == frame.Bulk) != (o.role == frame.Bulk):\n		return o.role == frame.Bulk",
		by:   "	case (k.role == frame.Bulk) != (o.role == frame.Bulk):\n		return k.role == frame.Bulk",
	},
	{
		name: "without a decision the host sends all on the carrier for bulk", file: "link/core/core.go", first: "TestHostKeepsBulkApart",
		text: "		if last == nil || k.role != frame.Bulk || last.role == frame.Bulk {", by: "		if true {",
	},
	{
		name: "a carrier for bulk that the link moves to stays one", file: "link/core/core.go", first: "TestCarrierForBulkThatTheLinkMovesTo",
		text: "	if k.role == frame.Bulk {\n		k.role = frame.Active\n	}\n	if planned", by: "	if planned",
	},
	{
		name: "bytes on the carrier for bulk make the host doubt the one in use", file: "link/core/life.go", first: "TestHostKeepsBulkApart",
		text: " || k.role == frame.Bulk || tx.doubtful()", by: " || tx.doubtful()",
	},
	{
		name: "no conversation beside bulk wants a carrier for bulk", file: "link/core/send.go", first: "TestWantsACarrierForBulk",
		text: "{ return c.besideAt >= c.besideSince+besideTime }", by: "{ return false }",
	},
	{
		name: "a carrier for bulk is wanted after twice the time", file: "link/core/send.go", first: "TestWantsACarrierForBulk",
		text: "	besideTime = 250 * time.Millisecond", by: "	besideTime = 500 * time.Millisecond",
	},
}
