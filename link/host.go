package link

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"linkproxy/link/core"
	"linkproxy/link/frame"
	"linkproxy/state/identity"
)

// HostConfig is what the host side is made of.
type HostConfig struct {
	// Key is this machine's; Process is this process, as HELLO tells it.
	Key     *identity.Key
	Process Process
	// Trusted says whether a key is paired. It is asked once per connection, after the key was proved.
	Trusted func(identity.Fingerprint) bool
	// Handle serves one stream: it answers with Accept or Refuse and returns when the stream is over.
	Handle func(client identity.Fingerprint, s *Stream)
	// Pairing says whether an invite is open; nil: never. Pair then serves a connection that wants to pair.
	Pairing func() bool
	Pair    func(ctx context.Context, p *PairConn)
	// Hold bounds how long streams survive without any carrier. Zero: 24 h.
	Hold time.Duration
	// Pool is the process's memory for stream bytes. Nil: one of its own.
	Pool *Pool
	// Links and Streams bound what one key may have at a time. Zero: 64 and 8192; negative: no bound.
	Links, Streams int
	// Log may be nil.
	Log *slog.Logger
	// BreakReplay is a planted fault, for the negative control of `linkproxy demo` only: see core.Config.
	BreakReplay bool
}

// Bounds and times of the host.
const (
	// DefaultLinks is the most links one key may have at a time.
	DefaultLinks = 64
	// newMaxAge is the oldest NEW that may create a link it was already told to create, and endedFor how long the ids of
	// ended links are remembered for the same reason: app bytes must not run twice.
	newMaxAge = 60 * time.Second
	endedFor  = 2 * time.Minute
)

// Host is the host side of links: it accepts carriers and keeps the links of each paired key.
type Host struct {
	cfg   HostConfig
	pool  *Pool
	log   *slog.Logger
	start time.Time
	ctx   context.Context // ends with Close; bounds handshakes
	stop  context.CancelFunc
	wg    sync.WaitGroup // one per link

	mu   sync.Mutex
	keys map[identity.Fingerprint]*keyState
	shut bool
}

// keyState is what a host keeps of one key.
type keyState struct {
	account *account
	links   map[ID]*hostLink
	ended   map[ID]time.Time
	attach  pace // attaches, which wait
	check   pace // checks, which are refused
}

type hostLink struct {
	*Link
	key      identity.Fingerprint
	instance [16]byte
	boot     uint64
	since    time.Time
}

// NewHost returns a host that serves the connections given to ServeConn.
func NewHost(cfg HostConfig) *Host {
	if cfg.Links == 0 {
		cfg.Links = DefaultLinks
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h := &Host{cfg: cfg, pool: cfg.Pool, log: cfg.Log, start: time.Now(), keys: map[identity.Fingerprint]*keyState{}}
	if h.pool == nil {
		h.pool = NewPool(0)
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// keyOf returns what is kept of a key; the caller holds h.mu.
func (h *Host) keyOf(key identity.Fingerprint) *keyState {
	ks := h.keys[key]
	if ks == nil {
		ks = &keyState{account: h.pool.account(h.cfg.Streams), links: map[ID]*hostLink{}, ended: map[ID]time.Time{}}
		h.keys[key] = ks
	}
	return ks
}

// attach finds or makes the link that NEW or ATTACH names and gives it t. CodeNone: done.
func (h *Host) attach(t *Transport, op *opening, p Process, came time.Time) Code {
	h.mu.Lock()
	if h.shut {
		h.mu.Unlock()
		return CodeShutdown
	}
	ks := h.keyOf(t.peer)
	l := ks.links[ID(op.ask.Link)]
	var room room
	if l == nil {
		if code := h.mayCreate(t.peer, ks, op, came); code != CodeNone {
			h.mu.Unlock()
			return code
		}
		var ok bool
		if room, ok = ks.makeRoom(p, h.cfg.Links); !ok {
			h.mu.Unlock()
			return CodeTooMany
		}
		l = h.create(ks, t.peer, ID(op.ask.Link), p)
	}
	h.mu.Unlock()
	for _, o := range room.superseded {
		o.end(ErrSuperseded, CodeSuperseded)
	}
	if room.yields != nil {
		room.yields.end(errYielded, CodeTooMany)
	}
	if !h.cfg.Trusted(t.peer) { // revoked meanwhile: from here on Revoke would find the link
		l.end(&EndError{CodeRevoked}, CodeRevoked)
		return CodeRevoked
	}
	return h.admit(l, t, op)
}

// mayCreate judges a link that the host does not know of this key: it is made only if that cannot run an app's bytes
// twice. The caller holds h.mu.
func (h *Host) mayCreate(key identity.Fingerprint, ks *keyState, op *opening, came time.Time) Code {
	for fp, other := range h.keys {
		if fp != key && other.links[ID(op.ask.Link)] != nil {
			return CodeDenied
		}
	}
	if op.ask.Kind != frame.New {
		return CodeUnknown
	}
	for id, at := range ks.ended {
		if came.Sub(at) > endedFor {
			delete(ks.ended, id)
		}
	}
	_, ended := ks.ended[ID(op.ask.Link)]
	if ended || op.ask.Age >= newMaxAge || op.ask.Age > 0 && op.ask.Age >= came.Sub(h.start) {
		return CodeUnknown
	}
	return CodeNone
}

// room is what ends so that a new link has a place.
type room struct {
	superseded []*hostLink // older boots of the same instance
	yields     *hostLink   // the oldest link without a carrier, at the bound
}

var errYielded = errors.New("link: a newer link took its place: this key had too many, and this one no carrier")

// makeRoom says what ends for a new link of process p; false: every place is taken by a link with a carrier. The caller
// holds Host.mu.
func (ks *keyState) makeRoom(p Process, limit int) (r room, ok bool) {
	live := 0
	for _, l := range ks.links {
		switch {
		case l.Err() != nil: // only its goroutines are left
		case l.instance == p.Instance && l.boot < p.Boot:
			r.superseded = append(r.superseded, l)
		default:
			live++
			if l.unattached() && (r.yields == nil || l.since.Before(r.yields.since)) {
				r.yields = l
			}
		}
	}
	if live < limit || limit < 0 {
		r.yields = nil
		return r, true
	}
	return r, r.yields != nil
}

func (l *hostLink) unattached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, lost := l.core.Lost()
	return lost
}

// create makes a link; the caller holds h.mu.
func (h *Host) create(ks *keyState, key identity.Fingerprint, id ID, p Process) *hostLink {
	var seed [16]byte
	_, _ = rand.Read(seed[:]) // never fails (crypto/rand)
	cfg := core.Config{Account: ks.account, Hold: h.cfg.Hold, BreakReplay: h.cfg.BreakReplay}
	l := &hostLink{key: key, instance: p.Instance, boot: p.Boot, since: time.Now()}
	l.Link = newLink(id, cfg, h.log, [2]uint64{binary.NativeEndian.Uint64(seed[:8]), binary.NativeEndian.Uint64(seed[8:])})
	l.Link.handle = func(s *Stream) { h.cfg.Handle(key, s) }
	ks.links[id] = l
	h.wg.Add(1)
	go h.watch(l)
	return l
}

// watch takes a link off the books once it has ended and all its goroutines are gone.
func (h *Host) watch(l *hostLink) {
	defer h.wg.Done()
	<-l.Done()
	h.mu.Lock()
	ks := h.keyOf(l.key)
	delete(ks.links, l.id)
	ks.ended[l.id] = time.Now()
	h.mu.Unlock()
	l.wait()
	h.log.Debug("link ended", "link", l.id.String(), "client", l.key.Short(), "cause", l.Err())
}

// admit attaches t to l.
func (h *Host) admit(l *hostLink, t *Transport, op *opening) Code {
	ok := frame.Frame{Kind: frame.AttachOK, Link: op.ask.Link, Gen: op.ask.Gen}
	if op.ask.Kind == frame.New {
		ok.Kind = frame.NewOK
	}
	l.mu.Lock()
	now := l.now()
	if l.stopping || l.core.Err() != nil {
		l.mu.Unlock()
		return CodeUnknown
	}
	k, fresh := l.core.Admit(now, &op.ask, t.handshake)
	if !fresh {
		l.mu.Unlock()
		return CodeStale
	}
	c := newCarrier(l.Link, k, t, addr(t.raw), frame.Append(hello(h.cfg.Process), &ok))
	l.wg.Add(2)
	l.unlock(now)
	c.start(op.rest)
	return CodeNone
}

// HostLink is one held link, for a status.
type HostLink struct {
	Status
	Client  identity.Fingerprint
	Since   time.Time
	Streams []StreamStatus
}

// Status lists the links that are held.
func (h *Host) Status() []HostLink {
	var list []HostLink
	for _, l := range h.all(nil) {
		list = append(list, HostLink{l.Status(), l.key, l.since, l.Streams()})
	}
	return list
}

// all lists the links, of one key or of all.
func (h *Host) all(key *identity.Fingerprint) []*hostLink {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []*hostLink
	for fp, ks := range h.keys {
		if key != nil && fp != *key {
			continue
		}
		for _, l := range ks.links {
			list = append(list, l)
		}
	}
	return list
}

// Drop ends the link of an id, as its operator wishes; false: there is none.
func (h *Host) Drop(id ID) bool {
	for _, l := range h.all(nil) {
		if l.id == id {
			l.end(&EndError{CodeDropped}, CodeDropped)
			return true
		}
	}
	return false
}

// Revoke ends every link of a key at once; Trusted must refuse the key by then.
func (h *Host) Revoke(key identity.Fingerprint) {
	for _, l := range h.all(&key) {
		l.end(&EndError{CodeRevoked}, CodeRevoked)
	}
}

// RevokeUntrusted ends every link whose key Trusted refuses now.
func (h *Host) RevokeUntrusted() {
	for _, l := range h.all(nil) {
		if !h.cfg.Trusted(l.key) {
			l.end(&EndError{CodeRevoked}, CodeRevoked)
		}
	}
}

// Close ends all links, telling the clients that the process ends, and waits for their goroutines.
func (h *Host) Close() error {
	h.mu.Lock()
	h.shut = true
	h.mu.Unlock()
	h.stop()
	for _, l := range h.all(nil) {
		l.end(&EndError{CodeShutdown}, CodeShutdown)
	}
	h.wg.Wait()
	return nil
}
