package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"linkproxy/control"
	"linkproxy/testenv/netns"
)

const (
	startTime = 15 * time.Second // until a process must answer
	stopTime  = 10 * time.Second // until it must have ended
)

// process is a program that runs on a host of netns: `linkproxy host` or `up`, or another one.
type process struct {
	w    *spaces
	on   *netns.Host
	role string // of its control socket; "" for programs without
	name string // of its config and state
	log  *decisions

	cmd  *netns.Cmd
	gone chan struct{}
	said tail
}

// start runs `linkproxy ROLE` and waits until it answers.
func (p *process) start(ctx context.Context) error {
	p.cmd = p.on.Command(p.w.exe, "--verbose", "--config", filepath.Join(p.w.dir, p.name+".toml"),
		"--state", filepath.Join(p.w.dir, p.name), p.role)
	p.cmd.Env = append(os.Environ(), "NO_COLOR=1")
	if err := p.run(); err != nil {
		return err
	}
	late := time.Now().Add(startTime)
	for {
		_, err := p.control().Status(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.gone:
			return fmt.Errorf("lab: `linkproxy %s` has ended:\n%s", p.role, p.said.text())
		default:
		}
		if time.Now().After(late) || wait(ctx, time.Now().Add(5*time.Millisecond)) != nil {
			return fmt.Errorf("lab: `linkproxy %s` does not answer: %w:\n%s", p.role, err, p.said.text())
		}
	}
}

// run starts the command and reads what it says.
func (p *process) run() error {
	p.said = tail{log: p.log}
	p.cmd.Stderr = &p.said
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("lab: starting %s: %w", p.name, err)
	}
	p.gone = make(chan struct{})
	go p.wait()
	return nil
}

func (p *process) wait() {
	defer close(p.gone)
	_ = p.cmd.Wait() // how it ended shows in its apps
}

func (p *process) control() *control.Client {
	return control.NewClient(filepath.Join(p.w.dir, p.name), p.role)
}

func (p *process) signal(s syscall.Signal) error {
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	return p.cmd.Process.Signal(s)
}

func (p *process) stop() { p.end(syscall.SIGINT) }

func (p *process) kill() { p.end(syscall.SIGKILL) }

// end asks a process to end, or makes it.
func (p *process) end(how syscall.Signal) {
	if p.gone == nil {
		return
	}
	_ = p.signal(how) // an error means that it has ended
	t := time.NewTimer(stopTime)
	defer t.Stop()
	select {
	case <-p.gone:
	case <-t.C:
		_ = p.signal(syscall.SIGKILL) // likewise
		<-p.gone
	}
}

// tail keeps the last lines of a program and passes them to a log.
type tail struct {
	log *decisions

	mu    sync.Mutex
	lines []string
	part  []byte
}

const tailLines = 20

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	for {
		i := bytes.IndexByte(t.part, '\n')
		if i < 0 {
			return len(p), nil
		}
		line := string(t.part[:i])
		t.part = t.part[i+1:]
		if t.lines = append(t.lines, line); len(t.lines) > tailLines {
			t.lines = t.lines[1:]
		}
		if t.log != nil {
			t.log.hear(line)
		}
	}
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// stdio runs `linkproxy ARGS` on the client and returns its standard input and output.
func (w *spaces) stdio(args []string) (net.Conn, error) {
	p := &process{w: w, on: w.laptop, name: "connect"}
	p.cmd = w.laptop.Command(w.exe, append([]string{
		"--config", filepath.Join(w.dir, "up.toml"),
		"--state", filepath.Join(w.dir, "up"),
	}, args...)...)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.run(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.conns = append(w.conns, p)
	w.mu.Unlock()
	return &stdioConn{p: p, in: in, out: bufio.NewReader(out)}, nil
}

// stdioConn is the standard input and output of a program as a connection. An exit code other than 0 is a reset.
type stdioConn struct {
	p   *process
	in  io.WriteCloser
	out io.Reader
}

func (c *stdioConn) Read(b []byte) (int, error) {
	n, err := c.out.Read(b)
	if n > 0 || err == nil {
		return n, err
	}
	<-c.p.gone
	if !c.p.cmd.ProcessState.Success() {
		return 0, fmt.Errorf("`linkproxy connect` ended with %d: %s: %w", c.p.cmd.ProcessState.ExitCode(), c.p.said.text(), syscall.ECONNRESET)
	}
	return 0, io.EOF
}

func (c *stdioConn) Write(b []byte) (int, error) {
	n, err := c.in.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		err = syscall.ECONNRESET
	}
	return n, err
}

func (c *stdioConn) CloseWrite() error { return c.in.Close() }

func (c *stdioConn) Close() error {
	_ = c.in.Close() // it may be closed
	c.p.stop()
	return nil
}

func (c *stdioConn) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "stdio"} }
func (c *stdioConn) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "stdio"} }
func (c *stdioConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *stdioConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *stdioConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
