package netwatch

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"
)

// The messages of these tests are laid out as a Mac lays them out: see net/route.h of Darwin.

func bsdMsg(kind, index int, flags uint32, addrs map[int][]byte) []byte {
	b := make([]byte, sizeofRtMsg)
	var which uint32
	for place := range rtaxMax {
		if a, ok := addrs[place]; ok {
			which |= 1 << place
			b = append(b, a...)
			b = append(b, make([]byte, align(max(len(a), 1), 4)-len(a))...)
		}
	}
	binary.NativeEndian.PutUint16(b, uint16(len(b)))
	b[2], b[3] = bsdVersion, byte(kind)
	binary.NativeEndian.PutUint16(b[4:], uint16(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], which)
	return b
}

func bsdIf(kind, index int, flags uint32, size int) []byte {
	b := make([]byte, size)
	binary.NativeEndian.PutUint16(b, uint16(size))
	b[2], b[3] = bsdVersion, byte(kind)
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint16(b[12:], uint16(index))
	return b
}

func sin(text string) []byte {
	a := netip.MustParseAddr(text).As4()
	return append([]byte{16, bsdInet, 0, 0}, append(a[:], make([]byte, 8)...)...)
}

func sin6(text string, zone byte) []byte {
	a := netip.MustParseAddr(text).As16()
	if zone != 0 {
		a[3] = zone
	}
	return append([]byte{28, bsdInet6, 0, 0, 0, 0, 0, 0}, append(a[:], 0, 0, 0, 0)...)
}

func sdl(index int, name string, mac []byte) []byte {
	b := []byte{0, bsdLink, byte(index), 0, 6, byte(len(name)), byte(len(mac)), 0}
	b = append(append(b, name...), mac...)
	if len(b) < 20 {
		b = append(b, make([]byte, 20-len(b))...)
	}
	b[0] = byte(len(b))
	return b
}

var (
	macMAC      = []byte{0x3c, 0x58, 0xc2, 1, 2, 3}
	allMask     = []byte{} // a netmask of nothing has no length
	halfMask    = []byte{5, 0, 0, 0, 0x80}
	netMask     = []byte{7, 0, 0, 0, 0xff, 0xff, 0xff}
	allMask6    = []byte{2, bsdInet6}
	bsdDefault  = bsdMsg(bsdGet, 6, rtfUp|rtfGateway, map[int][]byte{0: sin("0.0.0.0"), 1: sin("192.168.1.1"), 2: allMask})
	bsdDefault6 = bsdMsg(bsdGet, 6, rtfUp|rtfGateway, map[int][]byte{0: sin6("::", 0), 1: sin6("fe80::1", 6), 2: allMask6})
	bsdScoped   = bsdMsg(bsdGet, 8, rtfUp|rtfGateway|rtfScoped, map[int][]byte{0: sin("0.0.0.0"), 1: sin("10.0.0.1"), 2: allMask})
	bsdHalf     = bsdMsg(bsdGet, 15, rtfUp, map[int][]byte{0: sin("0.0.0.0"), 1: sdl(15, "utun3", nil), 2: halfMask})
	bsdNetwork  = bsdMsg(bsdGet, 6, rtfUp, map[int][]byte{0: sin("192.168.1.0"), 1: sdl(6, "en0", nil), 2: netMask})
	bsdHost     = bsdMsg(bsdGet, 6, rtfUp|rtfLLInfo|4, map[int][]byte{0: sin("192.168.1.1"), 1: sdl(6, "en0", macMAC)})
	bsdHost6    = bsdMsg(bsdGet, 6, rtfUp|rtfLLInfo|4, map[int][]byte{0: sin6("fe80::1", 6), 1: sdl(6, "en0", macMAC)})
)

func concat(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func TestBSDTables(t *testing.T) {
	reject := bsdMsg(bsdGet, 6, rtfUp|rtfReject, map[int][]byte{0: sin("0.0.0.0"), 1: sin("127.0.0.1"), 2: allMask})
	down := bsdMsg(bsdGet, 6, rtfGateway, map[int][]byte{0: sin("0.0.0.0"), 1: sin("192.168.1.1"), 2: allMask})
	host := bsdMsg(bsdGet, 6, rtfUp|4, map[int][]byte{0: sin("0.0.0.0"), 1: sin("192.168.1.1")})
	gates, ok := bsdGateways(concat(bsdDefault, bsdNetwork, bsdHost, bsdScoped, bsdHalf, bsdDefault6, reject, down, host))
	want := []Gateway{
		{Index: 6, Addr: netip.MustParseAddr("192.168.1.1")},
		{Index: 8, Addr: netip.MustParseAddr("10.0.0.1"), Metric: scopedMetric},
		{Index: 15, Metric: -1},
		{Index: 6, IPv6: true, Addr: netip.MustParseAddr("fe80::1")},
	}
	if !ok || !reflect.DeepEqual(gates, want) {
		t.Fatalf("%+v, %v; want %+v", gates, ok, want)
	}
	bsdResolve(gates, concat(bsdNetwork, bsdHost, bsdHost6))
	want[0].MAC, want[3].MAC = macMAC, macMAC
	if !reflect.DeepEqual(gates, want) {
		t.Errorf("resolved %+v, want %+v", gates, want)
	}
	bad := append([]byte(nil), bsdDefault...)
	bad[2] = 4
	for name, table := range map[string][]byte{
		"another version": bad, "cut": bsdDefault[:len(bsdDefault)-1], "a header": bsdDefault[:3], "no address": bsdMsg(bsdGet, 1, 1, nil)[:12],
	} {
		if _, ok := bsdGateways(table); ok {
			t.Errorf("%s can be read", name)
		}
	}
}

func TestHeardInBSD(t *testing.T) {
	as := func(kind byte, b []byte) []byte {
		b = append([]byte(nil), b...)
		b[3] = kind
		return b
	}
	lost := news{changed: true, lost: map[int]bool{6: true}}
	for _, c := range []struct {
		name string
		b    []byte
		want news
	}{
		{"an address", bsdIf(bsdNewAddr, 6, 0, 20), news{changed: true}},
		{"an address left", bsdIf(bsdDelAddr, 6, 0, 20), news{changed: true}},
		{"a link came up", bsdIf(bsdIfInfo, 6, 0x8863, 112), news{changed: true}},
		{"a link lost its carrier", bsdIf(bsdIfInfo, 6, 0x8823, 112), lost},
		{"a link was taken down", bsdIf(bsdIfInfo, 6, 0x8842, 112), lost},
		{"a default route", as(bsdAdd, bsdDefault), news{changed: true}},
		{"it left", as(bsdDelete, bsdDefault), news{changed: true}},
		{"a neighbour", as(bsdAdd, bsdHost), news{}},
		{"an unrelated route", as(bsdAdd, bsdNetwork), news{}},
		{"an answer to somebody", bsdDefault, news{}},
		{"a group was joined", bsdIf(0xf, 6, 0, 16), news{}},
		{"the second of two", concat(as(bsdAdd, bsdHost), bsdIf(bsdIfInfo, 6, 0, 112)), lost},
		{"nonsense", []byte("nonsense"), news{changed: true}},
	} {
		if got := heardInBSD(c.b); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestDarwinKind(t *testing.T) {
	for functional, want := range map[uint32]struct {
		k       Kind
		virtual bool
	}{0: {}, 1: {Loopback, false}, 2: {Wired, false}, 3: {WiFi, false}, 4: {0, true}, 5: {Cell, false}, 6: {0, true}, 7: {0, true}, 99: {}} {
		if k, virtual := darwinKind(functional); k != want.k || virtual != want.virtual {
			t.Errorf("%d: %v, %v", functional, k, virtual)
		}
	}
}

func FuzzBSD(f *testing.F) {
	for _, b := range [][]byte{bsdDefault, bsdDefault6, bsdScoped, bsdHalf, bsdNetwork, bsdHost, bsdHost6, bsdIf(bsdIfInfo, 6, 0, 112)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		heardInBSD(b)
		gates, _ := bsdGateways(b)
		bsdResolve(gates, b)
		for _, g := range gates {
			if g.Index == 0 || g.MAC != nil && !isMAC(g.MAC) {
				t.Fatalf("%+v", g)
			}
		}
	})
}
