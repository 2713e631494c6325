package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	mrand "math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"linkproxy/link/core"
	"linkproxy/link/frame"
	"linkproxy/state/identity"
	"linkproxy/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a client and a host that can meet over named routes.
type world struct {
	t      *testing.T
	net    *testenv.Net
	key    *identity.Key
	host   *Host
	hostFP identity.Fingerprint
	client *Client
	wg     sync.WaitGroup
	lns    []net.Listener
}

func testKey(t testing.TB) *identity.Key {
	t.Helper()
	k, err := identity.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// newWorld starts a host on the routes, with a handler for its streams, and a link that has no carrier yet.
func newWorld(t *testing.T, handle func(*Stream), routes ...string) *world {
	w := &world{t: t, net: new(testenv.Net), key: testKey(t)}
	hostKey := testKey(t)
	w.hostFP = hostKey.Fingerprint()
	paired := w.key.Fingerprint()
	w.host = NewHost(HostConfig{
		Key: hostKey, Process: Process{Instance: [16]byte{1}, Boot: 1},
		Trusted: func(fp identity.Fingerprint) bool { return fp == paired },
		Handle:  func(_ identity.Fingerprint, s *Stream) { handle(s) },
	})
	for _, r := range routes {
		ln, err := w.net.Listen(r)
		if err != nil {
			t.Fatal(err)
		}
		w.lns = append(w.lns, ln)
		w.wg.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				w.wg.Go(func() { _ = w.host.ServeConn(context.Background(), c) })
			}
		})
	}
	w.client = NewClient(ClientConfig{Process: Process{Instance: [16]byte{2}, Boot: 1}, Peer: w.hostFP})
	return w
}

func (w *world) close() {
	w.client.Close()
	w.host.Close()
	for _, ln := range w.lns {
		ln.Close()
	}
	w.wg.Wait()
}

func (w *world) dial(route string) *Transport {
	w.t.Helper()
	conn, err := w.net.Dial(w.t.Context(), route)
	if err != nil {
		w.t.Fatal(err)
	}
	tr, err := Dial(w.t.Context(), conn, w.key, w.hostFP)
	if err != nil {
		w.t.Fatal(err)
	}
	return tr
}

func (w *world) attach(route string, standby bool) uint64 {
	w.t.Helper()
	gen, err := w.client.Attach(w.t.Context(), w.dial(route), AttachOptions{Standby: standby, Name: route})
	if err != nil {
		w.t.Fatal(err)
	}
	return gen
}

// echo answers every byte and ends when the client does.
func echo(s *Stream) {
	s.Accept()
	_, _ = io.Copy(s, s)
	_ = s.CloseWrite()
	_ = s.Close()
}

func TestEchoOverCutsAndSwitches(t *testing.T) { synctest.Test(t, testEchoOverCutsAndSwitches) }
func testEchoOverCutsAndSwitches(t *testing.T) {
	w := newWorld(t, echo, "lan", "tailnet")
	defer w.close()
	w.net.Route("lan").SetDelay(10 * time.Millisecond)
	w.net.Route("tailnet").SetDelay(40 * time.Millisecond)
	s, err := w.client.Open("127.0.0.1:7", OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.attach("lan", false)
	if err := s.WaitOpened(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 4<<20)
	rng := mrand.NewChaCha8([32]byte{7})
	_, _ = rng.Read(want)
	sum := sha256.Sum256(want)
	go func() {
		_, _ = s.Write(want)
		_ = s.CloseWrite()
	}()
	got := make(chan []byte)
	go func() {
		b, err := io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	for i := range 6 {
		time.Sleep(30 * time.Millisecond)
		if i%2 == 0 {
			gen := w.attach("tailnet", true)
			if err := w.client.Switch(t.Context(), gen); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			w.net.Route("tailnet").Reset()
		} else {
			w.net.Route("lan").Reset()
			w.attach("lan", false)
		}
	}
	b := <-got
	if len(b) != len(want) || sha256.Sum256(b) != sum {
		t.Fatalf("got %d bytes, want %d (equal prefix: %v)", len(b), len(want), bytes.HasPrefix(want, b))
	}
	if n := len(w.client.Status().Switches); n < 4 {
		t.Errorf("only %d switches happened", n)
	}
}

func TestRefusedTarget(t *testing.T) { synctest.Test(t, testRefusedTarget) }
func testRefusedTarget(t *testing.T) {
	w := newWorld(t, func(s *Stream) { s.Refuse(CodeRefused) }, "lan")
	defer w.close()
	w.attach("lan", false)
	s, err := w.client.Open("127.0.0.1:9", OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if err := s.WaitOpened(t.Context()); !errors.As(err, &refused) || refused.Code != CodeRefused {
		t.Fatalf("opening: %v", err)
	}
	synctest.Wait()
	if n := w.client.Status().Streams + w.host.Status()[0].Status.Streams; n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

func TestWrongKeyIsNotTheHost(t *testing.T) { synctest.Test(t, testWrongKeyIsNotTheHost) }
func testWrongKeyIsNotTheHost(t *testing.T) {
	w := newWorld(t, echo, "lan")
	defer w.close()
	conn, err := w.net.Dial(t.Context(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	var wrong *IdentityError
	if _, err := Dial(t.Context(), conn, w.key, testKey(t).Fingerprint()); !errors.As(err, &wrong) {
		t.Fatalf("dialling with a wrong pin: %v", err)
	}
}

func TestUnpairedClientIsToldSo(t *testing.T) { synctest.Test(t, testUnpairedClientIsToldSo) }
func testUnpairedClientIsToldSo(t *testing.T) {
	w := newWorld(t, echo, "lan")
	defer w.close()
	w.key = testKey(t)
	var no *AttachError
	if _, err := w.client.Attach(t.Context(), w.dial("lan"), AttachOptions{}); !errors.As(err, &no) || no.Code != CodeUnpaired {
		t.Fatalf("attaching: %v", err)
	}
}

// TestFirstCauseAnswersAnAttach: the reader has found out why, and what the writer then finds is only its consequence.
func TestFirstCauseAnswersAnAttach(t *testing.T) {
	l := newLink(ID{}, core.Config{Client: true, Account: NewPool(0).account(0)}, nil, [2]uint64{})
	defer l.Close()
	near, far := testenv.Pipe()
	defer far.Close()
	l.mu.Lock()
	k, _ := l.core.Begin(l.now(), frame.Active, 0, time.Millisecond)
	c := newCarrier(l, k, &Transport{raw: near}, "", nil)
	cause := &AttachError{Code: CodeUnpaired}
	c.err = cause
	l.unlock(l.now())
	c.fail(net.ErrClosed)
	if a := <-c.answer; a.err != error(cause) {
		t.Errorf("the answer is %v", a.err)
	}
}

// TestAnswerAfterGivingUp: an attach that was given up while the host's answer was on its way holds up nobody.
func TestAnswerAfterGivingUp(t *testing.T) { synctest.Test(t, testAnswerAfterGivingUp) }

func testAnswerAfterGivingUp(t *testing.T) {
	w := newWorld(t, echo, "lan")
	defer w.close()
	c := w.client
	tr := w.dial("lan")
	defer tr.Close()
	c.mu.Lock()
	k, f := c.core.Begin(c.now(), frame.Active, 0, tr.handshake)
	f.Link = c.id
	car := newCarrier(c.Link, k, tr, "lan", nil)
	c.unlock(c.now())
	car.fail(errors.New("given up"))
	c.mu.Lock()
	hello := frame.Frame{Kind: frame.Hello, Version: frame.Version}
	if err := car.opened(c.now(), &hello); err != nil {
		t.Errorf("the host's HELLO: %v", err)
	}
	ok := frame.Frame{Kind: frame.NewOK, Link: [16]byte(c.id), Gen: k.Gen()}
	if err := car.opened(c.now(), &ok); !errors.Is(err, errGivenUp) {
		t.Errorf("the host's answer: %v, want %v", err, errGivenUp)
	}
	c.unlock(c.now())
	w.attach("lan", false) // nobody holds the link
}
