package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestReload: a process that has a config in force takes neither the moment in which a file is empty, missing or half
// written for a config, nor waits for ever.
func TestReload(t *testing.T) {
	const (
		good = "[listen]\nsocks = \"127.0.0.1:1081\"\n"
		half = "[listen]\n"
	)
	for _, test := range []struct {
		name  string
		steps []string // what is in the file, 140 ms each; "-": no file
		took  time.Duration
		socks string
		err   error
	}{
		{"left alone", []string{good}, 100 * time.Millisecond, "127.0.0.1:1081", nil},
		{"empty for a moment", []string{"", good}, 300 * time.Millisecond, "127.0.0.1:1081", nil},
		{"missing for a moment", []string{"-", "-", good}, 400 * time.Millisecond, "127.0.0.1:1081", nil},
		{"gone", []string{"-"}, time.Second, "", ErrGone},
		{"emptied", []string{""}, time.Second, "", ErrGone},
		{"written on", []string{half, good}, 300 * time.Millisecond, "127.0.0.1:1081", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.toml")
			put := func(text string) {
				if text == "-" {
					_ = os.Remove(path)
				} else if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Error(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				put(test.steps[0])
				for i, text := range test.steps[1:] {
					// "written on" changes between the two readings, at 50 ms; the others stay for 140 ms.
					at := time.Duration(i+1) * 140 * time.Millisecond
					if test.steps[0] == half {
						at = 50 * time.Millisecond
					}
					time.AfterFunc(at, func() { put(text) })
				}
				c, err := Reload(t.Context(), path)
				took := time.Since(start)
				if !errors.Is(err, test.err) || err == nil && c.Listen.SOCKS != test.socks {
					t.Fatalf("%+v, %v", c, err)
				}
				want := test.took
				if test.steps[0] == half {
					want = 200 * time.Millisecond
				}
				if took != want {
					t.Errorf("took %v, want %v", took, want)
				}
			})
		})
	}
}

func TestReloadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Reload(ctx, filepath.Join(t.TempDir(), "none")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
