package host

import (
	"io"
	"net"
	"testing"
	"time"

	"linkproxy/internal/pipe"
	"linkproxy/testenv"
)

// aborting is one end of a connection that tells like a link's stream when it fails.
type aborting struct {
	*testenv.Conn
	f chan func(failed bool)
}

func (a *aborting) OnGone(f func(failed bool)) {
	if f != nil {
		a.f <- f
	}
}

// TestSilentTargetIsLetGo: a stream that has said all and then fails (dropped, revoked, its link ended) takes the connection
// to its target along, though that says nothing.
func TestSilentTargetIsLetGo(t *testing.T) {
	t.Run("failed", func(t *testing.T) { testSilentTarget(t, true) })
	t.Run("not wanted", func(t *testing.T) { testSilentTarget(t, false) })
}

func testSilentTarget(t *testing.T, failed bool) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	target := make(chan net.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			target <- c
		}
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, far := testenv.Pipe()
	st := &aborting{near, make(chan func(failed bool), 1)}
	done := make(chan pipe.Result, 1)
	go func() { done <- pipe.Copy(conn, st) }()
	abort := <-st.f
	_ = far.CloseWrite()
	c := <-target
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the target read %v", err)
	}
	abort(failed)
	select {
	case r := <-done:
		if failed != (r.Err != nil) {
			t.Errorf("%+v", r)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the copy goes on")
	}
}
