package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"linkproxy/state/identity"
)

const (
	// pairTime is how long a client pairs before it gives up: the host's 5 s for a stranger, and the way.
	pairTime = 10 * time.Second
	// pairMessage is the longest message of a pairing in bytes, pairName the longest name in one.
	pairMessage = 1 << 10
	pairName    = 64
	proofSize   = 32
)

// Messages of a pairing. Each is two bytes of length, a byte of kind, and a body.
const (
	pairAsk byte = 1 // the client's proof, its name
	pairYes byte = 2 // the host's proof, a byte of length, the host's name, the client's name as the host lists it
	pairNo  byte = 3 // a byte of PairCode
)

// PairCode says why a host would not pair. Codes travel on the wire.
type PairCode uint8

// Codes of a refused pairing.
const (
	PairNoInvite    PairCode = 1 // no invite is open: used, late, or ended by wrong guesses
	PairWrongSecret PairCode = 2 // the proof fits no open invite
	PairFailed      PairCode = 3 // the host could not store what it has to
	PairProtocol    PairCode = 4 // the client's message makes no sense to the host
)

// PairError tells that the right host would not pair.
type PairError struct{ Code PairCode }

func (e *PairError) Error() string {
	switch e.Code {
	case PairNoInvite:
		return "link: pairing: that machine has no invite open: this one was used, is too old, or was ended by wrong " +
			"guesses; make a new one there with: linkproxy host invite"
	case PairWrongSecret:
		return "link: pairing: that machine does not accept this invite: it was used, cancelled or replaced; make a new one " +
			"there with: linkproxy host invite"
	case PairFailed:
		return "link: pairing: that machine could not store the pairing: its log says why; then make a new invite there"
	case PairProtocol:
		return "link: pairing: that machine did not understand the request: update the older linkproxy of the two"
	}
	return fmt.Sprintf("link: pairing: refused with code %d: update linkproxy on this machine", e.Code)
}

// PairResult is what a client knows after pairing.
type PairResult struct {
	Host     identity.Fingerprint // the host's key, as in the invite
	HostName string               // what the host calls itself: printable, ≤ 64 bytes, may be empty
	Name     string               // how the host lists this machine
}

// Pair makes this machine, by key, a trusted client of the host that made inv, over a new connection to it. The host shows
// name to its owner. It owns conn and closes it. Both sides prove the invite's secret; neither can learn it from the
// exchange, nor can somebody between them, as the invite names the host's key. Classes: *PairError, *IdentityError.
func Pair(ctx context.Context, conn net.Conn, key *identity.Key, inv identity.Invite, name string) (PairResult, error) {
	ctx, cancel := context.WithTimeout(ctx, pairTime)
	defer cancel()
	p, err := DialPair(ctx, conn, key, inv.Fingerprint)
	if err != nil {
		var alert *net.OpError
		if errors.As(err, &alert) && alert.Op == "remote error" { // a host without an invite does not know the protocol
			return PairResult{}, fmt.Errorf("%w (%w)", &PairError{PairNoInvite}, err)
		}
		return PairResult{}, err
	}
	defer p.Close()
	stop := context.AfterFunc(ctx, func() { p.Close() })
	defer stop()
	res, err := p.ask(key, inv, name)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return PairResult{}, fmt.Errorf("link: pairing with %s: %w", addr(conn), err)
	}
	return res, nil
}

// ask is the client's side of the exchange.
func (p *PairConn) ask(key *identity.Key, inv identity.Invite, name string) (PairResult, error) {
	exporter, err := p.Exporter()
	if err != nil {
		return PairResult{}, err
	}
	proof := identity.Proof(inv.Secret, identity.RoleClient, exporter, key.Fingerprint(), inv.Fingerprint)
	if proof == nil {
		return PairResult{}, errors.New("the invite's secret is too short")
	}
	_, werr := p.t.tls.Write(pairFrame(pairAsk, proof, []byte(printable(name))))
	kind, body, err := readPair(p.t.tls) // a host that refuses may have stopped reading: its reason comes first
	switch {
	case err != nil:
		return PairResult{}, errors.Join(werr, err)
	case kind == pairNo && len(body) == 1:
		return PairResult{}, &PairError{PairCode(body[0])}
	case kind != pairYes || len(body) < proofSize+1:
		return PairResult{}, errPairMessage
	}
	proof, body = body[:proofSize], body[proofSize:]
	if !identity.VerifyProof(proof, inv.Secret, identity.RoleHost, exporter, key.Fingerprint(), inv.Fingerprint) {
		return PairResult{}, errors.New("the host did not prove that it made this invite")
	}
	n := int(body[0])
	if body = body[1:]; n > len(body) {
		return PairResult{}, errPairMessage
	}
	return PairResult{Host: inv.Fingerprint, HostName: printable(string(body[:n])), Name: printable(string(body[n:]))}, nil
}

// Serve is the host's side of the exchange: whoever proves the secret of an open invite is put on the list of trusted
// clients, and told so afterwards. It closes p, and fails, after a second for the other side to read why, at the latest at
// the deadline of the connection, which ServeConn sets. Client is who was paired; its error is for a log.
func (p *PairConn) Serve(invites *identity.Invites, trust *identity.Trust) (client identity.Client, err error) {
	last := pairFrame(pairNo, []byte{byte(PairProtocol)})
	defer func() { p.t.refuse(last) }()
	exporter, err := p.Exporter()
	if err != nil {
		return client, err
	}
	kind, body, err := readPair(p.t.tls)
	if err == nil && (kind != pairAsk || len(body) < proofSize) {
		err = errPairMessage
	}
	if err != nil {
		return client, fmt.Errorf("link: pairing: %w", err)
	}
	var answer []byte
	now := time.Now()
	name, err := invites.Attempt(now, func(secret []byte) bool {
		if !identity.VerifyProof(body[:proofSize], secret, identity.RoleClient, exporter, p.t.peer, p.self) {
			return false
		}
		answer = identity.Proof(secret, identity.RoleHost, exporter, p.t.peer, p.self)
		return true
	})
	if err == nil {
		client, err = trust.Add(p.t.peer, printable(string(body[proofSize:])), now)
	}
	if err != nil {
		last = pairFrame(pairNo, []byte{byte(pairCodeOf(err))})
		return client, fmt.Errorf("link: pairing: %w", err)
	}
	name = printable(name)
	last = pairFrame(pairYes, answer, []byte{byte(len(name))}, []byte(name), []byte(client.Name))
	return client, nil
}

func pairCodeOf(err error) PairCode {
	switch {
	case errors.Is(err, identity.ErrNoInvite):
		return PairNoInvite
	case errors.Is(err, identity.ErrWrongSecret):
		return PairWrongSecret
	}
	return PairFailed
}

var errPairMessage = errors.New("a message that makes no sense")

// pairFrame puts a message together.
func pairFrame(kind byte, parts ...[]byte) []byte {
	b := []byte{0, 0, kind}
	for _, p := range parts {
		b = append(b, p...)
	}
	binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	return b
}

// readPair reads one message; its length is checked before memory is taken.
func readPair(r io.Reader) (kind byte, body []byte, err error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return 0, nil, fmt.Errorf("reading the other side's message: %w", err)
	}
	n := binary.BigEndian.Uint16(size[:])
	if n == 0 || n > pairMessage {
		return 0, nil, fmt.Errorf("%w: %d bytes", errPairMessage, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, nil, fmt.Errorf("reading the other side's message: %w", err)
	}
	return b[0], b[1:], nil
}

// printable is a name of the other side's choosing as it may be shown: no control characters, ≤ 64 bytes.
func printable(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
	if len(s) <= pairName {
		return s
	}
	n := pairName
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimSpace(s[:n])
}
