package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"linkproxy/testenv/streamcheck"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serveHere runs `serve` until the test ends, and returns its address.
func serveHere(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"serve", "127.0.0.1:0"}, w, io.Discard)
		w.Close()
	}()
	buf := make([]byte, 100)
	n, err := r.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("serve: exit status %d", code)
		}
	})
	return strings.TrimSpace(strings.TrimPrefix(string(buf[:n]), "listening on "))
}

func TestClientAndServer(t *testing.T) {
	addr := serveHere(t)
	for _, args := range []string{
		"tick ADDR --for 100ms --json", "both --bytes 1000000 --seed 5 --json ADDR", "up --for 50ms ADDR --json",
		"keys --for 100ms --every 10ms ADDR --json --size 100", "idle --for 50ms ADDR --json", "down --bytes 100000 --read-rate 1000000 --json ADDR",
	} {
		var out, log bytes.Buffer
		code := run(t.Context(), strings.Fields(strings.Replace(args, "ADDR", addr, 1)), &out, &log)
		var r streamcheck.Report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil || code != 0 || !r.Whole() || r.Up.Sent+r.Down.Sent == 0 {
			t.Errorf("%s: exit status %d, %v: %s%s", args, code, err, &out, &log)
		}
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"tick", "--for", "50ms", addr}, &out, io.Discard); code != 0 || !strings.Contains(out.String(), "longest stall") {
		t.Errorf("exit status %d: %s", code, &out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Ctrl-C
	if code := run(ctx, []string{"tick", addr}, &out, io.Discard); code != 0 {
		t.Errorf("ended by hand: exit status %d: %s", code, &out)
	}
}

func TestWrongUse(t *testing.T) {
	for _, args := range []string{"", "tick", "walk 127.0.0.1:1", "tick a b c", "tick --no-such-flag x", "tick --socks a --http b x", "serve a b", "tick x -- cat"} {
		var out, log bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &log); code != 2 || log.Len() == 0 || out.Len() != 0 {
			t.Errorf("%q: exit status %d, said %q and %q", args, code, &out, &log)
		}
	}
	for _, args := range []string{"tick 127.0.0.1:1", "serve no.port", "tick -- /no/such/program", "tick --socks 127.0.0.1:1 x:1"} {
		var out, log bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &log); code != 1 || log.Len() == 0 || out.Len() != 0 {
			t.Errorf("%q: exit status %d, said %q and %q", args, code, &out, &log)
		}
	}
}
