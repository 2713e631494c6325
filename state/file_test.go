package state

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"linkproxy/dialer/route"
)

// TestOddMemoryCostsNothingElse: whatever is saved, the file can be read again.
func TestOddMemoryCostsNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := route.Memory{Last: "direct:h:1"}
		for range rapid.IntRange(0, 4).Draw(t, "networks") {
			n := route.Network{
				Kind:   rapid.SampledFrom([]route.Kind{route.WiFi, route.Cell, 0, route.OtherKind + 1}).Draw(t, "kind"),
				Prefix: rapid.SampledFrom([]netip.Prefix{{}, netip.MustParsePrefix("2001:db8::/64")}).Draw(t, "prefix"),
				Router: rapid.SampledFrom([]string{"", "5f3a"}).Draw(t, "router"),
			}
			r := route.RouteMemory{
				LastSuccess: epoch,
				Handshake:   time.Duration(rapid.Int64().Draw(t, "handshake")),
				Penalty:     route.Penalty{Step: rapid.Int().Draw(t, "step")},
			}
			m.Networks = append(m.Networks, route.NetworkMemory{Network: n, Used: epoch, Routes: map[string]route.RouteMemory{"direct:h:1": r}})
		}
		data, err := (&file{peers: map[string]*peer{"odd": {mem: m}, "p": {mem: full()}}}).encode()
		if err != nil {
			t.Fatal(err)
		}
		f, err := parse(data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if len(f.peers) != 2 || f.peers["odd"].mem.Last != m.Last || normal(f.peers["p"].mem) != normal(full()) {
			t.Fatalf("not all is there:\n%s", data)
		}
	})
}

// TestHandshakeThatTookTheNight: what a stopped process measures is trimmed, and the record stays.
func TestHandshakeThatTookTheNight(t *testing.T) {
	d := newDir(t)
	s := d.open()
	n := home("5f3a")
	s.Save("p", route.Memory{}.With(epoch, n, "direct:h:1", route.RouteMemory{LastSuccess: epoch, Handshake: 8 * time.Hour}))
	s.Close()
	s = d.open()
	defer s.Close()
	if r, ok := s.Load("p").At(n, "direct:h:1"); !ok || !r.LastSuccess.Equal(epoch) || r.Handshake != maxHandshake || d.said.Len() > 0 {
		t.Errorf("%v, %+v; it said %s", ok, r, &d.said)
	}
}

// TestNoWriting: what is there is used where nothing can be written, not even the lock, and that is told once.
func TestNoWriting(t *testing.T) {
	d := newDir(t)
	s := d.open()
	s.Save("p", full())
	s.Close()
	before := d.get(t)
	lock := filepath.Join(d.path, lockFile)
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(lock, 0o700); err != nil { // cannot be opened for writing, by root neither
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		defer s.Close()
		if normal(s.Load("p")) != normal(full()) || d.said.Len() > 0 {
			t.Errorf("known: %+v; it said %s", s.Load("p"), &d.said)
		}
		for range 5 {
			s.Save("q", full())
			time.Sleep(2 * saveEvery)
			synctest.Wait()
		}
		if isZero(s.Load("q")) || d.get(t) != before || strings.Count(d.said.String(), "\n") != 1 || !strings.Contains(d.said.String(), lockFile) {
			t.Errorf("it said %s", &d.said)
		}
	})
}

// TestFullDisk: the file that was there stays whole, that is told once, and all is written when there is room.
func TestFullDisk(t *testing.T) {
	d := newDir(t)
	s := d.open()
	s.Save("p", full())
	s.Close()
	before := d.get(t)
	jam := d.file() + ".tmp" // a folder that is not empty: the temporary file cannot be made, by root neither
	if err := os.MkdirAll(filepath.Join(jam, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		defer s.Close()
		for i := range 5 {
			s.Save(fmt.Sprint("q", i), full())
			time.Sleep(2 * saveEvery)
			synctest.Wait()
		}
		if d.get(t) != before || strings.Count(d.said.String(), "\n") != 1 {
			t.Errorf("the file is %s; it said %s", d.get(t), &d.said)
		}
		if err := os.RemoveAll(jam); err != nil {
			t.Fatal(err)
		}
	})
	s = d.open()
	defer s.Close()
	for _, key := range []string{"p", "q0", "q4"} {
		if isZero(s.Load(key)) {
			t.Errorf("%s was not written at the end", key)
		}
	}
}

// TestBrokenFileThatCannotBeMoved: it is told, once, and the file is left for whoever wants to look at it.
func TestBrokenFileThatCannotBeMoved(t *testing.T) {
	d := newDir(t)
	d.put(t, "broken")
	synctest.Test(t, func(t *testing.T) {
		// Its new name is taken by a folder; in here it is known what time it is.
		if err := os.MkdirAll(d.file()+".corrupt-"+time.Now().UTC().Format("20060102T150405.000"), 0o700); err != nil {
			t.Fatal(err)
		}
		s := d.open()
		defer s.Close()
		for range 3 {
			s.Save("p", full())
			time.Sleep(2 * saveEvery)
			synctest.Wait()
		}
		said := d.said.String()
		if isZero(s.Load("p")) || d.get(t) != "broken" || strings.Count(said, "\n") != 1 ||
			!strings.Contains(said, d.file()+" cannot be understood") || strings.Contains(said, "was set aside") {
			t.Errorf("the file is %s; it said %s", d.get(t), said)
		}
	})
}
