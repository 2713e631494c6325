package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"
)

func TestInstanceBoots(t *testing.T) {
	dir := filepath.Join(tempDir(t), "state")
	var id [16]byte
	for boot := uint64(1); boot <= 4; boot++ {
		inst, err := OpenInstance(dir, "up")
		if err != nil || inst.Warning != nil {
			t.Fatal(err, inst.Warning)
		}
		if boot == 1 {
			id = inst.ID
		}
		if inst.Boot != boot || inst.ID != id || id == [16]byte{} {
			t.Errorf("boot %d: %x %d", boot, inst.ID, inst.Boot)
		}
		if err := errors.Join(inst.Close(), inst.Close()); err != nil {
			t.Error(err)
		}
	}
	host := must(OpenInstance(dir, "host"))
	defer host.Close()
	if host.ID == id || host.Boot != 1 {
		t.Errorf("another role shares the instance: %x %d", host.ID, host.Boot)
	}
}

func TestInstanceInUse(t *testing.T) {
	dir := tempDir(t)
	inst := must(OpenInstance(dir, "up"))
	_, err := OpenInstance(dir, "up")
	wantErr(t, err, ErrInstanceInUse, dir, fmt.Sprintf("process %d", os.Getpid()), "stop it", "state folder of its own")
	if got := children(t, []string{"instance", dir}); got[0] != "in use" {
		t.Errorf("another process got %q", got[0])
	}
	if err := inst.Close(); err != nil {
		t.Fatal(err)
	}
	// A process that ended without Close left no lock, but its boot counts; refused openings do not.
	got := children(t, []string{"instance", dir})
	if want := fmt.Sprintf("%x 2", inst.ID); got[0] != want {
		t.Errorf("after Close another process got %q, want %q", got[0], want)
	}
	last := must(OpenInstance(dir, "up"))
	defer last.Close()
	if last.Boot != 3 {
		t.Errorf("boot %d, want 3", last.Boot)
	}
}

func TestInstanceRace(t *testing.T) {
	dir := tempDir(t)
	var tasks [][]string
	for range 6 {
		tasks = append(tasks, []string{"instance", dir})
	}
	out := children(t, tasks...)
	out = slices.DeleteFunc(out, func(s string) bool { return s == "in use" })
	slices.Sort(out)
	if len(out) == 0 || len(slices.Compact(slices.Clone(out))) != len(out) {
		t.Errorf("boots were given twice or never: %q", out)
	}
	for _, s := range out {
		if s[:32] != out[0][:32] {
			t.Errorf("two ids in one folder: %q", out)
		}
	}
}

func TestInstanceCorrupt(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		class   error
	}{
		"empty":    {"", ErrCorrupt},
		"cut":      {`{"version":1,"id":"0011`, ErrCorrupt},
		"short id": {`{"version":1,"id":"0011","boot":4}`, ErrCorrupt},
		"zero id":  {`{"version":1,"id":"00000000000000000000000000000000","boot":4}`, ErrCorrupt},
		"no boot":  {`{"version":1,"id":"000102030405060708090a0b0c0d0e0f"}`, ErrCorrupt},
		"negative": {`{"version":1,"id":"000102030405060708090a0b0c0d0e0f","boot":-1}`, ErrCorrupt},
		"last":     {`{"version":1,"id":"000102030405060708090a0b0c0d0e0f","boot":18446744073709551615}`, ErrCorrupt},
		"newer":    {`{"version":2}`, ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			path := filepath.Join(dir, "up.instance")
			put(t, path, c.content, 0o600)
			inst, err := OpenInstance(dir, "up")
			if err != nil {
				t.Fatal(err)
			}
			aside := must(filepath.Glob(path + ".corrupt-*"))
			if len(aside) != 1 || string(must(os.ReadFile(aside[0]))) != c.content {
				t.Fatalf("set aside: %q", aside)
			}
			wantErr(t, inst.Warning, c.class, aside[0])
			if inst.Boot != 1 || inst.ID == [16]byte{} {
				t.Errorf("%x %d", inst.ID, inst.Boot)
			}
			if err := inst.Close(); err != nil {
				t.Fatal(err)
			}
			next := must(OpenInstance(dir, "up"))
			defer next.Close()
			if next.Warning != nil || next.ID != inst.ID || next.Boot != 2 {
				t.Errorf("next: %+v", next)
			}
		})
	}
}

// A boot that is not on disk is not given out, and the lock is free again.
func TestInstanceCannotWrite(t *testing.T) {
	dir := tempDir(t)
	first := must(OpenInstance(dir, "up"))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	free := jam(t, filepath.Join(dir, "up.instance"))
	if _, err := OpenInstance(dir, "up"); err == nil || errors.Is(err, ErrInstanceInUse) {
		t.Fatalf("error %v", err)
	}
	free()
	inst := must(OpenInstance(dir, "up"))
	defer inst.Close()
	if inst.Boot != 2 || inst.ID != first.ID {
		t.Errorf("%x %d", inst.ID, inst.Boot)
	}
}

func TestInstanceBadNames(t *testing.T) {
	dir := tempDir(t)
	for _, name := range []string{"", "../up", "Up", "a b", "u.p"} {
		_, err := OpenInstance(dir, name)
		wantErr(t, err, ErrFormat)
	}
	put(t, filepath.Join(dir, "file"), "", 0o600)
	if _, err := OpenInstance(filepath.Join(dir, "file"), "up"); err == nil {
		t.Error("a file served as a folder")
	}
}

func TestEphemeral(t *testing.T) {
	a, b := Ephemeral(nil), Ephemeral(nil)
	if a.ID == b.ID || a.ID == [16]byte{} || a.Boot != 1 {
		t.Errorf("%x %x %d", a.ID, b.ID, a.Boot)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if got := Ephemeral(strings.NewReader("0123456789abcdef-")); !bytes.Equal(got.ID[:], []byte("0123456789abcdef")) {
		t.Errorf("%q", got.ID)
	}
	if got := Ephemeral(iotest.ErrReader(errors.New("boom"))); got.ID == [16]byte{} {
		t.Error("zero id from a broken source")
	}
}

func FuzzInstanceFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":"000102030405060708090a0b0c0d0e0f","boot":4,"pid":7}`))
	f.Add([]byte(`{"version":9}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseInstance(data)
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("an error without a class: %v", err)
		}
		if err == nil && (r.id == [16]byte{} || r.Boot == 0 || r.Boot+1 == 0) {
			t.Fatalf("%+v passed", r)
		}
	})
}

// A hung process is named after exactly lockWait, and nothing is done meanwhile.
func TestLockedFolder(t *testing.T) {
	dir := tempDir(t)
	lock := flock.New(filepath.Join(dir, lockFile))
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := LoadOrCreateKey(dir)
		wantErr(t, err, ErrLocked, lockFile, "10s")
		if took := time.Since(start); took != lockWait {
			t.Errorf("gave up after %v", took)
		}
	})
	if _, err := os.Stat(filepath.Join(dir, keyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key was made without the lock: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateKey(dir); err != nil {
		t.Error(err)
	}
}
