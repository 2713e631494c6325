package pipe

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEndedIsAsked: who has ended its own way is asked by keep-alive whether it is there, though nobody else is.
func TestEndedIsAsked(t *testing.T) {
	far, near := pairOf(t, "tcp")
	if err := near.(*net.TCPConn).SetKeepAlive(false); err != nil {
		t.Fatal(err)
	}
	raw, err := near.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	asked := func() (on int) {
		if err := raw.Control(func(fd uintptr) { on, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE) }); err != nil {
			t.Error(err)
		}
		return on
	}
	s := newFakeStream()
	w := &world{app: far, result: make(chan Result, 1)}
	go func() { w.result <- copyAfter(near, s, nil, deadline) }()
	closeWriteOf(t, far)
	tick, late := time.NewTicker(time.Millisecond), time.After(deadline)
	defer tick.Stop()
	for asked() != 1 {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("nobody asks")
		}
	}
	leave(t, far)
	w.wait(t)
}
