package identity

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"rsc.io/qr"
)

const (
	// MaxAddresses bounds the addresses of an invite: more are no help, and it must stay short enough for a QR code
	// on a terminal.
	MaxAddresses = 8

	invitePrefix = "lp1"
	inviteURL    = "linkproxy://pair/"
	inviteDomain = "linkproxy invite 1"
	// inviteSum is in bytes: one typo in 4 thousand million passes unseen.
	inviteSum  = 4
	maxAddress = 255
	// maxInvite bounds the decoded invite in bytes; its text then fits a QR code with room to spare.
	maxInvite     = 1024
	maxInviteText = 16 << 10 // of what is looked at when one is pasted
	// maxUnix is the last second of the year 9999.
	maxUnix = 253402300799
)

// Fields of an encoded invite. Unknown ones are skipped; what must not be skipped needs another prefix.
const (
	fieldFingerprint = 1
	fieldSecret      = 2
	fieldExpires     = 3
	fieldName        = 4
	fieldAddress     = 5
)

// Invite is what a host hands to one future client: whom to expect where, and the secret that proves the invitation.
// Whoever sees it before it is used can pair instead; it prints without its secret.
type Invite struct {
	// Name is what the host calls itself: printable, ≤ 64 bytes, may be empty.
	Name string
	// Fingerprint is the host's key.
	Fingerprint Fingerprint
	// Addresses are where the host may be reached, best first, ≤ MaxAddresses of ≤ 255 bytes; their form is the
	// caller's.
	Addresses []string
	// Secret is ≥ 16 random bytes.
	Secret []byte
	// Expires is the end of its life, in whole seconds.
	Expires time.Time
}

// Expired reports whether the invite's life is over, by this machine's clock: a hint for a person, as the host
// decides by its own.
func (i Invite) Expired(now time.Time) bool { return !now.Before(i.Expires) }

// String describes the invite without its secret.
func (i Invite) String() string {
	return fmt.Sprintf("invite to %q (%s), valid until %s", i.Name, i.Fingerprint.Short(), i.Expires.UTC().Format(time.RFC3339))
}

// GoString is String, for %#v.
func (i Invite) GoString() string { return i.String() }

// LogValue is String, for logs.
func (i Invite) LogValue() slog.Value { return slog.StringValue(i.String()) }

// Encode returns the invite as one line of lower-case letters and digits: "lp1" and Crockford base32 of the length,
// the fields and a checksum. ParseInvite reads it if the invite keeps the bounds of its fields.
func (i Invite) Encode() string {
	body := []byte{0, 0}
	put := func(kind byte, value []byte) {
		body = append(body, kind)
		body = binary.AppendUvarint(body, uint64(len(value)))
		body = append(body, value...)
	}
	put(fieldFingerprint, i.Fingerprint[:])
	put(fieldSecret, i.Secret)
	put(fieldExpires, binary.AppendUvarint(nil, uint64(max(i.Expires.Unix(), 0))))
	if i.Name != "" {
		put(fieldName, []byte(i.Name))
	}
	for _, a := range i.Addresses {
		put(fieldAddress, []byte(a))
	}
	// The length comes first, so that a text whose end is missing is told from a mistyped one.
	binary.BigEndian.PutUint16(body, uint16(min(len(body)+inviteSum, math.MaxUint16)))
	return invitePrefix + encoding.EncodeToString(append(body, checksum(inviteDomain, body, inviteSum)...))
}

// URL returns the invite as a link: "linkproxy://pair/" and Encode.
func (i Invite) URL() string { return inviteURL + i.Encode() }

// QR returns the URL as a QR code for a terminal with light text on dark ground: two modules to a character,
// four modules of quiet zone, error correction L. It is in upper case, which QR codes hold more tightly. An invite
// beyond the bounds of ParseInvite may not fit; then it is empty.
func (i Invite) QR() string {
	code, err := qr.Encode(strings.ToUpper(i.URL()), qr.L)
	if err != nil {
		return ""
	}
	const quiet = 4 // ISO/IEC 18004, section 9.1
	blocks := [2][2]string{{"█", "▀"}, {"▄", " "}}
	dark := func(x, y int) int {
		if code.Black(x, y) {
			return 1
		}
		return 0
	}
	var b strings.Builder
	for y := -quiet; y < code.Size+quiet; y += 2 {
		for x := -quiet; x < code.Size+quiet; x++ {
			b.WriteString(blocks[dark(x, y)][dark(x, y+1)])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// ParseInvite reads what Encode, URL or a scanned QR returned, in any case, with white space and line breaks anywhere
// and quotes around it. It does not look at the clock: see Expired. Errors never repeat the secret; their classes are
// ErrFormat, ErrTruncated, ErrMistyped and ErrVersion.
func ParseInvite(s string) (Invite, error) {
	invite, err := parseInvite(s)
	if err != nil {
		return Invite{}, fmt.Errorf("identity: reading invite: %w", err)
	}
	return invite, nil
}

func parseInvite(s string) (Invite, error) {
	if len(s) > maxInviteText {
		return Invite{}, fmt.Errorf("%w: it is far too long", ErrFormat)
	}
	text := strings.Trim(strings.Join(strings.Fields(s), ""), "\"'`<>")
	if len(text) >= len(inviteURL) && strings.EqualFold(text[:len(inviteURL)], inviteURL) {
		text = strings.TrimSuffix(text[len(inviteURL):], "/")
	}
	switch {
	case len(text) < len(invitePrefix) || !strings.EqualFold(text[:2], invitePrefix[:2]):
		return Invite{}, fmt.Errorf("%w: it starts with %q or %q", ErrFormat, invitePrefix, inviteURL)
	case '2' <= text[2] && text[2] <= '9':
		return Invite{}, fmt.Errorf("%w: update linkproxy on this machine", ErrVersion)
	case text[2] != invitePrefix[2]:
		return Invite{}, fmt.Errorf("%w: it starts with %q", ErrMistyped, invitePrefix)
	}
	body, err := checkInvite(normalise(text[len(invitePrefix):]))
	if err != nil {
		return Invite{}, err
	}
	invite, err := parseFields(body)
	if err != nil {
		return Invite{}, err
	}
	return invite, invite.check()
}

// checkInvite decodes the text behind the prefix and returns the fields, without length and checksum.
func checkInvite(text string) ([]byte, error) {
	data, err := decode32(text)
	if err != nil {
		return nil, err
	}
	if len(data) < 2 {
		return nil, fmt.Errorf("%w: copy all of it, to the last character", ErrTruncated)
	}
	want := int(binary.BigEndian.Uint16(data))
	switch chars := encoding.EncodedLen(want); {
	case want < 2+inviteSum || want > maxInvite:
		return nil, fmt.Errorf("%w: its length makes no sense", ErrMistyped)
	case len(text) < chars:
		return nil, fmt.Errorf("%w: %d of its %d characters are there, copy all of it", ErrTruncated, len(text)+len(invitePrefix), chars+len(invitePrefix))
	case len(text) > chars:
		return nil, fmt.Errorf("%w: it has %d characters too many", ErrMistyped, len(text)-chars)
	}
	body, sum := data[:want-inviteSum], data[want-inviteSum:]
	if !bytes.Equal(checksum(inviteDomain, body, inviteSum), sum) || encoding.EncodeToString(data) != text {
		return nil, fmt.Errorf("%w: its checksum does not match, copy it again instead of typing it", ErrMistyped)
	}
	return body[2:], nil
}

func parseFields(body []byte) (Invite, error) {
	var i Invite
	seen := make(map[byte]bool)
	for len(body) > 0 {
		kind := body[0]
		size, n := binary.Uvarint(body[1:])
		if n <= 0 || size > uint64(len(body)-1-n) {
			return i, fmt.Errorf("%w: a field is longer than the invite", ErrFormat)
		}
		value := body[1+n : 1+n+int(size)]
		body = body[1+n+int(size):]
		if seen[kind] && fieldFingerprint <= kind && kind <= fieldName {
			return i, fmt.Errorf("%w: field %d is there twice", ErrFormat, kind)
		}
		seen[kind] = true
		if err := i.set(kind, value); err != nil {
			return i, err
		}
	}
	if !seen[fieldFingerprint] || !seen[fieldSecret] || !seen[fieldExpires] {
		return i, fmt.Errorf("%w: key, secret or expiry is missing", ErrFormat)
	}
	return i, nil
}

func (i *Invite) set(kind byte, value []byte) error {
	switch kind {
	case fieldFingerprint:
		if len(value) != len(i.Fingerprint) {
			return fmt.Errorf("%w: a fingerprint of %d bytes", ErrFormat, len(value))
		}
		copy(i.Fingerprint[:], value)
	case fieldSecret:
		i.Secret = bytes.Clone(value)
	case fieldExpires:
		unix, n := binary.Uvarint(value)
		if n != len(value) || n == 0 || unix > maxUnix {
			return fmt.Errorf("%w: an expiry that is no time", ErrFormat)
		}
		i.Expires = time.Unix(int64(unix), 0).UTC()
	case fieldName:
		i.Name = cleanName(string(value))
	case fieldAddress:
		i.Addresses = append(i.Addresses, string(value))
	}
	return nil
}

// check holds an invite to its bounds, when it is made and when it is read.
func (i Invite) check() error {
	if i.Fingerprint.IsZero() {
		return fmt.Errorf("%w: the host's key is zero", ErrFormat)
	}
	if len(i.Secret) < SecretSize || len(i.Secret) > maxSecret {
		return fmt.Errorf("%w: a secret of %d bytes", ErrFormat, len(i.Secret))
	}
	if len(i.Addresses) > MaxAddresses {
		return fmt.Errorf("%w: %d addresses, at most %d fit", ErrFormat, len(i.Addresses), MaxAddresses)
	}
	for _, a := range i.Addresses {
		if err := checkAddress(a); err != nil {
			return fmt.Errorf("%w: address %q: %w", ErrFormat, a, err)
		}
	}
	return nil
}

// checkAddress keeps out what could deface a terminal or a config file; what an address means is the caller's.
func checkAddress(a string) error {
	if a == "" || len(a) > maxAddress {
		return fmt.Errorf("it has %d bytes instead of 1 to %d", len(a), maxAddress)
	}
	if !utf8.ValidString(a) || strings.ContainsFunc(a, func(r rune) bool {
		return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == '"' || r == '\\'
	}) {
		return errors.New("it holds white space, quotes or control characters")
	}
	return nil
}
