package netns

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long an event may take that only a failure keeps away.
const patience = 20 * time.Second

// say sends a byte over a connection and waits for it at the other end.
func say(t *testing.T, from, to net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	_, err := from.Write([]byte{42})
	must(t, err)
	must(t, to.SetReadDeadline(start.Add(patience)))
	_, err = io.ReadFull(to, make([]byte, 1))
	must(t, err)
	return time.Since(start)
}

// silent says that nothing comes from a connection until d has passed.
func silent(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(d)))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func dial(t *testing.T, h *Host, addr string, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := h.Dial(ctx, "tcp", addr)
	if err == nil {
		c.Close()
	}
	return err
}

// linkLocal is the link-local address of an interface.
func linkLocal(t *testing.T, h *Host, ifname string) net.IP {
	t.Helper()
	var found net.IP
	must(t, h.Do(func() error {
		i, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		addrs, err := i.Addrs()
		for _, a := range addrs {
			if ip := a.(*net.IPNet).IP; ip.IsLinkLocalUnicast() {
				found = ip
			}
		}
		return err
	}))
	if found == nil {
		t.Fatalf("%s of %s has no link-local address", ifname, h)
	}
	return found
}

func TestConnect(t *testing.T) {
	laptop, server, l := pair(t)
	if up, down := l.Count(); up.Lost > 0 || down.Lost > 0 {
		t.Errorf("a new link loses frames: %+v, %+v", up, down)
	}
	l.SetDelay(5 * ms)
	for _, addr := range []string{"192.168.1.20:0", "[fd00::20]:0", "[" + linkLocal(t, server, "eth0").String() + "%eth0]:0"} {
		ln, err := server.Listen("tcp", addr)
		must(t, err)
		defer ln.Close()
		// The zone is the dialler's.
		to := strings.Replace(ln.Addr().String(), "%eth0", "%wlan0", 1)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		near, err := laptop.Dial(ctx, "tcp", to)
		must(t, err)
		defer near.Close()
		far, err := ln.Accept()
		must(t, err)
		defer far.Close()
		must(t, near.(*net.TCPConn).CloseWrite())
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: half-close gives %v", addr, err)
		}
		if took := say(t, far, near); took < 5*ms {
			t.Errorf("%s: a byte took %v", addr, took)
		}
	}
	if err := dial(t, laptop, "192.168.1.20:9", patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling a closed port: %v", err)
	}
	if err := dial(t, laptop, "server:80", patience); err == nil || !strings.Contains(err.Error(), "server") {
		t.Errorf("dialling a name: %v", err)
	}
}

func TestBlackHole(t *testing.T) {
	laptop, server, l := pair(t)
	near, far := connect(t, laptop, server, "192.168.1.20:0")
	say(t, near, far)
	l.BlackHole(true, false)
	_, err := near.Write([]byte{1})
	must(t, err)
	silent(t, far, 300*ms)
	say(t, far, near) // down passes
	l.Heal()
	must(t, far.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(far, make([]byte, 1))
	must(t, err)

	l.SetDelay(50 * ms)
	upBefore, _ := l.Count()
	_, err = near.Write([]byte{2})
	must(t, err)
	l.BlackHole(true, true) // the byte is on its way
	silent(t, far, 100*ms)
	if up, _ := l.Count(); up.Lost == upBefore.Lost || up.Frames != upBefore.Frames {
		t.Errorf("up was %+v and is %+v: want frames lost and none delivered", upBefore, up)
	}
	if err := dial(t, laptop, "192.168.1.20:80", 200*ms); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dialling into a black hole: %v", err)
	}
	l.Heal()
	say(t, near, far)
}

func TestLoseLarge(t *testing.T) {
	laptop, server, l := pair(t)
	near, far := connect(t, laptop, server, "192.168.1.20:0")
	say(t, near, far)
	l.LoseLarge(1000, 0)
	say(t, near, far)
	_, err := near.Write(make([]byte, 5000))
	must(t, err)
	silent(t, far, 300*ms)
	_, err = far.Write(make([]byte, 5000))
	must(t, err)
	must(t, near.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(near, make([]byte, 5000))
	must(t, err)
	l.Heal()
	must(t, far.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(far, make([]byte, 5000))
	must(t, err)
}

func TestRefuseAndReset(t *testing.T) {
	laptop, server, l := pair(t)
	ln, err := server.Listen("tcp", ":7000")
	must(t, err)
	defer ln.Close()
	near, far := connect(t, laptop, server, "192.168.1.20:0")
	other, otherFar := connect(t, laptop, server, "[fd00::20]:0")
	l.SetDelay(20 * ms)
	must(t, l.Refuse(true))
	for _, addr := range []string{"192.168.1.20:7000", "[fd00::20]:7000"} {
		start := time.Now()
		err := dial(t, laptop, addr, patience)
		if took := time.Since(start); !errors.Is(err, syscall.ECONNREFUSED) || took < 40*ms {
			t.Errorf("dialling %s: %v, after %v", addr, err, took)
		}
	}
	say(t, near, far) // connections live on
	l.Heal()
	must(t, dial(t, laptop, "192.168.1.20:7000", patience))
	must(t, dial(t, laptop, "[fd00::20]:7000", patience))

	l.Shape(func(up, _ *Faults) { up.Reset = true })
	for _, c := range []net.Conn{near, other} {
		_, err = c.Write([]byte{1})
		must(t, err)
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reading after a NAT lost its state: %v", err)
		}
	}
	silent(t, far, 50*ms)
	silent(t, otherFar, 50*ms)
	l.Heal()

	near, far = connect(t, laptop, server, "192.168.1.20:0")
	say(t, near, far)
	must(t, server.Reset("eth0"))
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("reading at the host that resets: %v", err)
	}
	must(t, near.SetReadDeadline(time.Now().Add(patience)))
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reading at the other end: %v", err)
	}
}

func TestInterfaces(t *testing.T) {
	w := newWorld(t)
	laptop, router, server := host(t, w, "laptop"), host(t, w, "router"), host(t, w, "server")
	wifi := laptop.If("wlan0", "192.168.1.10/24", "fd00:1::10/64")
	wifi.MAC = "02:00:00:00:00:10"
	join(t, w, wifi, router.If("lan", "192.168.1.1/24", "fd00:1::1/64"))
	join(t, w, router.If("wan", "10.0.0.1/24", "fd00:2::1/64"), server.If("eth0", "10.0.0.2/24", "fd00:2::2/64"))
	must(t, router.Sysctl("net.ipv4.ip_forward", "1"))
	must(t, router.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	must(t, laptop.AddDefault("wlan0", "192.168.1.1", 600))
	must(t, laptop.AddDefault("wlan0", "fd00:1::1", 600))
	must(t, server.AddDefault("eth0", "10.0.0.1", 100))
	must(t, server.AddDefault("eth0", "fd00:2::1", 100))
	for range 2 { // before and after Down
		for _, addr := range []string{"10.0.0.2:0", "[fd00:2::2]:0"} {
			near, far := connect(t, laptop, server, addr)
			say(t, near, far)
		}
		must(t, laptop.Down("wlan0"))
		for _, addr := range []string{"10.0.0.2:1", "[fd00:2::2]:1"} {
			if err := dial(t, laptop, addr, patience); !errors.Is(err, syscall.ENETUNREACH) {
				t.Errorf("dialling %s while down: %v", addr, err)
			}
		}
		must(t, laptop.Up("wlan0"))
	}
	near, far := connect(t, laptop, server, "10.0.0.2:0")
	must(t, laptop.Carrier("wlan0", false))
	must(t, laptop.Do(func() error {
		i, err := net.InterfaceByName("wlan0")
		if err == nil && (i.Flags&net.FlagRunning != 0 || i.Flags&net.FlagUp == 0) {
			t.Errorf("without a carrier the interface is %v", i.Flags)
		}
		return err
	}))
	_, err := near.Write([]byte{1})
	must(t, err)
	silent(t, far, 100*ms)
	must(t, laptop.Carrier("wlan0", true))
	must(t, far.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(far, make([]byte, 1))
	must(t, err)
	must(t, laptop.DelAddr("wlan0", "192.168.1.10/24"))
	if err := dial(t, laptop, "10.0.0.2:1", patience); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("dialling without an address: %v", err)
	}
	must(t, laptop.AddAddr("wlan0", "192.168.1.10/24"))
	must(t, laptop.DelDefault("wlan0", "fd00:1::1", 600))
	must(t, laptop.Up("wlan0")) // the route of IPv4 went with the address
	say(t, near, far)
	if err := dial(t, laptop, "[fd00:2::2]:1", patience); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("dialling without a default route: %v", err)
	}
	if err := laptop.Up("wlan7"); err == nil || !strings.Contains(err.Error(), "wlan7") {
		t.Errorf("an interface that does not exist: %v", err)
	}
	must(t, router.Do(func() error {
		table, err := os.ReadFile("/proc/thread-self/net/arp")
		if !strings.Contains(string(table), "02:00:00:00:00:10") {
			t.Errorf("the router does not know the laptop's MAC: %s", table)
		}
		return err
	}))
}

func TestCongestion(t *testing.T) {
	const list = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
	before, err := os.ReadFile(list)
	must(t, err)
	laptop, server, _ := pair(t)
	for _, name := range []string{"cubic", "bbr", "reno"} {
		err := laptop.SetCongestion(name)
		if errors.Is(err, syscall.ENOENT) && name == "bbr" {
			t.Logf("this kernel has no bbr: %v", err)
			continue
		}
		must(t, err)
		near, far := connect(t, laptop, server, "192.168.1.20:0")
		if got := congestion(t, near); got != name {
			t.Errorf("a connection of a host set to %s uses %s", name, got)
		}
		raw, err := far.(*net.TCPConn).SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) { // a socket chooses for itself
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		}))
		must(t, err)
		say(t, far, near)
	}
	after, err := os.ReadFile(list)
	if err != nil || string(after) != string(before) {
		t.Errorf("the machine allowed %q and allows %q, %v", before, after, err)
	}
}

// TestMulticast hears a query of mDNS on every port of a switch.
func TestMulticast(t *testing.T) {
	w := newWorld(t)
	lan, err := w.Switch("lan")
	must(t, err)
	names := []string{"laptop", "server", "printer"}
	var conns []*net.UDPConn
	group := &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353}
	for i, name := range names {
		h := host(t, w, name)
		join(t, w, h.If("eth0", "192.168.1."+string(rune('1'+i))+"/24"), lan.If("port"+string(rune('1'+i))))
		must(t, h.Do(func() error {
			eth0, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			c, err := net.ListenMulticastUDP("udp4", eth0, group)
			conns = append(conns, c)
			return err
		}))
		defer conns[i].Close()
	}
	_, err = conns[0].WriteTo([]byte("query"), group)
	must(t, err)
	for i, c := range conns[1:] {
		buf := make([]byte, 100)
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		n, from, err := c.ReadFrom(buf)
		must(t, err)
		if string(buf[:n]) != "query" || !strings.HasPrefix(from.String(), "192.168.1.1:") {
			t.Errorf("%s heard %q from %v", names[i+1], buf[:n], from)
		}
	}
}

func TestCommand(t *testing.T) {
	laptop, server, l := pair(t)
	ln, err := server.Listen("tcp", "192.168.1.20:8000")
	must(t, err)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	}()
	out, err := laptop.Command("curl", "-sS", "--max-time", "20", "http://192.168.1.20:8000/").CombinedOutput()
	if err != nil || string(out) != "hello" {
		t.Errorf("curl: %v: %s", err, out)
	}
	if err := laptop.Command("no-such-program").Run(); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("a program that does not exist: %v", err)
	}
	cmd := laptop.Command("sleep", "1000")
	must(t, cmd.Start())
	must(t, l.w.Close())
	var exit interface{ ExitCode() int }
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("a program in a closed world: %v", err)
	}
	if _, err := l.w.Host("late"); err == nil {
		t.Error("a closed world makes hosts")
	}
}

// TestEmulatorDies shows that a world does not pretend.
func TestEmulatorDies(t *testing.T) {
	newWorld(t) // or skip
	w, err := New()
	must(t, err)
	h := host(t, w, "host")
	l := join(t, w, h.If("eth0", "10.0.0.1/24"), h.If("eth1", "10.0.1.1/24"))
	must(t, w.em.cmd.Process.Kill())
	l.SetDelay(ms)
	if _, err := w.Host("late"); err == nil {
		t.Error("a world without emulator makes hosts")
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "the emulator is gone") {
		t.Errorf("Close says %v", err)
	}
}
