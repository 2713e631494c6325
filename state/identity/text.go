package identity

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// alphabet is Crockford's base32 in lower case: no i, l, o or u, so that nothing read aloud or off a screen has two
// readings. Readers take o for 0 and i or l for 1.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// maxName bounds the names of clients and hosts, in bytes: long enough for a host name's label, and shorter than a
// fingerprint in its grouped form.
const maxName = 64

// normalise brings what a person typed into the alphabet's one form: without white space and dashes, lower case,
// look-alikes replaced.
func normalise(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '-' || unicode.IsSpace(r):
			return -1
		case r == 'o' || r == 'O':
			return '0'
		case r == 'i' || r == 'I' || r == 'l' || r == 'L':
			return '1'
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, s)
}

// decode32 decodes normalised text, whatever its length: bits that make no whole byte are left out. The caller
// compares lengths and checksums, which tell a cut text from a mistyped one better than a decoder can.
func decode32(s string) ([]byte, error) {
	out := make([]byte, 0, len(s)*5/8)
	var bits, have uint
	for _, r := range s {
		v := strings.IndexRune(alphabet, r)
		if v < 0 {
			return nil, fmt.Errorf("%w: the character %q cannot occur in it", ErrMistyped, r)
		}
		bits, have = bits<<5|uint(v), have+5
		if have >= 8 {
			have -= 8
			out = append(out, byte(bits>>have))
			bits &= 1<<have - 1
		}
	}
	return out, nil
}

// checksum returns the first n bytes of a SHA-256 over data; domain keeps the sums of different things apart.
func checksum(domain string, data []byte, n int) []byte {
	h := sha256.New()
	h.Write([]byte(domain))
	h.Write([]byte{0})
	h.Write(data)
	return h.Sum(nil)[:n]
}

// cleanName makes a name safe to print and short enough to store. Names come from the other side of a pairing and
// end up on terminals, where control characters and direction marks would let them pose as something else.
func cleanName(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return cutName(strings.TrimSpace(s), maxName)
}

// cutName cuts s to at most n bytes at the border of a character.
func cutName(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimSpace(s[:n])
}
