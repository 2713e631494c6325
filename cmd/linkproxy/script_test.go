package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"linkproxy/control"
	"linkproxy/state/identity"
)

// TestScripts runs testdata/*.txtar on the real program. Each script has two machines, up and host, with the config files
// up.toml and host.toml and the state folders up and host. Besides testscript's own commands there are:
//
//	up EXIT ARGS…, host EXIT ARGS…   run `linkproxy ARGS` on that machine; it must end with this exit code
//	bound SIDE EXIT ARGS…            the same as somebody whom file modes bind, also for root
//	keep VAR                         keep what it printed in a variable
//	config SIDE FILE                 make FILE, its variables filled in, the config; append adds to it
//	start SIDE, stop SIDE            run `linkproxy up` or `linkproxy host`, until it answers; end it
//	hangup SIDE                      send it SIGHUP
//	says SIDE REGEXP                 wait until it has said that
//	pair                             invite and pair, as peer "devbox"
//	session VAR, client VAR          the ID of the only session in host's status; the name of its client
//	late VAR                         an invite of the host that is over
//	port VAR                         a free port
//	target VAR                       start an echo server; the port is kept in VAR
//	open NAME ADDR                   connect to ADDR and have bytes echoed
//	alive NAME, dead NAME            the connection still echoes; it has ended
func TestScripts(t *testing.T) {
	t.Parallel()
	bin := linkproxy(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			m := &machines{t: t, bin: bin, dir: e.WorkDir, running: map[string]*running{}, conns: map[string]net.Conn{}}
			e.Values[machinesKey{}] = m
			e.Defer(m.close)
			e.Setenv("NO_COLOR", "1")
			for _, side := range sides {
				if err := os.Mkdir(filepath.Join(m.dir, side), 0o700); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: scriptCommands(),
	})
}

var sides = []string{"up", "host"}

type (
	machinesKey struct{}
	scriptFunc  func(ts *testscript.TestScript, m *machines, args []string)
)

// scriptCommands are the commands of TestScripts; the number is how many arguments each takes at least.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	cmds := map[string]func(*testscript.TestScript, bool, []string){}
	add := func(name string, least int, f scriptFunc) {
		cmds[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < least {
				ts.Fatalf("usage: see TestScripts")
			}
			f(ts, ts.Value(machinesKey{}).(*machines), args)
		}
	}
	for _, side := range sides {
		add(side, 1, func(ts *testscript.TestScript, m *machines, args []string) {
			m.run(ts, side, args[0], args[1:], (*exec.Cmd).Run)
		})
	}
	add("bound", 3, func(ts *testscript.TestScript, m *machines, args []string) {
		m.run(ts, args[0], args[1], args[2:], runBound)
	})
	add("keep", 1, func(ts *testscript.TestScript, _ *machines, args []string) {
		ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
	})
	add("config", 2, func(ts *testscript.TestScript, m *machines, args []string) { m.config(ts, args[0], args[1], false) })
	add("append", 2, func(ts *testscript.TestScript, m *machines, args []string) { m.config(ts, args[0], args[1], true) })
	add("start", 1, func(ts *testscript.TestScript, m *machines, args []string) { m.start(ts, args[0]) })
	add("stop", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Check(m.running[args[0]].stop()) })
	add("hangup", 1, func(ts *testscript.TestScript, m *machines, args []string) {
		ts.Check(m.running[args[0]].cmd.Process.Signal(syscall.SIGHUP))
	})
	add("says", 2, func(ts *testscript.TestScript, m *machines, args []string) { m.says(ts, args[0], args[1]) })
	add("pair", 0, func(ts *testscript.TestScript, m *machines, _ []string) { m.pair(ts) })
	add("session", 1, func(ts *testscript.TestScript, m *machines, args []string) {
		ts.Setenv(args[0], m.only(ts).Links[0].ID)
	})
	add("client", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Setenv(args[0], m.only(ts).Name) })
	add("late", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Setenv(args[0], m.late(ts)) })
	add("port", 1, func(ts *testscript.TestScript, _ *machines, args []string) {
		addr, err := findAddr()
		ts.Check(err)
		ts.Setenv(args[0], portOf(addr))
	})
	add("target", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Setenv(args[0], m.target(ts)) })
	add("open", 2, func(ts *testscript.TestScript, m *machines, args []string) { m.open(ts, args[0], args[1]) })
	add("alive", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Check(echoes(m.conns[args[0]])) })
	add("dead", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Check(ended(m.conns[args[0]])) })
	return cmds
}

// machines is the world of one script.
type machines struct {
	t        *testing.T
	bin, dir string
	running  map[string]*running
	conns    map[string]net.Conn
	listens  []net.Listener
	wg       sync.WaitGroup
}

// close ends all that the script started.
func (m *machines) close() {
	for _, r := range m.running {
		if err := r.stop(); err != nil {
			m.t.Error(err)
		}
	}
	for _, c := range m.conns {
		c.Close()
	}
	for _, ln := range m.listens {
		ln.Close()
	}
	m.wg.Wait()
}

// scriptStep bounds whatever a script waits for.
const scriptStep = 30 * time.Second

func (m *machines) command(ctx context.Context, side string, args ...string) *exec.Cmd {
	flags := []string{"--config", filepath.Join(m.dir, side+".toml"), "--state", filepath.Join(m.dir, side)}
	cmd := exec.CommandContext(ctx, m.bin, append(flags, args...)...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	cmd.WaitDelay = time.Second
	dieWithTest(cmd)
	return cmd
}

// run runs linkproxy to its end, by how, and compares the exit code.
func (m *machines) run(ts *testscript.TestScript, side, exit string, args []string, how func(*exec.Cmd) error) {
	want, err := strconv.Atoi(exit)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), scriptStep)
	defer cancel()
	cmd := m.command(ctx, side, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, ts.Stdout()), io.MultiWriter(&errs, ts.Stderr())
	err = how(cmd)
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		ts.Fatalf("running linkproxy: %v", err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("linkproxy %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, want, out.String(), errs.String())
	}
}

// config writes the config file of a machine.
func (m *machines) config(ts *testscript.TestScript, side, from string, more bool) {
	file := filepath.Join(m.dir, side+".toml")
	text := os.Expand(ts.ReadFile(from), ts.Getenv)
	if more {
		old, err := os.ReadFile(file)
		ts.Check(err)
		text = string(old) + "\n" + text
	}
	ts.Check(os.WriteFile(file+".new", []byte(text), 0o600))
	ts.Check(os.Rename(file+".new", file))
}

// running is a process that a script started.
type running struct {
	cmd     *exec.Cmd
	said    *logged
	gone    chan error
	stopped bool
}

// logged keeps what a process said.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was said.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs `linkproxy up` or `linkproxy host` and waits until it answers.
func (m *machines) start(ts *testscript.TestScript, side string) {
	r := &running{cmd: m.command(context.Background(), side, side), said: &logged{}, gone: make(chan error, 1)}
	r.cmd.Stderr = r.said
	ts.Check(r.cmd.Start())
	go func() { r.gone <- r.cmd.Wait() }()
	m.running[side] = r
	c := control.NewClient(filepath.Join(m.dir, side), side)
	err := within(func() bool {
		_, err := c.Status(context.Background())
		return err == nil
	})
	if err != nil {
		ts.Fatalf("linkproxy %s does not answer: %v\n%s", side, err, r.said)
	}
}

// stop ends a process politely; it must end well.
func (r *running) stop() error {
	if r.stopped {
		return nil
	}
	r.stopped = true
	if runtime.GOOS == "windows" {
		_ = r.cmd.Process.Kill() // there is no polite way
		<-r.gone
		return nil
	}
	_ = r.cmd.Process.Signal(os.Interrupt) // an error means that it has ended
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	select {
	case err := <-r.gone:
		if err != nil {
			return fmt.Errorf("linkproxy ended with %w:\n%s", err, r.said)
		}
		return nil
	case <-late.C:
		_ = r.cmd.Process.Kill() // likewise
		<-r.gone
		return fmt.Errorf("linkproxy did not end within 10 s of an interrupt:\n%s", r.said)
	}
}

// within polls until ok, for as long as a script waits.
func within(ok func() bool) error {
	late := time.NewTimer(scriptStep)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			return fmt.Errorf("not within %v", scriptStep)
		}
	}
	return nil
}

// says waits until a process has said something.
func (m *machines) says(ts *testscript.TestScript, side, what string) {
	re, err := regexp.Compile(what)
	ts.Check(err)
	said := m.running[side].said
	if err := within(func() bool { return re.MatchString(said.String()) }); err != nil {
		ts.Fatalf("linkproxy %s has not said %q: %v\n%s", side, what, err, said)
	}
}

// pair makes up a client of host.
func (m *machines) pair(ts *testscript.TestScript) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptStep)
	defer cancel()
	invite, err := m.command(ctx, "host", "host", "invite", "--print").Output()
	ts.Check(err)
	if out, err := m.command(ctx, "up", "pair", "--name", "devbox", strings.TrimSpace(string(invite))).CombinedOutput(); err != nil {
		ts.Fatalf("pairing: %v\n%s", err, out)
	}
}

// only is the only client of the host, with its session.
func (m *machines) only(ts *testscript.TestScript) control.Peer {
	st, err := control.NewClient(filepath.Join(m.dir, "host"), "host").Status(context.Background())
	ts.Check(err)
	if len(st.Peers) != 1 || len(st.Peers[0].Links) != 1 {
		ts.Fatalf("the host has not one client with one session: %+v", st.Peers)
	}
	return st.Peers[0]
}

// late is an invite that was made too long ago.
func (m *machines) late(ts *testscript.TestScript) string {
	state := filepath.Join(m.dir, "host")
	key, err := identity.LoadOrCreateKey(state)
	ts.Check(err)
	made := time.Now().Add(-identity.InviteLife - time.Second)
	inv, err := identity.OpenInvites(state, key.Fingerprint()).Create(made, "host", []string{ts.Getenv("HOSTADDR")})
	ts.Check(err)
	return inv.Encode()
}

// target is an echo server on loopback.
func (m *machines) target(ts *testscript.TestScript) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	m.listens = append(m.listens, ln)
	m.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			m.wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // whoever connected judges what comes back
			})
		}
	})
	return portOf(ln.Addr().String())
}

func (m *machines) open(ts *testscript.TestScript, name, addr string) {
	c, err := net.DialTimeout("tcp", addr, scriptStep)
	ts.Check(err)
	m.conns[name] = c
	ts.Check(echoes(c))
}

// echoes checks that bytes come back.
func echoes(c net.Conn) error {
	const text = "are you there?"
	_ = c.SetDeadline(time.Now().Add(scriptStep)) // a connection that cannot have one fails below
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil {
		return fmt.Errorf("no echo: %w", err)
	}
	if string(b) != text {
		return fmt.Errorf("the echo is %q", b)
	}
	return nil
}

// ended checks that a connection was reset: an app must see that its stream was cut, not that it came to an end.
func ended(c net.Conn) error {
	const atOnce = 10 * time.Second // on a busy machine
	_ = c.SetDeadline(time.Now().Add(atOnce))
	n, err := c.Read(make([]byte, 1))
	if n > 0 || !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("the connection read %d bytes and %v, not a reset", n, err)
	}
	return nil
}
