package sock

import "golang.org/x/sys/unix"

func bind(fd uintptr, _ string, index int, v6 bool) {
	if v6 {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_BOUND_IF, index)
		return
	}
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BOUND_IF, index)
}
