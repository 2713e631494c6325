package pipe

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = 20 * time.Second

// pairOf returns both ends of one connection over network ("tcp", "unix", "tls").
func pairOf(t testing.TB, network string) (far, near net.Conn) {
	t.Helper()
	kind, addr := "tcp", "127.0.0.1:0"
	if network == "unix" {
		kind, addr = "unix", filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(kind, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err = net.Dial(kind, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if network == "tls" {
		far, near = tlsOver(t, far, near)
	}
	t.Cleanup(func() { far.Close(); near.Close() })
	_ = far.SetDeadline(time.Now().Add(deadline))
	return far, near
}

func tlsOver(t testing.TB, far, near net.Conn) (net.Conn, net.Conn) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{cert}})
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return client, server
}

// world is app ↔ [copy] ↔ target, with the outer ends in the test's hand.
type world struct {
	app, target net.Conn
	result      chan Result
}

func newWorld(t testing.TB, appNet, peerNet string) *world {
	t.Helper()
	app, near := pairOf(t, appNet)
	target, peer := pairOf(t, peerNet)
	return startWorld(t, app, near, target, peer)
}

func startWorld(t testing.TB, app, near, target, peer net.Conn) *world {
	t.Helper()
	w := &world{app: app, target: target, result: make(chan Result, 1)}
	go func() { w.result <- Copy(near, peer) }()
	return w
}

func (w *world) wait(t testing.TB) Result {
	t.Helper()
	select {
	case r := <-w.result:
		return r
	case <-time.After(deadline):
		t.Fatal("Copy did not return")
		return Result{}
	}
}

func closeWriteOf(t testing.TB, c net.Conn) {
	t.Helper()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

var networks = []struct{ app, peer string }{
	{"tcp", "tcp"}, {"tcp", "unix"}, {"unix", "tcp"}, {"unix", "unix"}, {"tcp", "tls"}, {"tls", "tcp"}, {"tls", "tls"},
}

// TestHalfCloseBothWays: a request ended by a half-close is answered whole, in both roles, over every kind of connection.
func TestHalfCloseBothWays(t *testing.T) {
	const size = 1<<20 + 13
	for _, nw := range networks {
		for _, first := range []string{"app", "target"} {
			t.Run(nw.app+"-"+nw.peer+"-"+first, func(t *testing.T) {
				w := newWorld(t, nw.app, nw.peer)
				asker, answerer := w.app, w.target
				if first == "target" {
					asker, answerer = w.target, w.app
				}
				request, answer := noise(size), noise(size/2)
				answered := make(chan error, 1)
				go func() {
					got, err := io.ReadAll(answerer)
					if err == nil && !bytes.Equal(got, request) {
						err = errors.New("request differs")
					}
					if err == nil {
						_, err = answerer.Write(answer)
					}
					answered <- errors.Join(err, answerer.(interface{ CloseWrite() error }).CloseWrite())
				}()
				if _, err := asker.Write(request); err != nil {
					t.Fatal(err)
				}
				closeWriteOf(t, asker)
				got, err := io.ReadAll(asker)
				if err != nil || !bytes.Equal(got, answer) {
					t.Fatalf("answer: %d bytes, %v; want %d", len(got), err, len(answer))
				}
				if err := <-answered; err != nil {
					t.Fatal(err)
				}
				r := w.wait(t)
				up, down := int64(size), int64(size/2)
				if first == "target" {
					up, down = down, up
				}
				if r.Err != nil || r.Up != up || r.Down != down {
					t.Fatalf("result %+v, want up %d down %d", r, up, down)
				}
			})
		}
	}
}

// TestAnswerWholeWhileAppSends: the target answers and closes for good although the app goes on sending. What it sends is
// met by a reset at the target; the answer still on its way to the app comes whole, with a clean end.
func TestAnswerWholeWhileAppSends(t *testing.T) {
	w := newWorld(t, "tcp", "tcp")
	answer := noise(8 << 20)
	wrote := make(chan error, 1)
	go func() {
		_, err := w.target.Write(answer)
		wrote <- err
	}()
	h := sha256.New()
	var got int64
	read := func(n int64) {
		k, err := io.CopyN(h, w.app, n)
		got += k
		if err != nil {
			t.Fatalf("answer: %d of %d bytes, %v", got, len(answer), err)
		}
	}
	for sent := false; !sent || unsent(w.target) > 0; {
		select {
		case err := <-wrote:
			if err != nil {
				t.Fatal(err)
			}
			sent = true
		default:
		}
		if got < int64(len(answer))-1<<10 {
			read(1 << 10)
		}
	}
	if left := int64(len(answer)) - got; left < 64<<10 {
		t.Logf("only %d bytes were on their way when the target closed", left)
	}
	w.target.Close()
	for range 64 { // passes only because it is read and dropped
		if _, err := w.app.Write(noise(64 << 10)); err != nil {
			t.Fatal(err)
		}
	}
	read(int64(len(answer)) - got)
	if _, err := w.app.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || !bytes.Equal(h.Sum(nil), sum(answer)) {
		t.Fatalf("after the answer: %v, or it differs", err)
	}
	w.app.Close()
	if r := w.wait(t); r.Down != int64(len(answer)) {
		t.Fatalf("%+v", r)
	}
}

func sum(b []byte) []byte { s := sha256.Sum256(b); return s[:] }

// TestUploadWholeWhenAppLeaves: the app uploads and leaves without waiting; the target, which answers meanwhile, gets all.
func TestUploadWholeWhenAppLeaves(t *testing.T) {
	const size = 2 << 20
	w := newWorld(t, "tcp", "tcp")
	upload := noise(size)
	if _, err := w.target.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(w.app, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = w.app.Write(upload)
		_ = w.app.Close()
	}()
	got, err := io.ReadAll(w.target)
	if err != nil || !bytes.Equal(got, upload) {
		t.Fatalf("upload: %d of %d, %v", len(got), size, err)
	}
	// The app is gone: what the target still says meets a reset; the copy ends as soon as the target ends.
	_, _ = w.target.Write(noise(1 << 10))
	closeWriteOf(t, w.target)
	if r := w.wait(t); r.Up != size {
		t.Fatalf("result %+v", r)
	}
}

// TestReset: a reset on one side is a reset on the other, idle or in full flow, never an end.
func TestReset(t *testing.T) {
	for _, flow := range []string{"idle", "down", "up", "both"} {
		for _, who := range []string{"app", "target"} {
			t.Run(flow+"-"+who, func(t *testing.T) {
				for range 5 {
					testReset(t, flow, who)
				}
			})
		}
	}
}

func testReset(t *testing.T, flow, who string) {
	w := newWorld(t, "tcp", "tcp")
	dier, other := w.app, w.target
	if who == "target" {
		dier, other = other, dier
	}
	var pumps int
	pumped := make(chan error, 2) // how the write of the side that stays failed
	pump := func(c net.Conn) {
		pumps++
		go func() {
			chunk := noise(16 << 10)
			for {
				if _, err := c.Write(chunk); err != nil {
					if c == dier {
						err = nil
					}
					pumped <- err
					return
				}
			}
		}()
	}
	for _, c := range []net.Conn{w.app, w.target} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []net.Conn{w.app, w.target} {
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if flow == "down" || flow == "both" {
		pump(w.target)
	}
	if flow == "up" || flow == "both" {
		pump(w.app)
	}
	if flow == "both" || (flow == "up") == (who == "app") && flow != "idle" {
		if _, err := io.CopyN(io.Discard, other, 256<<10); err != nil {
			t.Fatal(err)
		}
	}
	reset(dier)
	_, err := io.Copy(io.Discard, other)
	for range pumps {
		// The kernel tells of a reset once: to the read or to the write.
		err = errors.Join(err, <-pumped)
	}
	if !isReset(err) {
		t.Errorf("the other side saw %v, want a reset", err)
	}
	if r := w.wait(t); r.Err == nil {
		t.Error("Result.Err is nil after a reset")
	}
}

// TestResetOverTLS: no close_notify is said for a connection that failed.
func TestResetOverTLS(t *testing.T) {
	w := newWorld(t, "tls", "tcp")
	if _, err := w.target.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(w.app, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	reset(w.target)
	if _, err := w.app.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Fatalf("app read %v, want an error that is no end", err)
	}
	w.wait(t)
}

// TestPingPong: small messages pass at once, in both directions, over every kind of connection.
func TestPingPong(t *testing.T) {
	for _, nw := range networks {
		t.Run(nw.app+"-"+nw.peer, func(t *testing.T) {
			w := newWorld(t, nw.app, nw.peer)
			for _, size := range []int{1, probeSize - 1, probeSize, probeSize + 1, 4096, spliceProbe, bufSize, 100_000} {
				msg, got := noise(size), make([]byte, size)
				for _, way := range [][2]net.Conn{{w.app, w.target}, {w.target, w.app}} {
					if _, err := way[0].Write(msg); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(msg, got) {
						t.Fatalf("%d bytes: %v", size, err)
					}
				}
			}
			closeWriteOf(t, w.app)
			closeWriteOf(t, w.target)
			if r := w.wait(t); r.Err != nil {
				t.Fatal(r.Err)
			}
		})
	}
}

const spliceProbe = 16 << 10

// TestNoHalfClose: a connection without CloseWrite ends the copy at the first end; nothing waits for ever.
func TestNoHalfClose(t *testing.T) {
	app, near := pairOf(t, "tcp")
	target, peer := net.Pipe()
	w := startWorld(t, app, near, target, peer)
	closeWriteOf(t, app)
	if _, err := target.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if r := w.wait(t); r.Err != nil {
		t.Fatal(r.Err)
	}
}

func TestHead(t *testing.T) {
	start := func(t *testing.T, head func() ([]byte, error)) *world {
		app, near := pairOf(t, "tcp")
		target, peer := pairOf(t, "tcp")
		w := &world{app: app, target: target, result: make(chan Result, 1)}
		go func() { w.result <- CopyAfter(near, peer, head) }()
		return w
	}
	t.Run("bytes first, the way down flows meanwhile", func(t *testing.T) {
		release := make(chan struct{})
		w := start(t, func() ([]byte, error) { <-release; return []byte("head "), nil })
		if _, err := w.target.Write([]byte("banner")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(w.app, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.app.Write([]byte("tail")); err != nil {
			t.Fatal(err)
		}
		close(release)
		closeWriteOf(t, w.app)
		got, err := io.ReadAll(w.target)
		if err != nil || string(got) != "head tail" {
			t.Fatalf("%q %v", got, err)
		}
		w.target.Close()
		if r := w.wait(t); r.Err != nil || r.Up != 9 || r.Down != 6 {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("refused", func(t *testing.T) {
		no := errors.New("no")
		w := start(t, func() ([]byte, error) { return []byte("GET"), no })
		for _, c := range []net.Conn{w.app, w.target} {
			if n, err := c.Read(make([]byte, 9)); n != 0 || !isReset(err) {
				t.Fatalf("%d %v", n, err)
			}
		}
		if r := w.wait(t); !errors.Is(r.Err, no) || r.Up != 0 {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("ended", func(t *testing.T) {
		w := start(t, func() ([]byte, error) { return []byte("all"), io.EOF })
		got, err := io.ReadAll(w.target)
		if err != nil || string(got) != "all" {
			t.Fatalf("%q %v", got, err)
		}
		w.target.Close()
		if r := w.wait(t); r.Err != nil {
			t.Fatal(r.Err)
		}
	})
}

// TestIdleHoldsOneGoroutine: TCP to a peer that calls back, 50 pairs.
func TestIdleHoldsOneGoroutine(t *testing.T) {
	const pairs = 50
	before := runtime.NumGoroutine()
	var worlds []*world
	for range pairs {
		app, near := pairOf(t, "tcp")
		peer := newFakeStream()
		w := startWorld(t, app, near, nil, peer)
		if _, err := app.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		peer.awaitUp(t, "ping")
		peer.push([]byte("pong"), nil)
		if _, err := io.ReadFull(app, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		peer.awaitArmed(t)
		worlds = append(worlds, w)
	}
	end := time.Now().Add(deadline) // the last drain may be ending still
	for runtime.NumGoroutine()-before > pairs && time.Now().Before(end) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine() - before; n > pairs {
		t.Errorf("%d goroutines for %d idle pairs", n, pairs)
	}
	for _, w := range worlds {
		reset(w.app)
		if r := w.wait(t); r.Err == nil {
			t.Error("no error after a reset")
		}
	}
}

func TestErrorNames(t *testing.T) {
	e := &Error{Side: "app", Op: "read", Err: syscall.ECONNRESET}
	if e.Error() != "pipe: read app: "+syscall.ECONNRESET.Error() || !errors.Is(e, syscall.ECONNRESET) {
		t.Fatal(e)
	}
}

// wrapped is a socket of somebody who wants to know when it is over.
type wrapped struct {
	net.Conn
	closed atomic.Int32
}

func (w *wrapped) Socket() net.Conn            { return w.Conn }
func (w *wrapped) Read([]byte) (int, error)    { panic("the socket is to be read") }
func (w *wrapped) Write(b []byte) (int, error) { panic("the socket is to be written") }

func (w *wrapped) Close() error {
	w.closed.Add(1)
	return w.Conn.Close()
}

// TestSocket: what is wrapped is copied from and to by itself, and what wraps it is told of the end. Closed beneath the copy, it is
// reset to the app.
func TestSocket(t *testing.T) {
	app, near := pairOf(t, "tcp")
	target, peer := pairOf(t, "tcp")
	over := &wrapped{Conn: peer}
	w := startWorld(t, app, near, target, over)
	for _, way := range [][2]net.Conn{{app, target}, {target, app}} {
		if _, err := way[0].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(way[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	reset(peer)
	for _, c := range []net.Conn{app, target} {
		if _, err := c.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("an end saw %v, want a reset", err)
		}
	}
	if r := w.wait(t); r.Err == nil || r.Up != 1 || r.Down != 1 {
		t.Errorf("result %+v", r)
	}
	if over.closed.Load() == 0 {
		t.Error("it was not closed")
	}
}
