package route

import "time"

// The dial budget of one peer, for every trigger together. It is what keeps a
// dead host from being hammered when a browser opens 50 connections, and the
// network from being flooded by an interface that flaps.
const (
	// BudgetSize is how many dials may start at once: two full waves of a race
	// and a spare one each.
	BudgetSize = 8
	// BudgetReserve is what a dial that is only a comfort leaves: a wave and a
	// retry, should the carrier in use be lost next.
	BudgetReserve = 4
	// RefillIdle is the time for one dial to come back while nobody waits.
	RefillIdle = 5 * time.Second
	// RefillWaiting is the same while an app waits for the peer: somebody sits
	// in front of it.
	RefillWaiting = 2 * time.Second
)

// One dial is a debt of dialCost, paid off at payIdle or payWaiting for each
// unit of time: the two rates in whole numbers, so that nothing is rounded.
const (
	dialCost   = 10 * time.Second
	payIdle    = dialCost / RefillIdle
	payWaiting = dialCost / RefillWaiting
)

// stoppedLook is what Ready answers while nothing comes back: whoever stopped it
// starts it again long before.
const stoppedLook = time.Hour

// Budget bounds how often one peer is dialled. The zero Budget is full.
type Budget struct {
	debt    time.Duration // in units of dialCost a dial, 0 … BudgetSize × dialCost
	paid    time.Time     // debt is right at this time
	waiting bool
	stopped bool
}

// Take spends one dial if there is one.
func (b *Budget) Take(now time.Time) bool { return b.take(now, 0) }

// TakeSpare is Take for a second carrier, which leaves BudgetReserve.
func (b *Budget) TakeSpare(now time.Time) bool { return b.take(now, BudgetReserve) }

func (b *Budget) take(now time.Time, leave time.Duration) bool {
	b.pay(now)
	if b.debt > (BudgetSize-1-leave)*dialCost {
		return false
	}
	b.debt += dialCost
	return true
}

// Refund gives one dial back: the local stack refused it, so it cost nobody
// anything.
func (b *Budget) Refund(now time.Time) {
	b.pay(now)
	b.debt = max(0, b.debt-dialCost)
}

// SetWaiting says whether an app waits for the peer from now on.
func (b *Budget) SetWaiting(now time.Time, waiting bool) {
	b.pay(now)
	b.waiting = waiting
}

// SetStopped says whether dials come back at all from now on: they do not while
// the only reason for them is a doubt and bytes cost money.
func (b *Budget) SetStopped(now time.Time, stopped bool) {
	b.pay(now)
	b.stopped = stopped
}

// Ready is the first time from now on at which Take will succeed if nothing is
// taken and nobody comes or goes meanwhile; a far time while dials do not come
// back.
func (b *Budget) Ready(now time.Time) time.Time { return b.ready(now, 0) }

// ReadySpare is Ready for TakeSpare.
func (b *Budget) ReadySpare(now time.Time) time.Time { return b.ready(now, BudgetReserve) }

func (b *Budget) ready(now time.Time, leave time.Duration) time.Time {
	b.pay(now)
	over := b.debt - (BudgetSize-1-leave)*dialCost
	if over <= 0 {
		return now
	}
	rate := b.rate()
	if rate == 0 {
		return now.Add(stoppedLook)
	}
	return now.Add((over + rate - 1) / rate)
}

func (b *Budget) rate() time.Duration {
	switch {
	case b.stopped:
		return 0
	case b.waiting:
		return payWaiting
	default:
		return payIdle
	}
}

// pay brings the debt up to now. A pause of any length pays at most everything,
// which also keeps the product from overflowing.
func (b *Budget) pay(now time.Time) {
	gap := min(now.Sub(b.paid), BudgetSize*dialCost)
	if gap <= 0 {
		return
	}
	b.debt = max(0, b.debt-gap*b.rate())
	b.paid = now
}
