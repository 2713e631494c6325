package route

import (
	"fmt"
	"time"
)

// noRouteAgain is how long after a change of the path dials that found no route
// are tried again: addresses come first, routes a moment later.
var noRouteAgain = [...]time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond}

// Round is how many races have failed in a row: 0 before the first race after a
// loss, which is run at once and without checks.
func (c *Reconnect) Round() int { return c.failed }

// lose is Lost for a reason of its own.
func (c *Reconnect) lose(now time.Time, why string) {
	if !c.up.IsZero() && now.Sub(c.up) >= UpToReset {
		c.failed = 0
	}
	c.up, c.down = time.Time{}, now
	c.owed = true
	c.cut(now, now, why)
}

// NoRoute says that the local stack refused every dial of the race, so that it
// cost nothing and told nothing, and that the next is due at at: the path is
// still coming up.
func (c *Reconnect) NoRoute(now, at time.Time) {
	c.racing, c.ended, c.again = false, now, false
	c.due, c.why = at, fmt.Sprintf("this machine had no route yet: again after %s", at.Sub(now))
}

// retryAfter is when dials that found no route at now are tried again after a
// change at since; ok is false when the path had its time.
func retryAfter(since, now time.Time) (at time.Time, ok bool) {
	if since.IsZero() {
		return time.Time{}, false
	}
	for _, d := range noRouteAgain {
		if at := since.Add(d); at.After(now) {
			return at, true
		}
	}
	return time.Time{}, false
}

// onlyNoRoute reports whether the local stack refused everything that was tried.
func onlyNoRoute(attempts []Attempt) bool {
	n := 0
	for _, a := range attempts {
		switch a.Outcome {
		case NoRoute:
			n++
		case NotTried:
		default:
			return false
		}
	}
	return n > 0
}

// worthSilent reports whether the routes that gave no answer to a check are to
// be raced after all: every one that was raced is blocked, or none was raced.
func worthSilent(attempts []Attempt) bool {
	for _, a := range attempts {
		switch a.Outcome {
		case Blocked, NotTried, Cancelled:
		default:
			return false
		}
	}
	return true
}
