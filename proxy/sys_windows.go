package proxy

import "golang.org/x/sys/windows"

var (
	errnoRefused = []error{windows.WSAECONNREFUSED}
	errnoHost    = []error{windows.WSAEHOSTUNREACH, windows.WSAEHOSTDOWN}
	errnoNetwork = []error{windows.WSAENETUNREACH, windows.WSAENETDOWN}
	errnoReset   = []error{windows.WSAECONNRESET, windows.WSAECONNABORTED}
	errnoBusy    = []error{windows.WSAEMFILE, windows.WSAENOBUFS} // this machine ran out of something
	errnoPipe    = []error{windows.ERROR_BROKEN_PIPE, windows.ERROR_NO_DATA}
	errnoInUse   = []error{windows.WSAEADDRINUSE, windows.WSAEACCES}
	errnoPassing = []error{windows.WSAEMFILE, windows.WSAENOBUFS, windows.WSAECONNRESET, windows.WSAECONNABORTED}
	errnoNoIPv6  = []error{windows.WSAEADDRNOTAVAIL, windows.WSAEAFNOSUPPORT, windows.WSAEPROTONOSUPPORT}
)

// look is first asked to wait, which the runtime does by a read of zero bytes; when that returns there are bytes or an end.
// Windows cannot wait behind unread bytes, so an app that sent some is no longer watched.
func look(fd uintptr, asked int, talked bool) presence {
	if asked == 0 {
		return there
	}
	var b [1]byte
	buf := windows.WSABuf{Len: 1, Buf: &b[0]}
	var n uint32
	flags := uint32(windows.MSG_PEEK)
	if err := windows.WSARecv(windows.Handle(fd), &buf, 1, &n, &flags, nil, nil); err != nil || (n == 0 && !talked) {
		return left
	}
	return unwatched
}

func presetMode(uintptr) {}
