//go:build unix

package sock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// TestTryWrite: it takes what fits, waits for nothing, and what it said it took arrives.
func TestTryWrite(t *testing.T) {
	near, far := pair(t)
	w := NewWriter(near)
	if w == nil {
		t.Fatal("a TCP connection cannot be written to without waiting")
	}
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	_ = near.SetWriteDeadline(time.Now().Add(10 * time.Second)) // only a failure meets it
	sent := 0
	for {
		n, err := w.TryWrite(block)
		if err != nil {
			t.Fatal(err)
		}
		if sent += n; n < len(block) {
			break
		}
		if sent > 1<<30 {
			t.Fatal("1 GiB went to somebody who reads nothing")
		}
	}
	near.(*net.TCPConn).CloseWrite()
	if got, err := io.Copy(io.Discard, far); err != nil || got != int64(sent) {
		t.Errorf("%d bytes arrived, %v; %d were taken", got, err, sent)
	}
}

// TestTryWriteFails: a reset, a closed connection and a deadline that is over are told.
func TestTryWriteFails(t *testing.T) {
	near, far := pair(t)
	w := NewWriter(near)
	_ = far.(*net.TCPConn).SetLinger(0)
	far.Close()
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("not reset: %v", err)
	}
	if _, err := w.TryWrite([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after a reset: %v", err)
	}
	near.Close()
	if _, err := w.TryWrite([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	near, _ = pair(t)
	_ = near.SetWriteDeadline(time.Unix(1, 0))
	if _, err := NewWriter(near).TryWrite([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after a deadline: %v", err)
	}
}

type wrapped struct{ *net.TCPConn }

// TestRawOfOthers: what has a Write of its own is not passed by.
func TestRawOfOthers(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	near, _ := pair(t)
	for _, c := range []net.Conn{a, wrapped{near.(*net.TCPConn)}} {
		if Raw(c) != nil {
			t.Errorf("%T can be written to without its Write", c)
		}
	}
	near.Close()
	_ = Raw(near) // whatever it is, no panic
}

// TestReadWrite: both wait, hold no buffer while they wait, tell an end from a failure, and allocate nothing.
func TestReadWrite(t *testing.T) {
	near, far := pair(t)
	buf, lent := make([]byte, 1<<16), 0
	r := NewReader(far, func() []byte { lent++; return buf }, func() { lent-- })
	w := NewWriter(near)
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	sum := make(chan int)
	go func() {
		total := 0
		for {
			n, err := r.Read()
			if total += n; err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("the end: %v", err)
				}
				break
			}
			lent--
		}
		sum <- total
	}()
	for range 8 {
		if n, err := w.Write(block); n != len(block) || err != nil {
			t.Fatal(n, err)
		}
	}
	near.(*net.TCPConn).CloseWrite()
	if got := <-sum; got != 8*len(block) || lent != 1 {
		t.Errorf("%d bytes arrived; %d buffers are held beside the last", got, lent-1)
	}
	msg, echo := []byte("ping"), make([]byte, 4)
	back := NewReader(near, func() []byte { return echo }, func() {})
	wf := NewWriter(far)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := wf.Write(msg); err != nil {
			t.Error(err)
		}
		if n, err := back.Read(); err != nil || n != 4 {
			t.Error(n, err)
		}
	}); n > 0 {
		t.Errorf("%.0f allocations a message", n)
	}
	_ = near.(*net.TCPConn).SetLinger(0)
	near.Close()
	for range 2 { // the reset itself, then what follows it
		_, err := r.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after a reset: %v", err)
		}
	}
}
