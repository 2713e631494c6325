package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"rsc.io/qr"
)

func sample() Invite {
	return Invite{
		Name:        "devbox",
		Fingerprint: key("host"),
		Addresses:   []string{"192.168.1.20:7143", "[fd7a:115c:a1e0::1]:7143", "wss://relay.example.com"},
		Secret:      checksum("test secret", nil, SecretSize),
		Expires:     noon,
	}
}

func TestInviteForms(t *testing.T) {
	i := sample()
	line := i.Encode()
	if !regexp.MustCompile(`^lp1[0-9a-hjkmnp-tv-z]+$`).MatchString(line) || len(line) > 260 {
		t.Errorf("%d characters: %s", len(line), line)
	}
	half := len(line) / 2
	for _, s := range []string{
		line,
		i.URL(),
		strings.ToUpper(line),
		strings.ToUpper(i.URL()),
		"  " + line[:half] + "\r\n\t" + line[half:] + "\n",
		"linkproxy://\npair/" + line[:half] + " \u00a0" + line[half:],
		i.URL() + "/",
		`"` + line + `"`,
		"<" + i.URL() + ">",
		line[:half] + "-" + line[half:],
	} {
		got, err := ParseInvite(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if diff := cmp.Diff(i, got); diff != "" {
			t.Errorf("%q: %s", s, diff)
		}
	}
}

func drawInvite(t *rapid.T) Invite {
	i := Invite{
		Name:        cleanName(rapid.String().Draw(t, "name")),
		Fingerprint: drawFingerprint(t),
		Secret:      rapid.SliceOfN(rapid.Byte(), SecretSize, maxSecret).Draw(t, "secret"),
		Expires:     time.Unix(rapid.Int64Range(0, maxUnix).Draw(t, "expires"), 0).UTC(),
	}
	i.Fingerprint[0] |= 1 // never zero
	for range rapid.IntRange(0, MaxAddresses).Draw(t, "addresses") {
		i.Addresses = append(i.Addresses, rapid.StringMatching(`[a-z0-9:.\[\]/é]{1,60}`).Draw(t, "address"))
	}
	return i
}

func TestInviteRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := drawInvite(t)
		for _, s := range []string{i.Encode(), i.URL(), strings.ToUpper(i.URL())} {
			got, err := ParseInvite(s)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(i, got); diff != "" {
				t.Fatal(diff)
			}
		}
		if i.QR() == "" {
			t.Fatal("no QR code")
		}
	})
}

// Every cut, every wrong character and every swap of neighbours is noticed, and a cut is called one.
func TestInviteTypos(t *testing.T) {
	line := sample().Encode()
	for n := range len(line) {
		_, err := ParseInvite(line[:n])
		switch {
		case n < len(invitePrefix):
			wantErr(t, err, ErrFormat, `"lp1"`)
		default:
			wantErr(t, err, ErrTruncated, "copy all of it")
		}
	}
	for n := len(invitePrefix); n < len(line); n++ {
		for _, c := range alphabet {
			if typo := line[:n] + string(c) + line[n+1:]; typo != line {
				if _, err := ParseInvite(typo); !errors.Is(err, ErrMistyped) && !(n < 7 && errors.Is(err, ErrTruncated)) {
					t.Fatalf("%q at %d: %v", c, n, err)
				}
			}
		}
		if typo := line[:n-1] + line[n:n+1] + line[n-1:n] + line[n+1:]; typo != line {
			if _, err := ParseInvite(typo); err == nil {
				t.Fatalf("swap at %d passed", n)
			}
		}
	}
}

// seal makes an invite's text of any fields, with a right length and checksum.
func seal(fields ...[]byte) string {
	body := []byte{0, 0}
	for _, f := range fields {
		body = append(body, f...)
	}
	n := len(body) + inviteSum
	body[0], body[1] = byte(n>>8), byte(n)
	return invitePrefix + encoding.EncodeToString(append(body, checksum(inviteDomain, body, inviteSum)...))
}

func field(kind byte, value string) []byte {
	return append([]byte{kind, byte(len(value))}, value...) // below 128 bytes a uvarint is one
}

func TestParseInviteErrors(t *testing.T) {
	host := key("host")
	fp, secret, expires := field(1, string(host[:])), field(2, "0123456789abcdef"), field(3, "\x01")
	line := sample().Encode()
	var nine [][]byte
	for range 9 {
		nine = append(nine, field(5, "a"))
	}
	for name, c := range map[string]struct {
		in    string
		class error
		says  string
	}{
		"empty":          {"", ErrFormat, "lp1"},
		"other text":     {"hello", ErrFormat, "lp1"},
		"other URL":      {"https://example.com/lp1", ErrFormat, "linkproxy://pair/"},
		"fingerprint":    {host.String(), ErrFormat, "lp1"},
		"huge":           {strings.Repeat("lp1", maxInviteText), ErrFormat, "too long"},
		"next version":   {"lp2" + line[3:], ErrVersion, "update linkproxy"},
		"prefix typo":    {"lpi" + line[3:], ErrMistyped, "lp1"},
		"bad character":  {line[:9] + "!" + line[10:], ErrMistyped, "'!'"},
		"twice":          {line + line, ErrMistyped, "too many"},
		"length":         {"lp1zzzz", ErrMistyped, "length"},
		"no fields":      {seal(), ErrFormat, "missing"},
		"no secret":      {seal(fp, expires), ErrFormat, "missing"},
		"no key":         {seal(secret, expires), ErrFormat, "missing"},
		"no expiry":      {seal(fp, secret), ErrFormat, "missing"},
		"short key":      {seal(field(1, "x"), secret, expires), ErrFormat, "fingerprint of 1"},
		"zero key":       {seal(field(1, strings.Repeat("\x00", 32)), secret, expires), ErrFormat, "zero"},
		"short secret":   {seal(fp, field(2, "0123456789abcde"), expires), ErrFormat, "secret of 15"},
		"long secret":    {seal(fp, field(2, strings.Repeat("s", 65)), expires), ErrFormat, "secret of 65"},
		"two secrets":    {seal(fp, secret, secret, expires), ErrFormat, "twice"},
		"two names":      {seal(fp, secret, expires, field(4, "a"), field(4, "b")), ErrFormat, "twice"},
		"empty expiry":   {seal(fp, secret, field(3, "")), ErrFormat, "no time"},
		"far expiry":     {seal(fp, secret, field(3, "\xff\xff\xff\xff\xff\xff\x01")), ErrFormat, "no time"},
		"long expiry":    {seal(fp, secret, field(3, "\x01\x01")), ErrFormat, "no time"},
		"cut field":      {seal(fp, secret, expires, []byte{9, 4, 1}), ErrFormat, "longer"},
		"no field size":  {seal(fp, secret, expires, []byte{9}), ErrFormat, "longer"},
		"nine addresses": {seal(append(nine, fp, secret, expires)...), ErrFormat, "9 addresses"},
		"empty address":  {seal(fp, secret, expires, field(5, "")), ErrFormat, "0 bytes"},
		"space":          {seal(fp, secret, expires, field(5, "a b")), ErrFormat, "white space"},
		"quote":          {seal(fp, secret, expires, field(5, `a"b`)), ErrFormat, "quotes"},
		"escape":         {seal(fp, secret, expires, field(5, "a\x1b[m")), ErrFormat, "control"},
		"not UTF-8":      {seal(fp, secret, expires, field(5, "\xff")), ErrFormat, "control"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseInvite(c.in)
			wantErr(t, err, c.class, "identity: reading invite", c.says)
			if diff := cmp.Diff(Invite{}, got); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(err.Error(), "0123456789abcde") {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
	// A newer linkproxy's additions are skipped; a name cannot deface a terminal.
	got, err := ParseInvite(seal(field(200, "new"), fp, secret, expires, field(4, "\x1b[1mdev"), field(6, ""), field(200, "again")))
	want := Invite{Name: "[1mdev", Fingerprint: host, Secret: []byte("0123456789abcdef"), Expires: time.Unix(1, 0).UTC()}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestInviteExpired(t *testing.T) {
	i := sample()
	for d, want := range map[time.Duration]bool{-time.Nanosecond: false, 0: true, time.Hour: true, -time.Hour: false} {
		if got := i.Expired(noon.Add(d)); got != want {
			t.Errorf("%v after its end: %v", d, got)
		}
	}
}

func TestInviteDoesNotPrintItsSecret(t *testing.T) {
	i := sample()
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "invite", i)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "invite", i)
	out := log.String() + fmt.Sprintf("%v %+v %#v %s", i, i, i, &i)
	for _, secret := range []string{string(i.Secret), fmt.Sprint(i.Secret), string(must(json.Marshal(i.Secret))), i.Encode()} {
		if strings.Contains(out, strings.Trim(secret, `"`)) {
			t.Errorf("secret is in %s", out)
		}
	}
	if !strings.Contains(out, "devbox") {
		t.Errorf("not described: %s", out)
	}
}

// The picture, read back module by module, is the QR code of the URL, with its quiet zone.
func TestInviteQR(t *testing.T) {
	i := sample()
	lines := strings.Split(strings.TrimSuffix(i.QR(), "\n"), "\n")
	code := must(qr.Encode(strings.ToUpper(i.URL()), qr.L))
	if want := (code.Size + 9) / 2; len(lines) != want {
		t.Fatalf("%d lines, want %d", len(lines), want)
	}
	for n, line := range lines {
		cells := []rune(line)
		if len(cells) != code.Size+8 || len(cells) > 80 {
			t.Fatalf("line %d is %d wide", n, len(cells))
		}
		for x, cell := range cells {
			upper, lower := cell == ' ' || cell == '▄', cell == ' ' || cell == '▀'
			if upper != code.Black(x-4, 2*n-4) || lower != code.Black(x-4, 2*n-3) {
				t.Fatalf("line %d column %d is %q", n, x, cell)
			}
		}
	}
	i.Addresses = []string{strings.Repeat("x", 5000)}
	if i.QR() != "" {
		t.Error("more than a QR code holds was drawn")
	}
}

func FuzzParseInvite(f *testing.F) {
	host := key("host")
	for _, s := range []string{
		"", "lp1", "lp2x", sample().Encode(), sample().URL(), strings.ToUpper(sample().URL()), sample().Encode()[:40],
		seal(field(1, string(host[:])), field(2, "0123456789abcdef"), field(3, "\x01"), field(9, "new")), seal([]byte{1, 0xff, 0xff}),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		i, err := ParseInvite(s)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrMistyped) && !errors.Is(err, ErrVersion) {
				t.Fatalf("an error without a class: %v", err)
			}
			return
		}
		if back, err := ParseInvite(i.Encode()); err != nil || !cmp.Equal(i, back) {
			t.Fatalf("%v became %v, %v", i, back, err)
		}
	})
}

// The same without the checksum, which a fuzzer does not find its way through.
func FuzzInviteFields(f *testing.F) {
	host := key("host")
	f.Add(append(append(field(1, string(host[:])), field(2, "0123456789abcdef")...), field(3, "\x01")...))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add(append(field(5, "a"), field(250, "b")...))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxInvite-2-inviteSum {
			return
		}
		i, err := ParseInvite(seal(body))
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("a right checksum, and %v", err)
			}
			return
		}
		if back, err := ParseInvite(i.Encode()); err != nil || !cmp.Equal(i, back) {
			t.Fatalf("%#v became %#v, %v", i, back, err)
		}
	})
}
