package netwatch

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside says to the test program that it is in a namespace of its own.
const inside = "LINKPROXY_NETWATCH_INSIDE"

// TestNamespace plays with a real kernel: the test program runs once more, in a network namespace of its own.
func TestNamespace(t *testing.T) {
	if os.Getenv(inside) == "1" {
		playInNamespace(t)
		return
	}
	cannot := func(why string) {
		if os.Getenv("LINKPROXY_STRICT") == "1" {
			t.Fatalf("LINKPROXY_STRICT is set, and %s", why)
		}
		t.Skip(why)
	}
	if os.Getuid() != 0 {
		cannot("only root may make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		cannot("there is no ip (iproute2)")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNamespace$", "-test.v", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		cannot("there can be no namespace: " + err.Error())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "--- PASS: TestNamespace") {
		t.Fatalf("the test inside did not run:\n%s", out.String())
	}
	t.Log(out.String())
}

// script is the kernel's side of TestNamespace.
type script struct {
	t *testing.T
	w *Watcher
}

func (s script) ip(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			s.t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
}

// until collects events until one snapshot is as wanted, and returns them as texts.
func (s script) until(what string, wanted func(Snapshot) bool) (told []string) {
	s.t.Helper()
	began, deadline := time.Now(), time.After(15*time.Second)
	for {
		select {
		case e := <-s.w.Events():
			told = append(told, e.Delta.String())
			if e.Woke {
				s.t.Errorf("%s: it woke after %v", what, e.Slept)
			}
			if wanted(e.Snapshot) {
				s.t.Logf("%s: %q after %v", what, told, time.Since(began).Round(time.Millisecond))
				return told
			}
		case <-deadline:
			s.t.Fatalf("%s: not told within 15 s, only %q; the network is %+v, problem %v", what, told, s.w.Snapshot(), s.w.Problem())
		}
	}
}

// exactly waits for one event and wants it to say that.
func (s script) exactly(what, says string) {
	s.t.Helper()
	if told := s.until(what, func(Snapshot) bool { return true }); !slices.Equal(told, []string{says}) {
		s.t.Errorf("%s: told %q, want %q alone", what, told, says)
	}
}

func playInNamespace(t *testing.T) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil { // else it shows the interfaces outside
		t.Fatal(err)
	}
	secret := []byte("secret")
	w := New(Config{Secret: secret, Override: map[string]Override{"lan0": {Kind: Wired}, "cell0": {Kind: Cell}}})
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(t.Context()) }()
	defer func() { w.Close(); <-ended }()
	if !w.changes || !w.wakes || w.Problem() != nil || !w.Snapshot().Known || len(w.Snapshot().Interfaces) != 0 {
		t.Fatalf("at first: hears changes %v and wake-ups %v, %v, %+v", w.changes, w.wakes, w.Problem(), w.Snapshot())
	}
	s := script{t, w}
	lan := func(n Snapshot) Interface { i, _ := n.Interface("lan0"); return i }
	has := func(a string) func(Snapshot) bool {
		return func(n Snapshot) bool { return n.Has(netip.MustParseAddr(a)) }
	}

	s.ip("link set lo up", "link add lan0 type veth peer name lan1", "link set lan1 up", "addr add 192.168.77.5/24 dev lan0",
		"link set lan0 up")
	s.until("an interface with an address", has("192.168.77.5"))
	if i := lan(w.Snapshot()); i.Kind != Wired || i.Default || i.Network != (Network{Kind: Wired, Prefix: netip.MustParsePrefix("192.168.77.0/24")}) {
		t.Errorf("lan0 is %+v", i)
	}

	s.ip("route add default via 192.168.77.1 dev lan0")
	s.until("a default route", func(n Snapshot) bool { return lan(n).Default })
	if i := lan(w.Snapshot()); i.Gateway != netip.MustParseAddr("192.168.77.1") || i.Network.Router != "" {
		t.Errorf("lan0 is %+v", i)
	}
	s.ip("neigh replace 192.168.77.1 lladdr 02:00:00:00:00:01 dev lan0 nud permanent")
	s.exactly("the router answers", "lan0 router known")
	want := routerHash([]Gateway{{MAC: []byte{2, 0, 0, 0, 0, 1}}}, secret)
	if i := lan(w.Snapshot()); i.Network.Router != want {
		t.Errorf("router %q, want %q", i.Network.Router, want)
	}

	s.ip("addr add 10.9.9.9/24 dev lan0")
	s.exactly("another address", "10.9.9.9 new")
	s.ip("addr del 10.9.9.9/24 dev lan0")
	s.exactly("it leaves", "10.9.9.9 gone")
	s.ip("-6 addr add 2001:db8::5/64 dev lan0 nodad")
	s.exactly("an address of IPv6", "2001:db8::5 new")

	// What goes on elsewhere is no event: the next one tells only of what comes behind it.
	s.ip("link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link add veth0 type veth peer name veth1",
		"link set veth1 master docker0", "addr add 172.18.0.1/16 dev veth0", "link set veth0 up", "link set veth1 up", "link set docker0 up",
		"addr add 10.77.0.1/16 dev lan1", "route add 10.55.0.0/16 via 192.168.77.9",
		"-6 addr add 2001:db8::6/64 dev lan0 nodad", "link set veth0 down", "link del veth0", "route del 10.55.0.0/16",
		"addr add 10.9.9.10/24 dev lan0")
	s.exactly("a container elsewhere", "10.9.9.10 new")
	if got := names(w.Snapshot()); !slices.Equal(got, []string{"lan0"}) {
		t.Errorf("interfaces %v", got)
	}

	s.ip("link set lan0 down")
	s.until("a link down", func(n Snapshot) bool { return len(n.Interfaces) == 0 })
	s.ip("link set lan0 up")
	s.until("a link up", has("192.168.77.5"))
	if i := lan(w.Snapshot()); i.Default || i.Network.Router != "" {
		t.Errorf("lan0 is %+v", i)
	}

	// In a container the veth is the way out.
	s.ip("link add eth0 type veth peer name far", "addr add 172.30.0.2/16 dev eth0", "link set far up", "link set eth0 up",
		"route add default via 172.30.0.1 dev eth0 metric 5", "link add cell0 type veth peer name cell1",
		"link set cell1 up", "addr add 100.64.0.9/30 dev cell0", "link set cell0 up")
	s.until("a way out by veth, and a modem", func(n Snapshot) bool { return len(n.Interfaces) == 3 })
	first, cell := w.Snapshot().Interfaces[0], w.Snapshot().Interfaces[1]
	if first.Name != "eth0" || first.Kind != Wired || !first.Default {
		t.Errorf("the way out is %+v", first)
	}
	if cell.Name != "cell0" || !cell.Metered || cell.Network != (Network{Kind: Cell}) || w.Snapshot().Tailnet {
		t.Errorf("the modem is %+v", cell)
	}
	s.ip("link set far down") // eth0 is up, without a carrier
	s.until("a carrier lost", func(n Snapshot) bool { return len(n.Interfaces) == 2 })

	// A flood of notices, of which the kernel may drop some: the end is right.
	var batch strings.Builder
	for range 2000 {
		batch.WriteString("addr add 10.99.0.1/24 dev lan0\naddr del 10.99.0.1/24 dev lan0\n")
	}
	batch.WriteString("addr add 10.99.0.2/24 dev lan0\n")
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip -batch: %v: %s", err, out)
	}
	s.until("a flood", func(n Snapshot) bool {
		return n.Has(netip.MustParseAddr("10.99.0.2")) && !n.Has(netip.MustParseAddr("10.99.0.1"))
	})
}
