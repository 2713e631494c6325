//go:build unix

package main_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// newWeb serves bytes on loopback: GET /SEED/SIZE sends that many, PUT answers with the SHA-256 of what came. handle adds
// to it.
func newWeb(t *testing.T, handle func(*http.ServeMux)) (addr string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{seed}/{size}", func(w http.ResponseWriter, r *http.Request) {
		seed, err1 := strconv.ParseUint(r.PathValue("seed"), 10, 64)
		size, err2 := strconv.ParseInt(r.PathValue("size"), 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		w.Header().Set("Cache-Control", "no-store")
		_, _ = io.Copy(w, io.LimitReader(randomBytes(seed), size)) // the client judges what came
	})
	mux.HandleFunc("PUT /", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		if err != nil {
			t.Errorf("an upload broke after %d bytes: %v", n, err)
			return
		}
		fmt.Fprintf(w, "%x", h.Sum(nil))
	})
	if handle != nil {
		handle(mux)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	gone := make(chan struct{})
	go func() { defer close(gone); _ = srv.Serve(ln) }() // ends by Close
	t.Cleanup(func() { srv.Close(); <-gone })
	return ln.Addr().String()
}

func TestProgramCurl(t *testing.T) {
	t.Parallel()
	curl := program(t, "curl")
	web := newWeb(t, nil)
	w := newWorld(t, web, false)
	const size = 52 << 20 // each way, by each of three ways in
	seed := w.rand.Uint64()
	file := filepath.Join(w.dir, "file")
	want := randomFile(t, w.rand, file, size)
	sent := hashStream(seed, size)

	behind := "http://devbox:" + portOf(web)
	ways := []struct{ name, base, proxy string }{
		{"socks5h", behind, "socks5h://" + w.socks},
		{"HTTP proxy", behind, "http://" + w.socks},
		{"fixed port", "http://" + w.fixed, ""},
	}
	all := func(n int, each func(name, base string, flags []string) error) *cutter {
		w.setRate(6 << 20)
		var ended []<-chan error
		for _, way := range ways {
			flags := []string{"-q", "--silent", "--show-error", "--fail", "--noproxy", "", "--proxy", way.proxy}
			ended = append(ended, w.background(func() error {
				if err := each(way.name, way.base, flags); err != nil {
					return fmt.Errorf("by %s: %w", way.name, err)
				}
				return nil
			}))
		}
		c := w.cut(n)
		<-c.enough
		w.setRate(0)
		for _, e := range ended {
			if err := <-e; err != nil {
				t.Error(err)
			}
		}
		return c
	}
	down := all(8, func(name, base string, flags []string) error {
		to := filepath.Join(w.dir, strings.ReplaceAll(name, " ", "-"))
		if _, err := w.try("", curl, append(flags, "--output", to, fmt.Sprintf("%s/%d/%d", base, seed, size))...); err != nil {
			return err
		}
		if got := hashFile(t, to); got != sent {
			return fmt.Errorf("what came down has SHA-256 %s, want %s", got, sent)
		}
		return nil
	})
	up := all(8, func(_, base string, flags []string) error {
		got, err := w.try("", curl, append(flags, "--upload-file", file, base+"/up")...)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("what went up has SHA-256 %s, want %s", got, want)
		}
		return nil
	})
	w.finish(down, up)
}

// TestProgramsSeeAFault proves that these tests can fail: a host that loses one byte of what it sends again is noticed.
func TestProgramsSeeAFault(t *testing.T) {
	t.Parallel()
	curl := program(t, "curl")
	web := newWeb(t, nil)
	w := newWorld(t, web, false, "--break", "replay")
	const size = 12 << 20
	seed := w.rand.Uint64()
	to := filepath.Join(w.dir, "file")
	w.setRate(2 << 20)
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	ended := w.background(func() error {
		return exec.CommandContext(ctx, curl, "-q", "-sS", "--fail", "--output", to, fmt.Sprintf("http://%s/%d/%d", w.fixed, seed, size)).Run()
	})
	c := w.cut(3)
	select {
	case <-c.enough:
	case err := <-ended:
		if err != nil {
			return // noticed already
		}
		t.Fatal("curl was through before three cuts")
	}
	w.setRate(0)
	if err := <-ended; err == nil && hashFile(t, to) == hashStream(seed, size) {
		t.Error("a byte was lost and nobody noticed")
	}
}

// hashStream is the SHA-256 of the first size bytes that follow from seed.
func hashStream(seed uint64, size int64) string {
	h := sha256.New()
	_, _ = io.Copy(h, io.LimitReader(randomBytes(seed), size)) // neither can fail
	return fmt.Sprintf("%x", h.Sum(nil))
}
