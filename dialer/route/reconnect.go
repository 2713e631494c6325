package route

import (
	"fmt"
	"time"
)

// The numbers of reconnecting.
const (
	// BackoffMin is the longest wait after the first failed race; it doubles with
	// each further one.
	BackoffMin = time.Second
	// BackoffMax is where it stops growing: a peer that is back is found within
	// half a minute, at a cost nobody notices.
	BackoffMax = 30 * time.Second
	// UpToReset is how long a link must have been up to clear the backoff: less
	// and a route that connects and dies at once would be dialled without rest.
	UpToReset = 30 * time.Second
	// StreamWait is the longest wait while a stream is held and the outage is shorter than StreamHaste: most outages are
	// tunnels and changes of network, and somebody is looking at the screen.
	StreamWait  = 4 * time.Second
	StreamHaste = 2 * time.Minute
	// AskFloor is the least time between a failed race's end and the next one that an
	// app's asking brings about.
	AskFloor = time.Second
	// CaptiveWait is between two races where the network wants a sign-in first:
	// whoever has just signed in looks at the screen.
	CaptiveWait = 5 * time.Second
)

// Reconnect decides when the next race for a peer without a carrier starts. The
// owner tells it what happens and asks Next whenever the link is down and no
// race runs. The zero Reconnect is ready once Rand is set.
type Reconnect struct {
	// Rand yields jitter in [0, 1) from a seeded source. Nil is no jitter: the
	// longest wait.
	Rand func() float64

	failed int       // races failed since the backoff was cleared
	up     time.Time // when the link last came up
	down   time.Time // when the outage began; zero: there is none
	ended  time.Time // when the last failed race ended
	due    time.Time // zero: at once
	why    string
	owed   bool // a race is due though no stream is open: after a loss or a wake-up
	racing bool
	again  bool // a trigger came during the race: it did not see that change whole
}

// Lost says that the last carrier is gone: one race at once.
func (c *Reconnect) Lost(now time.Time) {
	if !c.up.IsZero() && now.Sub(c.up) >= UpToReset {
		c.failed = 0
	}
	c.up, c.down = time.Time{}, now
	c.owed = true
	c.cut(now, now, "the last carrier is gone")
}

// Woke says that the machine woke up: one race at once.
func (c *Reconnect) Woke(now time.Time) {
	c.owed = true
	c.cut(now, now, "the machine woke up")
}

// Changed says that facts changed which may make a route work: the network
// path, or the config. It ends a wait; it starts nothing while no stream is
// open.
func (c *Reconnect) Changed(now time.Time, what string) { c.cut(now, now, what+" changed") }

// Asked says that an app opened a stream. During a race it waits for that race.
func (c *Reconnect) Asked(now time.Time) {
	if !c.racing {
		c.cut(now, later(now, c.ended.Add(AskFloor)), "an app asked")
	}
}

// Started says that a race began.
func (c *Reconnect) Started(time.Time) { c.racing, c.again, c.owed = true, false, false }

// Won says that the race won: the link is up.
func (c *Reconnect) Won(now time.Time) {
	c.racing, c.up, c.down = false, now, time.Time{}
}

// Stopped says that the race was given up: it told nothing about the peer, so
// nothing is counted and no wait begins.
func (c *Reconnect) Stopped(time.Time) { c.racing = false }

// Failed says that the race ended without a carrier.
func (c *Reconnect) Failed(now time.Time) {
	c.racing, c.ended = false, now
	c.failed++
	if c.again {
		c.again = false
		return // the trigger set due already
	}
	wait := c.backoff()
	c.due, c.why = now.Add(wait), fmt.Sprintf("%d failed in a row: %s wait", c.failed, wait)
}

// Captive says that the race met a network that wants a sign-in first. That is
// not the peer's doing: the back-off does not grow.
func (c *Reconnect) Captive(now time.Time) {
	c.racing, c.ended = false, now
	if c.again {
		c.again = false
		return
	}
	c.due, c.why = now.Add(CaptiveWait), "this network wants a sign-in: "+CaptiveWait.String()+" wait"
}

// Next is when the next race starts, not before now, and why then; ok is false
// when none does until something happens. Streams says whether an app's stream
// is open or waiting.
func (c *Reconnect) Next(now time.Time, streams bool, budget *Budget) (at time.Time, why string, ok bool) {
	if !streams && !c.owed {
		return time.Time{}, "no stream is open", false
	}
	why = c.why
	if why == "" {
		why = "an app asked"
	}
	due := c.due
	if soon := c.ended.Add(StreamWait); streams && due.After(now) && soon.Before(due) && !c.down.IsZero() && now.Sub(c.down) < StreamHaste {
		due, why = soon, "streams are held: at most "+StreamWait.String()+" wait"
	}
	at = later(now, due)
	if ready := budget.Ready(now); ready.After(at) {
		return ready, why + "; the dial budget is spent until then", true
	}
	return at, why, true
}

// cut brings the next race forward to at. What is due between now and then
// stays; a wait that is long over gives its place and its reason to the trigger.
func (c *Reconnect) cut(now, at time.Time, why string) {
	if c.racing {
		c.again = true
	} else if !c.due.Before(now) && !c.due.After(at) {
		return
	}
	c.due, c.why = at, why
}

// backoff is in the upper half of 1, 2, 4 … 30 s.
func (c *Reconnect) backoff() time.Duration {
	most := BackoffMin
	for i := 1; i < c.failed && most < BackoffMax; i++ {
		most *= 2
	}
	most = min(most, BackoffMax)
	if c.Rand == nil {
		return most
	}
	return most/2 + time.Duration(c.Rand()*float64(most/2))
}
