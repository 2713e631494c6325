package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

func TestLoadOrCreateKey(t *testing.T) {
	dir := filepath.Join(tempDir(t), "new", "state")
	key, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if key.Fingerprint() != again.Fingerprint() || key.Fingerprint().IsZero() {
		t.Errorf("%v, then %v", key, again)
	}
	if !bytes.Equal(key.Certificate().Certificate[0], again.Certificate().Certificate[0]) {
		t.Error("one key shows two certificates")
	}
	if runtime.GOOS != "windows" {
		for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, "key.pem"): 0o600} {
			if got := must(os.Stat(path)).Mode().Perm(); got != want {
				t.Errorf("%s has mode %o, want %o", path, got, want)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "key.pem.tmp")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary file stayed: %v", err)
	}
	other := must(LoadOrCreateKey(tempDir(t)))
	if other.Fingerprint() == key.Fingerprint() {
		t.Error("two folders, one key")
	}
}

// A crash between making the temporary file and its rename leaves a key that was never used.
func TestCreateKeyOverCrash(t *testing.T) {
	dir := tempDir(t)
	put(t, filepath.Join(dir, "key.pem.tmp"), "half a k", 0o600)
	if _, err := LoadOrCreateKey(dir); err != nil {
		t.Fatal(err)
	}
	jammed := tempDir(t)
	jam(t, filepath.Join(jammed, "key.pem"))
	if key, err := LoadOrCreateKey(jammed); err == nil || key != nil {
		t.Errorf("a key that is not on disk was returned: %v, %v", key, err)
	}
}

func TestCreateKeyRace(t *testing.T) {
	dir := filepath.Join(tempDir(t), "state")
	tasks := make([][]string, 6)
	for i := range tasks {
		tasks[i] = []string{"key", dir}
	}
	got := map[string]bool{}
	for _, fp := range children(t, tasks...) {
		got[fp] = true
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	other, same := filepath.Join(tempDir(t), "state"), map[Fingerprint]bool{}
	for range 16 {
		wg.Go(func() {
			key, err := LoadOrCreateKey(other)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			same[key.Fingerprint()] = true
		})
	}
	wg.Wait()
	if len(got) != 1 || len(same) != 1 {
		t.Errorf("processes made %v, goroutines %v", got, same)
	}
	if fp := must(LoadOrCreateKey(dir)).Fingerprint().String(); !got[fp] {
		t.Errorf("on disk is %s, processes got %v", fp, got)
	}
}

func TestLoadKeyErrors(t *testing.T) {
	good := pkcs8(t, testKey("a").private)
	p256 := pkcs8(t, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)))
	block, _ := pem.Decode([]byte(good))
	sec1 := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: block.Bytes}))
	cut := string(pem.EncodeToMemory(&pem.Block{Type: pemBlock, Bytes: block.Bytes[:20]}))
	for name, c := range map[string]struct {
		content string
		class   error
		says    string
	}{
		"empty":    {"", ErrCorrupt, "it is empty"},
		"garbage":  {"\x00\x01", ErrCorrupt, "no PEM block"},
		"half":     {good[:len(good)/2], ErrCorrupt, "no PEM block"},
		"cut DER":  {cut, ErrCorrupt, "asn1"},
		"two":      {good + good, ErrCorrupt, "follows"},
		"sec1":     {sec1, ErrKeyType, "EC PRIVATE KEY"},
		"p256":     {p256, ErrKeyType, "ecdsa"},
		"enormous": {strings.Repeat("x", maxFile+1), ErrCorrupt, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(tempDir(t), "key.pem")
			put(t, path, c.content, 0o600)
			key, err := LoadOrCreateKey(filepath.Dir(path))
			wantErr(t, err, c.class, path, c.says)
			if name != "enormous" {
				wantErr(t, err, c.class, "restore it from a backup")
			}
			if now := string(must(os.ReadFile(path))); key != nil || now != c.content {
				t.Error("a broken key was replaced")
			}
		})
	}
	t.Run("folder", func(t *testing.T) {
		dir := tempDir(t)
		if err := os.Mkdir(filepath.Join(dir, "key.pem"), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := LoadOrCreateKey(dir)
		wantErr(t, err, ErrCorrupt, "no regular file")
	})
}

func pkcs8(t *testing.T, key any) string {
	t.Helper()
	return string(pem.EncodeToMemory(&pem.Block{Type: pemBlock, Bytes: must(x509.MarshalPKCS8PrivateKey(key))}))
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		lacks(t, "Windows has no modes")
	}
	content := pkcs8(t, testKey("a").private)
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o601} {
		path := filepath.Join(tempDir(t), "key.pem")
		put(t, path, content, mode)
		_, err := LoadOrCreateKey(filepath.Dir(path))
		wantErr(t, err, ErrPermissions, fmt.Sprintf("chmod 600 %q", path))
	}
	dir := tempDir(t)
	put(t, filepath.Join(dir, "key.pem"), content, 0o400)
	for mode, ok := range map[fs.FileMode]bool{0o700: true, 0o755: true, 0o770: false, 0o707: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadOrCreateKey(dir)
		if ok && err != nil {
			t.Errorf("folder %o: %v", mode, err)
		}
		if !ok {
			wantErr(t, err, ErrPermissions, fmt.Sprintf("chmod 700 %q", dir))
		}
	}
	if err := checkMode("windows", "key.pem", 0o666, othersAny); err != nil {
		t.Errorf("Windows: %v", err)
	}
}

func TestKeyUnreadable(t *testing.T) {
	dir := tempDir(t)
	put(t, filepath.Join(dir, "key.pem"), pkcs8(t, testKey("a").private), 0)
	var key *Key
	var err error
	bound(t, func() { key, err = LoadOrCreateKey(dir) })
	wantErr(t, err, fs.ErrPermission, "run as the user that owns it")
	if key != nil {
		t.Error("a key that cannot be read was returned")
	}
}

func TestNewKey(t *testing.T) {
	first, again, other := testKey("a"), testKey("a"), testKey("b")
	if first.Fingerprint() != again.Fingerprint() || first.Fingerprint() == other.Fingerprint() {
		t.Error("a key does not follow its source")
	}
	one, two := must(NewKey(nil)), must(NewKey(nil))
	if one.Fingerprint() == two.Fingerprint() {
		t.Error("the system's source made a key twice")
	}
	boom := errors.New("boom")
	_, err := NewKey(iotest.ErrReader(boom))
	wantErr(t, err, boom, "making key")
}

func TestKeyDoesNotPrintItself(t *testing.T) {
	key := testKey("a")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if got := strings.Trim(fmt.Sprintf(verb, key), `"`); got != key.Fingerprint().String() {
			t.Errorf("%s prints %q", verb, got)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	good := pem.EncodeToMemory(&pem.Block{Type: pemBlock, Bytes: must(x509.MarshalPKCS8PrivateKey(testKey("a").private))})
	f.Add(good)
	f.Add([]byte{})
	f.Add(good[:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := parseKey(data)
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrKeyType) {
			t.Fatalf("an error without a class: %v", err)
		}
		if (err == nil) == (key == nil) {
			t.Fatalf("%v, %v", key, err)
		}
	})
}
