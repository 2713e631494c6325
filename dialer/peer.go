package dialer

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/state/identity"
)

// peer is one peer and its loop.
type peer struct {
	d    *Dialer
	name string               // never changes
	id   identity.Fingerprint // never changes
	log  *slog.Logger

	ctx   context.Context // ends with the dialer or with the peer's removal; races and links live on it
	stop  context.CancelCauseFunc
	inbox chan func(now time.Time) // what others want of the loop
	next  atomic.Pointer[Peer]     // the newest configuration; reload takes it over
	gone  chan struct{}            // closed when the loop takes no more messages
	live  atomic.Pointer[lively]   // how early streams are opened without asking the loop; nil: they have to
	nudge chan struct{}            // one slot: the loop is to look at its peer
	wg    sync.WaitGroup           // attempts, moves, and links that are ending

	jitter func() float64
	plain  *plain // nil: the peer has an agent

	// What follows is the loop's own.
	conf       Peer
	client     *link.Client // nil: none
	since      time.Time    // of the link
	state      state
	names      map[uint64]string // routes of the link's carriers, by generation
	roam       *route.Roam
	events     []route.RoamEvent // that roam is to be told; only while it is being told another
	telling    bool
	roamWake   time.Time // when roam wants its next Tick
	wrong      route.WrongKeys
	decisions  route.Decisions
	pin        route.Pin              // what the user wants used
	refused    []route.Refusal        // what vetting left out
	known      map[string]route.Route // every route that was dialled, by its ID
	wish       *wish                  // what the user has asked for, until it is settled
	race       *race
	lastRace   []route.Attempt // of the last race that ended
	lastRaceAt time.Time
	lastEnd    error // why the last link ended
	superseded bool
	waits      []wait
	waiting    bool   // what the budget was told
	bulk       seek   // of the carrier for bulk
	inUse      uint64 // generation of the carrier in use, as last seen
	busy       bool   // streams were open, as last told
	swapped    swap   // the last move of the link that was told
	moves      int    // planned moves and single dials under way: they own their carriers
}

// lively is a link that is up.
type lively struct {
	client *link.Client
	quiet  bool // the loop sleeps until it is nudged: there was no stream when it last looked, and with one it has more to do
}

// state is what a link's carriers are worth.
type state uint8

const (
	down    state = iota // no carrier, or no link
	suspect              // every carrier in doubt
	up
)

func newPeer(d *Dialer, conf Peer) *peer {
	p := &peer{
		d: d, name: conf.Name, id: conf.ID, conf: conf, log: d.cfg.Log.With("peer", conf.Name),
		inbox: make(chan func(time.Time)), gone: make(chan struct{}), nudge: make(chan struct{}, 1),
	}
	p.ctx, p.stop = context.WithCancelCause(d.ctx)
	p.known = map[string]route.Route{}
	h := fnv.New64a()
	_, _ = h.Write([]byte(conf.Name)) // never fails
	p.jitter = rand.New(rand.NewPCG(d.cfg.Seed, h.Sum64())).Float64
	if conf.ID.IsZero() {
		p.plain = &plain{p: p, services: map[string]*service{}, conns: map[*plainConn]bool{}, asked: checkPort}
	}
	p.roam = route.NewRoam(route.RoamConfig{
		Facts:   route.Facts{Memory: d.cfg.Recall(p.key()), Path: d.path()},
		Standby: conf.Standby.roam(), Rand: p.jitter,
	})
	p.roam.Facts.Routes = p.vet(time.Now())
	return p
}

// key is what is learned about the peer is remembered by.
func (p *peer) key() string {
	if p.plain != nil {
		return "plain:" + p.name
	}
	return p.id.String()
}

// send hands f to the loop; false: the loop is gone.
func (p *peer) send(f func(now time.Time)) bool {
	select {
	case p.inbox <- f:
		return true
	case <-p.gone:
		return false
	}
}

// ask has f run by the loop and waits until it has; the error is why it has not.
func (p *peer) ask(ctx context.Context, f func(now time.Time)) error {
	done := make(chan struct{})
	select {
	case p.inbox <- func(now time.Time) { f(now); close(done) }:
		<-done
		return nil
	case <-p.gone:
		return p.endedBy()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endedBy is why the loop has ended.
func (p *peer) endedBy() error { return context.Cause(p.ctx) }

// remove ends the peer because the config no longer has it.
func (p *peer) remove() { p.stop(removedError(p.name)) }

// reload takes the newest configuration over. On the loop.
func (p *peer) reload(now time.Time) {
	conf := *p.next.Load()
	if p.conf.equal(conf) {
		return
	}
	p.conf = conf
	p.superseded = false
	p.bulk.reset()
	p.wrong.Clear()
	p.tell(now, route.RoutesChanged{Routes: p.vet(now), Standby: conf.Standby.roam(), What: "the config", ByHand: true})
	if p.plain != nil {
		p.plain.changed(now, "the config")
	}
}

// vet says which routes may be tried.
func (p *peer) vet(now time.Time) []route.Route {
	v := route.Vetting{Now: now, Path: p.roam.Facts.Path, Pinned: p.plain == nil, Wrong: p.wrong}
	list, refused := v.Vet(p.conf.Routes)
	p.refused = refused
	return list
}

// loop owns the peer.
func (p *peer) loop() {
	defer p.d.wg.Done()
	defer p.wg.Wait()
	defer p.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var notify, done <-chan struct{}
		if p.client != nil {
			notify, done = p.client.Notify(), p.client.Done()
		}
		var do func(now time.Time)
		select {
		case do = <-p.inbox:
		case <-p.nudge:
		case <-notify:
		case <-done:
		case <-timer.C:
		case <-p.ctx.Done():
			return
		}
		now := time.Now()
		if do != nil {
			do(now)
		}
		if wake := p.tend(now); wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(wake.Sub(now))
		}
	}
}

// end closes the link and stops all that runs.
func (p *peer) end() {
	p.live.Store(nil)
	p.tellBusy(0)
	p.settle(p.endedBy())
	if p.plain != nil {
		p.plain.end(p.endedBy())
	}
	close(p.gone)
	p.inRace(time.Now(), route.Stop{Why: "the peer's loop has ended"}) // so that what it has found out is remembered
	if p.client == nil {
		return
	}
	cause := p.endedBy()
	if errors.Is(cause, ErrClosed) {
		cause = link.ErrClosed
	}
	p.client.Revoke(cause)
	p.client.Close()
}

// alarm collects the earliest of several times.
type alarm struct{ at time.Time }

func (a *alarm) add(t time.Time) {
	if !t.IsZero() && (a.at.IsZero() || t.Before(a.at)) {
		a.at = t
	}
}

// tend brings the peer up to now, whatever has happened: it looks at levels, not at edges. It returns when to look again;
// zero: when something happens.
func (p *peer) tend(now time.Time) time.Time {
	if p.plain != nil {
		p.grant(now, link.Status{}, &alarm{}) // at once: there is no link to move
		return p.plain.tend(now)
	}
	if p.race != nil {
		p.race.tick(now)
	}
	if p.client != nil && p.client.Err() != nil {
		p.linkEnded(now)
	}
	var st link.Status
	if p.client != nil {
		st = p.client.Status()
	}
	var wake alarm
	p.observe(now, st)
	p.noteSwaps(st)
	p.expireWaits(now, &wake)
	p.nag(now, &wake)
	p.tell(now, p.linkState(st))
	p.grant(now, st, &wake)
	p.tendBulk(now, st, &wake)
	if p.race != nil {
		wake.add(p.race.wake)
	}
	wake.add(p.roamWake)
	p.publish(st)
	p.tellBusy(st.Streams)
	return wake.at
}

// publish tells those who open early streams whether they have to ask the loop.
func (p *peer) publish(st link.Status) {
	if p.state != up || p.client == nil || p.superseded || len(p.conf.Routes) == 0 {
		p.live.Store(nil)
		return
	}
	if l := p.live.Load(); l == nil || l.client != p.client || l.quiet != (st.Streams == 0) {
		p.live.Store(&lively{p.client, st.Streams == 0})
	}
}

// observe notes what became of the link's carriers.
func (p *peer) observe(now time.Time, st link.Status) {
	next := stateOf(st)
	if p.client == nil {
		next = down
	}
	for _, c := range st.Carriers {
		p.noteName(c.Gen, c.Name)
	}
	in := activeOf(st)
	if in.Gen != p.inUse {
		p.inUse = in.Gen
		p.bulk.reset() // there is none on this route yet
	}
	was := p.state
	p.state = next
	switch {
	case next == up && was != up:
		p.log.Info("connected", "route", in.Name)
	case next != up && next != was:
		p.log.Info("no carrier works", "in doubt", next == suspect, "streams", st.Streams)
	}
	p.updateWaits(now, was)
	p.tellWaiting(now)
}

// stateOf sums a link up: one carrier that is not in doubt makes it up.
func stateOf(st link.Status) state {
	s := down
	for _, c := range st.Carriers {
		switch {
		case !c.Attached:
		case !c.Suspect:
			return up
		default:
			s = suspect
		}
	}
	return s
}

// activeOf is the carrier in use; zero: none.
func activeOf(st link.Status) link.CarrierStatus {
	for _, c := range st.Carriers {
		if c.Active {
			return c
		}
	}
	return link.CarrierStatus{}
}

// noteName remembers the route of a carrier for as long as a switch may speak of it.
func (p *peer) noteName(gen uint64, name string) {
	p.names[gen] = name
	if len(p.names) > namesKept {
		maps.DeleteFunc(p.names, func(g uint64, _ string) bool { return g+namesKept/2 < gen })
	}
}

// namesKept is how many generations back a carrier's route is remembered: a race takes a few, a status tells 32 switches.
const namesKept = 256

// connect makes sure that there is a link an app's stream can be opened on.
func (p *peer) connect(now time.Time) {
	if p.client != nil && p.client.Err() != nil {
		p.linkEnded(now)
	}
	if p.client != nil && p.state == down && p.race == nil && p.client.Work() == (link.Work{}) {
		// Lost, or never attached, and empty: the peer may have forgotten it, streams that were given up before it attached
		// count as long as it lives, and a new one costs no more.
		p.drop(now)
	}
	if p.client != nil {
		return
	}
	hold := p.conf.Hold
	if hold == 0 {
		hold = p.d.cfg.Hold
	}
	p.client = link.NewClient(link.ClientConfig{
		Process: p.d.cfg.Process, Peer: p.id, Hold: hold, Pool: p.d.cfg.Pool, Log: p.log,
	})
	p.names, p.since = map[uint64]string{}, now
	p.lastEnd = nil
}

// drop gives up a link that nobody needs.
func (p *peer) drop(now time.Time) {
	p.client.Revoke(link.ErrClosed)
	p.linkEnded(now)
	p.lastEnd = nil
}

// linkEnded takes an ended link off. Its streams have been reset with its own error already.
func (p *peer) linkEnded(now time.Time) {
	client := p.client
	p.client, p.inUse = nil, 0
	p.lastEnd = client.Err()
	p.superseded = p.superseded || errors.Is(p.lastEnd, link.ErrSuperseded)
	p.log.Info("the link has ended", "cause", p.lastEnd)
	p.state = down
	if peerEnded(p.lastEnd) {
		p.tell(now, route.PeerRestarted{})
	}
	p.tell(now, route.LinkState{})
	p.inRace(now, route.Stop{Why: "the link has ended"})
	p.wg.Add(1)
	go p.bury(client)
}

// bury waits for an ended link's goroutines.
func (p *peer) bury(c *link.Client) {
	defer p.wg.Done()
	c.Close()
}

// peerEnded says whether it was the peer's process that ended the link.
func peerEnded(err error) bool {
	var end *link.EndError
	return errors.Is(err, link.ErrUnknown) || errors.As(err, &end) && end.Code == link.CodeShutdown
}

// lastFailed says whether the last race brought no carrier.
func (p *peer) lastFailed() bool {
	for _, a := range p.lastRace {
		if a.Outcome == route.Won {
			return false
		}
	}
	return len(p.lastRace) > 0
}
