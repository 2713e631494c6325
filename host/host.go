package host

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"linkproxy/internal/sock"
	"linkproxy/link"
	"linkproxy/state/identity"
)

// Config is what a Server is made of. Key, Process and Trust are needed.
type Config struct {
	// Key is this machine's; Process is this process, from its identity.Instance.
	Key     *identity.Key
	Process link.Process
	// Trust lists the clients that are served. Changes of its file take effect while the server runs; a client that is gone
	// from it loses its links at once.
	Trust *identity.Trust
	// Invites are those by which clients get onto the list. Nil: nobody can pair.
	Invites *identity.Invites
	// StateDir is the folder that Trust was opened in, to have the system tell of changes. Empty: the file is looked at
	// every 2 s, which is done in any case.
	StateDir string
	// Policy says which targets are dialled; SetPolicy replaces it.
	Policy Policy
	// Hold bounds how long streams survive without any carrier. Zero: 24 h.
	Hold time.Duration
	// Pool is the process's memory for stream bytes. Nil: one of its own.
	Pool *link.Pool
	// Links and Streams bound what one key may have at a time, Dials its target dials in flight and Waiting those that wait
	// for one. Zero: 64, 8192, 64 and 1024; negative: no bound.
	Links, Streams, Dials, Waiting int
	// Strangers bounds the connections that have not yet proved a paired key, PerNetwork those of one IPv4 /24 or IPv6 /56.
	// Zero: 256 and 16; negative: no bound.
	Strangers, PerNetwork int
	// Log may be nil.
	Log *slog.Logger
	// BreakReplay is a planted fault, for the negative control of `linkproxy demo` only: see core.Config.
	BreakReplay bool
}

// Errors of a Server.
var (
	ErrClosed    = errors.New("host: server is closed")
	ErrNoLink    = errors.New("no such link")
	ErrAmbiguous = errors.New("several links match")
)

// Server is this machine as a peer: it serves links to the clients that it trusts. Safe for concurrent use.
type Server struct {
	cfg    Config
	log    *slog.Logger
	links  *link.Host
	policy atomic.Pointer[Policy]
	dials  dials
	ctx    context.Context // ends with Close, after the links
	stop   context.CancelFunc
	wg     sync.WaitGroup // Serve calls, handshakes, watchTrust

	mu        sync.Mutex // guards the following
	closed    bool
	listeners []*listening
	strangers strangers
}

// New returns a server that serves what Serve is given, until Close.
func New(cfg Config) *Server {
	for _, d := range []struct {
		field *int
		usual int
	}{
		{&cfg.Dials, defaultDials},
		{&cfg.Waiting, defaultWaiting},
		{&cfg.Strangers, defaultStrangers},
		{&cfg.PerNetwork, defaultPerNetwork},
	} {
		if *d.field == 0 {
			*d.field = d.usual
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, log: cfg.Log, dials: dials{most: cfg.Dials, waiting: cfg.Waiting}}
	s.strangers = strangers{most: cfg.Strangers, perNetwork: cfg.PerNetwork}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.SetPolicy(cfg.Policy)
	lc := link.HostConfig{
		Key: cfg.Key, Process: cfg.Process, Trusted: cfg.Trust.Trusted, Handle: s.serveStream,
		Hold: cfg.Hold, Pool: cfg.Pool, Links: cfg.Links, Streams: cfg.Streams, Log: cfg.Log,
		BreakReplay: cfg.BreakReplay,
	}
	if cfg.Invites != nil {
		lc.Pairing, lc.Pair = s.pairing, s.pair
	}
	s.links = link.NewHost(lc)
	s.wg.Add(1)
	go s.watchTrust()
	return s
}

// SetPolicy puts other rules in force for targets dialled from now on; streams that run are not touched.
func (s *Server) SetPolicy(p Policy) { s.policy.Store(&p) }

// Close stops listening, ends all links, telling the clients that the process ends, and waits until every goroutine is gone.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	listeners := s.listeners
	s.listeners = nil
	s.mu.Unlock()
	for _, ln := range listeners {
		_ = ln.Close()
	}
	err := s.links.Close()
	s.stop()
	s.wg.Wait()
	return err
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// listening is a call of Serve.
type listening struct{ net.Listener }

// enlist counts a call of Serve; nil: the server is closed.
func (s *Server) enlist(ln net.Listener) *listening {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.wg.Add(1)
	l := &listening{ln}
	s.listeners = append(s.listeners, l)
	return l
}

func (s *Server) delist(l *listening) {
	s.mu.Lock()
	s.listeners = slices.DeleteFunc(s.listeners, func(o *listening) bool { return o == l })
	s.mu.Unlock()
	_ = l.Close()
}

// take serves a new connection on a goroutine of its own; it may displace another stranger.
func (s *Server) take(conn net.Conn) {
	from := networkOf(conn.RemoteAddr())
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = conn.Close()
		return
	}
	s.wg.Add(1)
	g, yields := s.strangers.add(from, conn)
	s.mu.Unlock()
	if yields != nil {
		_ = yields.conn.Close()
	}
	go s.greet(g)
}

// greet finds out who is on a connection; it has ended, or is a carrier of a link, when greet returns.
func (s *Server) greet(g *guest) {
	defer s.wg.Done()
	known := func() {
		s.mu.Lock()
		s.strangers.remove(g)
		s.mu.Unlock()
	}
	defer known()
	sock.Tune(g.conn)
	if err := s.links.ServeStranger(s.ctx, g.conn, known); err != nil {
		s.log.Debug("connection not attached", "err", err)
	}
}

// Held is one link that is held for a client.
type Held struct {
	link.HostLink
	Name string // the client's; its short fingerprint if it is not on the list any more
}

// Status lists the links that are held, the oldest first.
func (s *Server) Status() []Held {
	var list []Held
	for _, l := range s.links.Status() {
		list = append(list, Held{l, s.nameOf(l.Client)})
	}
	slices.SortStableFunc(list, func(a, b Held) int { return a.Since.Compare(b.Since) })
	return list
}

func (s *Server) nameOf(client identity.Fingerprint) string {
	for _, c := range s.cfg.Trust.List() {
		if c.Fingerprint == client {
			return c.Name
		}
	}
	return client.Short()
}

// Drop ends the link whose ID, in hexadecimal digits, begins with id: its streams are reset on both sides. Classes:
// ErrNoLink, ErrAmbiguous.
func (s *Server) Drop(id string) error {
	var found []link.ID
	for _, l := range s.links.Status() {
		if id != "" && strings.HasPrefix(hex.EncodeToString(l.ID[:]), strings.ToLower(id)) {
			found = append(found, l.ID)
		}
	}
	switch {
	case len(found) > 1:
		return fmt.Errorf("host: dropping link %s: %w: give more digits of its ID, as in: linkproxy host status --json", id, ErrAmbiguous)
	case len(found) == 0 || !s.links.Drop(found[0]):
		return fmt.Errorf("host: dropping link %s: %w: see: linkproxy host status", id, ErrNoLink)
	}
	return nil
}
