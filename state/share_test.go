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

	"github.com/gofrs/flock"

	"linkproxy/dialer/route"
)

// large is a memory with all the networks and routes that are kept.
func large(i int) route.Memory {
	m := route.Memory{Last: "direct:h1.example.com:8639", LastAt: epoch.Add(time.Duration(i) * time.Minute)}
	for n := range route.MaxNetworks {
		here := route.NetworkMemory{
			Network: route.Network{Kind: route.WiFi, Prefix: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", n))},
			Used:    m.LastAt, Routes: map[string]route.RouteMemory{},
		}
		for r := range maxRoutes {
			here.Routes[fmt.Sprintf("direct:h%d.example.com:8639", r)] = route.RouteMemory{LastSuccess: epoch, Failures: []time.Time{epoch, epoch}}
		}
		m.Networks = append(m.Networks, here)
	}
	return m
}

// hold takes the lock as another process would.
func (d *dir) hold(t *testing.T) (release func()) {
	t.Helper()
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		t.Fatal(err)
	}
	lock := flock.New(filepath.Join(d.path, lockFile))
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatalf("locking: %v, %v", ok, err)
	}
	return func() {
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (d *dir) aside(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(d.file() + ".corrupt-*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestBrokenFileThatIsReplaced: what another process writes while it holds the lock is not taken for the broken file before it.
func TestBrokenFileThatIsReplaced(t *testing.T) {
	d := newDir(t)
	whole, err := (&file{peers: map[string]*peer{"p": {mem: full()}}}).encode()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d.put(t, "broken")
		release := d.hold(t)
		opened := make(chan *Store)
		go func() { opened <- d.open() }()
		time.Sleep(lockWait / 2)
		d.put(t, string(whole))
		release()
		s := <-opened
		defer s.Close()
		if isZero(s.Load("p")) || len(d.aside(t)) != 0 || d.said.Len() > 0 {
			t.Errorf("known: %v; set aside: %v; it said %s", s.Load("p"), d.aside(t), &d.said)
		}
	})
}

// TestBrokenFileThatIsLocked: nothing is moved while another process has the lock; once it has not, nothing that was learned is lost.
func TestBrokenFileThatIsLocked(t *testing.T) {
	d := newDir(t)
	synctest.Test(t, func(t *testing.T) {
		d.put(t, "broken")
		release := d.hold(t)
		s := d.open()
		s.Save("p", full())
		time.Sleep(4 * saveEvery)
		synctest.Wait()
		if d.get(t) != "broken" || len(d.aside(t)) != 0 {
			t.Errorf("another's file was touched: %q, %v", d.get(t), d.aside(t))
		}
		release()
		s.Save("q", full())
		s.Close()
		if len(d.aside(t)) != 1 {
			t.Errorf("set aside: %v", d.aside(t))
		}
	})
	s := d.open()
	defer s.Close()
	if isZero(s.Load("p")) || isZero(s.Load("q")) {
		t.Errorf("not all is there; it said %s", &d.said)
	}
}

// TestSaveDuringAWrite: it is written by the next one.
func TestSaveDuringAWrite(t *testing.T) {
	d := newDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		s.Save("p", full())
		time.Sleep(2 * saveEvery)
		s.Save("p", full())
		release := d.hold(t)
		time.Sleep(saveEvery + lockWait/2)
		m := full()
		m.Last, m.LastAt = "direct:h:9", epoch.Add(time.Hour)
		s.Save("p", m)
		release()
		time.Sleep(lockWait)
		s.Close()
	})
	s := d.open()
	defer s.Close()
	if got := s.Load("p").Last; got != "direct:h:9" || d.said.Len() > 0 {
		t.Errorf("last is %q; it said %s", got, &d.said)
	}
}

// TestWhatIsWrittenCanBeRead: peers that all have learned the most that is kept are more than a file may hold. The latest are kept.
func TestWhatIsWrittenCanBeRead(t *testing.T) {
	d := newDir(t)
	s := d.open()
	for i := range maxPeers {
		s.Save(fmt.Sprint(i), large(i))
	}
	s.Close()
	s = d.open()
	defer s.Close()
	if isZero(s.Load(fmt.Sprint(maxPeers-1))) || !isZero(s.Load("0")) || d.said.Len() > 0 {
		t.Errorf("known of the latest: %v, of the first: %v; it said %s", !isZero(s.Load(fmt.Sprint(maxPeers-1))), !isZero(s.Load("0")), &d.said)
	}
}

// TestMergedRoutesAreBounded: the latest of both stay, and the one to be tried first, however old.
func TestMergedRoutesAreBounded(t *testing.T) {
	one := func(name string, from int) route.NetworkMemory {
		n := route.NetworkMemory{Network: home("a"), Used: epoch, Last: name + "0", Routes: map[string]route.RouteMemory{}}
		for i := range maxRoutes {
			n.Routes[fmt.Sprint(name, i)] = route.RouteMemory{LastSuccess: epoch.Add(time.Duration(from+i) * time.Second)}
		}
		return n
	}
	got := mergeNetwork(route.NetworkMemory{}, one("old", 0), one("new", maxRoutes))
	_, first := got.Routes["old0"]
	_, oldest := got.Routes["new0"]
	_, latest := got.Routes[fmt.Sprint("new", maxRoutes-1)]
	if len(got.Routes) != maxRoutes || !first || oldest || !latest {
		t.Errorf("%d routes; the first one %v, the oldest %v, the latest %v", len(got.Routes), first, oldest, latest)
	}
}

// TestProcesses: real ones, that write at the same time, lose nothing of each other, and have one secret.
func TestProcesses(t *testing.T) {
	d := newDir(t)
	all := children(t, []string{"learn", d.path, "a"}, []string{"learn", d.path, "b"}, []string{"secret", d.path, ""}, []string{"secret", d.path, ""})
	for _, c := range all {
		if c.ended != nil {
			t.Errorf("%v: %s", c.ended, &c.err)
		}
	}
	if one, two := all[2].out.String(), all[3].out.String(); one != two || len(one) != 2*secretSize {
		t.Errorf("secrets %q and %q", one, two)
	}
	s := d.open()
	defer s.Close()
	for _, name := range []string{"a", "b"} {
		for i := range childRoutes {
			if _, ok := s.Load("p").At(home("5f3a"), childRoute(name, i)); !ok {
				t.Errorf("%s is lost", childRoute(name, i))
			}
		}
	}
	if len(d.aside(t)) > 0 || d.said.Len() > 0 {
		t.Errorf("set aside: %v; it said %s", d.aside(t), &d.said)
	}
}

// TestCrash: a process that dies between the temporary file and the rename leaves the old file as it was, and the next one works.
func TestCrash(t *testing.T) {
	d := newDir(t)
	s := d.open()
	s.Save("p", full())
	s.Close()
	for range 20 { // a child may be too fast to be killed there
		old := d.get(t)
		children(t, []string{"crash", d.path, "new"})
		_, err := os.Lstat(d.file() + ".tmp")
		if err != nil {
			continue
		}
		if d.get(t) != old {
			t.Fatal("the old file was changed before the new one was whole")
		}
		s := d.open()
		s.Save("q", full())
		s.Close()
		s = d.open()
		defer s.Close()
		left, err := filepath.Glob(filepath.Join(d.path, "*.tmp"))
		if isZero(s.Load("q")) || len(left) > 0 || err != nil || strings.Contains(d.said.String(), "set aside") {
			t.Errorf("afterwards: left %v, %v; it said %s", left, err, &d.said)
		}
		return
	}
	t.Error("no child died where it should")
}

// TestLockedOut: what could not be written is in the next write, also of a peer that has learned nothing since.
func TestLockedOut(t *testing.T) {
	d := newDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := d.open()
		s.Save("p", full())
		time.Sleep(2 * saveEvery)
		release := d.hold(t)
		m := full()
		m.Last, m.LastAt = "direct:h:9", epoch.Add(time.Hour)
		s.Save("p", m)
		time.Sleep(saveEvery + 2*lockWait)
		release()
		s.Save("q", full())
		s.Close()
	})
	s := d.open()
	defer s.Close()
	if got := s.Load("p").Last; got != "direct:h:9" || isZero(s.Load("q")) {
		t.Errorf("last is %q; it said %s", got, &d.said)
	}
}
