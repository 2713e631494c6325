package netwatch

import (
	"encoding/binary"
	"net/netip"
	"strings"
)

// The tables of Windows' IP Helper, as bytes: the layouts are those of netioapi.h on every 64-bit Windows, where a table is a
// number of rows, four bytes of nothing, and the rows. Read here, they are tested and fuzzed everywhere.
const (
	winTableHead = 8

	winRouteRow    = 104 // MIB_IPFORWARD_ROW2
	winRouteIndex  = 8
	winRoutePrefix = 12
	winRouteBits   = 40
	winRouteHop    = 44
	winRouteMetric = 84
	winRouteLoop   = 92

	winNeighRow    = 88 // MIB_IPNET_ROW2
	winNeighAddr   = 0
	winNeighIndex  = 28
	winNeighMAC    = 40
	winNeighMACLen = 72
	winNeighState  = 76
	winMACMax      = 32
	winStateProbe  = 2 // NlnsProbe; the states above know the address, too

	winIfaceRow   = 20 // of MIB_IPINTERFACE_ROW what a notice fills
	winIfaceIndex = 16

	winInet, winInet6 = 2, 23
	winSockaddr       = 28 // SOCKADDR_INET
)

// winRows calls f for the rows of a table, and reports whether all of them are there.
func winRows(table []byte, size int, f func(row []byte)) bool {
	if len(table) < 4 {
		return false
	}
	n := int64(binary.NativeEndian.Uint32(table))
	if n > 0 && int64(len(table)) < winTableHead+n*int64(size) {
		return false
	}
	for i := range int(n) {
		from := winTableHead + i*size
		f(table[from : from+size])
	}
	return true
}

// winAddr reads a SOCKADDR_INET, without its zone.
func winAddr(b []byte) (a netip.Addr) {
	switch {
	case len(b) < winSockaddr:
	case binary.NativeEndian.Uint16(b) == winInet:
		return netip.AddrFrom4([4]byte(b[4:8]))
	case binary.NativeEndian.Uint16(b) == winInet6:
		return netip.AddrFrom16([16]byte(b[8:24]))
	}
	return a
}

// winGateways reads the default routes of a MIB_IPFORWARD_TABLE2. metric is what an interface adds to those of its routes, by index
// and family.
func winGateways(table []byte, metric func(index int, six bool) int) (gates []Gateway, ok bool) {
	ok = winRows(table, winRouteRow, func(row []byte) {
		to, bits := winAddr(row[winRoutePrefix:]), row[winRouteBits]
		if bits > 1 || !to.IsValid() || !to.IsUnspecified() || row[winRouteLoop] != 0 {
			return
		}
		g := Gateway{Index: int(binary.NativeEndian.Uint32(row[winRouteIndex:])), IPv6: to.Is6()}
		if hop := winAddr(row[winRouteHop:]); hop.IsValid() && !hop.IsUnspecified() {
			g.Addr = hop
		}
		g.Metric = int(min(binary.NativeEndian.Uint32(row[winRouteMetric:]), 1<<24)) + metric(g.Index, g.IPv6)
		if bits == 1 { // by two halves a VPN takes all and leaves the default route alone
			g.Metric = -1
		}
		gates = append(gates, g)
	})
	return gates, ok
}

// winResolve adds the routers' hardware addresses from a MIB_IPNET_TABLE2. What cannot be read is not read.
func winResolve(gates []Gateway, table []byte) {
	winRows(table, winNeighRow, func(row []byte) {
		a, size := winAddr(row[winNeighAddr:]), binary.NativeEndian.Uint32(row[winNeighMACLen:])
		if !a.IsValid() || size > winMACMax || binary.NativeEndian.Uint32(row[winNeighState:]) < winStateProbe {
			return
		}
		mac := row[winNeighMAC : winNeighMAC+size]
		index := int(binary.NativeEndian.Uint32(row[winNeighIndex:]))
		for n, g := range gates {
			if g.Index == index && g.Addr == a && isMAC(mac) {
				gates[n].MAC = append([]byte(nil), mac...)
			}
		}
	})
}

// What a notice of Windows is about (MIB_NOTIFICATION_TYPE).
const (
	winParameter = 0
	winAdd       = 1
	winDelete    = 2
)

// heardInWindows is what a notice about an interface says. Windows does not tell whether the carrier was lost, so that is taken
// for granted whenever the interface itself changed.
func heardInWindows(kind uint32, row []byte) (n news) {
	if kind > winDelete { // the first, which is about nothing
		return n
	}
	n.changed = true
	if len(row) >= winIfaceRow {
		n.lost = map[int]bool{int(binary.NativeEndian.Uint32(row[winIfaceIndex:])): true}
	}
	return n
}

// Interface types of Windows (IANA ifType).
const (
	winEthernet = 6
	winPPP      = 23
	winLoopback = 24
	winOwn      = 53 // of the maker: mostly a VPN
	winWiFi     = 71
	winTunnel   = 131
	winGSM      = 243
	winCDMA     = 244
)

// winTunnels and winPlumbing are words in the descriptions of adapters that call themselves Ethernet.
var (
	winTunnels  = []string{"wireguard", "wintun", "tailscale", "tap-windows", "openvpn", "vpn", "zerotier", "anyconnect", "pangp", "fortinet"}
	winPlumbing = []string{"hyper-v virtual", "virtualbox", "vmware virtual", "docker", "wsl", "npcap loopback", "wi-fi direct virtual", "kernel debug"}
)

// winKind is what Windows says an adapter is, by its type and description; 0: nothing.
func winKind(ifType uint32, description string) (k Kind, virtual bool) {
	text := strings.ToLower(description)
	says := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	switch {
	case ifType == winLoopback:
		return Loopback, false
	case says(winPlumbing):
		return 0, true
	case ifType == winTunnel, ifType == winOwn, says(winTunnels):
		return Tunnel, false
	case ifType == winWiFi:
		return WiFi, false
	case ifType == winGSM, ifType == winCDMA:
		return Cell, false
	case strings.Contains(text, "bluetooth"), ifType == winPPP: // a phone's; a modem, a DSL line, a VPN
		return Other, false
	case ifType == winEthernet:
		return Wired, false
	}
	return Other, false
}
