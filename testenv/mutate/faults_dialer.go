package main

// dialerFaults are planted in the loop that keeps a peer reachable.
var dialerFaults = []fault{
	// The other carriers.
	{
		name: "the other carrier is dropped while the one in use is in doubt", file: "dialer/route/roam_standby.go",
		text: "	if !r.free() || in == nil || !in.trusted() {", by: "	if !r.free() || in == nil {",
	},
	{
		name: "a standby is sought though none is ever wanted", file: "dialer/route/roam_standby.go",
		text: "	if r.standby == StandbyNever || r.link", by: "	if r.link",
	},
	{
		name: "a standby is kept for ever", file: "dialer/route/roam_standby.go",
		text: "	ActiveFor = 60 * time.Second", by: "	ActiveFor = 60 * time.Hour",
	},
	{
		name: "a standby whose route is dead is sought without rest", file: "dialer/route/roam_standby.go", first: "TestStandbyIsKeptWhileBytesMove", finder: "dialer",
		text: "		p.delay = min(2*p.delay, SeekMax)", by: "		p.delay = min(p.delay, SeekMax)",
	},
	{
		name: "a standby is not dropped when it is no longer wanted", file: "dialer/route/roam_standby.go",
		text: "			r.drop(c, \"it is not needed beside \"+in.Route.ID())", by: "			_ = c",
	},
	{
		name: "the carrier kept as standby is closed like one that was left", file: "dialer/roam.go", first: "TestCarrierThatTheLinkLeftServesAsStandby",
		text: "		p.client.Keep(a.ID, true)", by: "		p.client.Keep(a.ID, false)",
	},
	{
		name: "the link stays on a route that is no longer configured", file: "dialer/route/roam_standby.go", first: "TestReload", finder: "dialer",
		text: "	if known && !in.draining {", by: "	if !in.draining {",
	},
	{
		name: "a standby costs the budget nothing", file: "dialer/route/roam_standby.go", first: "TestSecondCarriersKeepToTheBudget", finder: "dialer",
		text: "	if !r.Budget.TakeSpare(now) {", by: "	if false {",
	},
	// The carrier for bulk.
	{
		name: "the carrier for bulk is never dropped", file: "dialer/bulk.go", first: "TestBulkCarrierGoesWhenNobodyTalks",
		text: "	case gen != 0:\n		p.client.Drop(gen)", by: "	case gen != 0:",
	},
	{
		name: "the carrier for bulk goes at the first pause", file: "dialer/bulk.go", first: "TestBulkCarrierGoesWhenNobodyTalks",
		text: "const bulkFor = 60 * time.Second", by: "const bulkFor = time.Second",
	},
	{
		name: "the carrier for bulk is dialled again without rest", file: "dialer/bulk.go", first: "TestBulkCarrierFallsSilent",
		text: "		p.bulk.failed(now, a.record.Outcome != route.Won)\n", by: "",
	},
	{
		name: "a carrier for bulk on a route that was left is taken for one", file: "dialer/bulk.go", first: "TestBulkCarrierOfARouteThatWasLeft",
		text: "		case c.Name != in.Name: // the link has moved while it was dialled\n			p.client.Drop(c.Gen)\n", by: "",
	},
	{
		name: "the carrier for bulk is dialled with another role", file: "dialer/attempt.go", first: "TestBulkGetsACarrierBesideAConversation",
		text: "Bulk: a.bulk, Preference", by: "Preference",
	},
	{
		name: "the carrier for bulk costs the budget nothing", file: "dialer/bulk.go", first: "TestSecondCarriersKeepToTheBudget",
		text: "	if !p.roam.Budget.TakeSpare(now) {", by: "	if false {",
	},
	// Races and attempts.
	{
		name: "a race loser is not closed", file: "dialer/race.go", first: "TestHalfOpenRoute",
		text: "			r.find(a.Route).quit()", by: "			r.find(a.Route)",
	},
	{
		name: "a better class just behind the winner is not used", file: "dialer/race.go", first: "TestBetterClassJustBehindTheWinnerIsUsed",
		text: "		case route.Keep:\n			r.won(now, r.find(a.Route))\n", by: "		case route.Keep:\n",
	},
	{
		name: "a race keeps no account of the budget", file: "dialer/race.go", first: "TestFlappingRouteIsHeldByTheBudget",
		text: "AllAtOnce: s.AllAtOnce, Budget: &p.roam.Budget}", by: "AllAtOnce: s.AllAtOnce}",
	},
	{
		name: "after a loss the routes are dialled one after the other", file: "dialer/race.go", first: "TestBlackHole",
		text: "AllAtOnce: s.AllAtOnce, Budget: &p.roam.Budget}", by: "Budget: &p.roam.Budget}",
	},
	{
		name: "a link that everybody forgot is kept", file: "dialer/race.go", first: "TestForgottenOnEveryRoute",
		text: "		r.client.GiveUp()\n", by: "",
	},
	{
		name: "a dial for a standby that this machine refused counts", file: "dialer/route/roam_standby.go", first: "TestSecondCarriersKeepToTheBudget", finder: "dialer",
		text: "	case NoRoute:\n		r.Budget.Refund(now)\n", by: "	case NoRoute:\n",
	},
	{
		name: "a dial for bulk that this machine refused counts", file: "dialer/bulk.go", first: "TestSecondCarriersKeepToTheBudget",
		text: "			p.roam.Budget.Refund(now)\n", by: "",
	},
	{
		name: "a loser among the addresses of a name is not closed", file: "dialer/connect.go", first: "TestAddressThatAnswersTooLateIsClosed",
		text: "				r.conn.Close()\n", by: "",
	},
	{
		name: "the next address of a name starts twice as late", file: "dialer/connect.go", first: "TestAddressesOfANameAreTriedAsRFC8305Says",
		text: "	addressStep = 250 * time.Millisecond", by: "	addressStep = 500 * time.Millisecond",
	},
	// Apps.
	{
		name: "an early stream does not nudge the loop", file: "dialer/waits.go", first: "TestStandbyIsSoughtForAStreamThatSaysNothing",
		text: "			if l.quiet {", by: "			if false {",
	},
	{
		name: "the patience of a waiting app is ignored", file: "dialer/waits.go", first: "TestPatienceOfAnAppEnds",
		text: "	if p.state == up || p.d.patience() < 0 {", by: "	if true {",
	},
	{
		name: "an app without patience is made to wait", file: "dialer/race.go", first: "TestPatienceInAMomentOfTheFirstRace",
		text: "(p.d.patience() < 0 || isFinal(p.lastRace))", by: "isFinal(p.lastRace)",
	},
	{
		name: "an early app's patience outlives the first carrier", file: "dialer/waits.go", first: "TestStatusTellsWhatIsGoingOn",
		text: "		p.waits = slices.DeleteFunc(p.waits, func(w wait) bool { return w.early })\n", by: "",
	},
	{
		name: "an app that waits does not hurry the next race", file: "dialer/waits.go", first: "TestAppWaitsForARouteAndIsServed",
		text: "		p.tell(now, route.Asked{})\n	}\n}\n\n// expireWaits", by: "	}\n}\n\n// expireWaits",
	},
	{
		name: "an app that left is waited for", file: "dialer/waits.go", first: "TestAppThatLeavesIsNotWaitedFor",
		text: "		p.waits = slices.DeleteFunc(p.waits, func(w wait) bool { return w.stream == s })\n", by: "",
	},
	{
		name: "a peer that says no for good is asked until patience ends", file: "dialer/race.go", first: "TestUnpairedIsToldAtOnce",
		text: "	return blocked || len(attempts) == 0", by: "	return blocked && false || len(attempts) == 0",
	},
	// Memory and path.
	{
		name: "a memory that was learned is not kept", file: "dialer/race.go", first: "TestWhatARaceTeachesIsRemembered",
		text: "	p.d.cfg.Remember(p.key(), facts.Memory)\n", by: "",
	},
	{
		name: "a change of the network is not told to the peers", file: "dialer/dialer.go", first: "TestFollow",
		text: "{ p.pathChanged(now, path) })", by: "{ _ = path })",
	},
	// Superseded.
	{
		name: "an instance that was superseded opens streams", file: "dialer/waits.go", first: "TestSupersededStopsDialling",
		text: "	case p.superseded:\n		return nil, supersededError(p.name)\n", by: "",
	},
	{
		name: "that it was superseded is forgotten with the link", file: "dialer/peer.go", first: "TestSupersededStopsDialling",
		text: "	p.superseded = p.superseded || errors.Is(p.lastEnd, link.ErrSuperseded)\n", by: "",
	},
}

// routeFaults are planted in what decides of races, budgets and waits.
var routeFaults = []fault{
	{
		name: "a race ignores the budget", file: "dialer/route/start.go",
		text: "		if !r.opts.Budget.Take(now) {", by: "		if r.opts.Budget.Take(now); false {",
	},
	{
		name: "the budget is one dial too large", file: "dialer/route/budget.go",
		text: "	if b.debt > (BudgetSize-1-leave)*dialCost {", by: "	if b.debt > (BudgetSize-leave)*dialCost {",
	},
	{
		name: "a comfort takes what a loss may need", file: "dialer/route/budget.go",
		text: "return b.take(now, BudgetReserve) }", by: "return b.take(now, 0) }",
	},
	{
		name: "the budget comes back at half the pace", file: "dialer/route/budget.go",
		text: "	RefillWaiting = 2 * time.Second", by: "	RefillWaiting = 4 * time.Second",
	},
	{
		name: "a refund makes the budget larger than it is", file: "dialer/route/budget.go",
		text: "	b.debt = max(0, b.debt-dialCost)", by: "	b.debt -= dialCost",
	},
	{
		name: "the back-off is doubled", file: "dialer/route/reconnect.go",
		text: "	BackoffMin = time.Second", by: "	BackoffMin = 2 * time.Second",
	},
	{
		name: "the back-off does not grow", file: "dialer/route/reconnect.go",
		text: "		most *= 2\n", by: "",
	},
	{
		name: "the back-off grows without bound", file: "dialer/route/reconnect.go",
		text: "	for i := 1; i < c.failed && most < BackoffMax; i++ {\n		most *= 2\n	}\n	most = min(most, BackoffMax)",
		by:   "	for i := 1; i < c.failed && most < time.Hour; i++ {\n		most *= 2\n	}",
	},
	{
		name: "a link that was up for a moment clears the back-off", file: "dialer/route/reconnect.go",
		text: "now.Sub(c.up) >= UpToReset {", by: "true {",
	},
	{
		name: "a trigger in mid-race is forgotten", file: "dialer/route/reconnect.go",
		text: "		c.again = true\n", by: "",
	},
	{
		name: "the loss of an idle link starts no race", file: "dialer/route/reconnect.go",
		text: "	c.up, c.down = time.Time{}, now\n	c.owed = true", by: "	c.up, c.down = time.Time{}, now",
	},
	{
		name: "routes start in the order of the config, not of their classes", file: "dialer/route/rank.go",
		text: "		cmp.Compare(a.Why.Class, b.Why.Class),\n", by: "",
	},
	{
		name: "one dead class holds the others up", file: "dialer/route/start.go",
		text: "		case relay, other:\n			return 1\n", by: "		case relay, other:\n			return 2\n",
	},
	{
		name: "losers go on once another has won", file: "dialer/route/race.go",
		text: "			r.drop(now, l, Lost, fmt.Sprintf(", by: "			_ = l\n			_ = (fmt.Sprintf(",
	},
	{
		name: "what attaches after its cancellation stays", file: "dialer/route/race.go",
		text: "		r.act(Cancel, e.Route, \"it came after it was cancelled\") // so that no carrier stays behind\n", by: "",
	},
	{
		name: "each route starts twice as late", file: "dialer/route/race.go",
		text: "	SlotStep = 250 * time.Millisecond", by: "	SlotStep = 500 * time.Millisecond",
	},
	{
		name: "more attempts at once than is polite", file: "dialer/route/race.go",
		text: "	MaxAtOnce = 3", by: "	MaxAtOnce = 4",
	},
	{
		name: "routes that hang lock the relays out", file: "dialer/route/start.go",
		text: "		r.keepPlace()\n", by: "",
	},
	{
		name: "a relay waits behind each dead class", file: "dialer/route/start.go",
		text: "		return earlier(at, later(r.start, r.field[0].Start).Add(RelayBy))\n", by: "		return at\n",
	},
	{
		name: "a leader that failed when last tried has a head start", file: "dialer/route/start.go",
		text: "	case !leader.LastFailure.IsZero():\n		return 0,", by: "	case !leader.LastFailure.IsZero():\n		return SlotStep,",
	},
	{
		name: "what was remembered leads though it is demoted", file: "dialer/route/rank.go",
		text: "	if i < 0 || ranked[i].Why.Demoted() {", by: "	if i < 0 {",
	},
	{
		name: "failures a day apart are a pattern", file: "dialer/route/rank.go",
		text: "gap < 0 || gap > FailureWindow {", by: "i+1 == len(recent) && gap > FailureWindow {",
	},
	{
		name: "the one dial goes to the same dead route again and again", file: "dialer/route/rank.go",
		text: "		a.Why.lastTry().Compare(b.Why.lastTry()),\n", by: "",
	},
	{
		name: "a relay that was faster by a millisecond leads from then on", file: "dialer/route/record.go",
		text: "	if winner.Route.Class != Relay || last == \"\" {", by: "	if true {",
	},
	{
		name: "a network that wants a sign-in speaks against the routes", file: "dialer/route/record.go",
		text: "	captive := Captive(race.Attempts)", by: "	captive := false",
	},
	{
		name: "two homes with one prefix are one network", file: "dialer/route/memory.go",
		text: "		if n.Router == \"\" && known.", by: "		if known.",
	},
	{
		name: "an unpinned peer is looked for where anybody says it is", file: "dialer/route/vet.go",
		text: "	if r.Source != Configured && !v.Pinned {", by: "	if false {",
	},
	// Roaming.
	{
		name: "a route that did not hold is not penalized", file: "dialer/route/penalty.go",
		text: "	p.Step++\n", by: "",
	},
	{
		name: "a penalty keeps no upgrade away", file: "dialer/route/check.go",
		text: "			u.floor = later(u.floor, r.skipped(now, id))\n", by: "",
	},
	{
		name: "a carrier is left for a better class before it is ten seconds old", file: "dialer/route/check.go",
		text: "	CarrierAge = 10 * time.Second", by: "	CarrierAge = time.Second",
	},
	{
		name: "a distant tailnet is an upgrade", file: "dialer/route/check.go",
		text: "	UpgradeSlack = 20 * time.Millisecond", by: "	UpgradeSlack = 2 * time.Second",
	},
	{
		name: "an idle client looks for better routes", file: "dialer/route/check.go",
		text: "|| r.link.Streams == 0 || in == nil || !in.trusted() || in.draining {", by: "|| in == nil || !in.trusted() || in.draining {",
	},
	{
		name: "who was superseded goes on dialling", file: "dialer/route/race.go",
		text: "		r.finish(now, Cancelled, fmt.Sprintf(\"%s: superseded\", a.Route))\n		return\n", by: "",
	},
}
