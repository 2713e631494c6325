package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawFingerprint(t *rapid.T) (f Fingerprint) {
	copy(f[:], rapid.SliceOfN(rapid.Byte(), len(f), len(f)).Draw(t, "fingerprint"))
	return f
}

func TestFingerprintForm(t *testing.T) {
	f := testKey("a").Fingerprint()
	if !regexp.MustCompile(`^([0-9a-hjkmnp-tv-z]{4}-){13}[0-9a-hjkmnp-tv-z]{4}$`).MatchString(f.String()) {
		t.Errorf("String() = %q", f)
	}
	if !strings.HasPrefix(f.String(), f.Short()) || len(f.Short()) != 9 {
		t.Errorf("Short() = %q of %q", f.Short(), f)
	}
	if f.IsZero() || !(Fingerprint{}).IsZero() {
		t.Error("IsZero is wrong")
	}
	// Golden: the form is on disk and on paper, it must not change.
	var g Fingerprint
	for i := range g {
		g[i] = byte(i)
	}
	const want = "000g-40r4-0m30-e209-185g-r38e-1w81-24gk-2gah-c5rr-34d1-p70x-3rfp-ye5r"
	if got := g.String(); got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func TestFingerprintRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFingerprint(t)
		lookalikes := strings.NewReplacer("0", "o", "1", "l")
		for _, s := range []string{
			f.String(),
			strings.ToUpper(f.String()),
			strings.ReplaceAll(f.String(), "-", ""),
			" " + strings.ReplaceAll(f.String(), "-", " \n") + "\t",
			lookalikes.Replace(f.String()),
			strings.ToUpper(lookalikes.Replace(f.String())),
		} {
			if got, err := ParseFingerprint(s); err != nil || got != f {
				t.Fatalf("ParseFingerprint(%q) = %v, %v", s, got, err)
			}
		}
		var back struct{ F Fingerprint }
		if err := json.Unmarshal(must(json.Marshal(struct{ F Fingerprint }{f})), &back); err != nil || back.F != f {
			t.Fatalf("JSON: %v, %v", back.F, err)
		}
	})
}

// Each single wrong character and each swap of neighbours of one fingerprint is noticed.
func TestFingerprintTypos(t *testing.T) {
	s := testKey("a").Fingerprint().text()
	for i := range s {
		for _, c := range alphabet {
			typo := s[:i] + string(c) + s[i+1:]
			if typo == s {
				continue
			}
			if _, err := ParseFingerprint(typo); err == nil {
				t.Fatalf("%q passed for %q", typo, s)
			} else {
				wantErr(t, err, ErrMistyped, "checksum")
			}
		}
		if i > 0 && s[i] != s[i-1] {
			if _, err := ParseFingerprint(s[:i-1] + s[i:i+1] + s[i-1:i] + s[i+1:]); err == nil {
				t.Fatalf("swap at %d passed", i)
			}
		}
	}
}

func TestParseFingerprintErrors(t *testing.T) {
	good := testKey("a").Fingerprint().String()
	for _, c := range []struct {
		in    string
		class error
		says  string
	}{
		{"", ErrTruncated, "0 of 56"},
		{good[:len(good)-1], ErrTruncated, "55 of 56"},
		{good + "0", ErrMistyped, "57 characters"},
		{"u" + good[1:], ErrMistyped, "'u' cannot occur"},
		{"é" + good[1:], ErrMistyped, "'é' cannot occur"},
		{"!" + good[1:], ErrMistyped, "'!' cannot occur"},
	} {
		f, err := ParseFingerprint(c.in)
		wantErr(t, err, c.class, "identity: reading fingerprint", c.says)
		if !f.IsZero() {
			t.Errorf("%q: a fingerprint with an error", c.in)
		}
	}
	kept := testKey("b").Fingerprint()
	if err := kept.UnmarshalText([]byte("x")); err == nil || kept != testKey("b").Fingerprint() {
		t.Errorf("UnmarshalText changed its target on %v", err)
	}
}

func FuzzParseFingerprint(f *testing.F) {
	good := testKey("a").Fingerprint()
	for _, s := range []string{"", good.String(), strings.ToUpper(good.String()), good.Short(), good.String() + "-", "\xff", "oil-OIL"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fp, err := ParseFingerprint(s)
		if err != nil {
			return
		}
		if normalise(s) != fp.text() {
			t.Fatalf("%q was read as %q", s, fp)
		}
	})
}

func TestOfCertificate(t *testing.T) {
	key := testKey("a")
	cert := key.Certificate()
	want := Fingerprint(sha256.Sum256(cert.Leaf.RawSubjectPublicKeyInfo))
	if got, err := OfCertificate(cert.Leaf); err != nil || got != want || got != key.Fingerprint() {
		t.Errorf("OfCertificate = %v, %v, want %v", got, err, want)
	}
	if got, err := OfState(tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}}); err != nil || got != want {
		t.Errorf("OfState = %v, %v", got, err)
	}

	_, err := OfCertificate(nil)
	wantErr(t, err, ErrNoCertificate)
	_, err = OfState(tls.ConnectionState{})
	wantErr(t, err, ErrNoCertificate)
	_, err = OfPublicKey(nil)
	wantErr(t, err, ErrKeyType)

	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der := must(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))
	_, err = OfCertificate(must(x509.ParseCertificate(der)))
	wantErr(t, err, ErrKeyType, "ECDSA")
}
