package netwatch

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// errNetlink is a message that does not fit into itself.
var errNetlink = errors.New("malformed netlink message")

// message is one netlink message. body is what follows its header.
type message struct {
	kind, flags uint16
	seq         uint32
	body        []byte
}

// eachMessage calls f for the messages of one datagram, until it returns false.
func eachMessage(b []byte, f func(message) bool) error {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlMsghdr {
			return errNetlink
		}
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return errNetlink
		}
		m := message{
			kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
			seq: binary.NativeEndian.Uint32(b[8:]), body: b[unix.SizeofNlMsghdr:size],
		}
		if !f(m) {
			return nil
		}
		b = b[min(align4(size), len(b)):]
	}
	return nil
}

func align4(n int) int { return (n + 3) &^ 3 }

// eachAttr calls f for the attributes behind the fixed part of a message, and reports whether all of them fit.
func eachAttr(b []byte, f func(kind uint16, value []byte)) bool {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return false
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size])
		b = b[min(align4(size), len(b)):]
	}
	return true
}

func attrInt(v []byte) int {
	if len(v) < 4 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(v)))
}

func attrText(v []byte) string {
	text, _, _ := strings.Cut(string(v), "\x00")
	return text
}

func attrAddr(v []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(v) // of another size: none
	return a
}

// device is an interface as netlink tells of it.
type device struct {
	name     string
	index    int
	hardware uint16 // ARPHRD_…
	running  bool
	lower    int    // the interface below, of a VLAN or its like
	foreign  bool   // lower is in another namespace
	master   int    // the bridge or bond it is a port of
	info     string // the kind of a virtual one: "veth", "bridge"
	mac      []byte
	wireless bool // the message only tells of something about radio, as at each scan
}

// parseLink reads the body of RTM_NEWLINK or RTM_DELLINK.
func parseLink(b []byte) (d device, ok bool) {
	if len(b) < unix.SizeofIfInfomsg {
		return d, false
	}
	const up = unix.IFF_UP | unix.IFF_RUNNING
	d.hardware = binary.NativeEndian.Uint16(b[2:])
	d.index = attrInt(b[4:])
	d.running = binary.NativeEndian.Uint32(b[8:])&up == up
	ok = eachAttr(b[unix.SizeofIfInfomsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			d.name = attrText(v)
		case unix.IFLA_ADDRESS:
			d.mac = v
		case unix.IFLA_LINK:
			d.lower = attrInt(v)
		case unix.IFLA_LINK_NETNSID:
			d.foreign = true
		case unix.IFLA_MASTER:
			d.master = attrInt(v)
		case unix.IFLA_WIRELESS:
			d.wireless = true
		case unix.IFLA_LINKINFO:
			eachAttr(v, func(kind uint16, v []byte) {
				if kind == unix.IFLA_INFO_KIND {
					d.info = attrText(v)
				}
			})
		}
	})
	return d, ok && d.index > 0
}

// parseAddr reads the body of RTM_NEWADDR: an address that a socket may be bound to.
func parseAddr(b []byte) (index int, p netip.Prefix, ok bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return 0, p, false
	}
	bits, flags := int(b[1]), uint32(b[2])
	index = attrInt(b[4:])
	var local, address netip.Addr
	ok = eachAttr(b[unix.SizeofIfAddrmsg:], func(kind uint16, v []byte) {
		switch {
		case kind == unix.IFA_LOCAL:
			local = attrAddr(v)
		case kind == unix.IFA_ADDRESS: // the other end's, of a line between two
			address = attrAddr(v)
		case kind == unix.IFA_FLAGS && len(v) >= 4:
			flags = binary.NativeEndian.Uint32(v)
		}
	})
	if !local.IsValid() {
		local = address
	}
	p = netip.PrefixFrom(local, bits)
	// Until it is known that nobody else has the address, the kernel refuses it to sockets.
	unsure := flags&unix.IFA_F_DADFAILED != 0 || flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_OPTIMISTIC) == unix.IFA_F_TENTATIVE
	return index, p, ok && index > 0 && p.IsValid() && !unsure
}

const (
	// otherTable is added to the metric of routes outside the main table: rules decide who takes them.
	otherTable = 1 << 20
	// halfMetric is that of 0.0.0.0/1, by which a VPN takes all traffic and leaves the default route alone: it is more specific.
	halfMetric = -1
	// sizeofNexthop is the fixed part of struct rtnexthop.
	sizeofNexthop = 8
)

// parseRoute reads the body of RTM_NEWROUTE or RTM_DELROUTE: the next hops of a default route, none of any other.
func parseRoute(b []byte) (gates []Gateway, ok bool) {
	if len(b) < unix.SizeofRtMsg {
		return nil, false
	}
	family, bits, kind := b[0], b[1], b[7]
	table, flags := int(b[4]), binary.NativeEndian.Uint32(b[8:])
	g := Gateway{IPv6: family == unix.AF_INET6}
	var dst netip.Addr
	var several []byte
	ok = eachAttr(b[unix.SizeofRtMsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.RTA_DST:
			dst = attrAddr(v)
		case unix.RTA_TABLE:
			table = attrInt(v)
		case unix.RTA_PRIORITY:
			g.Metric = attrInt(v)
		case unix.RTA_MULTIPATH:
			several = v
		default:
			g.hop(kind, v)
		}
	})
	switch {
	case !ok:
		return nil, false
	case family != unix.AF_INET && family != unix.AF_INET6, kind != unix.RTN_UNICAST, table == unix.RT_TABLE_LOCAL,
		flags&(unix.RTM_F_CLONED|unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0, bits > 1, bits == 1 && dst.IsValid() && !dst.IsUnspecified():
		return nil, true
	}
	if bits == 1 {
		g.Metric = halfMetric
	} else if table != unix.RT_TABLE_MAIN {
		g.Metric = min(g.Metric, otherTable) + otherTable
	}
	if several == nil {
		return oneHop(g), true
	}
	return hops(g, several)
}

// hop takes the attributes that say where a next hop is.
func (g *Gateway) hop(kind uint16, v []byte) {
	switch {
	case kind == unix.RTA_OIF:
		g.Index = attrInt(v)
	case kind == unix.RTA_GATEWAY:
		g.Addr = attrAddr(v)
	case kind == unix.RTA_VIA && len(v) > 2: // an IPv6 router of an IPv4 route, behind its family
		g.Addr = attrAddr(v[2:])
	}
}

func oneHop(g Gateway) []Gateway {
	if g.Index <= 0 {
		return nil
	}
	return []Gateway{g}
}

// hops reads the next hops of RTA_MULTIPATH.
func hops(g Gateway, b []byte) (gates []Gateway, ok bool) {
	for len(b) >= sizeofNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < sizeofNexthop || size > len(b) {
			return nil, false
		}
		g.Addr, g.Index = netip.Addr{}, attrInt(b[4:])
		if !eachAttr(b[sizeofNexthop:size], g.hop) {
			return nil, false
		}
		if b[2]&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 {
			gates = append(gates, oneHop(g)...)
		}
		b = b[min(align4(size), len(b)):]
	}
	return gates, true
}

// neighbour is who has an address on a link.
type neighbour struct {
	index int
	addr  netip.Addr
}

// parseNeigh reads the body of RTM_NEWNEIGH; ok: its hardware address is known.
func parseNeigh(b []byte) (n neighbour, mac []byte, ok bool) {
	const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT
	if len(b) < unix.SizeofNdMsg {
		return n, nil, false
	}
	n.index = attrInt(b[4:])
	state := binary.NativeEndian.Uint16(b[8:])
	ok = eachAttr(b[unix.SizeofNdMsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.NDA_DST:
			n.addr = attrAddr(v)
		case unix.NDA_LLADDR:
			mac = v
		}
	})
	return n, mac, ok && state&known != 0 && n.addr.IsValid() && isMAC(mac)
}

// heardIn is what a datagram of the multicast groups says. What cannot be read is a reason to look.
func heardIn(b []byte) (n news) {
	err := eachMessage(b, func(m message) bool {
		switch m.kind {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			d, ok := parseLink(m.body)
			if ok && d.wireless {
				break
			}
			n.changed = true
			port := len(m.body) > 0 && m.body[0] == unix.AF_BRIDGE // of a bridge, which says nothing about the link
			if ok && !port && (!d.running || m.kind == unix.RTM_DELLINK) {
				n.merge(news{lost: map[int]bool{d.index: true}})
			}
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			n.changed = true
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			gates, ok := parseRoute(m.body)
			n.changed = n.changed || !ok || len(gates) > 0
		}
		return true
	})
	n.changed = n.changed || err != nil
	return n
}
