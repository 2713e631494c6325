package dialer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/state/identity"
)

// DefaultWait is how long an app waits while no route works: longer than a reboot of a small machine or a change of
// trains, shorter than most apps' own patience.
const DefaultWait = 60 * time.Second

// Config of a Dialer. Zero values mean the documented default.
type Config struct {
	// Key is this machine's, Process this process as peers are told it. Both are required.
	Key     *identity.Key
	Process link.Process
	// Peers are those that can be dialled; SetPeers changes them.
	Peers []Peer
	// Wait is how long an app waits while no route works. Zero: DefaultWait; negative: until the first race has failed.
	Wait time.Duration
	// Hold is how long streams survive without any carrier. Zero: link's default.
	Hold time.Duration
	// Pool is the process's memory for stream bytes. Nil: one of its own.
	Pool *link.Pool
	// Dial opens a connection to address, which is numeric, host:port; network is "tcp". Nil: the system's, with the options
	// that links want.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Resolve finds the addresses of a name. Nil: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Recall returns what was learned about a peer's routes before; nil: nothing was. Remember is told what is known from now on. It
	// must not wait; it may be nil. Key is the peer's fingerprint as text, or "plain:" and the name of one without an agent.
	Recall   func(key string) route.Memory
	Remember func(key string, m route.Memory)
	// Path is where this machine is; SetPath changes it. The zero Path is unknown.
	Path route.Path
	// Log may be nil.
	Log *slog.Logger
	// Seed makes the jitter of back-offs repeatable. Zero: random.
	Seed uint64
}

// Standby says when a second carrier is kept attached to a link.
type Standby string

// When a standby is kept.
const (
	StandbyAuto   Standby = "auto"   // while a byte moved in the last minute; the empty Standby means this one
	StandbyAlways Standby = "always" // as long as the link is up and has, or had when it was dialled, a stream
	StandbyNever  Standby = "never"
)

// Peer is a machine that can be dialled.
type Peer struct {
	Name string
	// ID is the peer's key. Zero: it has no agent, so its routes have no ports (route.ParsePlain), each connection is one of its own
	// to a port of the peer itself, and Standby and Hold mean nothing.
	ID      identity.Fingerprint
	Routes  []route.Route
	Standby Standby
	// Hold overrides Config.Hold for this peer. Zero: it does not.
	Hold time.Duration
}

func (p Peer) equal(o Peer) bool {
	return p.Name == o.Name && p.ID == o.ID && p.Standby == o.Standby && p.Hold == o.Hold &&
		slices.Equal(p.Routes, o.Routes)
}

// Dialer reaches peers. Safe for concurrent use.
type Dialer struct {
	cfg  Config
	ctx  context.Context // ends with Close
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // one per peer's loop
	wait atomic.Int64   // Config.Wait as it is now
	here atomic.Pointer[route.Path]

	busy        atomic.Int32  // peers with open streams
	busyChanged chan struct{} // one slot
	watchers    watchers

	mu    sync.Mutex
	peers map[string]*peer
	shut  bool
}

// New returns a dialer. It dials nothing until an app asks.
func New(cfg Config) *Dialer {
	if cfg.Pool == nil {
		cfg.Pool = link.NewPool(0)
	}
	if cfg.Resolve == nil {
		cfg.Resolve = systemResolve
	}
	if cfg.Recall == nil {
		cfg.Recall = func(string) route.Memory { return route.Memory{} }
	}
	if cfg.Remember == nil {
		cfg.Remember = func(string, route.Memory) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	d := &Dialer{cfg: cfg, peers: map[string]*peer{}, busyChanged: make(chan struct{}, 1)}
	d.ctx, d.stop = context.WithCancelCause(context.Background())
	d.here.Store(&cfg.Path)
	if d.cfg.Dial == nil {
		d.cfg.Dial = systemDial(d.path)
	}
	d.SetWait(cfg.Wait)
	d.SetPeers(cfg.Peers)
	return d
}

// SetPeers replaces the peers. A peer that did not change keeps its link and its streams; so does one whose routes changed:
// the next race uses the new ones, and a link over a route that is gone moves to another. A changed Hold is that of later
// links. The streams of a peer that is gone,
// or has another key, end with an error that says so.
func (d *Dialer) SetPeers(peers []Peer) {
	for _, p := range d.setPeers(peers) {
		p.send(p.reload)
	}
}

// setPeers starts and stops peers, and returns those that have a new configuration to take over.
func (d *Dialer) setPeers(peers []Peer) (kept []*peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return nil
	}
	next := map[string]Peer{}
	for _, p := range peers {
		p.Routes = slices.Clone(p.Routes)
		next[p.Name] = p
	}
	for name, p := range d.peers {
		if n, ok := next[name]; !ok || n.ID != p.id {
			p.remove()
			delete(d.peers, name)
		}
	}
	for name, n := range next {
		if p := d.peers[name]; p != nil {
			p.next.Store(&n)
			kept = append(kept, p)
			continue
		}
		p := newPeer(d, n)
		d.peers[name] = p
		d.wg.Add(1)
		go p.loop()
	}
	return kept
}

// SetWait changes Config.Wait, also for the apps that wait already.
func (d *Dialer) SetWait(wait time.Duration) {
	if wait == 0 {
		wait = DefaultWait
	}
	d.wait.Store(int64(wait))
	for _, p := range d.all() {
		p.send(func(time.Time) {}) // so that it looks at its clock
	}
}

// SetPath tells that this machine's network has changed.
func (d *Dialer) SetPath(path route.Path) {
	d.here.Store(&path)
	for _, p := range d.all() {
		p.send(func(now time.Time) { p.pathChanged(now, path) })
	}
}

// Woke tells that this machine slept: no carrier is trusted until it answers.
func (d *Dialer) Woke() {
	for _, p := range d.all() {
		p.send(func(now time.Time) { p.tell(now, route.Woke{}) })
	}
}

func (d *Dialer) path() route.Path { return *d.here.Load() }

// patience is Config.Wait as it is now.
func (d *Dialer) patience() time.Duration { return time.Duration(d.wait.Load()) }

// Close ends all links and returns when every goroutine is gone; peers that can be reached get a second to be told.
func (d *Dialer) Close() error {
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	d.stop(ErrClosed)
	d.wg.Wait()
	return nil
}

// find returns the peer of a name.
func (d *Dialer) find(name string) (*peer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return nil, ErrClosed
	}
	if p := d.peers[name]; p != nil {
		return p, nil
	}
	return nil, unknownPeer(name, slices.Sorted(maps.Keys(d.peers)))
}

// all lists the peers by name.
func (d *Dialer) all() []*peer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.peers), func(a, b *peer) int { return cmp.Compare(a.name, b.name) })
}

// DialContext opens target, host:port as the peer sees it, and returns a *link.Stream once the peer has reached it. While
// no route works it waits, at most Config.Wait. ctx bounds the call, not the stream. Errors: *Error for what concerns the
// way to the peer; a *link.RefusedError inside for what concerns the target. To a peer without an agent the connection is a socket,
// the target's host is the peer itself (its name, a loopback address or one of its routes), and a refusal is an *Error.
func (d *Dialer) DialContext(ctx context.Context, peer, target string) (net.Conn, error) {
	if p, err := d.find(peer); err == nil && p.plain != nil {
		return p.dialPlain(ctx, target)
	}
	s, err := d.Dial(ctx, peer, target, OpenOptions{})
	if err != nil {
		return nil, err // not a nil *link.Stream in a net.Conn
	}
	return s, nil
}

// OpenOptions say how a stream is carried.
type OpenOptions struct {
	// Hold is how long the stream survives without any carrier. Zero: the peer's.
	Hold time.Duration
	// Bulk tells that the stream is no conversation: it always yields to others.
	Bulk bool
}

// OpenContext is Open, for any peer; to one without an agent nothing can be sent before there is a connection, so there it is
// DialContext.
func (d *Dialer) OpenContext(ctx context.Context, peer, target string, o OpenOptions) (net.Conn, error) {
	if p, err := d.find(peer); err == nil && p.plain != nil {
		return p.dialPlain(ctx, target)
	}
	s, err := d.Open(ctx, peer, target, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Dial is DialContext with options, to a peer with an agent.
func (d *Dialer) Dial(ctx context.Context, peer, target string, o OpenOptions) (*link.Stream, error) {
	asked := time.Now()
	for again := false; ; again = true {
		p, err := d.find(peer)
		if err != nil {
			return nil, err
		}
		s, err := p.open(ctx, request{target: target, options: o, asked: asked})
		if err != nil {
			return nil, err
		}
		err = s.WaitOpened(ctx)
		p.settled(s)
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			s.Reset(uint32(link.CodeCancelled))
			return nil, fmt.Errorf("dialer: opening %s on %s: %w", target, peer, context.Cause(ctx))
		case !again && mayMove(err):
			continue // no byte of an app has gone out, so the next link may open it anew
		default:
			s.Reset(uint32(link.CodeCancelled))
			return nil, openError(peer, target, err)
		}
	}
}

// mayMove says whether a stream that was never opened may be opened on another link after err: the peer's process that
// could have opened it is gone.
func mayMove(err error) bool {
	var end *link.EndError
	return errors.Is(err, link.ErrUnknown) || errors.As(err, &end) && end.Code == link.CodeShutdown
}

// Open is the early form, to a peer with an agent, for apps that are not told whether their target answered: it returns at once,
// whether or not a route works, and what is written rides along with the opening. If no route works for Config.Wait, the stream
// fails with an *Error.
func (d *Dialer) Open(ctx context.Context, peer, target string, o OpenOptions) (*link.Stream, error) {
	p, err := d.find(peer)
	if err != nil {
		return nil, err
	}
	return p.openEarly(ctx, request{target: target, options: o, asked: time.Now(), early: true})
}
