package dialer

import (
	"net"
	"testing"

	"linkproxy/link"
)

// BenchmarkDial measures a stream's way through a peer's loop: opened, answered by the host, and reset, over loopback.
func BenchmarkDial(b *testing.B) {
	key, hostKey := testKey(b), testKey(b)
	host := link.NewHost(link.HostConfig{
		Key: hostKey, Process: link.Process{Instance: [16]byte{1}, Boot: 1},
		Trusted: func(fpType) bool { return true },
		Handle:  func(_ fpType, s *link.Stream) { s.Accept(); _, _ = s.Read(make([]byte, 1)); _ = s.Close() },
	})
	defer host.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = host.ServeConn(b.Context(), c)
		}
	}()
	defer func() { ln.Close(); <-done }()
	peer := Peer{Name: "devbox", ID: hostKey.Fingerprint(), Standby: StandbyNever}
	peer.Routes = append(peer.Routes, mustRoute("lan:"+ln.Addr().String()))
	d := New(Config{Key: key, Process: link.Process{Instance: [16]byte{2}, Boot: 1}, Peers: []Peer{peer}})
	defer d.Close()
	b.ReportAllocs()
	for b.Loop() {
		c, err := d.DialContext(b.Context(), "devbox", echoTarget)
		if err != nil {
			b.Fatal(err)
		}
		c.(*link.Stream).Reset(0)
	}
}
