package sock

import "net"

// Bind has a socket that is not yet connected use one interface and no other, whatever the routing table says: a VPN that
// takes over a private prefix must not take the machine on the same cable away. It does what can be done; where the system
// refuses, its own choice stays.
func Bind(fd uintptr, name string, v6 bool) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return
	}
	bind(fd, name, i.Index, v6)
}
