package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"path/filepath"
	"time"

	"linkproxy/internal/files"
)

const (
	keyFile  = "key.pem"
	pemBlock = "PRIVATE KEY" // PKCS#8, RFC 7468 section 10
)

// Key is this machine's identity. It is safe for concurrent use and prints as its fingerprint only.
type Key struct {
	fingerprint Fingerprint
	private     ed25519.PrivateKey
	certificate tls.Certificate
}

// NewKey makes a key from 32 bytes of source (nil: the system's), so that a test's source makes the same key again.
func NewKey(source io.Reader) (*Key, error) {
	if source == nil {
		source = rand.Reader
	}
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(source, seed); err != nil {
		return nil, fmt.Errorf("identity: making key: %w", err)
	}
	return keyOf(ed25519.NewKeyFromSeed(seed))
}

// LoadOrCreateKey returns the key in dir/key.pem and makes folder and key on first use; of processes that do so at
// once, all get the same key. A key that is there but cannot be used is never replaced: the error says what is
// wrong and what to do. Classes: ErrCorrupt, ErrKeyType, ErrPermissions, ErrLocked, fs.ErrPermission.
func LoadOrCreateKey(dir string) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("identity: loading key: %w", err)
	}
	key, err := loadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	err = withLock(dir, func() error {
		key, err = loadKey(path) // another process may have been first
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		key, err = createKey(path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("identity: loading or making key in %s: %w", dir, err)
	}
	return key, nil
}

func createKey(path string) (*Key, error) {
	key, err := NewKey(nil)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key.private)
	if err != nil {
		return nil, err
	}
	return key, files.Write(path, pem.EncodeToMemory(&pem.Block{Type: pemBlock, Bytes: der}))
}

func loadKey(path string) (*Key, error) {
	data, _, err := readFile(path, othersAny)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("identity: reading key: %w; run as the user that owns it, or give it back with chown", err)
	}
	if err != nil {
		return nil, fmt.Errorf("identity: reading key: %w", err)
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, fmt.Errorf("identity: reading key %s: %w; restore it from a backup, or move it away: a new key is made then, and every pairing has to be done again", path, err)
	}
	return key, nil
}

func parseKey(data []byte) (*Key, error) {
	block, rest := pem.Decode(data)
	switch {
	case len(data) == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrCorrupt)
	case block == nil:
		return nil, fmt.Errorf("%w: it holds no PEM block", ErrCorrupt)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, fmt.Errorf("%w: something follows the key", ErrCorrupt)
	case block.Type != pemBlock:
		return nil, fmt.Errorf("%w: it holds %q instead of a PKCS#8 %q", ErrKeyType, block.Type, pemBlock)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: it holds a %T", ErrKeyType, parsed)
	}
	return keyOf(private)
}

// keyOf makes the one certificate of a key. All of it is fixed, so that a key always shows the same certificate.
func keyOf(private ed25519.PrivateKey) (*Key, error) {
	public := private.Public().(ed25519.PublicKey)
	fingerprint, err := OfPublicKey(public)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "linkproxy"},
		// Nobody looks at the dates; 9999 says "no end" (RFC 5280, section 4.1.2.5).
		NotBefore:   time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:    time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(nil, template, template, public, private) // Ed25519 signs without randomness
	if err != nil {
		return nil, fmt.Errorf("identity: making certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("identity: making certificate: %w", err)
	}
	return &Key{
		fingerprint: fingerprint,
		private:     private,
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf},
	}, nil
}

// Fingerprint returns the fingerprint of the public key.
func (k *Key) Fingerprint() Fingerprint { return k.fingerprint }

// Certificate returns the key's self-signed certificate, the same at every call, for both sides of TLS. It holds
// the private key; the caller changes nothing in it.
func (k *Key) Certificate() tls.Certificate { return k.certificate }

// String returns the fingerprint: a key that slips into a log must not show its private half.
func (k *Key) String() string { return k.fingerprint.String() }

// GoString is String, for %#v.
func (k *Key) GoString() string { return k.String() }
