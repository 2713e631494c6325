package link

import (
	"context"
	"io"
	"net"
	"testing"

	"linkproxy/state/identity"
)

// loopback is a link over one real TCP carrier on the loopback interface.
func loopback(b *testing.B, handle func(*Stream)) *Client {
	b.Helper()
	key, hostKey := testKey(b), testKey(b)
	host := NewHost(HostConfig{
		Key: hostKey, Process: Process{Instance: [16]byte{1}, Boot: 1},
		Trusted: func(identity.Fingerprint) bool { return true },
		Handle:  func(_ identity.Fingerprint, s *Stream) { handle(s) },
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _ = host.ServeConn(context.Background(), c) }()
		}
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	tr, err := Dial(b.Context(), conn, key, hostKey.Fingerprint())
	if err != nil {
		b.Fatal(err)
	}
	client := NewClient(ClientConfig{Process: Process{Instance: [16]byte{2}, Boot: 1}, Peer: hostKey.Fingerprint()})
	if _, err := client.Attach(b.Context(), tr, AttachOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close(); host.Close(); ln.Close() })
	return client
}

func BenchmarkUpload(b *testing.B) {
	done := make(chan struct{})
	client := loopback(b, func(s *Stream) {
		s.Accept()
		_, _ = io.Copy(io.Discard, s)
		_ = s.Close()
		close(done)
	})
	s, err := client.Open("127.0.0.1:9", OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	_ = s.CloseWrite()
	<-done
}

func BenchmarkEcho64(b *testing.B) {
	client := loopback(b, echo)
	s, err := client.Open("127.0.0.1:7", OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(s, buf); err != nil {
			b.Fatal(err)
		}
	}
}
