package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"linkproxy/dialer/route"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func home(router string) route.Network {
	return route.Network{Kind: route.WiFi, Prefix: netip.MustParsePrefix("192.168.1.0/24"), Router: router}
}

// full is a memory in which every field says something.
func full() route.Memory {
	return route.Memory{
		Last: "tailnet:100.64.0.9:7000", LastAt: epoch, ReadyV2: map[string]bool{"wss://relay.example.com": true},
		Networks: []route.NetworkMemory{
			{Network: home("5f3a"), Used: epoch, Last: "lan:192.168.1.20:7000", Routes: map[string]route.RouteMemory{
				"lan:192.168.1.20:7000": {LastSuccess: epoch, Handshake: 12345 * time.Microsecond},
				"tailnet:100.64.0.9:7000": {
					Failures: []time.Time{epoch.Add(-time.Minute), epoch}, Relayed: true,
					Penalty: route.Penalty{Step: 2, Until: epoch.Add(10 * time.Minute), Reasons: []string{"a", "b"}, CoolUntil: epoch.Add(time.Minute)},
				},
			}},
			{Network: route.Network{Kind: route.Cell}, Used: epoch.Add(-time.Hour), Routes: map[string]route.RouteMemory{"direct:h:1": {LastSuccess: epoch}}},
		},
	}
}

// dir is a store's folder and what it has said.
type dir struct {
	path string
	said bytes.Buffer
}

func newDir(t *testing.T) *dir { return &dir{path: filepath.Join(t.TempDir(), "state")} }

func (d *dir) open() *Store {
	return Open(Config{Dir: d.path, Log: slog.New(slog.NewTextHandler(&d.said, nil))})
}

func (d *dir) file() string { return filepath.Join(d.path, memoryFile) }

func (d *dir) put(t *testing.T, text string) {
	t.Helper()
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (d *dir) get(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(d.file())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWhatIsLearnedIsThereAgain(t *testing.T) {
	d := newDir(t)
	s := d.open()
	if !isZero(s.Load("p")) {
		t.Error("something is known of a peer nobody spoke of")
	}
	s.Save("p", full())
	s.Close()
	s.Close()
	s = d.open()
	defer s.Close()
	if got := s.Load("p"); !reflect.DeepEqual(got, full()) {
		t.Errorf("got  %+v\nwant %+v", got, full())
	}
	if d.said.Len() > 0 {
		t.Errorf("it complains: %s", &d.said)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for path, want := range map[string]os.FileMode{d.path: 0o700, d.file(): 0o600, filepath.Join(d.path, lockFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

func TestWritesAreFew(t *testing.T) {
	d := newDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		defer s.Close()
		written := func() bool { _, err := os.Stat(d.file()); return err == nil }
		for range 100 {
			s.Save("p", full())
			time.Sleep(40 * time.Millisecond)
		}
		time.Sleep(saveEvery - 4*time.Second - 1)
		synctest.Wait()
		if written() {
			t.Error("written before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !written() {
			t.Error("not written in its time")
		}
		if err := os.Remove(d.file()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if written() {
			t.Error("written though nothing changed")
		}
	})
}

func TestForget(t *testing.T) {
	d := newDir(t)
	s := d.open()
	s.Save("p", full())
	s.Save("q", full())
	s.Close()
	s = d.open()
	s.Forget("p")
	s.Close()
	s = d.open()
	defer s.Close()
	if !isZero(s.Load("p")) || isZero(s.Load("q")) {
		t.Error("the wrong one was forgotten")
	}
}

func TestOlderFileIsRead(t *testing.T) {
	old, err := os.ReadFile("testdata/v0.json")
	if err != nil {
		t.Fatal(err)
	}
	d := newDir(t)
	d.put(t, string(old))
	s := d.open()
	defer s.Close()
	want := route.Memory{Last: "tailnet:devbox.tail1234.ts.net:8639", LastAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if got := s.Load("lp1abc"); got.Last != want.Last || !got.LastAt.Equal(want.LastAt) || d.said.Len() > 0 {
		t.Errorf("got %+v; it said %q", got, &d.said)
	}
}

func TestNewerMembersAreKept(t *testing.T) {
	d := newDir(t)
	s := d.open()
	s.Save("p", full())
	s.Close()
	text := d.get(t)
	for _, at := range []string{`"version": 1`, `"last_at":`, `"kind": "wifi"`, `"handshake_us":`, `"step": 2`} {
		if strings.Count(text, at) == 0 {
			t.Fatalf("no %s in the file", at)
		}
		text = strings.Replace(text, at, fmt.Sprintf("\"new %d\": [1, 2],\n%s", len(at), at), 1)
	}
	d.put(t, text)
	s = d.open()
	m := s.Load("p").With(epoch.Add(time.Hour), home("5f3a"), "direct:h:2", route.RouteMemory{LastSuccess: epoch.Add(time.Hour)})
	s.Save("p", m)
	s.Close()
	var old, now any
	if err := json.Unmarshal([]byte(text), &old); err != nil {
		t.Fatal(err)
	}
	text = d.get(t)
	if err := json.Unmarshal([]byte(text), &now); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, `"new `); n != 5 || !strings.Contains(text, "direct:h:2") {
		t.Errorf("%d of 5 unknown members are left:\n%s", n, text)
	}
}

func TestBrokenFileIsSetAside(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "hello", "half": `{"version": 1, "peers": {"p": {"la`, "no peers": `{"version": 1}`,
		"a wrong type": `{"version": 1, "peers": {"p": {"last": 7}}}`, "a peer of nothing": `{"version": 1, "peers": {"p": null}}`,
		"no kind":           `{"version": 1, "peers": {"p": {"networks": [{"prefix": "192.168.1.0/24"}]}}}`,
		"no prefix":         `{"version": 1, "peers": {"p": {"networks": [{"kind": "wifi", "prefix": "home"}]}}}`,
		"an unknown":        `{"version": 1, "peers": {"p": {"networks": [{"kind": "wifi"}]}}}`,
		"one twice":         `{"version": 1, "peers": {"p": {"networks": [{"kind": "cell"}, {"kind": "cell"}]}}}`,
		"a negative":        `{"version": 1, "peers": {"p": {"networks": [{"kind": "cell", "routes": {"r": {"handshake_us": -1}}}]}}}`,
		"a huge step":       `{"version": 1, "peers": {"p": {"networks": [{"kind": "cell", "routes": {"r": {"penalty": {"step": 9223372036854775807}}}}]}}}`,
		"an endless":        `{"version": 1, "peers": {"p": {"networks": [{"kind": "cell", "routes": {"r": {"handshake_us": 99999999999999}}}]}}}`,
		"larger than 1 MiB": `{"version": 1, "peers": {}, "x": "` + strings.Repeat("x", maxFile) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			d.put(t, text)
			s := d.open()
			if !isZero(s.Load("p")) || !strings.Contains(d.said.String(), "set aside") || !strings.Contains(d.said.String(), memoryFile) {
				t.Errorf("it said: %s", &d.said)
			}
			s.Save("p", full())
			s.Close()
			aside, err := filepath.Glob(d.file() + ".corrupt-*")
			if err != nil || len(aside) != 1 {
				t.Fatalf("set aside: %v, %v", aside, err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || string(kept) != text {
				t.Errorf("what was set aside is not what was there: %v", err)
			}
			s = d.open()
			defer s.Close()
			if isZero(s.Load("p")) {
				t.Error("nothing was learned anew")
			}
		})
	}
}

func TestNewerFileIsLeftAlone(t *testing.T) {
	d := newDir(t)
	const text = `{"version": 2, "peers": {"p": {}}}`
	d.put(t, text)
	s := d.open()
	s.Save("p", full())
	if isZero(s.Load("p")) {
		t.Error("nothing is kept in memory")
	}
	s.Close()
	if d.get(t) != text || strings.Count(d.said.String(), "newer linkproxy") != 1 {
		t.Errorf("the file is now %s; it said %s", d.get(t), &d.said)
	}
}

// TestNoDisk: what cannot be written stays in memory, and that is told once, not at each write.
func TestNoDisk(t *testing.T) {
	d := newDir(t)
	if err := os.WriteFile(d.path, nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		for range 5 {
			s.Save("p", full())
			time.Sleep(2 * saveEvery)
			synctest.Wait()
		}
		if n := strings.Count(d.said.String(), "in memory only"); n != 1 {
			t.Errorf("told %d times: %s", n, &d.said)
		}
		if err := os.Remove(d.path); err != nil {
			t.Fatal(err)
		}
		s.Save("q", full())
		s.Close()
	})
	s := d.open()
	defer s.Close()
	if isZero(s.Load("p")) || isZero(s.Load("q")) {
		t.Error("not all was written once it could be")
	}
}

// TestTwoProcesses: neither loses what the other has learned, also on the same network, nor brings back what one has let go.
func TestTwoProcesses(t *testing.T) {
	d := newDir(t)
	a := d.open()
	a.Save("p", full())
	a.Close()
	a = d.open()
	b := d.open()
	n := home("5f3a")
	tailnet, _ := full().At(n, "tailnet:100.64.0.9:7000")
	tailnet.Penalty = route.Penalty{} // it has held
	a.Save("p", a.Load("p").With(epoch.Add(time.Minute), n, "tailnet:100.64.0.9:7000", tailnet))
	b.Save("p", b.Load("p").With(epoch.Add(2*time.Minute), n, "direct:h:2", route.RouteMemory{LastSuccess: epoch.Add(2 * time.Minute)}))
	b.Save("q", full())
	b.Close()
	a.Close()
	c := d.open()
	defer c.Close()
	m := c.Load("p")
	if r, ok := m.At(n, "direct:h:2"); !ok || !r.LastSuccess.Equal(epoch.Add(2*time.Minute)) {
		t.Error("what b learned is lost")
	}
	if r, ok := m.At(n, "tailnet:100.64.0.9:7000"); !ok || r.Penalty.Step != 0 {
		t.Errorf("the penalty that a lifted is there again: %+v", r.Penalty)
	}
	if isZero(c.Load("q")) {
		t.Error("what b learned of another peer is lost")
	}
}

// TestHeldPenaltyStaysLifted: with one process that goes on, and times as clocks give them.
func TestHeldPenaltyStaysLifted(t *testing.T) {
	d := newDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		defer s.Close()
		n, id := home("5f3a"), "tailnet:100.64.0.9:7000"
		r := route.RouteMemory{LastSuccess: time.Now(), Handshake: 1234567 * time.Nanosecond}
		save := func() {
			t.Helper()
			s.Save("p", s.Load("p").With(time.Now(), n, id, r))
			time.Sleep(2 * saveEvery)
			synctest.Wait()
		}
		save()
		r.Penalty = r.Penalty.Fell(time.Now(), "lost after 3m0s")
		save()
		r.Penalty = r.Penalty.Held()
		save()
		other := d.open()
		defer other.Close()
		if got, ok := other.Load("p").At(n, id); !ok || got.Penalty.Step != 0 || !got.LastSuccess.Equal(r.LastSuccess) {
			t.Errorf("on disk it is %+v", got)
		}
	})
}

// TestLaterIsWhatWasLearnedLater: a penalty that still runs is no newer than a success after it was earned.
func TestLaterIsWhatWasLearnedLater(t *testing.T) {
	old := route.RouteMemory{LastSuccess: epoch}
	fell := old
	fell.Penalty = fell.Penalty.Fell(epoch.Add(time.Minute), "lost")
	won := old
	won.LastSuccess = epoch.Add(2 * time.Minute)
	if got := later(old, fell, won); !same(got, won) {
		t.Errorf("ours is the penalty: %+v", got)
	}
	if got := later(old, won, fell); !same(got, won) {
		t.Errorf("theirs is the penalty: %+v", got)
	}
}

// TestRemovedWhileRunning: all that is known goes to disk again, not only what changes next.
func TestRemovedWhileRunning(t *testing.T) {
	d := newDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		s.Save("p", full())
		time.Sleep(2 * saveEvery)
		synctest.Wait()
		d.put(t, "broken")
		s.Save("q", full())
		s.Close()
	})
	s := d.open()
	defer s.Close()
	if isZero(s.Load("p")) || isZero(s.Load("q")) {
		t.Errorf("not all is there; it said %s", &d.said)
	}
}

func TestRoutesAreBounded(t *testing.T) {
	d := newDir(t)
	s := d.open()
	m := route.Memory{Networks: []route.NetworkMemory{{Network: home("a"), Used: epoch, Routes: map[string]route.RouteMemory{}}}}
	for i := range maxRoutes + 5 {
		m.Networks[0].Routes[fmt.Sprint("direct:h:", i)] = route.RouteMemory{LastSuccess: epoch.Add(time.Duration(i) * time.Second)}
	}
	s.Save("p", m)
	s.Close()
	s = d.open()
	defer s.Close()
	left := s.Load("p").Networks[0].Routes
	if _, oldest := left["direct:h:4"]; oldest || len(left) != maxRoutes {
		t.Errorf("%d routes are left; the oldest is among them: %v", len(left), oldest)
	}
}

func TestPeersAreBounded(t *testing.T) {
	d := newDir(t)
	s := d.open()
	for i := range maxPeers + 10 {
		m := full()
		m.LastAt = epoch.Add(time.Duration(i) * time.Minute)
		s.Save(fmt.Sprint(i), m)
	}
	s.Close()
	s = d.open()
	defer s.Close()
	for i := range maxPeers + 10 {
		if known := !isZero(s.Load(fmt.Sprint(i))); known != (i >= 10) {
			t.Errorf("peer %d: known %v", i, known)
		}
	}
}

func TestInstallSecret(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	secrets := make(chan string, 8)
	for range cap(secrets) {
		go func() {
			s, err := InstallSecret(dir)
			if err != nil {
				t.Error(err)
			}
			secrets <- string(s)
		}()
	}
	first := <-secrets
	for range cap(secrets) - 1 {
		if s := <-secrets; s != first {
			t.Error("two secrets were made")
		}
	}
	if len(first) != secretSize || first == strings.Repeat("\x00", secretSize) {
		t.Errorf("the secret is %x", first)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 || left[0].Name() != secretFile || left[1].Name() != lockFile {
		t.Fatalf("left behind: %v, %v", left, err)
	}
	if info, err := left[0].Info(); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	path := filepath.Join(dir, secretFile)
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := InstallSecret(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken secret: %v", err)
	}
}

// memories draws small memories in which much coincides.
func memories(t *rapid.T, name string) route.Memory {
	m := route.Memory{}
	for range rapid.IntRange(0, 4).Draw(t, name) {
		n := home(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "router"))
		at := epoch.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "at")) * time.Minute)
		r := route.RouteMemory{LastSuccess: at}
		if rapid.Bool().Draw(t, "failed") {
			r.Failures = []time.Time{at.Add(time.Second)}
		}
		m = m.With(at, n, rapid.SampledFrom([]string{"lan:a:1", "direct:b:1"}).Draw(t, "route"), r)
		m.Last, m.LastAt = "direct:b:1", at
	}
	return m
}

// TestMerge: nothing that either has learned is lost, nothing is made up, and who learned nothing changes nothing.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, a, b := memories(t, "base"), memories(t, "ours"), memories(t, "theirs")
		for name, c := range map[string][3]route.Memory{"alone": {b, a, b}, "idle": {a, a, b}} {
			want := c[1]
			if name == "idle" {
				want = c[2]
			}
			got := merge(c[0], c[1], c[2])
			for _, n := range want.Networks {
				for id, r := range n.Routes {
					if kept, ok := of(got, n.Network).Routes[id]; !ok || !reflect.DeepEqual(kept, r) {
						t.Fatalf("%s: %s on %s is %+v, want %+v", name, id, n.Network, kept, r)
					}
				}
			}
		}
		got := merge(base, a, b)
		for _, n := range got.Networks {
			for id, r := range n.Routes {
				if x, y := of(a, n.Network).Routes[id], of(b, n.Network).Routes[id]; !reflect.DeepEqual(r, x) && !reflect.DeepEqual(r, y) {
					t.Fatalf("nobody has learned %+v", r)
				}
			}
		}
		again := merge(got, got, got)
		if !reflect.DeepEqual(normal(again), normal(got)) {
			t.Fatalf("merged with itself it is %+v, was %+v", again, got)
		}
		if !slices.IsSortedFunc(got.Networks, func(x, y route.NetworkMemory) int { return y.Used.Compare(x.Used) }) {
			t.Fatal("not the most recently used first")
		}
	})
}

func normal(m route.Memory) string {
	data, err := (&file{peers: map[string]*peer{"p": {mem: m}}}).encode()
	return fmt.Sprint(string(data), err)
}

// FuzzParse: any bytes are read or refused, and what is read is written so that it is read again as the same.
func FuzzParse(f *testing.F) {
	whole, err := (&file{peers: map[string]*peer{"p": {mem: full()}}}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	old, err := os.ReadFile("testdata/v0.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(old)
	f.Add([]byte(`{"version": 1, "peers": {"p": {"networks": [{"kind": "cell", "routes": {"r": null}}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		one, err := parse(data)
		if err != nil {
			if !errors.Is(err, errCorrupt) && !errors.Is(err, errNewer) {
				t.Fatalf("it would be neither set aside nor left alone: %v", err)
			}
			return
		}
		text, err := one.encode()
		if err != nil {
			return // a time that JSON cannot hold again
		}
		two, err := parse(text)
		if err != nil {
			t.Fatalf("what was written is not understood: %v\n%s", err, text)
		}
		if again, err := two.encode(); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("it changes: %v\n%s\n%s", err, text, again)
		}
	})
}
