package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func stdioPair(t testing.TB) (near net.Conn, far *net.TCPConn) {
	t.Helper()
	l := listen(t)
	defer l.Close()
	near = connect(t, l.Addr().String())
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = near.SetDeadline(time.Time{})
	_ = c.SetDeadline(time.Now().Add(patience))
	return near, c.(*net.TCPConn)
}

func await(t testing.TB, ch <-chan error) error {
	t.Helper()
	select {
	case err := <-ch:
		return err
	case <-time.After(patience):
		t.Fatal("Stdio did not return")
		return nil
	}
}

// TestStdioHalfClose: the end of input is passed on, the whole answer comes.
func TestStdioHalfClose(t *testing.T) {
	near, far := stdioPair(t)
	question, answer := noise(1<<20), noise(2<<20)
	go func() {
		got, err := io.ReadAll(far)
		if err != nil || !bytes.Equal(got, question) {
			t.Errorf("the far side got %d bytes, %v", len(got), err)
		}
		_, _ = far.Write(answer)
		far.Close()
	}()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- Stdio(context.Background(), bytes.NewReader(question), &out, near) }()
	if err := await(t, done); err != nil || !bytes.Equal(out.Bytes(), answer) {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}

// TestStdioEndsWithFarSide: an input that never ends keeps nothing alive; a real pipe as standard input has.
func TestStdioEndsWithFarSide(t *testing.T) {
	for _, how := range []string{"end", "reset"} {
		t.Run(how, func(t *testing.T) {
			near, far := stdioPair(t)
			in, feed, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer feed.Close()
			outR, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer outR.Close()
			done := make(chan error, 1)
			go func() { done <- Stdio(context.Background(), in, out, near); out.Close() }()
			send2 := func(w io.Writer, s string) {
				if _, err := io.WriteString(w, s); err != nil {
					t.Fatal(err)
				}
			}
			send2(feed, "ping")
			expect(t, far, "ping")
			send2(far, "pong")
			expect(t, outR, "pong")
			if how == "reset" {
				_ = far.SetLinger(0)
			}
			far.Close()
			err = await(t, done)
			switch {
			case how == "end" && err != nil:
				t.Errorf("a clean end gave %v", err)
			case how == "reset" && (err == nil || ExitCode(err) != ExitLost):
				t.Errorf("a reset gave %v, exit %d", err, ExitCode(err))
			}
		})
	}
}

// TestStdioFarEndsWhileSending: the far side has finished; that we had more to say is no failure.
func TestStdioFarEndsWhileSending(t *testing.T) {
	near, far := stdioPair(t)
	in, feed := io.Pipe()
	defer in.Close()
	go func() {
		for {
			if _, err := feed.Write(noise(4096)); err != nil {
				return
			}
		}
	}()
	done := make(chan error, 1)
	var out bytes.Buffer
	go func() { done <- Stdio(context.Background(), in, &out, near) }()
	if _, err := io.CopyN(io.Discard, far, 100_000); err != nil {
		t.Fatal(err)
	}
	send(t, far, "bye")
	_ = far.CloseWrite()
	if err := await(t, done); err != nil || out.String() != "bye" {
		t.Errorf("%v, %q", err, out.String())
	}
}

type brokenWriter struct{}

var errBroken = errors.New("nobody reads")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

// TestStdioBrokenOutput: the far side sees a reset, the caller the reason, though input never ends.
func TestStdioBrokenOutput(t *testing.T) {
	near, far := stdioPair(t)
	in, feed := io.Pipe()
	defer feed.Close()
	done := make(chan error, 1)
	go func() { done <- Stdio(context.Background(), in, brokenWriter{}, near) }()
	send(t, far, "x")
	err := await(t, done)
	if out, ok := errors.AsType[*OutputError](err); !ok || !errors.Is(err, errBroken) || out.NobodyReads() || ExitCode(err) != ExitOther {
		t.Error(err)
	}
	if _, err := far.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the far side read %v, want a reset", err)
	}
}

func TestStdioCancelled(t *testing.T) {
	near, far := stdioPair(t)
	in, feed := io.Pipe()
	defer feed.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("interrupted")
	done := make(chan error, 1)
	go func() { done <- Stdio(ctx, in, io.Discard, near) }()
	cancel(stop)
	if err := await(t, done); !errors.Is(err, stop) {
		t.Error(err)
	}
	if _, err := far.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the far side read %v, want a reset", err)
	}
}

// TestStdioInputFails: an input that breaks is not an end.
func TestStdioInputFails(t *testing.T) {
	near, far := stdioPair(t)
	in, feed := io.Pipe()
	_ = feed.CloseWithError(errBroken)
	done := make(chan error, 1)
	go func() { done <- Stdio(context.Background(), in, io.Discard, near) }()
	if err := await(t, done); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if _, err := far.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the far side read %v, want a reset", err)
	}
}
