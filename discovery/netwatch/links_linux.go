package netwatch

import (
	"bytes"
	"io/fs"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// towerMax is how many interfaces may lie one on top of another: a VLAN of a bond of ports is three.
const towerMax = 8

// devices are all interfaces of a namespace, and /sys/class/net, which knows the hardware.
type devices struct {
	list []device
	sys  fs.FS
}

// kind is what the kernel says a device is; 0: nothing.
func (t devices) kind(d device, depth int) (k Kind, virtual bool) {
	switch d.info {
	case "bridge", "bond", "team", "hsr": // what its ports are, of which one is enough
		for _, port := range t.list {
			if port.master != d.index || depth >= towerMax {
				continue
			}
			if k, virtual := t.kind(port, depth+1); !virtual && (k == Wired || k == WiFi || k == Cell) {
				return k, false
			}
		}
		return 0, true
	case "vlan", "macvlan", "ipvlan", "macvtap", "ipvtap", "macsec":
		for _, below := range t.list {
			if below.index == d.lower && !d.foreign && depth < towerMax {
				return t.kind(below, depth+1)
			}
		}
		return 0, false
	case "veth", "netkit", "dummy", "ifb", "vrf", "vxlan", "geneve", "nlmon", "vcan":
		return 0, true
	case "wireguard", "ovpn", "ovpn-dco", "xfrm", "vti", "vti6", "gre", "gretap", "ip6gre", "ip6gretap", "ipip", "ip6tnl", "sit", "gtp":
		return Tunnel, false
	case "tun":
		return tunKind(d)
	case "wwan", "rmnet":
		return Cell, false
	}
	return t.hardwareKind(d), false
}

// tunKind is the kind of a device that a program of this machine carries. One of Ethernet may be anything that its name says.
func tunKind(d device) (k Kind, virtual bool) {
	if d.hardware != unix.ARPHRD_ETHER {
		return Tunnel, false
	}
	if k, virtual = byName(d.name); k != 0 {
		return k, virtual
	}
	return Tunnel, false
}

// hardwareKind is the kind of a device that is not made by a program; 0: the kernel does not say.
func (t devices) hardwareKind(d device) Kind {
	ours := t.ours(d)
	switch {
	case ours && (t.has(d, "phy80211") || t.has(d, "wireless") || t.uevent(d, "DEVTYPE") == "wlan"):
		return WiFi
	case ours && t.uevent(d, "DEVTYPE") == "wwan":
		return Cell
	}
	switch d.hardware {
	case unix.ARPHRD_LOOPBACK:
		return Loopback
	case unix.ARPHRD_IEEE80211, unix.ARPHRD_IEEE80211_PRISM, unix.ARPHRD_IEEE80211_RADIOTAP:
		return WiFi
	case unix.ARPHRD_RAWIP:
		return Cell
	case unix.ARPHRD_PPP: // a modem, a DSL line, a VPN
		return Other
	case unix.ARPHRD_NONE, unix.ARPHRD_TUNNEL, unix.ARPHRD_TUNNEL6, unix.ARPHRD_SIT, unix.ARPHRD_IPGRE, unix.ARPHRD_IP6GRE:
		return Tunnel
	case unix.ARPHRD_ETHER:
		if ours && t.has(d, "device") {
			return Wired
		}
	}
	return 0
}

// ours reports whether /sys speaks of this device. In a network namespace it may still show the devices of another, under the same
// names.
func (t devices) ours(d device) bool {
	if t.sys == nil || !fs.ValidPath(d.name) || strings.Contains(d.name, "/") {
		return false
	}
	mac, err := net.ParseMAC(t.text(d, "address"))
	sameMAC := err == nil && bytes.Equal(mac, d.mac) || len(d.mac) == 0
	return sameMAC && t.text(d, "ifindex") == strconv.Itoa(d.index)
}

// text is a file's content, without its line's end; "" if it cannot be read.
func (t devices) text(d device, file string) string {
	b, _ := fs.ReadFile(t.sys, path.Join(d.name, file)) // not there: not said
	return strings.TrimSpace(string(b))
}

func (t devices) has(d device, file string) bool {
	_, err := fs.Stat(t.sys, path.Join(d.name, file))
	return err == nil
}

// uevent is the value of a key in the device's uevent file.
func (t devices) uevent(d device, key string) string {
	for line := range strings.Lines(t.text(d, "uevent")) {
		if v, ok := strings.CutPrefix(line, key+"="); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// links makes the links of a reading. Only of those with an address /sys is asked.
func (t devices) links(addrs map[int][]netip.Prefix) (out []Link) {
	for _, d := range t.list {
		l := Link{Name: d.name, Index: d.index, Running: d.running, Addrs: addrs[d.index]}
		if len(l.Addrs) > 0 {
			l.Kind, l.Virtual = t.kind(d, 0)
		}
		out = append(out, l)
	}
	return out
}
