package sock

import (
	"encoding/binary"

	"golang.org/x/sys/windows"
)

// Options of ws2ipdef.h that package windows does not name.
const (
	ipUnicastIf   = 31
	ipv6UnicastIf = 31
)

// bind: the index goes in network byte order for IPv4, in the machine's for IPv6.
func bind(fd uintptr, _ string, index int, v6 bool) {
	if v6 {
		_ = windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_IPV6, ipv6UnicastIf, index)
		return
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(index))
	_ = windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_IP, ipUnicastIf, int(int32(binary.NativeEndian.Uint32(b[:]))))
}
