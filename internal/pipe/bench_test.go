package pipe

import (
	"io"
	"testing"
)

// BenchmarkBulk is one direction in full flow: between bare TCP connections the kernel splices.
func BenchmarkBulk(b *testing.B) {
	for _, nw := range networks {
		b.Run(nw.app+"-"+nw.peer, func(b *testing.B) {
			w := newWorld(b, nw.app, nw.peer)
			const size = 1 << 20
			chunk := noise(size)
			go func() {
				for range b.N {
					if _, err := w.target.Write(chunk); err != nil {
						return
					}
				}
				closeWriteOf(b, w.target)
			}()
			b.SetBytes(size)
			b.ResetTimer()
			if n, err := io.Copy(io.Discard, w.app); err != nil || n != int64(b.N)*size {
				b.Fatal(n, err)
			}
			b.StopTimer()
			closeWriteOf(b, w.app)
			w.wait(b)
		})
	}
}

// BenchmarkRoundTrip is 64 bytes there and back.
func BenchmarkRoundTrip(b *testing.B) {
	for _, nw := range networks {
		b.Run(nw.app+"-"+nw.peer, func(b *testing.B) {
			w := newWorld(b, nw.app, nw.peer)
			msg, got := noise(64), make([]byte, 64)
			b.ReportAllocs()
			for b.Loop() {
				for _, way := range [][2]io.ReadWriter{{w.app, w.target}, {w.target, w.app}} {
					if _, err := way[0].Write(msg); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(way[1], got); err != nil {
						b.Fatal(err)
					}
				}
			}
			closeWriteOf(b, w.app)
			closeWriteOf(b, w.target)
			w.wait(b)
		})
	}
}
