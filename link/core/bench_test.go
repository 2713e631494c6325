package core

import (
	"testing"
	"time"

	"linkproxy/link/frame"
)

// ring is memory that never asks for more.
type ring struct{ free [][]byte }

func (m *ring) Get(n int) []byte {
	if k := len(m.free); k > 0 {
		b := m.free[k-1]
		m.free = m.free[:k-1]
		return b[:min(n, cap(b))]
	}
	return make([]byte, min(n, 32<<10), 32<<10)
}

func (m *ring) Put(b []byte) { m.free = append(m.free, b) }

// BenchmarkBulk is what both cores cost for one 16 KiB write that is carried, read and acknowledged.
func BenchmarkBulk(b *testing.B) { benchmark(b, 16<<10-100) }

// BenchmarkKeystroke is the same for one byte.
func BenchmarkKeystroke(b *testing.B) { benchmark(b, 1) }

func benchmark(b *testing.B, n int) {
	var side [2]*Core
	var k [2]*Carrier
	for i := range side {
		side[i] = New(Config{Client: i == client, Memory: &ring{}, Account: &account{limit: 1 << 30, maxStreams: 10}})
	}
	var f frame.Frame
	k[client], f = side[client].Begin(1, frame.Active, 0, time.Millisecond)
	k[host], _ = side[host].Admit(1, &f, time.Millisecond)
	side[client].Accepted(1, k[client])
	s, _ := side[client].Open(1, "t", 0, 0)
	now, out, rec, p := Time(1), Out{}, make([]byte, 0, frame.Max), make([]byte, n)
	move := func() (busy bool) {
		for d, c := range side {
			c.Advance(now)
			c.Wake(now)
			out = out.Reset()
			c.TakeInto(&out)
			for len(out.Wake) > 0 {
				r := c.Pull(now, k[d], rec)
				if len(r) == 0 {
					break
				}
				c.Wrote(now, k[d])
				busy = true
				side[1-d].Arrived(now, k[1-d], len(r))
				for len(r) > 0 {
					m, err := frame.Parse(r, &f)
					if err != nil {
						b.Fatal(err)
					}
					if err := side[1-d].Recv(now, k[1-d], &f); err != nil {
						b.Fatal(err)
					}
					r = r[m:]
				}
			}
		}
		return busy
	}
	for move() {
	}
	t := side[host].streams[s.ID]
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for b.Loop() {
		if got := s.Write(now, p); got != n {
			b.Fatalf("took %d of %d bytes", got, n)
		}
		for move() {
		}
		now += 30 * time.Millisecond // acknowledgements are due
		for move() {
		}
		for q := t.Peek(); len(q) > 0; q = t.Peek() {
			t.Discard(now, len(q))
		}
	}
}
