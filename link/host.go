package link

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	// Links and Streams bound what one key may have at a time. Zero: 64 and 8192.
	Links, Streams int
	// Log may be nil.
	Log *slog.Logger
}

// Bounds and times of the host.
const (
	// DefaultLinks is the most links one key may have at a time.
	DefaultLinks = 64
	// openingBytes is the most that is read before a carrier is accepted.
	openingBytes = 4 << 10
	// newMaxAge is the oldest NEW that may create a link it was already told to create, and endedFor how long the ids of
	// ended links are remembered for the same reason: app bytes must not run twice.
	newMaxAge = 60 * time.Second
	endedFor  = 2 * time.Minute
	// attachEvery and checkEvery are the paces of one key's attaches (which wait) and checks (which are refused).
	attachPerSecond = 10
	attachWait      = time.Second
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
	attach  pace
	check   pace
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

// ServeConn proves who is on conn and attaches it, or refuses with a reason and closes it. It returns when that is done;
// an attached carrier lives on by itself. The error is for a log.
func (h *Host) ServeConn(ctx context.Context, conn net.Conn) error {
	came := time.Now()
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	pairing := h.cfg.Pairing != nil && h.cfg.Pairing()
	t, err := accept(ctx, conn, h.cfg.Key, pairing)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	if t.protocol == ALPNPair {
		defer stop()
		h.cfg.Pair(ctx, &PairConn{t})
		return nil
	}
	if !h.cfg.Trusted(t.peer) {
		stop()
		t.refuse(append(hello(h.cfg.Process), bye(CodeUnpaired)...))
		return fmt.Errorf("link: %s: key %s is not paired", addr(conn), t.peer.Short())
	}
	op, err := readOpening(t)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		code := CodeProtocol
		if errors.Is(err, errVersion) {
			code = CodeVersion
		}
		t.refuse(append(hello(h.cfg.Process), bye(code)...))
		return fmt.Errorf("link: %s: %w", addr(conn), err)
	}
	return h.serve(t, op, came)
}

// opening is what a client says first.
type opening struct {
	hello, ask frame.Frame
	rest       []byte // what came behind it
}

var errVersion = errors.New("no common version")

func readOpening(t *Transport) (*opening, error) {
	buf := make([]byte, openingBytes)
	op := &opening{}
	n, used := 0, 0
	for have := 0; have < 2; {
		f := &op.hello
		if have == 1 {
			f = &op.ask
		}
		k, err := frame.Parse(buf[used:n], f)
		if err != nil {
			return nil, err
		}
		if k > 0 {
			used += k
			have++
			if have == 1 && f.Kind != frame.Hello {
				return nil, errOpening
			}
			if have == 1 && f.Version != frame.Version {
				return nil, fmt.Errorf("%w: the client speaks %d, this host %d", errVersion, f.Version, frame.Version)
			}
			continue
		}
		if n == len(buf) {
			return nil, fmt.Errorf("%w: more than %d bytes", errOpening, openingBytes)
		}
		m, err := t.tls.Read(buf[n:])
		if m == 0 && err != nil {
			return nil, fmt.Errorf("reading the opening: %w", err)
		}
		n += m
	}
	op.rest = buf[used:n]
	return op, nil
}

// serve answers what an opening asks for.
func (h *Host) serve(t *Transport, op *opening, came time.Time) error {
	p := Process{op.hello.Instance, op.hello.Boot}
	switch op.ask.Kind {
	case frame.Check:
		return h.serveCheck(t)
	case frame.Close:
		h.serveClose(t.peer, ID(op.ask.Link))
		t.refuse(hello(h.cfg.Process))
		return nil
	case frame.New, frame.Attach:
	default:
		t.refuse(append(hello(h.cfg.Process), bye(CodeProtocol)...))
		return errOpening
	}
	if wait := h.pace(t.peer, time.Now()); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-h.ctx.Done():
		}
	}
	if code := h.attach(t, op, p, came); code != CodeNone {
		no := frame.Frame{Kind: frame.AttachNo, Link: op.ask.Link, Gen: op.ask.Gen, Code: uint32(code)}
		t.refuse(frame.Append(hello(h.cfg.Process), &no))
		return fmt.Errorf("link: %s: attach refused: %s", addr(t.raw), code)
	}
	return nil
}

func (h *Host) serveCheck(t *Transport) error {
	h.mu.Lock()
	ok := h.keyOf(t.peer).check.take(time.Now(), attachPerSecond) == 0
	h.mu.Unlock()
	answer := bye(CodeBusy)
	if ok {
		f := frame.Frame{Kind: frame.CheckOK, Instance: h.cfg.Process.Instance, Boot: h.cfg.Process.Boot}
		answer = frame.Append(nil, &f)
	}
	t.refuse(append(hello(h.cfg.Process), answer...))
	return nil
}

// serveClose ends a link its client has given up.
func (h *Host) serveClose(key identity.Fingerprint, id ID) {
	h.mu.Lock()
	l := h.keyOf(key).links[id]
	h.mu.Unlock()
	if l != nil {
		l.end(&EndError{CodeGivenUp}, CodeGivenUp)
	}
}

func (h *Host) pace(key identity.Fingerprint, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(h.keyOf(key).attach.take(now, attachPerSecond), attachWait)
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
	var over []*hostLink
	var why Code
	if l == nil {
		if code := h.mayCreate(ks, op, came); code != CodeNone {
			h.mu.Unlock()
			return code
		}
		if over, why = ks.yield(p, h.cfg.Links); why == CodeTooMany {
			h.mu.Unlock()
			return why
		}
		l = h.create(ks, t.peer, ID(op.ask.Link), p)
	}
	h.mu.Unlock()
	for _, o := range over {
		o.end(ErrSuperseded, CodeSuperseded)
	}
	return h.admit(l, t, op)
}

// mayCreate judges a link that the host does not know: it is made only if that cannot run an app's bytes twice.
func (h *Host) mayCreate(ks *keyState, op *opening, came time.Time) Code {
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

// yield makes room for a new link of process p: older boots of the same instance end; at the bound the oldest link
// without a carrier does.
func (ks *keyState) yield(p Process, limit int) (over []*hostLink, why Code) {
	for _, l := range ks.links {
		if l.instance == p.Instance && l.boot < p.Boot {
			over = append(over, l)
		}
	}
	if len(ks.links)-len(over) < limit {
		return over, CodeNone
	}
	var oldest *hostLink
	for _, l := range ks.links {
		if l.unattached() && (oldest == nil || l.since.Before(oldest.since)) {
			oldest = l
		}
	}
	if oldest == nil {
		return nil, CodeTooMany
	}
	return append(over, oldest), CodeNone
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
	cfg := core.Config{Account: ks.account, Hold: h.cfg.Hold}
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

// pace lets perSecond events through a second, with a burst of as many; it says how long the next must wait.
type pace struct {
	level float64
	at    time.Time
}

func (p *pace) take(now time.Time, perSecond float64) time.Duration {
	p.level = max(0, p.level-now.Sub(p.at).Seconds()*perSecond)
	p.at = now
	p.level++
	if p.level <= perSecond {
		return 0
	}
	return time.Duration((p.level - perSecond) / perSecond * float64(time.Second))
}
