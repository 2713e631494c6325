package netwatch

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"
)

// The tables of these tests are laid out as in netioapi.h.

func winTable(rows ...[]byte) []byte {
	b := make([]byte, winTableHead)
	binary.NativeEndian.PutUint32(b, uint32(len(rows)))
	return append(b, concat(rows...)...)
}

func putSockaddr(b []byte, text string) {
	a := netip.MustParseAddr(text)
	if a.Is4() {
		binary.NativeEndian.PutUint16(b, winInet)
		copy(b[4:], a.AsSlice())
		return
	}
	binary.NativeEndian.PutUint16(b, winInet6)
	copy(b[8:], a.AsSlice())
	b[24] = 9 // its zone
}

func winRoute(index int, to string, bits byte, hop string, metric uint32) []byte {
	b := make([]byte, winRouteRow)
	binary.NativeEndian.PutUint32(b[winRouteIndex:], uint32(index))
	putSockaddr(b[winRoutePrefix:], to)
	b[winRouteBits] = bits
	putSockaddr(b[winRouteHop:], hop)
	binary.NativeEndian.PutUint32(b[winRouteMetric:], metric)
	return b
}

func winNeigh(index int, a string, mac []byte, state uint32) []byte {
	b := make([]byte, winNeighRow)
	putSockaddr(b, a)
	binary.NativeEndian.PutUint32(b[winNeighIndex:], uint32(index))
	copy(b[winNeighMAC:], mac)
	binary.NativeEndian.PutUint32(b[winNeighMACLen:], uint32(len(mac)))
	binary.NativeEndian.PutUint32(b[winNeighState:], state)
	return b
}

func TestWindowsTables(t *testing.T) {
	loop := winRoute(1, "0.0.0.0", 0, "0.0.0.0", 0)
	loop[winRouteLoop] = 1
	table := winTable(
		winRoute(12, "0.0.0.0", 0, "192.168.1.1", 0), winRoute(12, "192.168.1.0", 24, "0.0.0.0", 256), winRoute(12, "::", 0, "fe80::1", 16),
		winRoute(40, "0.0.0.0", 0, "0.0.0.0", 0), winRoute(41, "0.0.0.0", 1, "10.8.0.1", 3), winRoute(41, "128.0.0.0", 1, "10.8.0.1", 3), loop)
	gates, ok := winGateways(table, func(index int, six bool) int {
		if six {
			return 1000
		}
		return index
	})
	router, six := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("fe80::1")
	want := []Gateway{
		{Index: 12, Addr: router, Metric: 12},
		{Index: 12, IPv6: true, Addr: six, Metric: 1016},
		{Index: 40, Metric: 40},
		{Index: 41, Addr: netip.MustParseAddr("10.8.0.1"), Metric: -1},
	}
	if !ok || !reflect.DeepEqual(gates, want) {
		t.Fatalf("%+v, %v; want %+v", gates, ok, want)
	}
	const unreachable, incomplete, probe, stale, reachable = 0, 1, 2, 4, 5
	other := []byte{2, 0, 0, 0, 0, 7}
	winResolve(gates, winTable(
		winNeigh(13, "192.168.1.1", other, stale), winNeigh(12, "192.168.1.2", other, stale), winNeigh(12, "192.168.1.1", macMAC, reachable),
		winNeigh(12, "192.168.1.1", other, incomplete), winNeigh(12, "192.168.1.1", other, unreachable), winNeigh(12, "192.168.1.1", nil, stale),
		winNeigh(12, "fe80::1", macMAC, probe)))
	want[0].MAC, want[1].MAC = macMAC, macMAC
	if !reflect.DeepEqual(gates, want) {
		t.Errorf("resolved %+v, want %+v", gates, want)
	}
	long := winNeigh(12, "192.168.1.1", macMAC, stale)
	binary.NativeEndian.PutUint32(long[winNeighMACLen:], 1<<31)
	winResolve(gates, winTable(long))
	if !reflect.DeepEqual(gates, want) {
		t.Error("an address of 2 GiB was taken")
	}
	for name, b := range map[string][]byte{"empty": nil, "cut": table[:len(table)-1], "huge": {255, 255, 255, 255, 0, 0, 0, 0}} {
		if _, ok := winGateways(b, func(int, bool) int { return 0 }); ok {
			t.Errorf("%s can be read", name)
		}
	}
	if gates, ok := winGateways(winTable(), nil); !ok || gates != nil {
		t.Error("a table without rows")
	}
}

func TestHeardInWindows(t *testing.T) {
	row := make([]byte, winIfaceRow)
	row[winIfaceIndex] = 12
	lost := map[int]bool{12: true}
	const first = 3 // MibInitialNotification
	for _, c := range []struct {
		name string
		kind uint32
		row  []byte
		want news
	}{
		{"parameter", winParameter, row, news{changed: true, lost: lost}},
		{"came", winAdd, row, news{changed: true, lost: lost}},
		{"left", winDelete, row, news{changed: true, lost: lost}},
		{"the first", first, row, news{}},
		{"an address or a route", winAdd, nil, news{changed: true}},
	} {
		if got := heardInWindows(c.kind, c.row); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestWindowsKinds(t *testing.T) {
	for _, c := range []struct {
		ifType      uint32
		description string
		kind        Kind
		virtual     bool
	}{
		{winEthernet, "Intel(R) Ethernet Connection (7) I219-LM", Wired, false},
		{winEthernet, "Realtek USB GbE Family Controller", Wired, false},
		{winWiFi, "Intel(R) Wi-Fi 6 AX201 160MHz", WiFi, false},
		{winWiFi, "Microsoft Wi-Fi Direct Virtual Adapter", 0, true},
		{winLoopback, "Software Loopback Interface 1", Loopback, false},
		{winOwn, "Tailscale Tunnel", Tunnel, false},
		{winOwn, "WireGuard Tunnel", Tunnel, false},
		{winEthernet, "TAP-Windows Adapter V9", Tunnel, false},
		{winEthernet, "Cisco AnyConnect Virtual Miniport Adapter for Windows x64", Tunnel, false},
		{winTunnel, "Microsoft Teredo Tunneling Adapter", Tunnel, false},
		{winEthernet, "Hyper-V Virtual Ethernet Adapter", 0, true},
		{winEthernet, "VirtualBox Host-Only Ethernet Adapter", 0, true},
		{winEthernet, "VMware Virtual Ethernet Adapter for VMnet8", 0, true},
		{winGSM, "Quectel EM160R-GL", Cell, false},
		{winCDMA, "Sierra Wireless", Cell, false},
		{winEthernet, "Bluetooth Device (Personal Area Network)", Other, false},
		{winPPP, "WAN Miniport (PPPOE)", Other, false},
		{144, "1394 Net Adapter", Other, false},
	} {
		if k, virtual := winKind(c.ifType, c.description); k != c.kind || virtual != c.virtual {
			t.Errorf("%s: %v (plumbing: %v), want %v (%v)", c.description, k, virtual, c.kind, c.virtual)
		}
	}
}

func FuzzWindowsTables(f *testing.F) {
	f.Add(winTable(winRoute(12, "0.0.0.0", 0, "192.168.1.1", 0), winRoute(12, "::", 0, "fe80::1", 16)), winTable(winNeigh(12, "192.168.1.1", macMAC, 4)))
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0}, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, routes, neighbours []byte) {
		gates, _ := winGateways(routes, func(int, bool) int { return 1 })
		winResolve(gates, neighbours)
		for _, g := range gates {
			if g.MAC != nil && !isMAC(g.MAC) {
				t.Fatalf("%+v", g)
			}
		}
		heardInWindows(1, routes)
	})
}
