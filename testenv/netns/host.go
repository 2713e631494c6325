package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hostSysctls make addresses usable at once and let those of IPv6 outlive Down, as those of IPv4 do.
var hostSysctls = []struct{ key, value string }{
	{"net.ipv6.conf.all.accept_dad", "0"},
	{"net.ipv6.conf.default.accept_dad", "0"},
	{"net.ipv6.conf.all.keep_addr_on_down", "1"},
	{"net.ipv6.conf.default.keep_addr_on_down", "1"},
}

// queueFrames is how many frames an interface keeps for the emulator while the machine is busy: it must not lose any
// on its own, and a window of 6 MB is 4 000 full segments.
const queueFrames = 10000

// Host is a machine of a [World]: a network namespace. The process itself stays outside; sockets are made inside and
// used from anywhere.
type Host struct {
	name   string
	w      *World
	ns     *namespace
	bridge bool

	routes map[string][]string // guarded by w.mu: default routes by interface, which the kernel forgets when it is down
}

// End is one end of a [Link]: an interface to be made.
type End struct {
	Host  *Host
	Name  string   // at most 15 bytes: wlan0, eth0, wwan0, tailscale0
	Addrs []string // with prefix length: 192.168.1.10/24, fd00::10/64
	MAC   string   // "" = always the same one for the same names of host and interface
}

// If names an interface of h to be made by [World.Link].
func (h *Host) If(name string, addrs ...string) End { return End{Host: h, Name: name, Addrs: addrs} }

// mac is the address of the end's interface, one of the locally administered (IEEE 802c).
func (e End) mac() string {
	if e.MAC != "" {
		return e.MAC
	}
	f := fnv.New64a()
	fmt.Fprintf(f, "%s/%s", e.Host.name, e.Name)
	s := f.Sum(nil)
	s[0] = 0x02
	return net.HardwareAddr(s[:6]).String()
}

// setUp gives the interface, which exists, its addresses.
func (e End) setUp() error {
	h := e.Host
	if err := h.IP("link", "set", e.Name, "address", e.mac(), "txqueuelen", strconv.Itoa(queueFrames), "up"); err != nil {
		return err
	}
	if h.bridge {
		if err := h.IP("link", "set", e.Name, "master", bridgeName); err != nil {
			return err
		}
	}
	for _, a := range e.Addrs {
		if err := h.AddAddr(e.Name, a); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) String() string { return h.name }

// Do calls f on a thread that is inside the host's namespace: sockets that f makes, programs that it starts and
// interfaces that it lists are the host's. f must not leave work that makes sockets to other goroutines.
func (h *Host) Do(f func() error) error {
	if err := h.ns.do(f); err != nil {
		return fmt.Errorf("netns: on host %s: %w", h.name, err)
	}
	return nil
}

// Dial is net.Dialer.DialContext from inside h. addr is a literal: names are resolved by threads that are outside.
func (h *Host) Dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = h.at(addr, func(addr string) error {
		var d net.Dialer
		conn, err = d.DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// Listen is net.Listen inside h, for plain TCP. addr is a literal, or a colon and a port.
func (h *Host) Listen(network, addr string) (ln net.Listener, err error) {
	err = h.at(addr, func(addr string) error {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		ln, err = lc.Listen(context.Background(), network, addr)
		return err
	})
	return ln, err
}

// ListenPacket is net.ListenPacket inside h. addr is a literal, or a colon and a port.
func (h *Host) ListenPacket(network, addr string) (pc net.PacketConn, err error) {
	err = h.at(addr, func(addr string) error {
		pc, err = net.ListenPacket(network, addr)
		return err
	})
	return pc, err
}

// at calls f inside h with an address that package net understands there. A zone becomes a number, since package net
// keeps one table of interface names for all namespaces.
func (h *Host) at(addr string, f func(addr string) error) error {
	return h.Do(func() error {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		if host == "" {
			return f(addr)
		}
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return err
		}
		if ip.Zone() != "" {
			i, err := net.InterfaceByName(ip.Zone())
			if err != nil {
				return fmt.Errorf("interface %s: %w", ip.Zone(), err)
			}
			addr = net.JoinHostPort(ip.WithZone(strconv.Itoa(i.Index)).String(), port)
		}
		return f(addr)
	})
}

// Cmd is an exec.Cmd that starts inside a host.
type Cmd struct {
	*exec.Cmd
	host *Host
}

// Command is exec.Command for a program that runs inside h; /sys shows it the interfaces of the machine. It is killed, with its children, when the world ends.
func (h *Host) Command(name string, args ...string) *Cmd {
	return &Cmd{exec.Command(name, args...), h}
}

// Start is exec.Cmd.Start. The program is inside from its first moment, so that the end of the world cannot miss it.
func (c *Cmd) Start() error { return c.host.Do(c.Cmd.Start) }

// Run is exec.Cmd.Run.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output is exec.Cmd.Output; what the program says of errors is left to Stderr.
func (c *Cmd) Output() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// CombinedOutput is exec.Cmd.CombinedOutput.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// IP runs ip(8) inside h: for all that has no verb here.
func (h *Host) IP(args ...string) error { return h.run("ip", args...) }

// run runs a program whose output matters only if it fails.
func (h *Host) run(name string, args ...string) error {
	out, err := h.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("netns: %s %s on %s: %w: %s", name, strings.Join(args, " "), h.name, err, bytes.TrimSpace(out))
	}
	return nil
}

// Sysctl sets a parameter of the host's network, say net.ipv4.ip_forward or net.ipv4.tcp_congestion_control.
func (h *Host) Sysctl(key, value string) error {
	return h.Do(func() error { return os.WriteFile(sysctlPath(key), []byte(value), 0) })
}

// SetCongestion sets the congestion control of connections that are made from now on: cubic, bbr, reno.
func (h *Host) SetCongestion(name string) error {
	const key = "net.ipv4.tcp_congestion_control"
	err := h.Sysctl(key, name)
	if !errors.Is(err, os.ErrPermission) {
		return err
	}
	return allowCongestion(name, func() error { return h.Sysctl(key, name) })
}

// GetSysctl reads a parameter of the host's network.
func (h *Host) GetSysctl(key string) (value string, err error) {
	err = h.Do(func() error {
		b, err := os.ReadFile(sysctlPath(key))
		value = strings.TrimSpace(string(b))
		return err
	})
	return value, err
}

func sysctlPath(key string) string { return "/proc/sys/" + strings.ReplaceAll(key, ".", "/") }

// Up brings an interface back with the addresses it has and its default routes.
func (h *Host) Up(ifname string) error {
	if err := h.IP("link", "set", ifname, "up"); err != nil {
		return err
	}
	h.w.mu.Lock()
	routes := slices.Clone(h.routes[ifname])
	h.w.mu.Unlock()
	for _, r := range routes {
		if err := h.replaceRoute(r); err != nil {
			return err
		}
	}
	return nil
}

// Down takes an interface down. Its addresses stay, its routes go until Up.
func (h *Host) Down(ifname string) error { return h.IP("link", "set", ifname, "down") }

// carrierLimit bounds how long the kernel takes to notice a carrier: it looks once a second.
const carrierLimit = 5 * time.Second

// Carrier takes the cable from an interface, or its radio cell, or gives it back: it stays up, with its addresses. The
// kernel notices after up to a second, as with any cable, and then Carrier returns.
func (h *Host) Carrier(ifname string, on bool) error {
	state := "off"
	if on {
		state = "on"
	}
	if err := h.IP("link", "set", "dev", ifname, "carrier", state); err != nil {
		return err
	}
	return h.Do(func() error {
		for end := time.Now().Add(carrierLimit); ; time.Sleep(time.Millisecond) {
			i, err := net.InterfaceByName(ifname)
			if err != nil || i.Flags&net.FlagRunning != 0 == on {
				return err
			}
			if time.Now().After(end) {
				return fmt.Errorf("the carrier of %s is not %s", ifname, state)
			}
		}
	})
}

// AddAddr gives an interface an address with its prefix length.
func (h *Host) AddAddr(ifname, addr string) error {
	args := []string{"addr", "add", addr, "dev", ifname}
	if strings.Contains(addr, ":") {
		args = append(args, "nodad")
	}
	return h.IP(args...)
}

// DelAddr takes an address with its prefix length from an interface.
func (h *Host) DelAddr(ifname, addr string) error { return h.IP("addr", "del", addr, "dev", ifname) }

// AddDefault adds the default route through a gateway; among several the lowest metric counts.
func (h *Host) AddDefault(ifname, gateway string, metric int) error {
	r := defaultRoute(ifname, gateway, metric)
	if err := h.replaceRoute(r); err != nil {
		return err
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.routes[ifname] = append(h.routes[ifname], r)
	return nil
}

// DelDefault takes a route of AddDefault away.
func (h *Host) DelDefault(ifname, gateway string, metric int) error {
	r := defaultRoute(ifname, gateway, metric)
	h.w.mu.Lock()
	h.routes[ifname] = slices.DeleteFunc(h.routes[ifname], func(o string) bool { return o == r })
	h.w.mu.Unlock()
	return h.IP(append([]string{"route", "del"}, strings.Fields(r)...)...)
}

func (h *Host) replaceRoute(r string) error {
	return h.IP(append([]string{"route", "replace"}, strings.Fields(r)...)...)
}

func defaultRoute(ifname, gateway string, metric int) string {
	return fmt.Sprintf("default via %s dev %s metric %d", gateway, ifname, metric)
}

// Reset aborts every TCP connection of the host from or to the address of an interface, as ss --kill does: the apps of
// this host get ECONNABORTED, and RST travels to the other ends.
func (h *Host) Reset(ifname string) error {
	var addrs []net.Addr
	err := h.Do(func() error {
		i, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		addrs, err = i.Addrs()
		return err
	})
	if err != nil {
		return err
	}
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		err := h.run("ss", "--kill", "--tcp", "--no-header", "--numeric", "state", "connected", "src", "["+ip.String()+"]")
		if err != nil {
			return err
		}
	}
	return nil
}
