//go:build unix

package main_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"linkproxy/control"
	"linkproxy/testenv"
)

const (
	// programTime bounds one program's test; a program that hangs is a failure.
	programTime = 150 * time.Second
	// startTime bounds the start of a server, on a busy machine too.
	startTime = 30 * time.Second
	// pollEvery is how often what another process does is looked at.
	pollEvery = 8 * time.Millisecond
	// nearDelay and farDelay are what each direction of the two routes takes.
	nearDelay = 3 * time.Millisecond
	farDelay  = 15 * time.Millisecond
)

// world is a machine that moves (up), a machine that stays (host), both real processes, and two routes between them.
type world struct {
	t    *testing.T
	ctx  context.Context // ends before the test's deadline
	rand *rand.Rand
	dir  string

	near, far *testenv.Path // lan and direct
	upFlags   []string      // --config and --state of the machine that moves
	upStatus  *control.Client
	hostState *control.Client
	socks     string // SOCKS5 and HTTP proxy of up
	fixed     string // the fixed port of up
	alone     bool   // no up runs: `connect --alone` makes its own link
}

// newWorld pairs the two machines and starts them. fixed is the target of the fixed port, or empty; hostArgs follow
// `linkproxy host`.
func newWorld(t *testing.T, fixed string, alone bool, hostArgs ...string) *world {
	t.Helper()
	bin := linkproxy(t)
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	t.Cleanup(cancel)
	_, rng := newSeed(t)
	dir, err := os.MkdirTemp("", "lp") // short: a Unix socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, ctx: ctx, rand: rng, dir: dir, alone: alone, socks: freeAddr(t), fixed: freeAddr(t)}
	hostAddr := freeAddr(t)
	hostFlags := w.side("host", fmt.Sprintf("[host]\nlisten = %q\n", hostAddr))
	w.upFlags = w.side("up", fmt.Sprintf("[listen]\nsocks = %q\nhttp = %[1]q\n", w.socks))
	w.hostState = control.NewClient(filepath.Join(dir, "host"), "host")
	w.upStatus = control.NewClient(filepath.Join(dir, "up"), "up")

	host := exec.Command(bin, append(append(hostFlags, "--verbose", "host"), hostArgs...)...)
	host.Env = append(os.Environ(), "LINKPROXY_DEMO=1") // lets a test plant a fault
	w.startCmd("host", host)
	w.answers(w.hostState)
	invite := strings.TrimSpace(w.run("", bin, append(hostFlags, "host", "invite", "--print")...))
	w.run("", bin, append(w.upFlags, "pair", "--name", "devbox", invite)...)
	w.near, w.far = newPath(t, hostAddr, nearDelay), newPath(t, hostAddr, farDelay)
	w.editRoutes()
	if fixed != "" {
		w.addForward(fixed)
	}
	if !alone {
		w.start("up", bin, append(w.upFlags, "--verbose", "up")...)
		w.answers(w.upStatus)
	}
	return w
}

// side makes a config file and a state folder and returns the flags that name them.
func (w *world) side(name, text string) []string {
	w.t.Helper()
	file, state := filepath.Join(w.dir, name+".toml"), filepath.Join(w.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		w.t.Fatal(err)
	}
	return []string{"--config", file, "--state", state}
}

var routesLine = regexp.MustCompile(`(?m)^routes *=.*$`)

// editRoutes replaces the route that pairing wrote by the two emulated ones.
func (w *world) editRoutes() {
	w.t.Helper()
	w.editConfig(func(text []byte) []byte {
		if n := len(routesLine.FindAll(text, -1)); n != 1 {
			w.t.Fatalf("pairing wrote %d lines of routes:\n%s", n, text)
		}
		return routesLine.ReplaceAll(text, fmt.Appendf(nil, "routes = [%q, %q]", "lan:"+w.near.Addr(), "direct:"+w.far.Addr()))
	})
}

// addForward adds the fixed port; a running up takes it over by itself.
func (w *world) addForward(target string) {
	w.t.Helper()
	w.editConfig(func(text []byte) []byte {
		return fmt.Appendf(text, "\n[[forward]]\nlisten = %q\nto = %q\n", w.fixed, "devbox:"+portOf(target))
	})
}

func (w *world) editConfig(edit func([]byte) []byte) {
	w.t.Helper()
	file := filepath.Join(w.dir, "up.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, edit(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func newPath(t *testing.T, target string, delay time.Duration) *testenv.Path {
	t.Helper()
	p, err := testenv.NewPath(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	p.SetDelay(delay)
	return p
}

// setRate bounds what both routes carry, in bytes a second; 0 is no limit.
func (w *world) setRate(rate int64) {
	w.near.SetRate(rate)
	w.far.SetRate(rate)
}

// answers waits until a process answers on its control socket.
func (w *world) answers(c *control.Client) {
	w.t.Helper()
	w.await(startTime, "linkproxy does not answer", func() bool {
		_, err := c.Status(w.ctx)
		return err == nil
	})
}

// await polls until ok; the test ends when it takes longer than limit.
func (w *world) await(limit time.Duration, failure string, ok func() bool) {
	w.t.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			w.t.Fatalf("%s within %v", failure, limit)
		case <-w.ctx.Done():
			w.t.Fatalf("%s: %v", failure, context.Cause(w.ctx))
		}
	}
}

// listens waits until a server accepts at addr.
func (w *world) listens(addr string) {
	w.t.Helper()
	w.await(startTime, addr+" is not served", func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// noStreamLeft checks that a program which has ended left nothing behind on the link.
func (w *world) noStreamLeft() {
	w.t.Helper()
	clients := []*control.Client{w.hostState}
	if !w.alone {
		clients = append(clients, w.upStatus)
	}
	for _, c := range clients {
		var last control.Status
		w.await(30*time.Second, "streams are left though the program has ended", func() bool {
			st, err := c.Status(w.ctx)
			if err != nil {
				w.t.Fatalf("asking for the status: %v", err)
			}
			last = st
			n := 0
			for _, p := range last.Peers {
				for _, l := range p.Links {
					n += len(l.Streams)
				}
			}
			return n == 0
		})
	}
}

// --- processes

// output keeps what a process says, to be shown when the test fails.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// outputMost bounds what is kept, in bytes; what comes later is lost.
const outputMost = 4 << 20

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.b.Len() < outputMost {
		o.b.Write(p)
	}
	return len(p), nil
}

// tail is the last lines.
func (o *output) tail(lines int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := strings.Split(strings.TrimRight(o.b.String(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// start starts a server that lives as long as the test. One that ends by itself fails it.
func (w *world) start(name, argv0 string, args ...string) {
	w.startCmd(name, exec.Command(argv0, args...))
}

func (w *world) startCmd(name string, cmd *exec.Cmd) {
	w.t.Helper()
	said := &output{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.WaitDelay = 5 * time.Second // what a server has started may hold its pipes
	cmd.Env = append(cmp0(cmd.Env, os.Environ()), "NO_COLOR=1")
	dieWithTest(cmd)
	if err := cmd.Start(); err != nil {
		w.t.Fatalf("starting %s: %v", name, err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	w.t.Cleanup(func() {
		select {
		case err := <-gone:
			w.t.Errorf("%s has ended by itself: %v", name, err)
		default:
			stop(cmd, gone)
		}
		if w.t.Failed() || *logsFlag {
			w.t.Logf("the last that %s said:\n%s", name, said.tail(1000))
		}
		for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
			if all := said.tail(outputMost); strings.Contains(all, bad) {
				w.t.Errorf("%s: %s\n%s", name, bad, all)
			}
		}
	})
}

func cmp0(a, b []string) []string {
	if a != nil {
		return a
	}
	return b
}

// stop ends a process politely, or else by force.
func stop(cmd *exec.Cmd, gone <-chan error) {
	_ = cmd.Process.Signal(os.Interrupt) // an error means that it has ended
	late := time.NewTimer(5 * time.Second)
	defer late.Stop()
	select {
	case <-gone:
	case <-late.C:
		_ = cmd.Process.Kill() // likewise
		<-gone
	}
}

// command is a program that must have ended when the test's time is over.
func (w *world) command(argv0 string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.ctx, argv0, args...)
	cmd.WaitDelay = 5 * time.Second // children of a killed program may hold its pipes
	dieWithTest(cmd)
	return cmd
}

// run runs a program to its end and returns its standard output; it fails the test with what the program said.
func (w *world) run(stdin, argv0 string, args ...string) string {
	w.t.Helper()
	out, err := w.try(stdin, argv0, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// try is run for goroutines that may not end the test.
func (w *world) try(stdin, argv0 string, args ...string) (string, error) {
	return runCmd(w.command(argv0, args...), stdin)
}

func runCmd(cmd *exec.Cmd, stdin string) (string, error) {
	var out bytes.Buffer
	said := &output{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w; it said:\n%s", strings.Join(cmd.Args, " "), err, said.tail(30))
	}
	return out.String(), nil
}

// talk is a running program with its standard input and output.
type talk struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.Reader
	said *output
}

// talkTo starts a program to speak with.
func (w *world) talkTo(argv0 string, args ...string) *talk {
	w.t.Helper()
	cmd := w.command(argv0, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	said := &output{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		w.t.Fatalf("starting %s: %v", argv0, err)
	}
	return &talk{cmd: cmd, in: in, out: out, said: said}
}

// end closes the program's input and waits for its end.
func (k *talk) end() error {
	k.in.Close()
	rest, rerr := io.ReadAll(k.out)
	err := k.cmd.Wait()
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w; it said:\n%s", k.cmd.Args[0], err, k.said.tail(30))
	case rerr != nil:
		return fmt.Errorf("%s: reading to the end: %w", k.cmd.Args[0], rerr)
	case len(rest) > 0:
		return fmt.Errorf("%s: %d bytes came that nobody asked for: %.200q", k.cmd.Args[0], len(rest), rest)
	}
	return nil
}
