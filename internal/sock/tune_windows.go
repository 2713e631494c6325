package sock

import "golang.org/x/sys/windows"

// tcpMaxRT is TCP_MAXRT of ws2ipdef.h: how long to send again, in seconds.
const tcpMaxRT = 5

func tune(fd uintptr) {
	_ = windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_TCP, tcpMaxRT, int(userTimeout.Seconds()))
}
