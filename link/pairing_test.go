package link

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"linkproxy/state/identity"
	"linkproxy/testenv"
)

// pairWorld is a host that hands out invites, with its state in a real folder.
type pairWorld struct {
	t       *testing.T
	net     testenv.Net
	dir     string
	hostKey *identity.Key
	invites *identity.Invites
	trust   *identity.Trust
	host    *Host
	ln      net.Listener
	wg      sync.WaitGroup
	served  chan error // what Serve returned
}

func newPairWorld(t *testing.T) *pairWorld {
	w := &pairWorld{t: t, dir: t.TempDir(), hostKey: testKey(t), served: make(chan error, 64)}
	w.invites = identity.OpenInvites(w.dir, w.hostKey.Fingerprint())
	trust, err := identity.OpenTrust(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	w.trust = trust
	w.host = NewHost(HostConfig{
		Key: w.hostKey, Process: hostProcess, Trusted: trust.Trusted, Handle: func(_ identity.Fingerprint, s *Stream) { echo(s) },
		Pairing: func() bool { return w.invites.Open(time.Now()) },
		Pair: func(_ context.Context, p *PairConn) {
			_, err := p.Serve(w.invites, w.trust)
			w.served <- err
		},
	})
	if w.ln, err = w.net.Listen("lan"); err != nil {
		t.Fatal(err)
	}
	w.wg.Go(func() {
		for {
			c, err := w.ln.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { _ = w.host.ServeConn(context.Background(), c) })
		}
	})
	return w
}

func (w *pairWorld) close() {
	_ = w.host.Close()
	_ = w.ln.Close()
	w.wg.Wait()
}

func (w *pairWorld) invite() identity.Invite {
	w.t.Helper()
	inv, err := w.invites.Create(time.Now(), "devbox", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return inv
}

func (w *pairWorld) dial() net.Conn {
	w.t.Helper()
	c, err := w.net.Dial(w.t.Context(), "lan")
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *pairWorld) pair(key *identity.Key, inv identity.Invite, name string) (PairResult, error) {
	w.t.Helper()
	return Pair(w.t.Context(), w.dial(), key, inv, name)
}

// wrong is inv with another secret of the right size.
func wrong(inv identity.Invite) identity.Invite {
	inv.Secret = []byte(strings.Repeat("?", len(inv.Secret)))
	return inv
}

func codeOf(err error) PairCode {
	var e *PairError
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func TestPairing(t *testing.T) { synctest.Test(t, testPairing) }
func testPairing(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	key := testKey(t)
	res, err := w.pair(key, w.invite(), "my laptop")
	if err != nil {
		t.Fatal(err)
	}
	if want := (PairResult{w.hostKey.Fingerprint(), "devbox", "my laptop"}); res != want {
		t.Errorf("%+v, want %+v", res, want)
	}
	if err := <-w.served; err != nil {
		t.Error(err)
	}
	if l := w.trust.List(); len(l) != 1 || l[0].Fingerprint != key.Fingerprint() || l[0].Name != "my laptop" {
		t.Errorf("the host trusts %+v", l)
	}
	if w.invites.Open(time.Now()) {
		t.Error("the invite is still open")
	}
	// It can attach now; another cannot.
	for _, c := range []struct {
		key *identity.Key
		ok  bool
	}{{key, true}, {testKey(t), false}} {
		tr, err := Dial(t.Context(), w.dial(), c.key, w.hostKey.Fingerprint())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Check(t.Context(), tr, client1); (err == nil) != c.ok {
			t.Errorf("checking: %v, want success %v", err, c.ok)
		}
	}
}

// TestPairingNames: names go to terminals, in both directions.
func TestPairingNames(t *testing.T) { synctest.Test(t, testPairingNames) }

func testPairingNames(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	for i, c := range []struct{ name, want string }{
		{"  \x1b[31mred\u202e\x00 box\n", "[31mred box"},
		{"[31mred box", "[31mred box-2"},
		{strings.Repeat("ä", 40), strings.Repeat("ä", 32)},
		{"\xff\xfe", ""}, // the host makes one up
	} {
		inv := w.invite()
		inv.Name = "what the client was told" // the host's own word counts
		res, err := w.pair(testKey(t), inv, c.name)
		if err != nil {
			t.Fatal(err)
		}
		name := w.trust.List()[i].Name
		if res.Name != name || c.want != "" && name != c.want || name == "" || res.HostName != "devbox" || !utf8.ValidString(name) {
			t.Errorf("%q: told %q by %q, stored %q, want %q", c.name, res.Name, res.HostName, name, c.want)
		}
	}
}

// TestWrongSecrets: five guesses end the invite, for everybody.
func TestWrongSecrets(t *testing.T) { synctest.Test(t, testWrongSecrets) }

func testWrongSecrets(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv := w.invite()
	for i := range identity.MaxGuesses {
		if !w.invites.Open(time.Now()) {
			t.Fatalf("after %d guesses the invite is closed", i)
		}
		_, err := w.pair(testKey(t), wrong(inv), "guesser")
		if codeOf(err) != PairWrongSecret {
			t.Fatalf("guess %d: %v", i+1, err)
		}
		if err := <-w.served; !errors.Is(err, identity.ErrWrongSecret) {
			t.Errorf("the host: %v", err)
		}
	}
	if _, err := w.pair(testKey(t), inv, "owner"); codeOf(err) != PairNoInvite {
		t.Errorf("the right secret after five guesses: %v", err)
	}
	if l := w.trust.List(); len(l) != 0 {
		t.Errorf("the host trusts %+v", l)
	}
}

// TestOneGuessCostsOne: an invite survives four guesses.
func TestOneGuessCostsOne(t *testing.T) { synctest.Test(t, testOneGuessCostsOne) }

func testOneGuessCostsOne(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv := w.invite()
	for range identity.MaxGuesses - 1 {
		if _, err := w.pair(testKey(t), wrong(inv), "guesser"); codeOf(err) != PairWrongSecret {
			t.Fatal(err)
		}
	}
	if _, err := w.pair(testKey(t), inv, "owner"); err != nil {
		t.Error(err)
	}
}

func TestInviteIsUsedOnce(t *testing.T) { synctest.Test(t, testInviteIsUsedOnce) }
func testInviteIsUsedOnce(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv := w.invite()
	if _, err := w.pair(testKey(t), inv, "first"); err != nil {
		t.Fatal(err)
	}
	_, err := w.pair(testKey(t), inv, "second")
	if codeOf(err) != PairNoInvite || !strings.Contains(err.Error(), "linkproxy host invite") {
		t.Errorf("with no other invite: %v", err)
	}
	other := w.invite()
	if _, err := w.pair(testKey(t), inv, "second"); codeOf(err) != PairNoInvite {
		t.Errorf("with another invite: %v", err)
	}
	if _, err := w.pair(testKey(t), other, "third"); err != nil {
		t.Error(err)
	}
	if l := w.trust.List(); len(l) != 2 {
		t.Errorf("the host trusts %+v", l)
	}
}

func TestInviteIsLate(t *testing.T) { synctest.Test(t, testInviteIsLate) }
func testInviteIsLate(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv := w.invite()
	time.Sleep(identity.InviteLife - time.Nanosecond)
	if !w.invites.Open(time.Now()) {
		t.Fatal("closed too early")
	}
	// A client that is in time with its handshake and late with its proof.
	key := testKey(t)
	p, err := DialPair(t.Context(), w.dial(), key, inv.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Nanosecond)
	if _, err := p.ask(key, inv, "late"); codeOf(err) != PairNoInvite {
		t.Errorf("late by a proof: %v", err)
	}
	_ = p.Close()
	if _, err := w.pair(testKey(t), inv, "later"); codeOf(err) != PairNoInvite {
		t.Errorf("late: %v", err)
	}
	if l := w.trust.List(); len(l) != 0 {
		t.Errorf("the host trusts %+v", l)
	}
}

func TestTwoRaceForOneInvite(t *testing.T) { synctest.Test(t, testTwoRaceForOneInvite) }
func testTwoRaceForOneInvite(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	w.net.Route("lan").SetDelay(10 * time.Millisecond) // both shake hands before either proves
	inv := w.invite()
	var wg sync.WaitGroup
	errs := make(chan error, 2)
	for range 2 {
		conn, key := w.dial(), testKey(t)
		wg.Go(func() {
			_, err := Pair(t.Context(), conn, key, inv, "racer")
			errs <- err
		})
	}
	wg.Wait()
	a, b := <-errs, <-errs
	if (a == nil) == (b == nil) || codeOf(errors.Join(a, b)) != PairNoInvite {
		t.Errorf("%v and %v", a, b)
	}
	if l := w.trust.List(); len(l) != 1 {
		t.Errorf("the host trusts %+v", l)
	}
}

// TestClientDies: before its proof nothing has happened; after it the host trusts it and the invite is used, whether or not
// it was told. It may pair again by another invite.
func TestClientDies(t *testing.T) { synctest.Test(t, testClientDies) }

func testClientDies(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv, key := w.invite(), testKey(t)
	p, err := DialPair(t.Context(), w.dial(), key, inv.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	if err := <-w.served; err == nil {
		t.Error("the host paired nobody, and had no error")
	}
	for range identity.MaxGuesses { // no guesses either
		p, err := DialPair(t.Context(), w.dial(), key, inv.Fingerprint)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Conn().Write([]byte{0, 40, pairAsk, 1, 2, 3})
		_ = p.Close()
		<-w.served
	}
	if l := w.trust.List(); len(l) != 0 || !w.invites.Open(time.Now()) {
		t.Fatalf("the host trusts %+v, invite open: %v", l, w.invites.Open(time.Now()))
	}
	p, err = DialPair(t.Context(), w.dial(), key, inv.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	sayProof(t, p, key, inv)
	_ = p.Close()
	if err := <-w.served; err != nil {
		t.Errorf("the host: %v", err)
	}
	if !w.trust.Trusted(key.Fingerprint()) || w.invites.Open(time.Now()) {
		t.Error("a proved client is not trusted, or its invite still open")
	}
	if _, err := w.pair(key, w.invite(), "again"); err != nil {
		t.Error(err)
	}
	if l := w.trust.List(); len(l) != 1 || l[0].Name != "again" {
		t.Errorf("the host trusts %+v", l)
	}
}

func sayProof(t *testing.T, p *PairConn, key *identity.Key, inv identity.Invite) {
	t.Helper()
	exporter, err := p.Exporter()
	if err != nil {
		t.Fatal(err)
	}
	proof := identity.Proof(inv.Secret, identity.RoleClient, exporter, key.Fingerprint(), inv.Fingerprint)
	if _, err := p.Conn().Write(pairFrame(pairAsk, proof, []byte("x"))); err != nil {
		t.Fatal(err)
	}
}

// TestPairingGarbage: what makes no sense is told so and is no guess.
func TestPairingGarbage(t *testing.T) { synctest.Test(t, testPairingGarbage) }

func testPairingGarbage(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv := w.invite()
	for what, b := range map[string][]byte{
		"empty":             {0, 0},
		"too long":          {0xff, 0xff, pairAsk},
		"of an older size":  {4, 1, pairAsk},
		"a host's message":  pairFrame(pairYes, make([]byte, 40)),
		"unknown kind":      pairFrame(9, make([]byte, 40)),
		"half a proof":      pairFrame(pairAsk, make([]byte, proofSize-1)),
		"HTTP":              []byte("GET / HTTP/1.1\r\n\r\n"),
		"a link's opening":  append(hello(client1), 0, 0),
		"much after a kind": append(pairFrame(7), make([]byte, 100<<10)...),
	} {
		p, err := DialPair(t.Context(), w.dial(), testKey(t), inv.Fingerprint)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Conn().Write(b)
		kind, body, err := readPair(p.Conn())
		if err != nil || kind != pairNo || PairCode(body[0]) != PairProtocol {
			t.Errorf("%s: answer %d %v, %v", what, kind, body, err)
		}
		_ = p.Close()
		<-w.served
	}
	if _, err := w.pair(testKey(t), inv, "owner"); err != nil {
		t.Error(err)
	}
}

// TestPairingIsBounded: a peer that shakes hands and then says nothing, or half of it, is told so after five seconds, and
// gone a second later.
func TestPairingIsBounded(t *testing.T) { synctest.Test(t, testPairingIsBounded) }

func testPairingIsBounded(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv := w.invite()
	for _, b := range [][]byte{nil, {0}, {0, 40, pairAsk, 1}} {
		p, err := DialPair(t.Context(), w.dial(), testKey(t), inv.Fingerprint)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, _ = p.Conn().Write(b)
		if _, _, err := readPair(p.Conn()); err != nil || time.Since(start) != handshakeTime {
			t.Errorf("%v: %v after %v", b, err, time.Since(start))
		}
		<-w.served
		if d := time.Since(start); d > handshakeTime+refuseTime {
			t.Errorf("%v: the host was busy for %v", b, d)
		}
		_ = p.Close()
	}
	// A host that says nothing holds up a client no longer than ten seconds.
	near, far := testenv.Pipe()
	start := time.Now()
	if _, err := Pair(t.Context(), near, testKey(t), inv, "x"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != pairTime {
		t.Errorf("a silent host: %v after %v", err, time.Since(start))
	}
	_ = far.Close()
}

// TestPairingInTheMiddle: somebody else's key ends it in the handshake, and a proof is worth nothing on another connection.
func TestPairingInTheMiddle(t *testing.T) { synctest.Test(t, testPairingInTheMiddle) }

func testPairingInTheMiddle(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv, key := w.invite(), testKey(t)
	near, far := testenv.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := accept(t.Context(), far, testKey(t), true)
		done <- err
	}()
	var id *IdentityError
	if _, err := Pair(t.Context(), near, key, inv, "x"); !errors.As(err, &id) {
		t.Errorf("another key: %v", err)
	}
	if err := <-done; err == nil {
		t.Error("the one in the middle completed a handshake")
	}
	first, err := DialPair(t.Context(), w.dial(), key, inv.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	exporter, err := first.Exporter()
	if err != nil {
		t.Fatal(err)
	}
	second, err := DialPair(t.Context(), w.dial(), key, inv.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	proof := identity.Proof(inv.Secret, identity.RoleClient, exporter, key.Fingerprint(), inv.Fingerprint)
	_, _ = second.Conn().Write(pairFrame(pairAsk, proof))
	if kind, body, err := readPair(second.Conn()); err != nil || kind != pairNo || PairCode(body[0]) != PairWrongSecret {
		t.Errorf("a proof of another connection: %d %v, %v", kind, body, err)
	}
	_, _ = first.Close(), second.Close()
	<-w.served
	<-w.served
	if l := w.trust.List(); len(l) != 0 {
		t.Errorf("the host trusts %+v", l)
	}
}

// TestHostMustProve: a client believes no host that does not prove the secret, whatever else it says.
func TestHostMustProve(t *testing.T) { synctest.Test(t, testHostMustProve) }

func testHostMustProve(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv, key := w.invite(), testKey(t)
	for what, answer := range map[string]func(ask []byte) []byte{
		"no proof":           func([]byte) []byte { return pairFrame(pairYes, make([]byte, proofSize), []byte{0}) },
		"the client's proof": func(ask []byte) []byte { return pairFrame(pairYes, ask[:proofSize], []byte{0}) },
		"half a message":     func([]byte) []byte { return pairFrame(pairYes, make([]byte, proofSize)) },
		"an unknown kind":    func([]byte) []byte { return pairFrame(9) },
		"an unknown reason":  func([]byte) []byte { return pairFrame(pairNo, []byte{99}) },
		"nothing":            func([]byte) []byte { return nil },
	} {
		near, far := testenv.Pipe()
		go func() {
			tr, err := accept(t.Context(), far, w.hostKey, true)
			if err != nil {
				t.Error(err)
				return
			}
			_, ask, err := readPair(tr.tls)
			if err != nil {
				t.Error(err)
			}
			tr.refuse(answer(ask))
		}()
		if res, err := Pair(t.Context(), near, key, inv, "x"); err == nil || res != (PairResult{}) {
			t.Errorf("%s: %+v, %v", what, res, err)
		}
		synctest.Wait()
	}
}

// TestPairingThatCannotBeStored: nobody is told that it is paired who is not.
func TestPairingThatCannotBeStored(t *testing.T) { synctest.Test(t, testPairingThatCannotBeStored) }

func testPairingThatCannotBeStored(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	inv, key := w.invite(), testKey(t)
	if err := os.WriteFile(filepath.Join(w.dir, "clients.json"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pair(key, inv, "x"); codeOf(err) != PairFailed {
		t.Errorf("pairing: %v", err)
	}
	if err := <-w.served; !errors.Is(err, identity.ErrCorrupt) {
		t.Errorf("the host: %v", err)
	}
	if w.trust.Trusted(key.Fingerprint()) {
		t.Error("the client is trusted")
	}
}

// TestPairingNeedsAnInvite: without one the protocol is not there at all.
func TestPairingNeedsAnInvite(t *testing.T) { synctest.Test(t, testPairingNeedsAnInvite) }

func testPairingNeedsAnInvite(t *testing.T) {
	w := newPairWorld(t)
	defer w.close()
	_, err := DialPair(t.Context(), w.dial(), testKey(t), w.hostKey.Fingerprint())
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Op != "remote error" {
		t.Errorf("without an invite: %v", err)
	}
	conn := tls.Client(w.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{ALPNPair, ALPN}, MinVersion: tls.VersionTLS13})
	_ = conn.HandshakeContext(t.Context())
	if p := conn.ConnectionState().NegotiatedProtocol; p == ALPNPair {
		t.Error("the host agreed to pair")
	}
	_ = conn.NetConn().Close()
}

func FuzzPairMessage(f *testing.F) {
	f.Add(pairFrame(pairAsk, make([]byte, proofSize), []byte("name")))
	f.Add(pairFrame(pairNo, []byte{1}))
	f.Add([]byte{0, 0})
	f.Add([]byte{0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, err := readPair(strings.NewReader(string(b)))
		if err != nil {
			return
		}
		if len(body) >= pairMessage || string(pairFrame(kind, body)) != string(b[:len(body)+3]) {
			t.Errorf("%x → %d %x", b, kind, body)
		}
		if s := printable(string(body)); len(s) > pairName || !utf8.ValidString(s) || printable(s) != s {
			t.Errorf("printable(%q) = %q", body, s)
		}
	})
}
