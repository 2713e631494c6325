package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func key(name string) Fingerprint { return testKey(name).Fingerprint() }

func TestTrustLifecycle(t *testing.T) {
	dir := filepath.Join(tempDir(t), "state")
	trust := must(OpenTrust(dir))
	if trust.Trusted(key("a")) || trust.Trusted(Fingerprint{}) || len(trust.List()) != 0 || trust.Changed() {
		t.Error("a new list trusts somebody, or changed by itself")
	}
	a := must(trust.Add(key("a"), "laptop", noon.Add(time.Nanosecond)))
	b := must(trust.Add(key("b"), "phone", noon))
	want := []Client{{key("a"), "laptop", noon}, {key("b"), "phone", noon}}
	if diff := cmp.Diff(want, []Client{a, b}); diff != "" {
		t.Error(diff)
	}
	for _, l := range []*Trust{trust, must(OpenTrust(dir))} {
		if diff := cmp.Diff(want, l.List()); diff != "" {
			t.Error(diff)
		}
		if !l.Trusted(key("a")) || !l.Trusted(key("b")) || l.Trusted(key("c")) || l.Trusted(Fingerprint{}) {
			t.Error("Trusted does not follow the list")
		}
	}
	if got := must(trust.Remove("laptop")); got != a {
		t.Errorf("removed %v", got)
	}
	if trust.Trusted(key("a")) || must(OpenTrust(dir)).Trusted(key("a")) {
		t.Error("a removed client is trusted")
	}
	_, err := trust.Remove("laptop")
	wantErr(t, err, ErrNoClient, `"laptop"`, "linkproxy host clients")
	_, err = trust.Add(Fingerprint{}, "nobody", noon)
	wantErr(t, err, ErrFormat)

	trust.List()[0].Name = "changed by a caller"
	if trust.List()[0] != b {
		t.Error("List hands out its memory")
	}
}

func TestTrustNames(t *testing.T) {
	trust := must(OpenTrust(tempDir(t)))
	for i, c := range []struct{ give, want string }{
		{"laptop", "laptop"},
		{"Laptop", "Laptop-2"},
		{" laptop\n", "laptop-3"},
		{"\x1b[31mred\u202e\xff", "[31mred"},
		{"", key("4").Short()},
		{strings.Repeat("é", 40), strings.Repeat("é", 32)},
		{strings.Repeat("é", 40), strings.Repeat("é", 31) + "-2"},
		{"x" + strings.Repeat("é", 40), "x" + strings.Repeat("é", 31)},
	} {
		if got := must(trust.Add(key(fmt.Sprint(i)), c.give, noon)); got.Name != c.want {
			t.Errorf("Add(%q) is called %q, want %q", c.give, got.Name, c.want)
		}
	}
	n := len(trust.List())
	later := noon.Add(time.Hour)
	if got := must(trust.Add(key("0"), "LAPTOP", later)); got != (Client{key("0"), "LAPTOP", later}) {
		t.Errorf("paired again: %v", got)
	}
	if len(trust.List()) != n || trust.List()[0].Name != "LAPTOP" {
		t.Errorf("pairing again made %v", trust.List())
	}
}

func TestTrustRemoveQueries(t *testing.T) {
	a, b := key("a"), key("b")
	whole := a.String()
	typo := "0" + whole[1:]
	if typo == whole {
		typo = "1" + whole[1:]
	}
	for _, c := range []struct {
		query string
		want  Fingerprint
		class error
	}{
		{"laptop", a, nil},
		{" LAPTOP ", a, nil},
		{whole, a, nil},
		{strings.ToUpper(a.text()), a, nil},
		{a.Short(), a, nil},
		{a.text()[:4], a, nil},
		{b.text()[:20], b, nil},
		{a.text()[:3], Fingerprint{}, ErrNoClient},
		{"", Fingerprint{}, ErrNoClient},
		{"laptops", Fingerprint{}, ErrNoClient},
		{key("c").String(), Fingerprint{}, ErrNoClient},
		{typo, Fingerprint{}, ErrMistyped},
		// c took the start of b's key as its name: it must not decide who is removed.
		{b.Short(), Fingerprint{}, ErrAmbiguous},
		{b.String(), b, nil},
	} {
		trust := must(OpenTrust(tempDir(t)))
		must(trust.Add(a, "laptop", noon))
		must(trust.Add(b, "phone", noon))
		must(trust.Add(key("d"), b.Short(), noon))
		got, err := trust.Remove(c.query)
		if c.class != nil {
			wantErr(t, err, c.class)
			if len(trust.List()) != 3 {
				t.Errorf("Remove(%q) failed and left %v", c.query, trust.List())
			}
			continue
		}
		if err != nil || got.Fingerprint != c.want || trust.Trusted(c.want) || len(trust.List()) != 2 {
			t.Errorf("Remove(%q) = %v, %v", c.query, got, err)
		}
	}
}

// Whoever closes links by Reload's answer misses no removal, even one that this process's own Add read along.
func TestTrustReload(t *testing.T) {
	dir := tempDir(t)
	host, cli := must(OpenTrust(dir)), must(OpenTrust(dir))
	must(cli.Add(key("a"), "a", noon))
	must(cli.Add(key("b"), "b", noon))
	if !host.Changed() || host.Trusted(key("a")) {
		t.Error("before Reload the file has changed and memory has not")
	}
	check := func(added, removed []Fingerprint) {
		t.Helper()
		gotAdded, gotRemoved, err := host.Reload()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]Fingerprint{added, removed}, [][]Fingerprint{gotAdded, gotRemoved}); diff != "" {
			t.Error(diff)
		}
		if host.Changed() {
			t.Error("Changed after Reload")
		}
	}
	check([]Fingerprint{key("a"), key("b")}, nil)
	check(nil, nil)

	must(cli.Remove("a"))
	must(host.Add(key("c"), "c", noon))
	if host.Trusted(key("a")) || !host.Trusted(key("c")) {
		t.Error("memory is behind the file it wrote")
	}
	if !host.Changed() {
		t.Error("own Add hid the other's Remove")
	}
	check([]Fingerprint{key("c")}, []Fingerprint{key("a")})

	must(host.Remove("b"))
	check(nil, []Fingerprint{key("b")})
}

// Fields of a newer version survive every change by this one.
func TestTrustKeepsUnknownFields(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "clients.json")
	put(t, path, fmt.Sprintf("\ufeff"+`{"version":1,"policy":{"max":[1,2]},"clients":[
		{"key":%q,"name":"a","added":"2026-05-04T12:00:00Z","note":"mine","limit":1e400},
		{"key":%q,"tag":null}]}`, key("a"), key("b")), 0o600)
	trust := must(OpenTrust(dir))
	must(trust.Add(key("a"), "renamed", noon))
	must(trust.Add(key("c"), "c", noon))
	must(trust.Remove("c"))
	got := strings.Join(strings.Fields(string(must(os.ReadFile(path)))), "")
	want := fmt.Sprintf(`{"clients":[{"added":"2026-05-04T12:00:00Z","key":%q,"limit":1e400,"name":"renamed","note":"mine"},`+
		`{"added":"0001-01-01T00:00:00Z","key":%q,"name":%q,"tag":null}],"policy":{"max":[1,2]},"version":1}`, key("a"), key("b"), key("b").Short())
	if got != want {
		t.Errorf("file is\n%s, want\n%s", got, want)
	}
}

func TestTrustCorrupt(t *testing.T) {
	a := key("a").String()
	for name, c := range map[string]struct {
		content string
		class   error
		says    string
	}{
		"empty":      {"", ErrCorrupt, "restore it with: cp"},
		"cut":        {`{"version":1,"clients":[`, ErrCorrupt, "restore it with: cp"},
		"null":       {`null`, ErrCorrupt, "no version"},
		"array":      {`[]`, ErrCorrupt, ""},
		"no version": {`{"clients":[]}`, ErrCorrupt, "no version"},
		"no list":    {`{"version":1}`, ErrCorrupt, "no list"},
		"null list":  {`{"version":1,"clients":null}`, ErrCorrupt, "no list"},
		"other case": {`{"version":1,"Clients":[]}`, ErrCorrupt, "no list"},
		"trailing":   {`{"version":1,"clients":[]}{}`, ErrCorrupt, ""},
		"no key":     {`{"version":1,"clients":[{"name":"x"}]}`, ErrCorrupt, "client 1"},
		"null entry": {`{"version":1,"clients":[null]}`, ErrCorrupt, "client 1"},
		"bad key":    {`{"version":1,"clients":[{"key":"` + a[:50] + `"}]}`, ErrCorrupt, "of 56"},
		"twice":      {`{"version":1,"clients":[{"key":"` + a + `"},{"key":"` + a + `"}]}`, ErrCorrupt, "listed twice"},
		"bad time":   {`{"version":1,"clients":[{"key":"` + a + `","added":"noon"}]}`, ErrCorrupt, "added"},
		"far time":   {`{"version":1,"clients":[{"key":"` + a + `","added":"9999-12-31T23:59:59-01:00"}]}`, ErrCorrupt, "year"},
		"newer":      {`{"version":2,"clients":[]}`, ErrVersion, "update linkproxy"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			path := filepath.Join(dir, "clients.json")
			trust := must(OpenTrust(dir))
			must(trust.Add(key("a"), "a", noon))
			good := string(must(os.ReadFile(path)))
			put(t, path, c.content, 0o600)

			_, err := OpenTrust(dir)
			wantErr(t, err, c.class, path, c.says)
			_, _, err = trust.Reload()
			wantErr(t, err, c.class)
			_, err = trust.Add(key("b"), "b", noon)
			wantErr(t, err, c.class)
			_, err = trust.Remove("a")
			wantErr(t, err, c.class)
			if !trust.Trusted(key("a")) || !trust.Changed() {
				t.Error("a broken file changed what is trusted, or was taken as read")
			}
			if got := string(must(os.ReadFile(path))); got != c.content {
				t.Errorf("the broken file was replaced by %q", got)
			}
			if got := string(must(os.ReadFile(path + ".bak"))); got != good {
				t.Errorf("the backup is %q", got)
			}
			put(t, path, good, 0o600)
			if !must(OpenTrust(dir)).Trusted(key("a")) {
				t.Error("the restored list does not trust a")
			}
		})
	}
}

func TestTrustMissing(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "clients.json")
	trust := must(OpenTrust(dir))
	must(trust.Add(key("a"), "a", noon))
	if _, _, err := trust.Reload(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !trust.Changed() {
		t.Error("a vanished file is no change")
	}
	_, err := OpenTrust(dir)
	wantErr(t, err, ErrCorrupt, path, "missing", path+".bak", "delete both")
	_, err = trust.Add(key("b"), "b", noon)
	wantErr(t, err, ErrCorrupt)

	if err := os.Remove(path + ".bak"); err != nil {
		t.Fatal(err)
	}
	_, removed, err := trust.Reload()
	if err != nil || !slices.Equal(removed, []Fingerprint{key("a")}) || trust.Trusted(key("a")) {
		t.Errorf("both deleted: removed %v, %v", removed, err)
	}
	put(t, path, "{", 0o600)
	_, err = OpenTrust(dir)
	wantErr(t, err, ErrCorrupt, "mend it, or delete it")
}

// A removed client is in no file afterwards, not even the backup.
func TestTrustBackup(t *testing.T) {
	dir := tempDir(t)
	trust := must(OpenTrust(dir))
	must(trust.Add(key("a"), "a", noon))
	must(trust.Add(key("b"), "b", noon))
	must(trust.Remove("a"))
	for _, name := range []string{"clients.json", "clients.json.bak"} {
		data := string(must(os.ReadFile(filepath.Join(dir, name))))
		if strings.Contains(data, key("a").String()) || !strings.Contains(data, key("b").String()) {
			t.Errorf("%s: %s", name, data)
		}
	}
}

func TestTrustCannotWrite(t *testing.T) {
	for _, name := range []string{"clients.json", "clients.json.bak"} {
		dir := tempDir(t)
		trust := must(OpenTrust(dir))
		must(trust.Add(key("a"), "a", noon))
		free := jam(t, filepath.Join(dir, name))
		if _, err := trust.Add(key("b"), "b", noon); err == nil {
			t.Error("Add succeeded on nothing")
		}
		if trust.Trusted(key("b")) {
			t.Error("memory is ahead of the file")
		}
		if name == "clients.json" {
			_, err := trust.Remove("a")
			wantErr(t, err, ErrStillTrusted, "a")
			if !trust.Trusted(key("a")) {
				t.Error("memory is ahead of the file")
			}
		}
		free()
		must(trust.Remove("a"))
		if trust.Trusted(key("a")) || must(OpenTrust(dir)).Trusted(key("a")) {
			t.Error("not removed")
		}
	}
}

// A client is removed though the backup cannot be written: trust must not outlive its end for want of disk space. The old
// backup, which still held the client, is gone.
func TestTrustRemoveWithoutBackup(t *testing.T) {
	dir := tempDir(t)
	trust := must(OpenTrust(dir))
	must(trust.Add(key("a"), "a", noon))
	must(trust.Add(key("b"), "b", noon))
	jam(t, filepath.Join(dir, "clients.json.bak"))
	if c, err := trust.Remove("a"); c.Name != "a" || err != nil {
		t.Fatalf("%+v, %v", c, err)
	}
	if again := must(OpenTrust(dir)); again.Trusted(key("a")) || !again.Trusted(key("b")) || trust.Trusted(key("a")) {
		t.Error("the removal is not in force")
	}
	if data, err := os.ReadFile(filepath.Join(dir, "clients.json.bak")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the backup: %s, %v", data, err)
	}
}

func TestTrustMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		lacks(t, "Windows has no modes")
	}
	path := filepath.Join(tempDir(t), "clients.json")
	put(t, path, `{"version":1,"clients":[]}`, 0o644)
	must(OpenTrust(filepath.Dir(path)))
	put(t, path, `{"version":1,"clients":[]}`, 0o664)
	_, err := OpenTrust(filepath.Dir(path))
	wantErr(t, err, ErrPermissions, fmt.Sprintf("chmod 600 %q", path))
}

// Changes of several processes and goroutines at once are all kept.
func TestTrustRace(t *testing.T) {
	dir := tempDir(t)
	trust := must(OpenTrust(dir))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := trust.Add(key(fmt.Sprint("mine", i)), "client", noon); err != nil {
				t.Error(err)
			}
			for range 100 {
				trust.Trusted(key("mine0"))
			}
			trust.Changed()
			trust.List()
		})
	}
	children(t, []string{"trust", dir, "p"}, []string{"trust", dir, "q"})
	wg.Wait()
	added, removed, err := trust.Reload()
	if err != nil || len(added) != 18 || len(removed) != 0 {
		t.Errorf("%d added, %d removed, %v", len(added), len(removed), err)
	}
	names := map[string]bool{}
	for _, c := range trust.List() {
		names[c.Name] = true
	}
	if len(names) != 18 {
		t.Errorf("names clash: %v", names)
	}
}

// The list against a plain map, with another process's view of it.
func TestTrustModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := must(os.MkdirTemp(t.TempDir(), "")) // one per run of the property
		a, b := must(OpenTrust(dir)), must(OpenTrust(dir))
		model, told := map[Fingerprint]bool{}, map[Fingerprint]bool{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			fp := key(fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "key")))
			who := rapid.SampledFrom([]*Trust{a, b}).Draw(rt, "who")
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				must(who.Add(fp, "x", noon))
				model[fp] = true
			case 1:
				if _, err := who.Remove(fp.String()); (err == nil) != model[fp] || (err != nil && !errors.Is(err, ErrNoClient)) {
					rt.Fatalf("Remove: %v, model %v", err, model[fp])
				}
				delete(model, fp)
			case 2:
				added, removed, err := a.Reload()
				if err != nil {
					rt.Fatal(err)
				}
				for _, fp := range added {
					if told[fp] {
						rt.Fatal("added twice")
					}
					told[fp] = true
				}
				for _, fp := range removed {
					if !told[fp] {
						rt.Fatal("removed what was not there")
					}
					delete(told, fp)
				}
				if diff := cmp.Diff(model, told); diff != "" {
					rt.Fatal(diff)
				}
			}
			if who.Trusted(fp) != model[fp] && who == a && !a.Changed() {
				rt.Fatal("memory is behind without Changed")
			}
		}
		if got := must(OpenTrust(dir)); len(got.List()) != len(model) {
			rt.Fatalf("%v, model %v", got.List(), model)
		}
	})
}

func FuzzTrustFile(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(`{"version":1,"clients":[{"key":%q,"name":"a","added":"2026-05-04T12:00:00Z","x":[1]}],"y":{}}`, key("a"))))
	f.Add([]byte(`{"version":1,"clients":[]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"clients":[null],"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseTrust(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("an error without a class: %v", err)
			}
			return
		}
		once, err := file.encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseTrust(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v: %s", err, once)
		}
		if twice, _ := back.encode(); string(twice) != string(once) {
			t.Fatalf("%s became %s", once, twice)
		}
		for i := range file.entries {
			if file.entries[i].Client != back.entries[i].Client || file.entries[i].Fingerprint.IsZero() {
				t.Fatalf("%v became %v", file.entries[i], back.entries[i])
			}
		}
	})
}
