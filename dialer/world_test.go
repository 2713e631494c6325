package dialer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"linkproxy/dialer/route"
	"linkproxy/link"
	"linkproxy/state/identity"
	"linkproxy/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// The routes of the test worlds; the delay of each is one way.
var (
	lan     = mustRoute("lan:192.168.1.20:7000")
	tailnet = mustRoute("tailnet:100.64.0.9:7000")
	direct  = mustRoute("direct:198.51.100.7:7000")
)

func mustRoute(text string) route.Route {
	r, err := route.ParseRoute(text, 0)
	if err != nil {
		panic(err)
	}
	return r
}

// world is a dialer and a host, devbox, that listens at the far end of some routes.
type world struct {
	t       *testing.T
	start   time.Time
	net     testenv.Net
	key     *identity.Key
	hostKey *identity.Key
	handle  func(*link.Stream)
	paired  atomic.Bool
	host    atomic.Pointer[link.Host]
	boot    uint64
	d       *Dialer
	log     *bytes.Buffer
	wg      sync.WaitGroup
	lns     []net.Listener

	mu    sync.Mutex
	dials []dial
}

// dial is one socket that was asked for.
type dial struct {
	at      time.Duration
	address string
}

// in runs f in a bubble, in a world whose routes have the delays given; the dialer's config is open to change.
func in(t *testing.T, delays map[route.Route]time.Duration, change func(*Config), f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, delays, change)
		defer w.close()
		f(t, w)
	})
}

// inWith is in for a change that needs the world: it is in w before anything is dialled.
func inWith(t *testing.T, w **world, delays map[route.Route]time.Duration, change func(*Config), f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		*w = newWorld(t, delays, change)
		defer (*w).close()
		f(t)
	})
}

const isWindows = runtime.GOOS == "windows"

func newWorld(t *testing.T, delays map[route.Route]time.Duration, change func(*Config)) *world {
	w := &world{t: t, start: time.Now(), key: testKey(t), hostKey: testKey(t), handle: serve, log: new(bytes.Buffer)}
	w.paired.Store(true)
	w.restart()
	conf := Peer{Name: "devbox", ID: w.hostKey.Fingerprint(), Standby: StandbyNever}
	for r, delay := range delays {
		conf.Routes = append(conf.Routes, r)
		w.route(r).SetDelay(delay)
		w.listen(r.Address, w.serveConn)
	}
	slices.SortFunc(conf.Routes, func(a, b route.Route) int { return strings.Compare(a.Address, b.Address) })
	cfg := Config{
		Key: w.key, Process: link.Process{Instance: [16]byte{2}, Boot: 1}, Peers: []Peer{conf}, Seed: 1,
		Dial: w.dial, Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	w.d = New(cfg)
	return w
}

func testKey(t testing.TB) *identity.Key {
	t.Helper()
	k, err := identity.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (w *world) route(r route.Route) *testenv.Route { return w.net.Route(r.Address) }

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, dial{time.Since(w.start), address})
	w.mu.Unlock()
	return w.net.DialContext(ctx, network, address)
}

// dialled returns what was dialled since the last call.
func (w *world) dialled() []dial {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.dials
	w.dials = nil
	return list
}

func (w *world) listen(address string, serve func(net.Conn)) {
	ln, err := w.net.Listen(address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.lns = append(w.lns, ln)
	w.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { serve(c) })
		}
	})
}

func (w *world) serveConn(c net.Conn) { _ = w.host.Load().ServeConn(context.Background(), c) }

// restart has a new host process serve what is dialled from now on, and returns the old one.
func (w *world) restart() *link.Host {
	w.boot++
	paired := w.key.Fingerprint()
	return w.host.Swap(link.NewHost(link.HostConfig{
		Key: w.hostKey, Process: link.Process{Instance: [16]byte{1}, Boot: w.boot},
		Trusted: func(fp identity.Fingerprint) bool { return w.paired.Load() && fp == paired },
		Handle:  func(_ identity.Fingerprint, s *link.Stream) { w.handle(s) },
	}))
}

// crash ends the host process without a word and starts another.
func (w *world) crash(routes ...route.Route) {
	old := w.restart()
	for _, r := range routes {
		w.route(r).Reset()
	}
	synctest.Wait()
	old.Close()
}

func (w *world) close() {
	w.d.Close()
	w.host.Load().Close()
	for _, ln := range w.lns {
		ln.Close()
	}
	w.wg.Wait()
	if w.t.Failed() {
		w.t.Logf("log of the dialer:\n%s", w.log)
	}
}

// Targets of the host.
const (
	echoTarget    = "127.0.0.1:7"
	tickTarget    = "127.0.0.1:100"
	refusedTarget = "127.0.0.1:9"
	sinkTarget    = "127.0.0.1:200" // reads and says nothing
)

// serve is the host's side of a stream.
func serve(s *link.Stream) {
	switch s.Target() {
	case refusedTarget:
		s.Refuse(link.CodeRefused)
	case tickTarget:
		s.Accept()
		tick(s)
	case sinkTarget:
		s.Accept()
		_, _ = io.Copy(io.Discard, s)
		_ = s.Close()
	default:
		s.Accept()
		_, _ = io.Copy(s, s)
		_ = s.CloseWrite()
		_ = s.Close()
	}
}

// tickEvery is the pace of the stream that stalls are measured on.
const tickEvery = 10 * ms

// tick writes a counter every tickEvery until the app leaves.
func tick(s *link.Stream) {
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, s)
		close(gone)
	}()
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	defer func() { _ = s.Close(); <-gone }()
	for n := uint64(0); ; n++ {
		if _, err := s.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return
		}
		select {
		case <-t.C:
		case <-gone:
			return
		}
	}
}

// open opens a target and fails the test if that does not work.
func (w *world) open(target string) *link.Stream {
	w.t.Helper()
	c, err := w.d.DialContext(w.t.Context(), "devbox", target)
	if err != nil {
		w.t.Fatalf("opening %s: %v", target, err)
	}
	return c.(*link.Stream)
}

// echo sends text and waits for it to come back.
func echo(t *testing.T, s net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(s, text); err != nil {
		t.Fatalf("writing: %v", err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(s, got); err != nil || string(got) != text {
		t.Fatalf("echo of %q: %q, %v", text, got, err)
	}
}

// stall reads a ticking stream for d and returns the longest time in which nothing came; the numbers must be in order.
func stall(t *testing.T, s *link.Stream, d time.Duration) time.Duration {
	t.Helper()
	end := time.Now().Add(d)
	last, worst := time.Now(), time.Duration(0)
	var next uint64
	buf := make([]byte, 8)
	for first := true; time.Now().Before(end); first = false {
		if _, err := io.ReadFull(s, buf); err != nil {
			t.Fatalf("reading tick %d: %v", next, err)
		}
		if n := binary.BigEndian.Uint64(buf); first {
			next = n
		} else if n != next {
			t.Fatalf("tick %d came instead of %d", n, next)
		}
		next++
		worst = max(worst, time.Since(last))
		last = time.Now()
	}
	return worst
}

func (w *world) status() PeerStatus {
	w.t.Helper()
	synctest.Wait()
	list := w.d.Status()
	if len(list) != 1 {
		w.t.Fatalf("%d peers", len(list))
	}
	return list[0]
}

// active is the route of the carrier in use.
func (w *world) active() string {
	s := w.status()
	if s.Link == nil {
		return ""
	}
	return activeOf(*s.Link).Name
}

func (w *world) attached() (n int) {
	if l := w.status().Link; l != nil {
		for _, c := range l.Carriers {
			if c.Attached {
				n++
			}
		}
	}
	return n
}

// since is the time since the world began.
func (w *world) since() time.Duration { return time.Since(w.start) }

func wantTime(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got != want {
		t.Errorf("%s after %s, want %s", what, got, want)
	}
}

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var r interface{ Reason() string }
	if !errors.As(err, &r) || r.Reason() != reason {
		t.Errorf("the error %q gives no reason %s", err, reason)
	}
}

// Short names for types of signatures.
type (
	connType = net.Conn
	ctxType  = context.Context
	addrType = netip.Addr
)

func parseAddrs(list ...string) (addrs []netip.Addr) {
	for _, a := range list {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return addrs
}

// setRoutes gives devbox other routes.
func (w *world) setRoutes(routes ...route.Route) {
	w.setPeer(Peer{Routes: routes, Standby: StandbyNever})
}

func (w *world) setPeer(p Peer) {
	p.Name, p.ID = "devbox", w.hostKey.Fingerprint()
	w.d.SetPeers([]Peer{p})
}

type fpType = identity.Fingerprint

var errLeft = errors.New("the app has left")

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(t.Context(), d, errLeft)
}
