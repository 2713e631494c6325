package dialer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
)

// request is what an app asks of a peer's loop.
type request struct {
	target  string
	options OpenOptions
	asked   time.Time
	early   bool
}

// wait is a stream whose app waits for a route, or, unless early, for its target.
type wait struct {
	stream *link.Stream
	early  bool
	since  time.Time // when its patience began; zero: a carrier works, so the peer has the word
}

// open opens a stream, on a new link if need be.
func (p *peer) open(ctx context.Context, rq request) (s *link.Stream, err error) {
	if aerr := p.ask(ctx, func(now time.Time) { s, err = p.opened(now, rq) }); aerr != nil {
		return nil, aerr
	}
	return s, err
}

// openEarly is open for an app that is not told whether its target answered. While a carrier works nobody has to wait for
// the loop, which would add to the time of every connection: such a stream is like one that was opened a moment before.
func (p *peer) openEarly(ctx context.Context, rq request) (*link.Stream, error) {
	if l := p.live.Load(); l != nil {
		s, err := l.client.Open(rq.target, rq.link())
		if err == nil {
			if l.quiet {
				select {
				case p.nudge <- struct{}{}:
				default:
				}
			}
			return s, nil
		}
	}
	return p.open(ctx, rq) // the loop knows what to do, or to say
}

// link is how the link is to open what rq asks for.
func (rq *request) link() link.OpenOptions {
	return link.OpenOptions{Bulk: rq.options.Bulk, Hold: rq.options.Hold, Early: rq.early}
}

// opened is open on the loop.
func (p *peer) opened(now time.Time, rq request) (*link.Stream, error) {
	switch {
	case p.plain != nil:
		return nil, &Error{Peer: p.name, reason: reasonNotAllowed, text: fmt.Sprintf("%s has no agent, so no stream can be opened there", p.name)}
	case p.superseded:
		return nil, supersededError(p.name)
	case len(p.conf.Routes) == 0:
		return nil, raceError(p.name, nil, "")
	}
	p.connect(now)
	s, err := p.client.Open(rq.target, rq.link())
	if err != nil {
		return nil, openError(p.name, rq.target, err)
	}
	w := wait{stream: s, early: rq.early}
	if p.state != up {
		w.since = rq.asked
		p.tell(now, route.Asked{})
	}
	if p.state != up || !rq.early {
		p.waits = append(p.waits, w)
	}
	p.tellWaiting(now)
	return s, nil
}

// settled tells that nobody waits for a stream any more.
func (p *peer) settled(s *link.Stream) {
	p.send(func(now time.Time) {
		p.waits = slices.DeleteFunc(p.waits, func(w wait) bool { return w.stream == s })
		p.tellWaiting(now)
	})
}

// updateWaits follows a change of the link's state: patience runs only while no carrier works, and an early app's ends
// with the first one that does.
func (p *peer) updateWaits(now time.Time, was state) {
	switch {
	case p.state == up && was != up:
		p.waits = slices.DeleteFunc(p.waits, func(w wait) bool { return w.early })
		for i := range p.waits {
			p.waits[i].since = time.Time{}
		}
	case p.state != up:
		for i := range p.waits {
			if p.waits[i].since.IsZero() {
				p.waits[i].since = now
			}
		}
	default:
		return
	}
	p.tellWaiting(now)
}

// tellWaiting lets the budget know whether an app waits for a route: one that has just come, or one whose stream is held.
func (p *peer) tellWaiting(now time.Time) {
	waiting := p.state != up && (len(p.waits) > 0 || p.client != nil && p.client.Work().Apps > 0)
	if waiting == p.waiting {
		return
	}
	p.waiting = waiting
	p.roam.Budget.SetWaiting(now, waiting)
	if p.race != nil {
		p.race.step(now, route.Tick{})
	}
}

// askAgain is how soon after a failed race an app that waits asks for another: its patience is short, and the longest
// back-off alone would let it miss a route that has come back in mid-wait. The dial budget holds all the same.
const askAgain = 5 * time.Second

// nag asks again for the apps that wait.
func (p *peer) nag(now time.Time, wake *alarm) {
	if p.state == up || len(p.waits) == 0 || p.race != nil || p.lastRaceAt.IsZero() {
		return
	}
	if at := p.lastRaceAt.Add(askAgain); at.After(now) {
		wake.add(at)
	} else {
		p.tell(now, route.Asked{})
	}
}

// expireWaits fails the streams whose apps have waited long enough.
func (p *peer) expireWaits(now time.Time, wake *alarm) {
	if p.state == up || p.d.patience() < 0 {
		return
	}
	var due bool
	for _, w := range p.waits {
		at := w.since.Add(p.d.patience())
		if at.After(now) {
			wake.add(at)
		} else {
			due = true
		}
	}
	if due {
		p.failSome(now, fmt.Sprintf("waited %gs: ", p.d.patience().Seconds()), func(w wait) bool {
			return !w.since.Add(p.d.patience()).After(now)
		})
	}
}

// failWaits fails every stream whose app waits for a route.
func (p *peer) failWaits(now time.Time, before string) {
	p.failSome(now, before, func(wait) bool { return true })
}

func (p *peer) failSome(now time.Time, before string, which func(wait) bool) {
	err := p.noRoute(now, before)
	p.waits = slices.DeleteFunc(p.waits, func(w wait) bool {
		if !which(w) {
			return false
		}
		w.stream.Fail(uint32(link.CodeCancelled), err)
		return true
	})
	p.tellWaiting(now)
}

// noRoute tells why no route works, from the last race if it failed, else from the one that runs.
func (p *peer) noRoute(now time.Time, before string) *Error {
	var attempts []route.Attempt
	switch {
	case p.lastFailed():
		attempts = p.lastRace
	case p.race != nil:
		attempts = p.race.sofar(now)
	}
	if len(attempts) == 0 && len(p.conf.Routes) > 0 {
		return &Error{
			Peer: p.name, reason: reasonNoRoute,
			text: fmt.Sprintf("%sthe last connection to %s broke, and it was dialled too often lately to try at once", before, p.name),
			Next: "it is tried again",
		}
	}
	return raceError(p.name, attempts, before)
}
