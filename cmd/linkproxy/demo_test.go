package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// buildDemo builds the program as a user has it, and gives it a folder of its own for temporary files. The folder is not
// t.TempDir: a Unix socket in there would have too long a path.
func buildDemo(t *testing.T) (exe, tmp string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the whole demo: not with -short")
	}
	exe = filepath.Join(t.TempDir(), "linkproxy")
	if runtime.GOOS == "windows" {
		exe += ".exe"
	}
	if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("building linkproxy: %v\n%s", err, out)
	}
	tmp, err := os.MkdirTemp("", "lpdemo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	return exe, tmp
}

// demoRun is a demo with its output.
type demoRun struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func newDemoRun(t *testing.T, exe, tmp string, args ...string) *demoRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*demoLimit)
	t.Cleanup(cancel)
	r := &demoRun{Cmd: exec.CommandContext(ctx, exe, append([]string{"demo"}, args...)...)}
	r.Env = append(os.Environ(), "TMPDIR="+tmp, "TMP="+tmp)
	r.Stdout, r.Stderr = &r.out, &r.err
	return r
}

// leftNothing says that the demo has removed all it made.
func leftNothing(t *testing.T, tmp string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestDemo runs the demo through the real binary, in all its forms.
func TestDemo(t *testing.T) {
	exe, tmp := buildDemo(t)
	t.Run("all right", func(t *testing.T) {
		r := newDemoRun(t, exe, tmp)
		if err := r.Run(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, &r.err, &r.out)
		}
		t.Logf("\n%s%s", &r.err, &r.out)
		if strings.Contains(r.err.String()+r.out.String(), "\x1b") {
			t.Error("an escape sequence, though nothing here is a terminal")
		}
		for _, want := range []string{"planned switch to 80 ms", "cut by reset", "silent black hole", "no route for 5 s, then back", demoHash()} {
			if !strings.Contains(r.out.String(), want) {
				t.Errorf("the report does not say %q", want)
			}
		}
		leftNothing(t, tmp)
	})
	t.Run("a planted fault is found", func(t *testing.T) { testPlantedFault(t, exe, tmp) })
	t.Run("interrupted", func(t *testing.T) { testInterrupted(t, exe, tmp) })
	t.Run("no fault outside", func(t *testing.T) {
		cmd := exec.Command(exe, "host", "--break=replay", "--state", t.TempDir(), "--config", filepath.Join(tmp, "none.toml"))
		out, err := cmd.CombinedOutput()
		if exit := exitOf(err); exit != exitUsage || !strings.Contains(string(out), "demo") {
			t.Errorf("exit code %d, want %d: %s", exit, exitUsage, out)
		}
	})
}

func exitOf(err error) int {
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.ExitCode()
	}
	return -1
}

func testPlantedFault(t *testing.T, exe, tmp string) {
	r := newDemoRun(t, exe, tmp, "--break=replay", "--json")
	if exit := exitOf(r.Run()); exit != exitError {
		t.Fatalf("exit code %d, want %d\n%s\n%s", exit, exitError, &r.err, &r.out)
	}
	t.Logf("\n%s", &r.err)
	var report demoReport
	if err := json.Unmarshal(r.out.Bytes(), &report); err != nil {
		t.Fatalf("%v\n%s", err, &r.out)
	}
	if report.Lost == 0 || report.Repeated == 0 || report.Got == report.Want || report.Want != demoHash() {
		t.Errorf("%d bytes lost, %d repeated, SHA-256 %s, want %s: the planted fault does not show", report.Lost, report.Repeated,
			report.Got, report.Want)
	}
	if report.Bytes != demoSize || len(report.Rows) == 0 || !strings.Contains(strings.Join(report.Found, "\n"), "lost") {
		t.Errorf("%d bytes, events %+v, found %q", report.Bytes, report.Rows, report.Found)
	}
	if !strings.Contains(r.err.String(), "lost") {
		t.Error("what was found is not told")
	}
	leftNothing(t, tmp)
}

// testInterrupted interrupts the demo once its processes run: nothing of it stays.
func testInterrupted(t *testing.T, exe, tmp string) {
	if runtime.GOOS == "windows" {
		if os.Getenv("LINKPROXY_STRICT") == "1" {
			t.Fatal("LINKPROXY_STRICT is set, and a process cannot be interrupted by another here")
		}
		t.Skip("a process cannot be interrupted by another here")
	}
	r := newDemoRun(t, exe, tmp)
	begun := make(chan struct{})
	r.Stderr = &trigger{word: "next:", seen: begun, to: &r.err}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-begun:
	case <-time.After(demoLimit):
		t.Error("no event has begun")
	}
	asked := time.Now()
	if err := r.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if exit := exitOf(r.Wait()); exit != exitError || !strings.Contains(r.err.String(), "interrupted") {
		t.Errorf("exit code %d, want %d: %s", exit, exitError, &r.err)
	}
	if took := time.Since(asked); took > 2*demoStop {
		t.Errorf("it took %v to end", took)
	}
	leftNothing(t, tmp)
}

// trigger passes on what is written and closes seen once a word was among it.
type trigger struct {
	word string
	seen chan struct{}
	to   *bytes.Buffer
	done bool
}

func (g *trigger) Write(p []byte) (int, error) {
	n, err := g.to.Write(p)
	if !g.done && strings.Contains(g.to.String(), g.word) {
		g.done = true
		close(g.seen)
	}
	return n, err
}
