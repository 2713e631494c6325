package identity

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
)

func TestProof(t *testing.T) {
	secret, exporter := bytes.Repeat([]byte{1}, SecretSize), bytes.Repeat([]byte{2}, exporterSize)
	client, host := key("client"), key("host")
	proof := Proof(secret, RoleClient, exporter, client, host)
	if len(proof) != 32 || !VerifyProof(proof, secret, RoleClient, exporter, client, host) {
		t.Fatalf("a right proof of %d bytes fails", len(proof))
	}
	other := func(b []byte) []byte { c := bytes.Clone(b); c[len(c)-1] ^= 1; return c }
	for name, ok := range map[string]bool{
		"proof":          VerifyProof(other(proof), secret, RoleClient, exporter, client, host),
		"cut proof":      VerifyProof(proof[:31], secret, RoleClient, exporter, client, host),
		"no proof":       VerifyProof(nil, secret, RoleClient, exporter, client, host),
		"secret":         VerifyProof(proof, other(secret), RoleClient, exporter, client, host),
		"longer secret":  VerifyProof(proof, append(bytes.Clone(secret), 1), RoleClient, exporter, client, host),
		"role":           VerifyProof(proof, secret, RoleHost, exporter, client, host),
		"exporter":       VerifyProof(proof, secret, RoleClient, other(exporter), client, host),
		"client":         VerifyProof(proof, secret, RoleClient, exporter, key("x"), host),
		"host":           VerifyProof(proof, secret, RoleClient, exporter, client, key("x")),
		"swapped keys":   VerifyProof(proof, secret, RoleClient, exporter, host, client),
		"nil for secret": VerifyProof(nil, nil, RoleClient, exporter, client, host),
	} {
		if ok {
			t.Errorf("another %s passes", name)
		}
	}
	for name, weak := range map[string][]byte{
		"short secret":  Proof(secret[:15], RoleClient, exporter, client, host),
		"unknown role":  Proof(secret, "relay", exporter, client, host),
		"no exporter":   Proof(secret, RoleClient, nil, client, host),
		"zero client":   Proof(secret, RoleClient, exporter, Fingerprint{}, host),
		"zero host":     Proof(secret, RoleClient, exporter, client, Fingerprint{}),
		"long exporter": Proof(secret, RoleClient, append(exporter, 0), client, host),
	} {
		if weak != nil {
			t.Errorf("%s: a proof was made", name)
		}
	}
}

// handshake runs TLS 1.3 between two keys and returns what each side sees.
func handshake(t *testing.T, client, server *Key) (c, s tls.ConnectionState) {
	t.Helper()
	config := func(k *Key) *tls.Config {
		return &tls.Config{
			Certificates:       []tls.Certificate{k.Certificate()},
			MinVersion:         tls.VersionTLS13,
			ClientAuth:         tls.RequireAnyClientCert,
			InsecureSkipVerify: true, // keys are compared, not chains
		}
	}
	a, b := net.Pipe()
	cc, sc := tls.Client(a, config(client)), tls.Server(b, config(server))
	defer cc.Close()
	done := make(chan error, 1)
	go func() { done <- sc.Handshake() }()
	err := cc.Handshake()
	go func() { _, _ = cc.Read(make([]byte, 1)) }() // takes the server's session tickets off the pipe; ends with Close
	if serverErr := <-done; err != nil || serverErr != nil {
		t.Fatal(err, serverErr)
	}
	c, s = cc.ConnectionState(), sc.ConnectionState()
	_ = sc.NetConn().Close()
	return c, s
}

// Certificates serve both sides of a real handshake; the proof passes between its two ends and not through a third.
func TestProofOverTLS(t *testing.T) {
	client, host, mallory := testKey("client"), testKey("host"), testKey("mallory")
	secret := bytes.Repeat([]byte{7}, SecretSize)
	prove := func(state tls.ConnectionState, c, h *Key) []byte {
		return Proof(secret, RoleClient, must(PairingExporter(state)), c.Fingerprint(), h.Fingerprint())
	}
	verify := func(proof []byte, state tls.ConnectionState, h *Key) bool {
		return VerifyProof(proof, secret, RoleClient, must(PairingExporter(state)), must(OfState(state)), h.Fingerprint())
	}

	c, s := handshake(t, client, host)
	if must(OfState(c)) != host.Fingerprint() || must(OfState(s)) != client.Fingerprint() {
		t.Error("a side saw another key")
	}
	if !verify(prove(c, client, host), s, host) {
		t.Error("an honest proof fails")
	}
	c1, _ := handshake(t, client, mallory)
	_, s2 := handshake(t, mallory, host)
	for _, h := range []*Key{host, mallory} {
		if verify(prove(c1, client, h), s2, host) {
			t.Error("a proof passed through somebody in the middle")
		}
	}
	if _, s3 := handshake(t, client, host); verify(prove(c, client, host), s3, host) {
		t.Error("a proof passed on a second connection")
	}
}
