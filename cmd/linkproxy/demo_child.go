package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"linkproxy/control"
)

const (
	// demoStart bounds how long a process of the demo may take until it answers, demoStop until it has ended.
	demoStart = 15 * time.Second
	demoStop  = 5 * time.Second
	// demoPoll is how often the demo looks for what it waits for.
	demoPoll = 10 * time.Millisecond
	// tailLines is how much of what a process said last is told when it fails.
	tailLines = 12
)

// demoEnv tells a process that it is a part of the demo: only then may it be given a planted fault.
const demoEnv = "LINKPROXY_DEMO"

// demoSide is one of the two machines of the demo: a folder of its own and a process.
type demoSide struct {
	role    string // host, up
	exe     string
	config  string
	state   string
	control *control.Client

	cmd    *exec.Cmd
	stderr *tail
	gone   chan struct{} // closed when the process has ended
	err    error         // how, once gone is closed
}

func newDemoSide(exe, dir, role string) (*demoSide, error) {
	s := &demoSide{
		role: role, exe: exe, config: filepath.Join(dir, role+".toml"), state: filepath.Join(dir, role),
		stderr: &tail{most: tailLines},
	}
	if err := os.Mkdir(s.state, 0o700); err != nil {
		return nil, fmt.Errorf("demo: making a state folder: %w", err)
	}
	s.control = control.NewClient(s.state, role)
	return s, nil
}

// command is `linkproxy ARGS` on this side.
func (s *demoSide) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.exe, append([]string{"--config", s.config, "--state", s.state}, args...)...)
	cmd.Env = append(os.Environ(), demoEnv+"=1", "NO_COLOR=1")
	standApart(cmd)
	return cmd
}

// run runs a command of this side to its end and returns what it printed.
func (s *demoSide) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, demoStart)
	defer cancel()
	cmd := s.command(ctx, args...)
	said := &tail{most: tailLines}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("`linkproxy %s`: %w%s", args[0], err, said)
	}
	return strings.TrimSpace(string(out)), nil
}

// start runs the side's process and waits until it answers.
func (s *demoSide) start(ctx context.Context, args ...string) error {
	s.cmd = s.command(context.WithoutCancel(ctx), append([]string{"--verbose", s.role}, args...)...)
	s.cmd.Stderr = s.stderr
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting `linkproxy %s`: %w", s.role, err)
	}
	s.gone = make(chan struct{})
	go s.wait()
	return poll(ctx, demoStart, func(ctx context.Context) (bool, error) {
		_, err := s.control.Status(ctx)
		switch {
		case err == nil:
			return true, nil
		case s.ended():
			return false, s.endError()
		case errors.Is(err, context.DeadlineExceeded):
			return false, fmt.Errorf("`linkproxy %s` does not answer%s", s.role, s.stderr)
		}
		return false, nil
	}, func() error { return fmt.Errorf("`linkproxy %s` does not answer%s", s.role, s.stderr) })
}

func (s *demoSide) wait() {
	s.err = s.cmd.Wait()
	close(s.gone)
}

func (s *demoSide) ended() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// endError says that the process has ended though nobody asked it to.
func (s *demoSide) endError() error {
	how := "by itself"
	if s.err != nil {
		how = s.err.Error()
	}
	return fmt.Errorf("`linkproxy %s` has ended (%s)%s", s.role, how, s.stderr)
}

// stop ends the process, politely where the system knows how, and waits for it.
func (s *demoSide) stop() {
	if s.gone == nil {
		return
	}
	if runtime.GOOS == "windows" || s.cmd.Process.Signal(os.Interrupt) != nil {
		_ = s.cmd.Process.Kill() // an error means that it has ended
	}
	t := time.NewTimer(demoStop)
	defer t.Stop()
	select {
	case <-s.gone:
	case <-t.C:
		_ = s.cmd.Process.Kill() // likewise
		<-s.gone
	}
}

// poll asks ok until it says yes or fails, for at most limit; then late says what did not happen.
func poll(ctx context.Context, limit time.Duration, ok func(context.Context) (bool, error), late func() error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(demoPoll)
	defer tick.Stop()
	for {
		done, err := ok(bounded)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case bounded.Err() != nil:
			return late()
		case done || err != nil:
			return err
		}
		select {
		case <-tick.C:
		case <-bounded.Done():
		}
	}
}

// tail keeps the last lines of what is written to it. Safe for concurrent use.
type tail struct {
	most int

	mu    sync.Mutex // guards the following
	lines []string
	part  []byte
}

// maxLine bounds a line that has not ended.
const maxLine = 4 << 10

// Write implements io.Writer; it never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	for {
		i := bytes.IndexByte(t.part, '\n')
		if i < 0 && len(t.part) <= maxLine {
			return len(p), nil
		}
		skip := 1
		if i < 0 {
			i, skip = maxLine, 0
		}
		t.lines = append(t.lines, string(t.part[:i]))
		t.part = append(t.part[:0], t.part[i+skip:]...)
		if len(t.lines) > t.most {
			t.lines = append(t.lines[:0], t.lines[1:]...)
		}
	}
}

// String is the lines as the end of an error: empty, or a heading with the lines below it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if len(t.part) > 0 {
		lines = append(lines[:len(lines):len(lines)], string(t.part))
	}
	if len(lines) == 0 {
		return ""
	}
	return "; the last it said:\n" + strings.Join(lines, "\n")
}
