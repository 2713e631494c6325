package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/link"
	"linkproxy/state/identity"
	"linkproxy/testenv"
)

// world is a server with one client, whose carriers and targets are in memory, in a bubble, or on real sockets of loopback.
type world struct {
	t       *testing.T
	real    bool
	net     testenv.Net
	dir     string
	hostKey *identity.Key
	key     *identity.Key // the client's
	trust   *identity.Trust
	invites *identity.Invites
	srv     *Server
	client  *link.Client
	lan     string // where the server listens
	port    int
	wg      sync.WaitGroup
	lns     []net.Listener // targets
}

const (
	inMemory = false
	onTCP    = true
)

// both runs a test in either world.
func both(t *testing.T, test func(w *world)) {
	t.Run("memory", func(t *testing.T) { bubble(t, nil, test) })
	t.Run("tcp", func(t *testing.T) {
		w := newWorld(t, onTCP, nil)
		defer w.close()
		test(w)
	})
}

func bubble(t *testing.T, edit func(*Config), test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inMemory, edit)
		defer w.close()
		test(w)
	})
}

func newKey(t testing.TB) *identity.Key {
	t.Helper()
	k, err := identity.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newWorld(t *testing.T, real bool, edit func(*Config)) *world {
	w := &world{t: t, real: real, dir: t.TempDir(), hostKey: newKey(t), port: 1000}
	var err error
	if w.trust, err = identity.OpenTrust(w.dir); err != nil {
		t.Fatal(err)
	}
	w.invites = identity.OpenInvites(w.dir, w.hostKey.Fingerprint())
	cfg := Config{Key: w.hostKey, Process: link.Process{Instance: [16]byte{0xaa}, Boot: 1}, Trust: w.trust, Invites: w.invites}
	cfg.Policy.Resolve = answers(t, map[string]string{"local.internal": "127.0.0.1"})
	if real {
		cfg.StateDir = w.dir
	} else {
		cfg.Policy.Connect = w.net.DialContext // a folder watched by the system would keep the bubble's time from passing
	}
	if edit != nil {
		edit(&cfg)
	}
	w.srv = New(cfg)
	w.lan = w.serve("lan").Addr().String()
	w.key = w.newClientKey("laptop")
	w.client = w.newClient(w.key, 0)
	return w
}

// serve has the server listen, at a name if in memory.
func (w *world) serve(name string) net.Listener {
	w.t.Helper()
	ln := w.listenAt(name)
	w.wg.Go(func() {
		if err := w.srv.Serve(ln); err != nil && !errors.Is(err, ErrClosed) { // a test may close it before it serves
			w.t.Error(err)
		}
	})
	return ln
}

func (w *world) listenAt(name string) net.Listener {
	w.t.Helper()
	var ln net.Listener
	var err error
	if w.real {
		ln, err = Listen(w.t.Context(), "127.0.0.1:0")
	} else {
		ln, err = w.net.Listen(name)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return ln
}

// newClientKey makes a key that the server trusts.
func (w *world) newClientKey(name string) *identity.Key {
	w.t.Helper()
	key := newKey(w.t)
	if _, err := w.trust.Add(key.Fingerprint(), name, time.Now()); err != nil {
		w.t.Fatal(err)
	}
	return key
}

// newClient makes a link without a carrier; streams bounds what the client itself opens.
func (w *world) newClient(key *identity.Key, streams int) *link.Client {
	return link.NewClient(link.ClientConfig{
		Process: processOf(key), Peer: w.hostKey.Fingerprint(), Streams: streams,
	})
}

func processOf(key *identity.Key) link.Process {
	fp := key.Fingerprint()
	return link.Process{Instance: [16]byte(fp[:16]), Boot: 1}
}

func (w *world) close() {
	_ = w.client.Close()
	_ = w.srv.Close()
	for _, ln := range w.lns {
		_ = ln.Close()
	}
	w.wg.Wait()
}

func (w *world) dial() net.Conn {
	w.t.Helper()
	var c net.Conn
	var err error
	if w.real {
		c, err = net.Dial("tcp", w.lan)
	} else {
		c, err = w.net.Dial(w.t.Context(), w.lan)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// attach gives a link a carrier.
func (w *world) attach(c *link.Client, key *identity.Key) error {
	tr, err := link.Dial(w.t.Context(), w.dial(), key, w.hostKey.Fingerprint())
	if err != nil {
		return err
	}
	_, err = c.Attach(w.t.Context(), tr, link.AttachOptions{Name: "lan"})
	return err
}

func (w *world) attached() {
	w.t.Helper()
	if err := w.attach(w.client, w.key); err != nil {
		w.t.Fatal(err)
	}
}

// target listens and serves each connection; it returns its address as the host sees it.
func (w *world) target(handle func(net.Conn)) string {
	w.t.Helper()
	w.port++
	ln := w.listenAt(fmt.Sprintf("127.0.0.1:%d", w.port))
	w.lns = append(w.lns, ln)
	w.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { handle(c) })
		}
	})
	return ln.Addr().String()
}

// closedPort is an address where nothing listens.
func (w *world) closedPort() string {
	w.t.Helper()
	if !w.real {
		return "127.0.0.1:9"
	}
	ln := w.listenAt("")
	_ = ln.Close()
	return ln.Addr().String()
}

func (w *world) start(target string) *link.Stream {
	w.t.Helper()
	return w.startOn(w.client, target)
}

func (w *world) startOn(c *link.Client, target string) *link.Stream {
	w.t.Helper()
	s, err := c.Open(target, link.OpenOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// open starts a stream and waits for the target.
func (w *world) open(target string) *link.Stream {
	w.t.Helper()
	s := w.start(target)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := s.WaitOpened(ctx); err != nil {
		w.t.Fatalf("opening %s: %v", target, err)
	}
	if w.real {
		_ = s.SetDeadline(time.Now().Add(time.Minute))
	}
	return s
}

// refusal waits for the host's refusal of a stream.
func (w *world) refusal(s *link.Stream) link.Code {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	err := s.WaitOpened(ctx)
	var refused *link.RefusedError
	if !errors.As(err, &refused) {
		w.t.Errorf("opening %s: %v, want a refusal", s.Target(), err)
		return link.CodeNone
	}
	return refused.Code
}

// exchange sends a word and wants it back.
func (w *world) exchange(s net.Conn, word string) {
	w.t.Helper()
	if _, err := s.Write([]byte(word)); err != nil {
		w.t.Errorf("writing %q: %v", word, err)
		return
	}
	b := make([]byte, len(word))
	for n := 0; n < len(b); {
		m, err := s.Read(b[n:])
		if n += m; err != nil {
			w.t.Errorf("reading %q back: %q, %v", word, b[:n], err)
			return
		}
	}
	if string(b) != word {
		w.t.Errorf("got %q back, want %q", b, word)
	}
}

func closeWrite(c net.Conn) { _ = c.(interface{ CloseWrite() error }).CloseWrite() }
