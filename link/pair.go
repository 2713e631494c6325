package link

import (
	"context"
	"crypto/tls"
	"net"

	"linkproxy/state/identity"
)

// PairConn is a connection on which two machines pair: TLS with both keys proved, and nothing else yet.
type PairConn struct {
	t    *Transport
	self identity.Fingerprint
}

// DialPair runs the client's side of the handshake for pairing with a host whose key the invite names.
func DialPair(ctx context.Context, conn net.Conn, key *identity.Key, peer identity.Fingerprint) (*PairConn, error) {
	t, err := dialTLS(ctx, conn, key, peer, ALPNPair)
	if err != nil {
		return nil, err
	}
	return &PairConn{t, key.Fingerprint()}, nil
}

// Conn is the encrypted connection.
func (p *PairConn) Conn() *tls.Conn { return p.t.tls }

// Peer is the key that the other side has proved.
func (p *PairConn) Peer() identity.Fingerprint { return p.t.peer }

// RemoteAddr is the other side's address.
func (p *PairConn) RemoteAddr() net.Addr { return p.t.raw.RemoteAddr() }

// Close closes the connection.
func (p *PairConn) Close() error { return p.t.Close() }

// Exporter is 32 bytes that only the two ends of this connection share (RFC 8446 §7.5).
func (p *PairConn) Exporter() ([]byte, error) {
	return identity.PairingExporter(p.t.tls.ConnectionState())
}
