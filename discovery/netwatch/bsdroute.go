package netwatch

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// The messages of Darwin's routing sockets and tables, as in its net/route.h and net/if.h. They are read here and not by
// golang.org/x/net/route, which can be built on such systems only: what reads them is tested and fuzzed everywhere.
const (
	bsdVersion = 5

	bsdAdd, bsdDelete, bsdChange, bsdGet = 0x1, 0x2, 0x3, 0x4
	bsdNewAddr, bsdDelAddr, bsdIfInfo    = 0xc, 0xd, 0xe

	sizeofRtMsg = 92 // struct rt_msghdr
	sizeofIfMsg = 14 // of struct if_msghdr what is used

	rtfUp, rtfGateway, rtfLLInfo = 0x1, 0x2, 0x400
	rtfReject, rtfBlackhole      = 0x8, 0x1000
	rtfScoped                    = 0x1000000 // of an interface that is not the first choice
	scopedMetric                 = 1 << 20

	bsdInet, bsdLink, bsdInet6 = 2, 18, 30 // address families
	rtaxDst, rtaxGateway       = 0, 1      // places in a message's list of addresses
	rtaxNetmask                = 2
	rtaxMax                    = 8

	bsdRunning = 0x40 | 0x1 // IFF_RUNNING and IFF_UP
)

// bsdMessage is one message of a routing socket.
type bsdMessage struct {
	kind  byte
	flags uint32
	index int
	addrs [rtaxMax][]byte // sockaddrs by place; nil: not given
}

// eachBSD calls f for the messages in b, and reports whether all of them could be read.
func eachBSD(b []byte, f func(bsdMessage)) (ok bool) {
	for len(b) > 0 {
		if len(b) < 4 {
			return false
		}
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return false
		}
		if m, ok := parseBSD(b[:size]); ok {
			f(m)
		} else {
			return false
		}
		b = b[size:]
	}
	return true
}

// parseBSD reads one message. Of kinds that are not used it gives the kind.
func parseBSD(b []byte) (m bsdMessage, ok bool) {
	m.kind = b[3]
	if b[2] != bsdVersion {
		return m, false
	}
	switch m.kind {
	case bsdAdd, bsdDelete, bsdChange, bsdGet:
		if len(b) < sizeofRtMsg {
			return m, false
		}
		m.index = int(binary.NativeEndian.Uint16(b[4:]))
		m.flags = binary.NativeEndian.Uint32(b[8:])
		return m, m.sockaddrs(binary.NativeEndian.Uint32(b[12:]), b[sizeofRtMsg:])
	case bsdIfInfo:
		if len(b) < sizeofIfMsg {
			return m, false
		}
		m.flags = binary.NativeEndian.Uint32(b[8:])
		m.index = int(binary.NativeEndian.Uint16(b[12:]))
	}
	return m, true
}

// sockaddrs splits the addresses behind a message. Each takes a multiple of four bytes, an empty one four.
func (m *bsdMessage) sockaddrs(which uint32, b []byte) bool {
	for place := range m.addrs {
		if which&(1<<place) == 0 {
			continue
		}
		if len(b) == 0 {
			return false
		}
		size := int(b[0])
		if size > len(b) {
			return false
		}
		m.addrs[place] = b[:size]
		b = b[min(max(align(size, 4), 4), len(b)):]
	}
	return true
}

func align(n, to int) int { return (n + to - 1) / to * to }

// bsdAddr reads an IP address. The kernel keeps the zone of a link-local one within it.
func bsdAddr(b []byte) (a netip.Addr) {
	switch {
	case len(b) >= 8 && b[1] == bsdInet:
		return netip.AddrFrom4([4]byte(b[4:8]))
	case len(b) >= 24 && b[1] == bsdInet6:
		six := [16]byte(b[8:24])
		if netip.AddrFrom16(six).IsLinkLocalUnicast() {
			six[2], six[3] = 0, 0
		}
		return netip.AddrFrom16(six)
	}
	return a
}

// bsdMAC is the hardware address in a sockaddr_dl; nil: none.
func bsdMAC(b []byte) []byte {
	if len(b) < 8 || b[1] != bsdLink {
		return nil
	}
	from := 8 + int(b[5])
	to := from + int(b[6])
	if to > len(b) || !isMAC(b[from:to]) {
		return nil
	}
	return bytes.Clone(b[from:to])
}

// gateway is the default route that a message is about.
func (m bsdMessage) gateway() (g Gateway, ok bool) {
	dst, mask := m.addrs[rtaxDst], m.addrs[rtaxNetmask]
	if len(dst) < 2 || m.index == 0 || m.flags&rtfUp == 0 && m.kind == bsdGet || m.flags&(rtfReject|rtfBlackhole|rtfLLInfo) != 0 {
		return g, false
	}
	if a := bsdAddr(dst); !a.IsUnspecified() || mask == nil {
		return g, false
	}
	// A netmask is cut behind its last byte that is not zero, and its first byte says how many there are.
	half := false
	from := 4
	if dst[1] == bsdInet6 {
		from = 8
	}
	for n, c := range mask[min(from, len(mask)):] {
		switch {
		case n == 0 && c == 0x80: // 0.0.0.0/1, by which a VPN takes all and leaves the default route alone
			half = true
		case c != 0:
			return g, false
		}
	}
	g = Gateway{Index: m.index, IPv6: dst[1] == bsdInet6}
	if m.flags&rtfGateway != 0 {
		g.Addr = bsdAddr(m.addrs[rtaxGateway])
	}
	switch {
	case half:
		g.Metric = -1
	case m.flags&rtfScoped != 0:
		g.Metric = scopedMetric
	}
	return g, true
}

// bsdGateways reads the default routes of a table.
func bsdGateways(table []byte) (gates []Gateway, ok bool) {
	ok = eachBSD(table, func(m bsdMessage) {
		if g, ok := m.gateway(); ok {
			gates = append(gates, g)
		}
	})
	return gates, ok
}

// bsdResolve adds the routers' hardware addresses from a table of neighbours.
func bsdResolve(gates []Gateway, table []byte) {
	eachBSD(table, func(m bsdMessage) { // what cannot be read is not read
		mac, a := bsdMAC(m.addrs[rtaxGateway]), bsdAddr(m.addrs[rtaxDst])
		for n, g := range gates {
			if mac != nil && m.index == g.Index && a.IsValid() && a == g.Addr {
				gates[n].MAC = mac
			}
		}
	})
}

// heardInBSD is what the messages of a routing socket say. What cannot be read is a reason to look.
func heardInBSD(b []byte) (n news) {
	ok := eachBSD(b, func(m bsdMessage) {
		switch m.kind {
		case bsdNewAddr, bsdDelAddr:
			n.changed = true
		case bsdIfInfo:
			n.changed = true
			if m.flags&bsdRunning != bsdRunning {
				n.merge(news{lost: map[int]bool{m.index: true}})
			}
		case bsdAdd, bsdDelete, bsdChange: // most are about neighbours, and come all the time
			_, isDefault := m.gateway()
			n.changed = n.changed || isDefault
		}
	})
	n.changed = n.changed || !ok
	return n
}
