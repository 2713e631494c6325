package link

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"linkproxy/internal/sock"
	"linkproxy/link/frame"
	"linkproxy/state/identity"
)

// Names of the protocols a carrier may speak (RFC 7301).
const (
	// ALPN is the protocol of links; both sides insist on it.
	ALPN = "linkproxy/1"
	// ALPNPair is the protocol of pairing, offered only while an invite is open.
	ALPNPair = "linkproxy-pair/1"
)

// Process is what a linkproxy process says of itself in HELLO.
type Process struct {
	// Instance is random per state folder, or per process for a stand-alone connect.
	Instance [16]byte
	// Boot grows with each start of the instance.
	Boot uint64
}

// Transport is a connection on which TLS stands and whose other side has proved its key.
type Transport struct {
	tls       *tls.Conn
	out       *outConn
	raw       net.Conn
	peer      identity.Fingerprint
	handshake time.Duration
	protocol  string
}

// Peer is the key that the other side has proved.
func (t *Transport) Peer() identity.Fingerprint { return t.peer }

// Handshake is how long the TLS handshake took: a first measure of the round trip.
func (t *Transport) Handshake() time.Duration { return t.handshake }

// LocalAddr is the connection's own address.
func (t *Transport) LocalAddr() net.Addr { return t.raw.LocalAddr() }

// RemoteAddr is the other side's address.
func (t *Transport) RemoteAddr() net.Addr { return t.raw.RemoteAddr() }

// Close closes the connection at once.
func (t *Transport) Close() error { return t.raw.Close() }

// baseTLS is what both sides' configurations share: TLS 1.3, our own key, no tickets (a resumed session would skip the
// other side's certificate), whole records from the first byte on.
func baseTLS(key *identity.Key, alpn ...string) *tls.Config {
	return &tls.Config{
		Certificates:                []tls.Certificate{key.Certificate()},
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  alpn,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

// Dial runs the client's side of the TLS handshake on conn and insists on the peer's key: an *IdentityError says that
// another machine answered. It closes conn when it fails.
//
// A nil error does not mean that the host has accepted this machine's key: a TLS 1.3 client is done before the host is.
// That is known when Attach or Check returns.
func Dial(ctx context.Context, conn net.Conn, key *identity.Key, peer identity.Fingerprint) (*Transport, error) {
	return dialTLS(ctx, conn, key, peer, ALPN)
}

func dialTLS(ctx context.Context, conn net.Conn, key *identity.Key, peer identity.Fingerprint, alpn string) (*Transport, error) {
	cfg := baseTLS(key, alpn)
	cfg.InsecureSkipVerify = true // the certificate is only a wrapper for the key, which VerifyConnection compares
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		got, err := identity.OfState(cs)
		if err != nil {
			return err
		}
		if got != peer {
			return &IdentityError{Want: peer.String(), Got: got.String()}
		}
		return nil
	}
	out := newOutConn(conn)
	t := &Transport{tls: tls.Client(out, cfg), out: out, raw: conn, peer: peer, protocol: alpn}
	start := time.Now()
	if err := t.tls.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("link: handshake with %s: %w", addr(conn), err)
	}
	t.handshake = time.Since(start)
	if p := t.tls.ConnectionState().NegotiatedProtocol; p != alpn {
		conn.Close()
		return nil, fmt.Errorf("link: handshake with %s: it does not speak %s", addr(conn), alpn)
	}
	return t, nil
}

func addr(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return "the peer"
}

// handshakeTime is how long a stranger may take to prove a key and say what it wants.
const handshakeTime = 5 * time.Second

// handshakeBytes is the most that a stranger may send before its handshake is done: its flights are below 4 KiB, and a
// record of 16 KiB may have come right behind them. Without it TLS would gather certificates of 256 KiB.
const handshakeBytes = 32 << 10

var errHandshakeBytes = fmt.Errorf("more than %d bytes", handshakeBytes)

// accept runs the host's side. The client's key is proved when it returns, not before; whether it is paired is the
// caller's question.
func accept(ctx context.Context, conn net.Conn, key *identity.Key, pairing bool) (*Transport, error) {
	cfg := baseTLS(key, ALPN)
	if pairing {
		cfg.NextProtos = append(cfg.NextProtos, ALPNPair)
	}
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := identity.OfState(cs) // pure: the client has not yet proved that the key is its own
		return err
	}
	out := newOutConn(conn)
	out.bounded, out.left = true, handshakeBytes
	t := &Transport{tls: tls.Server(out, cfg), out: out, raw: conn}
	start := time.Now()
	if err := t.tls.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("link: handshake with %s: %w", addr(conn), err)
	}
	t.handshake = time.Since(start)
	out.bounded = false
	cs := t.tls.ConnectionState()
	peer, err := identity.OfState(cs)
	if err == nil && cs.NegotiatedProtocol == "" {
		err = errors.New("no protocol was agreed on")
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("link: handshake with %s: %w", addr(conn), err)
	}
	t.peer, t.protocol = peer, cs.NegotiatedProtocol
	return t, nil
}

// Bounds of a refusal: what still arrives is discarded for so long and so many bytes before the connection is closed, as a
// close with unread bytes becomes a reset that overtakes the reason.
const (
	refuseTime  = time.Second
	refuseBytes = 256 << 10
)

// refuse writes the frames of a refusal, half-closes, discards for a while and closes.
func (t *Transport) refuse(frames []byte) {
	defer t.raw.Close()
	_ = t.raw.SetDeadline(time.Now().Add(refuseTime))
	if _, err := t.tls.Write(frames); err != nil {
		return
	}
	_, _ = t.out.flush(true)
	_ = t.closeWrite()
	buf := make([]byte, 4<<10)
	for n := 0; n < refuseBytes; {
		m, err := t.tls.Read(buf)
		if err != nil {
			return
		}
		n += m
	}
}

// closeWrite says that nothing follows.
func (t *Transport) closeWrite() error {
	err := t.tls.CloseWrite()
	if _, ferr := t.out.flush(true); err == nil {
		err = ferr
	}
	if c, ok := t.raw.(interface{ CloseWrite() error }); ok {
		if cerr := c.CloseWrite(); err == nil {
			err = cerr
		}
	}
	return err
}

func bye(code Code) []byte {
	return frame.Append(nil, &frame.Frame{Kind: frame.Bye, Code: uint32(code)})
}

func hello(p Process) []byte {
	return frame.Append(nil, &frame.Frame{Kind: frame.Hello, Version: frame.Version, Instance: p.Instance, Boot: p.Boot})
}

// outConn lies under TLS and saves system calls: once gathering, what TLS writes is sent by flush, several records at a time;
// and it reads as much as there is and hands TLS no more than the record it is at, so that it knows when TLS can have another
// without waiting. While it is bounded, it reads no more than what is left.
type outConn struct {
	net.Conn
	raw *sock.Writer // the way to write without waiting; nil: there is none

	// The reader's.
	rd      *sock.Reader // nil: read by Conn
	most    int          // how much fillIn may read
	bounded bool
	left    int
	in      *[readAhead]byte // borrowed while it holds bytes
	r, w    int              // what it holds
	rec     int              // bytes of the running record that TLS has not had

	mu     sync.Mutex // guards the following; not held while writing
	gather bool
	buf    []byte
}

// readAhead is how much is read at a time: four full records.
const readAhead = 4 * (frame.Max + 256)

// tlsHeader is the size of a record's header, which ends in the record's length (RFC 8446 §5.1).
const tlsHeader = 5

var readAheads = sync.Pool{New: func() any { return new([readAhead]byte) }}

func newOutConn(c net.Conn) *outConn {
	o := &outConn{Conn: c, raw: sock.NewWriter(c)}
	o.rd = sock.NewReader(c, o.lend, o.back)
	return o
}

// lend is where the next bytes go: behind those that are there.
func (c *outConn) lend() []byte {
	if c.in == nil {
		c.in = readAheads.Get().(*[readAhead]byte)
	}
	return c.in[c.w:][:min(c.most, readAhead-c.w)]
}

// back gives an empty buffer back while there is nothing to read.
func (c *outConn) back() {
	if c.w == 0 && c.in != nil {
		readAheads.Put(c.in)
		c.in = nil
	}
}

// readSome reads behind what is there, at least a byte. Where the system lets it, no buffer is held while nothing comes.
func (c *outConn) readSome() (int, error) {
	if c.rd != nil {
		return c.rd.Read()
	}
	return c.Conn.Read(c.lend())
}

// Read implements net.Conn for TLS.
func (c *outConn) Read(p []byte) (int, error) {
	for c.rec == 0 && c.w-c.r < tlsHeader || c.w == c.r {
		if err := c.fillIn(); err != nil {
			return 0, err
		}
	}
	if c.rec == 0 {
		c.rec = c.recordAt(c.r)
	}
	n := copy(p[:min(len(p), c.rec)], c.in[c.r:c.w])
	c.r, c.rec = c.r+n, c.rec-n
	if c.r == c.w {
		readAheads.Put(c.in)
		c.in, c.r, c.w = nil, 0, 0
	}
	return n, nil
}

func (c *outConn) recordAt(i int) int { return tlsHeader + int(binary.BigEndian.Uint16(c.in[i+3:])) }

// more says whether TLS can read another whole record without waiting, once it has had the one it is at.
func (c *outConn) more() bool {
	at := c.r + c.rec
	return c.in != nil && at+tlsHeader <= c.w && at+c.recordAt(at) <= c.w
}

// fillIn reads what there is, at least one byte.
func (c *outConn) fillIn() error {
	c.most = readAhead
	if c.bounded {
		if c.most = min(c.most, c.left); c.most == 0 {
			return errHandshakeBytes
		}
	}
	if c.in != nil && c.r > 0 {
		c.r, c.w = 0, copy(c.in[:], c.in[c.r:c.w])
	}
	n, err := c.readSome()
	c.w += n
	if c.bounded {
		c.left -= n
	}
	if n > 0 {
		return nil
	}
	c.back()
	if err == nil {
		err = io.EOF
	}
	return err
}

// Write implements net.Conn for TLS.
func (c *outConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.gather {
		c.buf = append(c.buf, p...)
		c.mu.Unlock()
		return len(p), nil
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// begin makes further writes wait for flush, in buf.
func (c *outConn) begin(buf []byte) {
	c.mu.Lock()
	c.gather = true
	c.buf = append(buf[:0], c.buf...)
	c.mu.Unlock()
}

// flush sends what was gathered and reports whether all of it went; without wait some may be left. Only one goroutine
// flushes.
func (c *outConn) flush(wait bool) (done bool, err error) {
	c.mu.Lock()
	b := c.buf
	c.mu.Unlock()
	n := 0
	switch {
	case len(b) == 0:
		return true, nil
	case !wait:
		n, err = c.raw.TryWrite(b)
	case c.raw != nil:
		n, err = c.raw.Write(b)
	default:
		n, err = c.Conn.Write(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = append(c.buf[:0], c.buf[n:]...) // an alert of the reading side may have come meanwhile
	return n == len(b), err
}

// end lets writes go straight through again and returns the buffer.
func (c *outConn) end() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.buf[:0]
	c.gather, c.buf = false, nil
	return b
}
