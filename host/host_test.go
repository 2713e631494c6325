package host

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"linkproxy/link"
	"linkproxy/state/identity"
	"linkproxy/testenv"
)

// brokenListener fails as told, then hands out one connection, then waits for its end.
type brokenListener struct {
	errs  []error
	calls []time.Time
	conn  net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *brokenListener) Accept() (net.Conn, error) {
	l.calls = append(l.calls, time.Now())
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *brokenListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}
func (l *brokenListener) Addr() net.Addr { return addr("broken") }

// TestAcceptGoesOn when the process is out of descriptors, with pauses that double up to a second.
func TestAcceptGoesOn(t *testing.T) {
	bubble(t, nil, func(w *world) {
		t := w.t
		near, far := testenv.Pipe()
		ln := &brokenListener{conn: far, done: make(chan struct{})}
		for range 10 {
			ln.errs = append(ln.errs, syscall.EMFILE)
		}
		start := time.Now()
		ended := make(chan error, 1)
		w.wg.Go(func() { ended <- w.srv.Serve(ln) })
		tr, err := link.Dial(t.Context(), near, w.key, w.hostKey.Fingerprint())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := link.Check(t.Context(), tr, processOf(w.key)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		want := []time.Duration{0, 5, 15, 35, 75, 155, 315, 635, 1275, 2275, 3275, 3275}
		for i, c := range ln.calls {
			if d := c.Sub(start); d != want[i]*time.Millisecond {
				t.Errorf("accept %d after %v, want %v", i+1, d, want[i]*time.Millisecond)
			}
		}
		_ = w.srv.Close()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

func TestServeEnds(t *testing.T) {
	bubble(t, nil, func(w *world) {
		t := w.t
		ln := &brokenListener{errs: []error{syscall.EINVAL}, done: make(chan struct{})}
		if err := w.srv.Serve(ln); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a listener that is broken: %v", err)
		}
		select {
		case <-ln.done:
		default:
			t.Error("the broken listener was not closed")
		}
		_ = w.srv.Close()
		ln = &brokenListener{done: make(chan struct{})}
		if err := w.srv.Serve(ln); !errors.Is(err, ErrClosed) || len(ln.calls) != 0 {
			t.Errorf("after Close: %v, %d accepts", err, len(ln.calls))
		}
		<-ln.done
	})
}

func TestSeveralListeners(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		w.lan = w.serve("tailnet").Addr().String()
		w.attached()
		if st := w.srv.Status(); len(st) != 1 || len(st[0].Carriers) != 2 {
			w.t.Errorf("%+v, want one link with two carriers", st)
		}
	})
}

func TestListenTellsWhoIsInTheWay(t *testing.T) {
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := Listen(t.Context(), ln.Addr().String()); err == nil || !strings.Contains(err.Error(), "listen = ") {
		t.Errorf("a taken address: %v", err)
	}
	if _, err := Listen(t.Context(), "nonsense"); err == nil {
		t.Error("nonsense: no error")
	}
}

// TestClose ends what runs: links with the reason, streams with a reset, strangers at once.
func TestClose(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		targetEnd := make(chan error, 1)
		s := w.open(w.target(func(c net.Conn) {
			_, err := io.Copy(io.Discard, c)
			targetEnd <- err
			_ = c.Close()
		}))
		stranger := w.dial()
		_ = w.srv.Close()
		if err := <-targetEnd; err == nil {
			w.t.Error("the target saw a clean end")
		}
		_, err := s.Read(make([]byte, 1))
		var end *link.EndError
		if !errors.As(err, &end) || end.Code != link.CodeShutdown {
			w.t.Errorf("the client's stream: %v", err)
		}
		if _, err := stranger.Read(make([]byte, 1)); err == nil {
			w.t.Error("a stranger is still there")
		}
		_ = stranger.Close()
	})
}

// TestRevocation: a client that another process takes off the list loses its links and streams, told why; others stay.
func TestRevocation(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		key := w.newClientKey("other")
		other := w.newClient(key, 0)
		defer other.Close()
		if err := w.attach(other, key); err != nil {
			w.t.Fatal(err)
		}
		s, kept := w.open(w.target(echo)), w.startOn(other, w.target(echo))
		w.exchange(s, "before")
		elsewhere, err := identity.OpenTrust(w.dir)
		if err != nil {
			w.t.Fatal(err)
		}
		start := time.Now()
		if _, err := elsewhere.Remove("laptop"); err != nil {
			w.t.Fatal(err)
		}
		_, err = s.Read(make([]byte, 1))
		var end *link.EndError
		if !errors.As(err, &end) || end.Code != link.CodeRevoked {
			w.t.Errorf("the revoked client's stream: %v", err)
		}
		if d := time.Since(start); !w.real && d > trustPoll {
			w.t.Errorf("it took %v", d)
		}
		again := w.newClient(w.key, 0)
		defer again.Close()
		var no *link.AttachError
		if err := w.attach(again, w.key); !errors.As(err, &no) || no.Code != link.CodeUnpaired {
			w.t.Errorf("coming back: %v", err)
		}
		w.exchange(kept, "after")
	})
}

// TestTheSystemTellsOfRevocations: without waiting for the next look. The clock is slowed down by nothing here: the first
// look after the change is the one the system asked for.
func TestTheSystemTellsOfRevocations(t *testing.T) {
	w := newWorld(t, onTCP, nil)
	defer w.close()
	events, _, stop := w.srv.watchFolder()
	defer stop()
	if events == nil && os.Getenv("LINKPROXY_STRICT") == "1" {
		t.Fatal("LINKPROXY_STRICT is set, and this system cannot watch folders")
	}
	if events == nil {
		t.Skip("this system cannot watch folders")
	}
	if _, err := w.trust.Remove("laptop"); err != nil {
		t.Fatal(err)
	}
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		select {
		case e := <-events:
			if filepath.Base(e.Name) == "clients.json" {
				return
			}
		case <-deadline.C:
			t.Fatal("the system told nothing")
		}
	}
}

// TestBrokenTrustList: the list read before stays in force, which is said once; when it is mended, the new one rules.
func TestBrokenTrustList(t *testing.T) {
	var log bytes.Buffer
	edit := func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	bubble(t, edit, func(w *world) {
		t := w.t
		w.attached()
		s := w.open(w.target(echo))
		time.Sleep(trustPoll / 2) // the list is looked at between our writes, never in the midst of one
		path := filepath.Join(w.dir, "clients.json")
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		put := func(b []byte) {
			t.Helper()
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		put([]byte("broken"))
		w.exchange(s, "still trusted")
		w.attached()
		put(good)
		w.exchange(s, "and still")
		put([]byte("broken again"))
		if err := os.Remove(path); err != nil { // gone while its backup is there: as bad
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.exchange(s, "even now")
		if err := os.WriteFile(path, bytes.Replace(good, []byte("laptop"), []byte("tablet"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if st := w.srv.Status(); len(st) != 1 || st[0].Name != "tablet" {
			t.Errorf("%+v, want the link of tablet", st)
		}
		_ = w.srv.Close()
		if n := strings.Count(log.String(), "cannot be read"); n != 3 {
			t.Errorf("it was said %d times, want 3:\n%s", n, log.String())
		}
		if n := strings.Count(log.String(), "can be read again"); n != 2 {
			t.Errorf("the mending was said %d times, want 2:\n%s", n, log.String())
		}
	})
}

// TestSetPolicy: new rules hold for new streams.
func TestSetPolicy(t *testing.T) {
	both(t, func(w *world) {
		w.attached()
		target := w.target(echo)
		s := w.open(target)
		p := *w.srv.policy.Load()
		p.Allow = rules(w.t, "127.0.0.1:1")
		w.srv.SetPolicy(p)
		if code := w.refusal(w.start(target)); code != link.CodeNotAllowed {
			w.t.Errorf("a new stream: %s", code)
		}
		w.exchange(s, "an old one")
	})
}

func TestStatusAndDrop(t *testing.T) {
	bubble(t, nil, func(w *world) {
		t := w.t
		w.attached()
		target := w.target(echo)
		s := w.open(target)
		w.exchange(s, "12345")
		began := time.Now()
		time.Sleep(time.Hour)
		key := w.newClientKey("other")
		other := w.newClient(key, 0)
		defer other.Close()
		if err := w.attach(other, key); err != nil {
			t.Fatal(err)
		}
		st := w.srv.Status()
		if len(st) != 2 || st[0].Name != "laptop" || st[1].Name != "other" || st[0].Client != w.key.Fingerprint() {
			t.Fatalf("%+v", st)
		}
		l := st[0]
		if len(l.Streams) != 1 || l.Streams[0].Target != target || !l.Streams[0].Since.Equal(began) || l.Streams[0].In != 5 || l.Streams[0].Out != 5 {
			t.Errorf("streams: %+v", l.Streams)
		}
		if len(l.Carriers) != 1 || !strings.HasPrefix(l.Carriers[0].Name, "192.0.2.1:") || !l.Since.Equal(began) || l.Counts.BytesIn != 5 {
			t.Errorf("%+v", l)
		}
		id := hex.EncodeToString(l.ID[:])
		for _, wrong := range []string{"", "zz", id + "0"} {
			if err := w.srv.Drop(wrong); !errors.Is(err, ErrNoLink) {
				t.Errorf("dropping %q: %v", wrong, err)
			}
		}
		if err := w.srv.Drop(strings.ToUpper(id[:8])); err != nil {
			t.Error(err)
		}
		_, err := s.Read(make([]byte, 1))
		var end *link.EndError
		if !errors.As(err, &end) || end.Code != link.CodeDropped {
			t.Errorf("the dropped link's stream: %v", err)
		}
		synctest.Wait()
		if st := w.srv.Status(); len(st) != 1 || st[0].Name != "other" {
			t.Errorf("left: %+v", st)
		}
		if err := w.srv.Drop(id); !errors.Is(err, ErrNoLink) {
			t.Errorf("dropping it again: %v", err)
		}
		if _, err := w.trust.Remove("other"); err != nil {
			t.Fatal(err)
		}
		if name := w.srv.nameOf(key.Fingerprint()); name != key.Fingerprint().Short() {
			t.Errorf("one who is not listed is called %q", name)
		}
	})
}

// TestDropNeedsOneLink: a prefix of several is told so. IDs are random: one digit fits several of 17.
func TestDropNeedsOneLink(t *testing.T) {
	bubble(t, nil, func(w *world) {
		t := w.t
		first := map[byte]int{}
		for range 17 {
			c := w.newClient(w.key, 0)
			defer c.Close()
			if err := w.attach(c, w.key); err != nil {
				t.Fatal(err)
			}
			id := c.ID()
			first[hex.EncodeToString(id[:1])[0]]++
		}
		for digit, n := range first {
			if err := w.srv.Drop(string(digit)); n > 1 && !errors.Is(err, ErrAmbiguous) || n == 1 && err != nil {
				t.Errorf("%c, of %d: %v", digit, n, err)
			}
		}
	})
}

// TestPairing by the server: the new client can use it at once.
func TestPairing(t *testing.T) {
	both(t, func(w *world) {
		inv, err := w.invites.Create(time.Now(), "devbox", []string{w.lan})
		if err != nil {
			w.t.Fatal(err)
		}
		key := newKey(w.t)
		stranger := w.newClient(key, 0)
		var no *link.AttachError
		if err := w.attach(stranger, key); !errors.As(err, &no) || no.Code != link.CodeUnpaired {
			w.t.Errorf("before pairing: %v", err)
		}
		_ = stranger.Close()
		res, err := link.Pair(w.t.Context(), w.dial(), key, inv, "tablet")
		if err != nil || res.HostName != "devbox" || res.Name != "tablet" {
			w.t.Fatalf("%+v, %v", res, err)
		}
		client := w.newClient(key, 0)
		defer client.Close()
		if err := w.attach(client, key); err != nil {
			w.t.Fatal(err)
		}
		w.exchange(w.startOn(client, w.target(echo)), "hello")
		if _, err := link.Pair(w.t.Context(), w.dial(), newKey(w.t), inv, "thief"); err == nil {
			w.t.Error("the invite was used twice")
		}
	})
}

// TestNoInvites: a server without them pairs with nobody.
func TestNoInvites(t *testing.T) {
	bubble(t, func(c *Config) { c.Invites = nil }, func(w *world) {
		t := w.t
		inv, err := w.invites.Create(time.Now(), "devbox", nil)
		if err != nil {
			t.Fatal(err)
		}
		var refused *link.PairError
		if _, err := link.Pair(t.Context(), w.dial(), newKey(t), inv, "x"); !errors.As(err, &refused) || refused.Code != link.PairNoInvite {
			t.Errorf("pairing: %v", err)
		}
	})
}

// TestLinksOfAClient by default: 64, and the one without a carrier yields.
func TestLinksOfAClient(t *testing.T) {
	bubble(t, nil, func(w *world) {
		t := w.t
		var clients []*link.Client
		for range link.DefaultLinks {
			c := w.newClient(w.key, 0)
			defer c.Close()
			clients = append(clients, c)
			if err := w.attach(c, w.key); err != nil {
				t.Fatal(err)
			}
		}
		more := w.newClient(w.key, 0)
		defer more.Close()
		var no *link.AttachError
		if err := w.attach(more, w.key); !errors.As(err, &no) || no.Code != link.CodeTooMany {
			t.Errorf("link 65: %v", err)
		}
		clients[7].Cut(1)
		synctest.Wait()
		if err := w.attach(more, w.key); err != nil {
			t.Errorf("with one lost: %v", err)
		}
		if err := w.attach(clients[7], w.key); !errors.Is(err, link.ErrUnknown) {
			t.Errorf("the one that yielded: %v", err)
		}
	})
}

// TestAttachesAndChecksOfAClient: beyond ten a second attaches wait and checks are refused.
func TestAttachesAndChecksOfAClient(t *testing.T) {
	bubble(t, nil, func(w *world) {
		t := w.t
		start := time.Now()
		for i := range 20 {
			w.attached()
			if d, want := time.Since(start).Round(time.Millisecond), max(0, time.Duration(i-9)*100*time.Millisecond); d != want {
				t.Errorf("attach %d after %v, want %v", i+1, d, want)
			}
		}
		busy := 0
		for range 15 {
			tr, err := link.Dial(t.Context(), w.dial(), w.key, w.hostKey.Fingerprint())
			if err != nil {
				t.Fatal(err)
			}
			var no *link.AttachError
			if _, err := link.Check(t.Context(), tr, processOf(w.key)); errors.As(err, &no) && no.Code == link.CodeBusy {
				busy++
			} else if err != nil {
				t.Error(err)
			}
		}
		if busy != 5 {
			t.Errorf("%d of 15 checks were refused, want 5", busy)
		}
	})
}

// TestStreamOverAnOutage: the product's promise through the whole host: bytes go on after every carrier was lost.
func TestStreamOverAnOutage(t *testing.T) {
	bubble(t, nil, func(w *world) {
		t := w.t
		w.attached()
		s := w.open(w.target(echo))
		for range 5 {
			w.exchange(s, "before")
			w.net.Route("lan").Reset()
			if _, err := s.Write([]byte("meanwhile")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			w.attached()
			b := make([]byte, len("meanwhile"))
			if _, err := io.ReadFull(s, b); err != nil || string(b) != "meanwhile" {
				t.Fatalf("%q, %v", b, err)
			}
		}
	})
}
