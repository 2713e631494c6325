package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
//	keep VAR [FILE]                  keep what it printed, or a file, in a variable
//	config SIDE FILE…                make FILEs, their variables filled in, the config, in one step
//	append SIDE FILE                 add FILE to it
//	edit FILE REGEXP TEXT            replace what matches
//	start SIDE, halt SIDE            run `linkproxy up` or `linkproxy host`, until it answers; end it (stop is testscript's)
//	begin NAME SIDE ARGS…            run `linkproxy ARGS` beside the script, its standard input at its end
//	ends NAME EXIT                   wait until that has ended, with this exit code
//	kill9 SIDE|NAME                  kill such a process
//	hasty SIDE EXIT ARGS…            run `linkproxy ARGS` and close its standard output after the first byte
//	hangup SIDE                      send it SIGHUP
//	says SIDE|NAME REGEXP            wait until it has said that
//	streams SIDE N                   wait until its status shows so many streams
//	pair                             invite and pair, as peer "devbox"
//	session VAR, client VAR          the ID of the only session in host's status; the name of its client
//	late VAR                         an invite of the host that is over
//	port VAR                         a free port
//	hold VAR, release VAR            a port that this test listens on; it listens no more
//	target VAR                       start an echo server; the port is kept in VAR
//	mute VAR, talker VAR             the same with a server that says nothing, or talks without end
//	heard VAR N, cut VAR N           wait until N connections to that server were ended by their other side, or reset
//	open NAME ADDR                   connect to ADDR and have bytes echoed
//	reaches ADDR VAR                 a connection to ADDR leads to that server
//	proxy ADDR                       ADDR speaks SOCKS5
//	fetch STATUS PROXY URL           get URL through an HTTP proxy, which must answer with this status; its text is stdout
//	alive NAME, dead NAME            the connection still echoes; it has been reset
func TestScripts(t *testing.T) {
	t.Parallel()
	bin := linkproxy(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			m := &machines{t: t, bin: bin, dir: e.WorkDir, running: map[string]*running{}, conns: map[string]net.Conn{}, targets: map[string]*target{}}
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
		from := "stdout"
		if len(args) > 1 {
			from = args[1]
		}
		ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(from)))
	})
	add("config", 2, func(ts *testscript.TestScript, m *machines, args []string) { m.config(ts, args[0], args[1:]...) })
	add("append", 2, func(ts *testscript.TestScript, m *machines, args []string) {
		m.config(ts, args[0], args[0]+".toml", args[1])
	})
	add("edit", 3, func(ts *testscript.TestScript, m *machines, args []string) {
		re, err := regexp.Compile(args[1])
		ts.Check(err)
		text := re.ReplaceAllLiteralString(ts.ReadFile(args[0]), args[2])
		ts.Check(os.WriteFile(filepath.Join(m.dir, args[0]), []byte(text), 0o600))
	})
	add("start", 1, func(ts *testscript.TestScript, m *machines, args []string) { m.start(ts, args[0]) })
	add("halt", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Check(m.running[args[0]].stop()) })
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
	for name, behave := range behaviours {
		add(name, 1, func(ts *testscript.TestScript, m *machines, args []string) { m.target(ts, args[0], behave) })
	}
	addProcesses(add)
	addTargets(add)
	add("open", 2, func(ts *testscript.TestScript, m *machines, args []string) { m.open(ts, args[0], args[1]) })
	add("alive", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Check(echoes(m.conns[args[0]])) })
	add("dead", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Check(ended(m.conns[args[0]])) })
	return cmds
}

// addProcesses adds the commands about processes.
func addProcesses(add func(string, int, scriptFunc)) {
	add("begin", 2, func(ts *testscript.TestScript, m *machines, args []string) { m.begin(ts, args[0], args[1], args[2:]) })
	add("ends", 2, func(ts *testscript.TestScript, m *machines, args []string) {
		ts.Check(m.running[args[0]].ends(args[1]))
	})
	add("kill9", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Check(m.running[args[0]].kill()) })
	add("hasty", 3, func(ts *testscript.TestScript, m *machines, args []string) {
		m.run(ts, args[0], args[1], args[2:], runHasty)
	})
	add("streams", 2, func(ts *testscript.TestScript, m *machines, args []string) {
		c := control.NewClient(filepath.Join(m.dir, args[0]), args[0])
		n := -1
		if err := within(func() bool { n = streamsOf(c); return strconv.Itoa(n) == args[1] }); err != nil {
			ts.Fatalf("linkproxy %s has %d streams, want %s: %v", args[0], n, args[1], err)
		}
	})
}

// addTargets adds the commands about ports and what listens on them.
func addTargets(add func(string, int, scriptFunc)) {
	add("hold", 1, func(ts *testscript.TestScript, m *machines, args []string) {
		addr, err := findAddr()
		ts.Check(err)
		ln, err := net.Listen("tcp", addr)
		ts.Check(err)
		m.targets[args[0]] = &target{ln: ln}
		ts.Setenv(args[0], portOf(addr))
	})
	add("release", 1, func(ts *testscript.TestScript, m *machines, args []string) { ts.Check(m.targets[args[0]].ln.Close()) })
	for name, ends := range map[string]func(*target) *atomic.Int64{
		"heard": func(t *target) *atomic.Int64 { return &t.heard },
		"cut":   func(t *target) *atomic.Int64 { return &t.cut },
	} {
		add(name, 2, func(ts *testscript.TestScript, m *machines, args []string) {
			n := ends(m.targets[args[0]])
			if err := within(func() bool { return strconv.FormatInt(n.Load(), 10) == args[1] }); err != nil {
				ts.Fatalf("%d connections, want %s: %v", n.Load(), args[1], err)
			}
		})
	}
	add("reaches", 2, func(ts *testscript.TestScript, m *machines, args []string) {
		before := m.targets[args[1]].accepted.Load()
		m.open(ts, "reaches", args[0])
		if m.targets[args[1]].accepted.Load() == before {
			ts.Fatalf("%s leads elsewhere", args[0])
		}
		m.conns["reaches"].Close()
	})
	add("fetch", 3, func(ts *testscript.TestScript, _ *machines, args []string) { fetch(ts, args[0], args[1], args[2]) })
	add("proxy", 1, func(ts *testscript.TestScript, _ *machines, args []string) {
		c, err := net.DialTimeout("tcp", args[0], scriptStep)
		ts.Check(err)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(scriptStep)) // a connection that cannot have one fails below
		_, err = c.Write([]byte{5, 1, 0})
		ts.Check(err)
		answer := make([]byte, 2)
		_, err = io.ReadFull(c, answer)
		ts.Check(err)
		if !bytes.Equal(answer, []byte{5, 0}) {
			ts.Fatalf("%s answers %v", args[0], answer)
		}
	})
}

// fetch gets a URL through an HTTP proxy.
func fetch(ts *testscript.TestScript, status, proxy, target string) {
	client := &http.Client{
		Timeout: scriptStep,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}),
		},
	}
	resp, err := client.Get(target)
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if got := strconv.Itoa(resp.StatusCode); got != status {
		ts.Fatalf("%s through %s: status %s, want %s", target, proxy, got, status)
	}
}

// machines is the world of one script.
type machines struct {
	t        *testing.T
	bin, dir string
	running  map[string]*running
	conns    map[string]net.Conn
	targets  map[string]*target
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
	for _, t := range m.targets {
		t.ln.Close()
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
func (m *machines) config(ts *testscript.TestScript, side string, from ...string) {
	var text strings.Builder
	for _, f := range from {
		text.WriteString(os.Expand(ts.ReadFile(f), ts.Getenv) + "\n")
	}
	file := filepath.Join(m.dir, side+".toml")
	ts.Check(os.WriteFile(file+".new", []byte(text.String()), 0o600))
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

// begin runs linkproxy beside the script.
func (m *machines) begin(ts *testscript.TestScript, name, side string, args []string) {
	r := &running{cmd: m.command(context.Background(), side, args...), said: &logged{}, gone: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = r.said, r.said
	ts.Check(r.cmd.Start())
	go func() { r.gone <- r.cmd.Wait() }()
	m.running[name] = r
}

// ends waits for the end of a process and checks its exit code.
func (r *running) ends(exit string) error {
	late := time.NewTimer(scriptStep)
	defer late.Stop()
	select {
	case <-r.gone:
	case <-late.C:
		return fmt.Errorf("it has not ended within %v:\n%s", scriptStep, r.said)
	}
	r.stopped = true
	if got := strconv.Itoa(r.cmd.ProcessState.ExitCode()); got != exit {
		return fmt.Errorf("exit code %s, want %s:\n%s", got, exit, r.said)
	}
	return nil
}

// kill ends a process without a chance to do anything.
func (r *running) kill() error {
	r.stopped = true
	err := r.cmd.Process.Kill()
	<-r.gone
	return err
}

// runHasty runs a command whose output somebody has enough of after one byte.
func runHasty(c *exec.Cmd) error {
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	in, err := c.StdinPipe() // stays open: only its output ends it
	if err != nil {
		return err
	}
	defer in.Close()
	if err := c.Start(); err != nil {
		return err
	}
	_, err = out.Read(make([]byte, 1))
	out.Close()
	return errors.Join(err, c.Wait())
}

// streamsOf is how many streams a running linkproxy has; -1: it does not answer.
func streamsOf(c *control.Client) int {
	st, err := c.Status(context.Background())
	if err != nil {
		return -1
	}
	n := 0
	for _, p := range st.Peers {
		for _, l := range p.Links {
			n += len(l.Streams)
		}
	}
	return n
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

// target is a server on loopback, and how the connections to it ended.
type target struct {
	ln                   net.Listener
	accepted, heard, cut atomic.Int64
}

// behaviours are what targets do until their other side has ended; whoever connected judges what comes back.
var behaviours = map[string]func(net.Conn) error{
	"target": func(c net.Conn) error { defer c.Close(); _, err := io.Copy(c, c); return err },
	"mute":   func(c net.Conn) error { _, err := io.Copy(io.Discard, c); return err },
	"talker": func(c net.Conn) error {
		defer c.Close()
		for {
			if _, err := c.Write(make([]byte, 1<<10)); err != nil {
				return err
			}
		}
	},
}

func (m *machines) target(ts *testscript.TestScript, name string, behave func(net.Conn) error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	t := &target{ln: ln}
	m.targets[name] = t
	ts.Setenv(name, portOf(ln.Addr().String()))
	m.wg.Go(func() {
		var all []net.Conn // a mute one keeps its side open
		var wg sync.WaitGroup
		for {
			c, err := ln.Accept()
			if err != nil {
				break
			}
			all = append(all, c)
			t.accepted.Add(1)
			wg.Go(func() { t.serve(c, behave) })
		}
		for _, c := range all {
			c.Close()
		}
		wg.Wait()
	})
}

func (t *target) serve(c net.Conn, behave func(net.Conn) error) {
	switch err := behave(c); {
	case err == nil:
		t.heard.Add(1)
	case !errors.Is(err, net.ErrClosed):
		t.cut.Add(1)
	}
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
