package core

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// tape is the source of every choice of a schedule: one byte, one choice. Zero is always the dullest one and what an
// exhausted tape gives, so cutting and zeroing bytes makes a schedule simpler.
type tape struct {
	b []byte
	i int
}

// n is a choice in [0, k), k ≤ 256.
func (t *tape) n(k int) int {
	if t.i >= len(t.b) {
		return 0
	}
	t.i++
	return int(t.b[t.i-1]) % k
}

// wide is a choice in [0, k) for larger k.
func (t *tape) wide(k int) int { return (t.n(256)<<16 | t.n(256)<<8 | t.n(256)) % k }

func (t *tape) done() bool { return t.i >= len(t.b) }

// tapeOf is the tape of a seed.
func tapeOf(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0x11a2))
	b := make([]byte, 100+r.IntN(900))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// failure is how a schedule ends that broke a promise.
type failure string

// runTape plays a schedule; the answer says which promise broke, empty: none.
func runTape(b []byte, st *stats, trace func(string)) (broken string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			broken = string(p)
		default:
			broken = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	newWorld(&tape{b: b}, st, trace).play()
	return ""
}

// numbers are what may differ between two messages about the same broken promise.
var numbers = regexp.MustCompile(`(?s)[0-9.]+[a-zµ]*|0x[0-9a-f]+|goroutine.*`)

// shrink looks for a simpler tape that breaks the same promise.
func shrink(b []byte) []byte {
	kind := numbers.ReplaceAllString(runTape(b, newStats(), nil), "")
	bad := func(b []byte) bool { return numbers.ReplaceAllString(runTape(b, newStats(), nil), "") == kind }
	for tries, better := 0, true; better && tries < 3000; {
		better = false
		for size := len(b) / 2; size >= 1; size /= 2 {
			for from := 0; from+size <= len(b) && tries < 3000; {
				tries++
				c := append(append([]byte(nil), b[:from]...), b[from+size:]...)
				if bad(c) {
					b, better = c, true
				} else {
					from += size
				}
			}
		}
		for i := range b {
			for _, v := range []byte{0, b[i] / 2, b[i] - 1} {
				if v < b[i] {
					tries++
					c := append([]byte(nil), b...)
					c[i] = v
					if bad(c) {
						b, better = c, true
						break
					}
				}
			}
		}
	}
	return b
}

// report fails the test with the simplest schedule found, and how to keep it.
func report(t *testing.T, what string, tape []byte, broken string) {
	t.Helper()
	small := tape
	if *shrinking {
		small = shrink(tape)
	}
	var lines []string
	again := runTape(small, newStats(), func(s string) { lines = append(lines, s) })
	if len(lines) > 400 {
		lines = append(lines[:200], append([]string{"…"}, lines[len(lines)-200:]...)...)
	}
	t.Fatalf("%s: %s\nshrunk to %d bytes: %s\n%s\nto keep it: write this to testdata/schedules/NAME.hex\n%s",
		what, broken, len(small), again, strings.Join(lines, "\n"), hex.EncodeToString(small))
}

// keptTapes are schedules that once broke a promise, from testdata.
func keptTapes(t testing.TB) map[string][]byte {
	names, err := filepath.Glob("testdata/schedules/*.hex")
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept[name] = b
	}
	return kept
}
