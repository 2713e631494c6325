//go:build unix

package dialer

import "golang.org/x/sys/unix"

// errnosLocal: no route, no address, no interface, no such family. EHOSTUNREACH is not among them: it comes after the
// neighbour did not answer, or from a router.
var errnosLocal = []error{unix.ENETUNREACH, unix.ENETDOWN, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT}

// errRefused: a machine has answered, and nobody listens there.
const errRefused = unix.ECONNREFUSED
