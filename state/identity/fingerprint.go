package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
)

const (
	// fingerprintSum makes 32 + 3 bytes: exactly 56 characters without a padding bit, and a typo passes unseen
	// once in 16 million.
	fingerprintSum    = 3
	fingerprintChars  = 56
	fingerprintDomain = "linkproxy fingerprint"
	// shortChars are 40 bits: enough to tell one's own machines apart, never to trust one.
	shortChars = 8
)

// Fingerprint identifies a machine: SHA-256 of the DER SubjectPublicKeyInfo (RFC 8410, section 4) of its Ed25519
// public key.
type Fingerprint [sha256.Size]byte

// String returns the form for people: 14 groups of 4 characters of Crockford base32, lower case, joined by dashes;
// the last 24 bits are a checksum.
func (f Fingerprint) String() string { return group(f.text()) }

// Short returns the first 8 characters of String, for lists and logs. It names, it does not prove.
func (f Fingerprint) Short() string { return group(f.text()[:shortChars]) }

// IsZero reports whether f was never set. No key has this fingerprint.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// MarshalText implements encoding.TextMarshaler with String.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseFingerprint.
func (f *Fingerprint) UnmarshalText(text []byte) error {
	parsed, err := ParseFingerprint(string(text))
	if err != nil {
		return err
	}
	*f = parsed
	return nil
}

func (f Fingerprint) text() string {
	return encoding.EncodeToString(append(f[:], checksum(fingerprintDomain, f[:], fingerprintSum)...))
}

func group(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i += 4 {
		if i > 0 {
			b.WriteByte('-')
		}
		b.WriteString(s[i:min(i+4, len(s))])
	}
	return b.String()
}

// ParseFingerprint reads what String returns, in upper or lower case, with or without dashes and white space, and
// with o for 0, i or l for 1. Errors are ErrTruncated or ErrMistyped.
func ParseFingerprint(s string) (Fingerprint, error) {
	var f Fingerprint
	text := normalise(s)
	data, err := decode32(text)
	switch {
	case err != nil:
		return f, fmt.Errorf("identity: reading fingerprint: %w", err)
	case len(text) < fingerprintChars:
		return f, fmt.Errorf("identity: reading fingerprint: %w: it has %d of %d characters", ErrTruncated, len(text), fingerprintChars)
	case len(text) > fingerprintChars:
		return f, fmt.Errorf("identity: reading fingerprint: %w: it has %d characters instead of %d", ErrMistyped, len(text), fingerprintChars)
	}
	if !bytes.Equal(checksum(fingerprintDomain, data[:len(f)], fingerprintSum), data[len(f):]) {
		return f, fmt.Errorf("identity: reading fingerprint: %w: its checksum does not match, compare it character by character", ErrMistyped)
	}
	copy(f[:], data)
	return f, nil
}

// OfPublicKey returns the fingerprint of an Ed25519 public key. It hashes the canonical encoding, so that one key
// has one fingerprint however a certificate spells it.
func OfPublicKey(pub ed25519.PublicKey) (Fingerprint, error) {
	if len(pub) != ed25519.PublicKeySize {
		return Fingerprint{}, fmt.Errorf("identity: taking fingerprint: %w: %d bytes", ErrKeyType, len(pub))
	}
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("identity: taking fingerprint: %w", err)
	}
	return sha256.Sum256(der), nil
}

// OfCertificate returns the fingerprint of a certificate's key. It looks at nothing else: names, dates and the
// signature say nothing here. Errors are ErrNoCertificate (nil) or ErrKeyType.
func OfCertificate(cert *x509.Certificate) (Fingerprint, error) {
	if cert == nil {
		return Fingerprint{}, fmt.Errorf("identity: taking fingerprint: %w", ErrNoCertificate)
	}
	pub, ok := cert.PublicKey.(ed25519.PublicKey)
	if !ok {
		return Fingerprint{}, fmt.Errorf("identity: taking fingerprint: %w: the certificate's key is %s", ErrKeyType, cert.PublicKeyAlgorithm)
	}
	return OfPublicKey(pub)
}

// OfState returns the fingerprint of the other side of a TLS connection. Only after the handshake has returned on
// a server, and after the first answer on a client, has that side proved that it holds the key.
func OfState(state tls.ConnectionState) (Fingerprint, error) {
	if len(state.PeerCertificates) == 0 {
		return Fingerprint{}, fmt.Errorf("identity: taking fingerprint: %w", ErrNoCertificate)
	}
	return OfCertificate(state.PeerCertificates[0])
}
