package proxy

import (
	"container/list"
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"linkproxy/internal/pipe"
)

// Server serves SOCKS5 and HTTP proxy clients, told apart by their first byte, on any number of listeners.
type Server struct {
	cfg     Config
	log     *slog.Logger
	lib     *log.Logger // for libraries that want to print
	timeout time.Duration
	users   *users
	own     map[string]bool
	conns   *conns
	told    atomic.Bool // a wrong protocol or web request was logged loudly; further ones are not
	waiting handshakes

	httpOnce  sync.Once
	http      *http.Server
	httpConns *chanListener
	httpDone  chan struct{}
}

// New makes a Server; Serve starts it.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, log: orDiscard(cfg.Logger), timeout: cfg.HandshakeTimeout, users: newUsers(cfg.Users), conns: newConns()}
	s.lib = slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	if s.timeout == 0 {
		s.timeout = DefaultHandshakeTimeout
	}
	s.waiting.max = cfg.MaxHandshakes
	switch {
	case cfg.MaxHandshakes == 0:
		s.waiting.max = DefaultMaxHandshakes
	case cfg.MaxHandshakes < 0:
		s.waiting.max = 0
	}
	s.own = ownHosts(cfg.OwnHosts)
	s.httpConns = newChanListener()
	s.httpDone = make(chan struct{})
	s.http = s.newHTTP()
	return s
}

// Serve accepts on l until l or the Server is closed, then returns nil; connections that live go on until Close. It may
// be called for several listeners.
func (s *Server) Serve(l net.Listener) error { return s.conns.serve(l, s.log, s.serveConn) }

// Live is how many app connections are open.
func (s *Server) Live() int { return s.conns.count() }

// Close closes all listeners given to Serve, resets all connections, and returns when all goroutines are gone.
func (s *Server) Close() error {
	s.conns.close()
	s.httpConns.Close()
	s.httpOnce.Do(func() { close(s.httpDone) }) // never started: nothing to wait for
	<-s.httpDone
	return s.http.Close()
}

// First bytes. HTTP methods are letters, so anything else than these two is left to the HTTP parser, which refuses it.
const (
	socks4 = 0x04
	socks5 = 0x05
)

// serveConn reads the first byte of a new connection and leaves it to its protocol. The goroutine that served the
// handshake ends with it: a fresh one, with a small stack, carries the bytes.
func (s *Server) serveConn(raw net.Conn) {
	slot := s.waiting.enter(raw)
	if s.timeout > 0 {
		_ = raw.SetDeadline(time.Now().Add(s.timeout))
	}
	first := make([]byte, 1)
	if _, err := raw.Read(first); err != nil {
		s.drop(raw, slot)
		return
	}
	switch first[0] {
	case socks5:
		s.serveSOCKS(raw, slot, first)
	case socks4:
		s.tell("an app speaks SOCKS4, which cannot carry names safely: set it to SOCKS5 (socks5h in curl's words)",
			"app", raw.RemoteAddr().String())
		s.drop(raw, slot)
	default:
		s.serveHTTP(raw, slot, first)
	}
}

// tell logs what is refused by its first words: loudly once, as a web page or a scanner can repeat it at will.
func (s *Server) tell(msg string, args ...any) {
	level := slog.LevelWarn
	if s.told.Swap(true) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, msg, args...)
}

func (s *Server) drop(raw net.Conn, slot *list.Element) {
	s.waiting.leave(slot)
	_ = raw.Close()
	s.conns.remove(raw)
}

// carry copies until both ends are done, on a goroutine of its own. early is what app said behind its request.
func (s *Server) carry(app, peer net.Conn, early []byte, r Request) {
	go carry(s.conns, s.log, app, peer, headOf(early), r.Target)
}

func headOf(early []byte) func() ([]byte, error) {
	if len(early) == 0 {
		return nil
	}
	return func() ([]byte, error) { return early, nil }
}

func carry(c *conns, log *slog.Logger, app, peer net.Conn, head func() ([]byte, error), target string) {
	defer c.remove(app)
	if !c.onClose(app, func() { pipe.Reset(peer) }) { // an app that has said all is not seen to be reset
		pipe.Reset(peer)
	}
	res := pipe.CopyAfter(app, peer, head)
	var told interface{ Reason() string }
	if res.Down == 0 && errors.As(res.Err, &told) { // an early connection learns only now that there is no target
		log.Info("target not reached", "target", target, "reason", told.Reason(), "error", res.Err)
		return
	}
	if log.Enabled(context.Background(), slog.LevelDebug) {
		log.Debug("connection ended", "target", target, "up", res.Up, "down", res.Down, "error", res.Err)
	}
}

// refusedDial says why a target was not reached, unless the app did not wait for it.
func (s *Server) refusedDial(r Request, err error) {
	level := slog.LevelInfo
	if isAppGone(err) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, "target not reached", "target", r.Target, "via", r.Via, "reason", Reason(err), "error", err)
}
