package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// fault is one that somebody could make.
type fault struct {
	name string // what is then wrong
	file string // of the module, with slashes
	// text stands in file once; by takes its place.
	text, by string
	// first is the test that is known to find it and is run before all others, to save time; empty: none is.
	first string
	// by whom it is found, if that is not the package it is planted in: one that builds on it.
	finder string
}

// noFault is the name of a task that plants nothing.
const noFault = "(no fault)"

// pkg is the package whose tests are to find it.
func (f fault) pkg() string {
	if f.finder != "" {
		return f.finder
	}
	return path.Dir(f.file)
}

// errStale says that a fault no longer fits the code.
var errStale = errors.New("the list is stale")

// plant returns src with the fault in it.
func (f fault) plant(src []byte) ([]byte, error) {
	if n := bytes.Count(src, []byte(f.text)); n != 1 || f.text == "" || f.text == f.by {
		return nil, fmt.Errorf("mutate: planting %q: %w: %s holds %d times %q", f.name, errStale, f.file, n, f.text)
	}
	return bytes.Replace(src, []byte(f.text), []byte(f.by), 1), nil
}

// plantIn plants f in the copy of the module in dir; heal takes it out again.
func (f fault) plantIn(dir string) (heal func() error, err error) {
	name := filepath.Join(dir, filepath.FromSlash(f.file))
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	broken, err := f.plant(src)
	if err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(name, src, 0o600) }, os.WriteFile(name, broken, 0o600)
}

// verdict is what became of a fault.
type verdict struct {
	fault
	test string // that found it; empty: it survived
	err  error  // why it was not judged
	took time.Duration
}

// good says whether all is as it should be.
func (v verdict) good() bool { return v.err == nil && (v.test == "") == (v.name == noFault) }

// String is the line for v.
func (v verdict) String() string {
	head := fmt.Sprintf("%-12s %s", v.pkg(), v.name)
	took := v.took.Round(100 * time.Millisecond)
	switch {
	case v.err != nil:
		return fmt.Sprintf("NOT JUDGED  %s: %v", head, v.err)
	case v.name == noFault && v.test == "":
		return fmt.Sprintf("sound       %s (%s)", head, took)
	case v.name == noFault:
		return fmt.Sprintf("UNSOUND     %s: %s fails (%s)", head, v.test, took)
	case v.test == "":
		return fmt.Sprintf("SURVIVED    %s: %s (%s)", head, v.file, took)
	}
	return fmt.Sprintf("found       %s: %s (%s)", head, v.test, took)
}

// runner judges faults.
type runner struct {
	root    string // of the module
	workers int
	args    map[string][]string // more arguments for the tests of a package
}

// testLimit is how long the tests of a package may take; a fault that makes them hang is found by that.
const testLimit = 3 * time.Minute

// work judges what comes, in a copy of the module that is its own.
func (r *runner) work(ctx context.Context, next <-chan fault, tell func(verdict)) (err error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return fmt.Errorf("mutate: copying the module: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := copyModule(r.root, dir); err != nil {
		return fmt.Errorf("mutate: copying the module: %w", err)
	}
	for f := range next {
		if ctx.Err() != nil {
			return nil
		}
		start := time.Now()
		test, err := r.judge(ctx, dir, f)
		if ctx.Err() == nil {
			tell(verdict{fault: f, test: test, err: err, took: time.Since(start)})
		}
	}
	return nil
}

// judge plants f in the copy in dir and returns the first test that fails by it; empty: none does.
func (r *runner) judge(ctx context.Context, dir string, f fault) (test string, unjudged error) {
	if f.name != noFault {
		heal, err := f.plantIn(dir)
		if err != nil {
			return "", err
		}
		defer func() { unjudged = errors.Join(unjudged, heal()) }()
	}
	bin := filepath.Join(dir, "mutant.exe") // the suffix is for Windows and harms nobody
	// The path of the copy is left out of what is built, so that packages without a fault come from the cache.
	build := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-vet=off", "-o", bin, "./"+f.pkg())
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the tests: %w: %s", err, bytes.TrimSpace(out))
	}
	steps := [][]string{{"-test.short"}, nil}
	if f.first != "" {
		steps = append([][]string{{"-test.run", "^" + f.first + "$"}}, steps...)
	}
	for _, args := range steps {
		test, err := runTests(ctx, filepath.Join(dir, f.pkg()), bin, append(args, r.args[f.pkg()]...))
		if test != "" || err != nil {
			return test, err
		}
	}
	return "", nil
}

// runTests runs the tests of a package and returns the first that fails.
func runTests(ctx context.Context, dir, bin string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, testLimit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append([]string{"-test.failfast", "-test.timeout", testLimit.String()}, args...)...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", nil
	}
	if test := firstFailure(string(out)); test != "" {
		return test, nil
	}
	return "", fmt.Errorf("running the tests: %w: %s", err, bytes.TrimSpace(out[max(0, len(out)-1000):]))
}

// firstFailure finds in the output of a test binary the test that failed first.
func firstFailure(out string) string {
	panicked := ""
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "--- FAIL: "):
			return strings.Fields(line)[2]
		case strings.HasPrefix(line, "running tests:") && i+1 < len(lines) && strings.TrimSpace(lines[i+1]) != "":
			return strings.Fields(lines[i+1])[0] + " did not end"
		case strings.HasPrefix(line, "goleak:"):
			return "the check that no goroutine is left"
		case panicked == "" && (strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")):
			panicked = line // of a goroutine that no test waited for, unless a test is named below
		}
	}
	return panicked
}

// copyModule copies what the tests of a module need.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		base := d.Name()
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(base, ".") || rel == "bin" || rel == "docs"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
}
