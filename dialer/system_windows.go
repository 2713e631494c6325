package dialer

import "golang.org/x/sys/windows"

// errnosLocal: no route, no address, no interface, no such family. WSAEHOSTUNREACH is not among them: it comes after the
// neighbour did not answer, or from a router.
var errnosLocal = []error{
	windows.WSAENETUNREACH, windows.WSAENETDOWN, windows.WSAEADDRNOTAVAIL, windows.WSAEAFNOSUPPORT,
}

// errRefused: a machine has answered, and nobody listens there.
const errRefused = windows.WSAECONNREFUSED
