package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type openingFunc func() error

func (f openingFunc) WaitOpened(context.Context) error { return f() }

// TestTellWaiting: a stream that opens at once, or within 2 s, is not worth a word; after that it is said every 10 s what is tried
// and for how long, and that it goes on if it does.
func TestTellWaiting(t *testing.T) {
	const peer = `[[peer]]
name = "devbox"
id = "ecr0-gwfm-9gb8-wz4m-kqhc-em76-1gp9-qe7z-ac01-fhd2-cwhm-x75m-ve76-0bt1"
routes = ["lan:10.0.0.1", "direct:devbox.example.com:7000"]
`
	const tried = "linkproxy: devbox:22 does not answer yet; trying lan:10.0.0.1, direct:devbox.example.com:7000"
	for name, c := range map[string]struct {
		config string
		after  time.Duration
		err    error
		want   []string
	}{
		"at once":   {peer, 0, nil, nil},
		"soon":      {peer, 1999 * time.Millisecond, nil, nil},
		"refused":   {peer, time.Second, errors.New("refused"), nil},
		"later":     {peer, 2001 * time.Millisecond, nil, []string{tried + ", for up to 58 s more", "linkproxy: connected to devbox:22"}},
		"gives up":  {peer, 11 * time.Second, errors.New("no route"), []string{tried + ", for up to 58 s more"}},
		"patiently": {peer, 13 * time.Second, nil, []string{tried + ", for up to 58 s more", tried + ", for up to 48 s more", "linkproxy: connected to devbox:22"}},
		"own wait":  {"[listen]\nwait = \"5s\"\n" + peer, 3 * time.Second, nil, []string{tried + ", for up to 3 s more", "linkproxy: connected to devbox:22"}},
		"no wait":   {"[listen]\nwait = \"0s\"\n" + peer, 3 * time.Second, nil, []string{tried, "linkproxy: connected to devbox:22"}},
		"no config": {"[", 3 * time.Second, nil, []string{"linkproxy: devbox:22 does not answer yet; still trying", "linkproxy: connected to devbox:22"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := &world{config: filepath.Join(dir, "c.toml")}
			if err := os.WriteFile(w.config, []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := os.Create(filepath.Join(dir, "err"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			w.err = out
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w.tellWaiting("devbox:22", openingFunc(func() error { time.Sleep(c.after); return c.err }))()
				if took := time.Since(began); took != c.after {
					t.Errorf("done after %v, want %v", took, c.after)
				}
			})
			said, err := os.ReadFile(out.Name())
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Join(append(c.want, ""), "\n")
			if string(said) != want {
				t.Errorf("said:\n%swant:\n%s", said, want)
			}
		})
	}
}
