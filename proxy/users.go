package proxy

import (
	"crypto/sha256"
	"crypto/subtle"
)

// users compares in constant time; neither the length of a password nor the existence of a user shows in the time taken.
type users struct {
	hashes map[string][sha256.Size]byte
}

// newUsers returns nil if nobody has to authenticate.
func newUsers(m map[string]string) *users {
	if len(m) == 0 {
		return nil
	}
	u := &users{hashes: make(map[string][sha256.Size]byte, len(m))}
	for name, password := range m {
		u.hashes[name] = sha256.Sum256([]byte(password))
	}
	return u
}

// Valid implements socks5.CredentialStore. Without users anybody is welcome, by any name.
func (u *users) Valid(name, password string) bool {
	if u == nil {
		return true
	}
	want, known := u.hashes[name]
	got := sha256.Sum256([]byte(password))
	same := subtle.ConstantTimeCompare(got[:], want[:])
	return known && same == 1
}
