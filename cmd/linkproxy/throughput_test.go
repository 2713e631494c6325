package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"linkproxy/dialer"
	"linkproxy/dialer/route"
	"linkproxy/host"
	"linkproxy/link"
	"linkproxy/proxy"
	"linkproxy/state/identity"
)

// These benchmarks carry bytes from an app's socket to a target's through everything `up` and `host` put between them, and
// through the yardstick of docs/performance.md, a plain relay over TLS, all in one process. What counts is their ratio.

const benchBlock = 1 << 20

// sinkTarget reads what comes, or sends for ever, by the first byte; it answers other bytes with an echo.
func sinkTarget(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serveBench(c)
		}
	}()
	return ln.Addr().String()
}

func serveBench(c net.Conn) {
	defer c.Close()
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return
	}
	switch first[0] {
	case 'd':
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	case 'u':
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	default:
		_, _ = io.Copy(c, c)
	}
}

// viaLinkproxy starts host, dialer and a fixed port, and returns the port's address.
func viaLinkproxy(b *testing.B, target string) string {
	dir := b.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	hostKey, err := identity.NewKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	key, err := identity.NewKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	trust, err := identity.OpenTrust(dir)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := trust.Add(key.Fingerprint(), "bench", time.Now()); err != nil {
		b.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	h := host.New(host.Config{Key: hostKey, Process: link.Process{Instance: [16]byte{1}, Boot: 1}, Trust: trust, Log: quiet})
	ln, err := host.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = h.Serve(ln) })
	r, err := route.ParseRoute("lan:"+ln.Addr().String(), 1)
	if err != nil {
		b.Fatal(err)
	}
	d := dialer.New(dialer.Config{Key: key, Process: link.Process{Instance: [16]byte{2}, Boot: 1}, Log: quiet, Peers: []dialer.Peer{
		{Name: "host", ID: hostKey.Fingerprint(), Routes: []route.Route{r}},
	}})
	f := proxy.NewForward(proxy.ForwardConfig{
		Peer: "host", Target: target, Logger: quiet,
		Dial: func(ctx context.Context, r proxy.Request) (net.Conn, error) {
			return d.Open(ctx, r.Peer, r.Target, dialer.OpenOptions{})
		},
	})
	fl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	wg.Go(func() { _ = f.Serve(fl) })
	b.Cleanup(func() { f.Close(); d.Close(); h.Close(); wg.Wait() })
	return fl.Addr().String()
}

// viaTLS starts the yardstick: plain TCP to TLS 1.3 to plain TCP, one TLS connection for each of the app's.
func viaTLS(b *testing.B, target string) string {
	key, err := identity.NewKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	cfg := &tls.Config{
		Certificates: []tls.Certificate{key.Certificate()}, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		SessionTicketsDisabled: true,
	}
	far := relay(b, func() (net.Listener, error) { return tls.Listen("tcp", "127.0.0.1:0", cfg) },
		func() (net.Conn, error) { return net.Dial("tcp", target) })
	return relay(b, func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		func() (net.Conn, error) { return tls.Dial("tcp", far, cfg) })
}

func relay(b *testing.B, listen func() (net.Listener, error), dial func() (net.Conn, error)) string {
	ln, err := listen()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer a.Close()
				z, err := dial()
				if err != nil {
					return
				}
				defer z.Close()
				go func() {
					_, _ = io.CopyBuffer(struct{ io.Writer }{z}, struct{ io.Reader }{a}, make([]byte, 32<<10))
					z.Close()
				}()
				_, _ = io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{z}, make([]byte, 32<<10))
			}()
		}
	}()
	return ln.Addr().String()
}

var ways = []struct {
	name string
	via  func(*testing.B, string) string
}{{"tls-relay", viaTLS}, {"linkproxy", viaLinkproxy}}

func start(b *testing.B, addr string, what byte) net.Conn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.Write([]byte{what}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func BenchmarkDown(b *testing.B)  { benchBulk(b, 'd', 1) }
func BenchmarkDown8(b *testing.B) { benchBulk(b, 'd', 8) }
func BenchmarkUp(b *testing.B)    { benchBulk(b, 'u', 1) }
func BenchmarkUp8(b *testing.B)   { benchBulk(b, 'u', 8) }

// benchBulk has so many apps carry a block each at a time, over connections that are open already.
func benchBulk(b *testing.B, what byte, streams int) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			at := w.via(b, sinkTarget(b))
			blocks := make(chan struct{})
			var apps sync.WaitGroup
			for range streams {
				c := start(b, at, what)
				apps.Go(func() {
					buf := make([]byte, benchBlock)
					for range blocks {
						if err := moveBlock(c, what, buf); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.SetBytes(benchBlock)
			before := cpuTime()
			for b.Loop() {
				blocks <- struct{}{}
			}
			close(blocks)
			apps.Wait()
			b.ReportMetric((cpuTime()-before).Seconds()*float64(1<<30)/float64(b.N*benchBlock), "cpu-s/GiB")
		})
	}
}

func moveBlock(c net.Conn, what byte, buf []byte) error {
	if what == 'd' {
		_, err := io.ReadFull(c, buf)
		return err
	}
	_, err := c.Write(buf)
	return err
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) { roundTrips(b, start(b, w.via(b, sinkTarget(b)), 'e')) })
	}
}

// BenchmarkRoundTripBesideBulk measures a keystroke while a download runs through the same link.
func BenchmarkRoundTripBesideBulk(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			at := w.via(b, sinkTarget(b))
			bulk := start(b, at, 'd')
			go func() {
				buf := make([]byte, 256<<10)
				for {
					if _, err := bulk.Read(buf); err != nil {
						return
					}
				}
			}()
			roundTrips(b, start(b, at, 'e'))
		})
	}
}

func roundTrips(b *testing.B, c net.Conn) {
	buf := make([]byte, 64)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf[:min(64, len(buf))]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConnect measures a new connection and its first echo.
func BenchmarkConnect(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			at := w.via(b, sinkTarget(b))
			for b.Loop() {
				c, err := net.Dial("tcp", at)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Write([]byte("ee")); err != nil {
					b.Fatal(err)
				}
				var one [1]byte
				if _, err := io.ReadFull(c, one[:]); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}
