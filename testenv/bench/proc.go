package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// self is the kernel's process table.
const self = procFS("/proc")

// procs are the processes started for a run; dir takes their logs.
type procs struct {
	dir string

	mu     sync.Mutex
	closed bool
	count  int
	live   []*proc
}

// proc is a process of a run.
type proc struct {
	name string
	log  string // file with its standard error, and with its standard output where that is not read
	cmd  *exec.Cmd
	done chan struct{} // closed when it was waited for
	err  error         // how it ended; read after done

	in  *os.File // closing it tells a process of ours to end
	out *os.File
	buf *bufio.Reader // reads out
}

// start runs a program whose output goes to its log.
func (ps *procs) start(name string, env []string, argv ...string) (*proc, error) {
	return ps.launch(name, false, env, argv)
}

// startSelf runs this program in another role, with pipes to talk to it.
func (ps *procs) startSelf(role string, args ...string) (*proc, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return ps.launch(role, true, nil, append([]string{exe, role}, args...))
}

func (ps *procs) launch(name string, pipes bool, env, argv []string) (*proc, error) {
	ps.mu.Lock()
	ps.count++
	n := ps.count
	ps.mu.Unlock()
	p := &proc{name: name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.log = filepath.Join(ps.dir, fmt.Sprintf("%03d-%s.log", n, name))
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = attributes()
	if env != nil {
		p.cmd.Env = append(os.Environ(), env...)
	}
	if pipes {
		closeEnds, err := p.pipes()
		if err != nil {
			return nil, err
		}
		defer closeEnds()
	}
	if err := p.cmd.Start(); err != nil {
		p.closePipes()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go p.wait()
	ps.mu.Lock()
	closed := ps.closed
	ps.live = append(ps.live, p)
	ps.mu.Unlock()
	if closed {
		ps.stop(p)
		return nil, fmt.Errorf("starting %s: the run has ended", name)
	}
	return p, nil
}

// pipes connects standard input and output; the function returned closes the child's ends of them.
func (p *proc) pipes() (closeEnds func(), err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inR.Close(), inW.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout = inR, outW
	p.in, p.out, p.buf = inW, outR, bufio.NewReader(outR)
	return func() { inR.Close(); outW.Close() }, nil
}

func (p *proc) closePipes() {
	if p.in != nil {
		p.in.Close()
		p.out.Close()
	}
}

// wait is the goroutine that collects the process's end.
func (p *proc) wait() {
	p.err = p.cmd.Wait()
	close(p.done)
}

// pid is the process's id.
func (p *proc) pid() int { return p.cmd.Process.Pid }

// line reads one line of output, waiting at most so long.
func (p *proc) line(wait time.Duration) (string, error) {
	if err := p.out.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	s, err := p.buf.ReadString('\n')
	if err != nil {
		return "", p.failed(fmt.Errorf("no answer: %w", err))
	}
	return strings.TrimSpace(s), nil
}

// failed adds to err what the process last said.
func (p *proc) failed(err error) error {
	const most = 2000
	data, readErr := os.ReadFile(p.log)
	if said := strings.TrimSpace(string(data[max(0, len(data)-most):])); readErr == nil && said != "" {
		return fmt.Errorf("%s: %w; it said:\n%s", p.name, err, said)
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// ended reports whether the process has ended.
func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop kills the processes and all below them, each by its own id, and returns when they are gone.
func (ps *procs) stop(list ...*proc) {
	for _, p := range list {
		p.kill()
		<-p.done
		p.closePipes()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.live = slices.DeleteFunc(ps.live, func(p *proc) bool { return slices.Contains(list, p) })
}

// kill also reaches children that made a group of their own, as those of sshd do. A failure means it has ended.
func (p *proc) kill() {
	if p.ended() {
		return
	}
	below, err := self.tree([]int{p.pid()})
	if err == nil {
		for pid := range below {
			if c, err := os.FindProcess(pid); err == nil && pid != p.pid() {
				_ = c.Kill()
			}
		}
	}
	_ = p.cmd.Process.Kill()
}

// killAll ends every process and lets no further one start. It may be called again, and while others wait for output.
func (ps *procs) killAll() {
	ps.mu.Lock()
	ps.closed = true
	list := slices.Clone(ps.live)
	ps.mu.Unlock()
	for _, p := range list {
		p.kill()
		<-p.done
	}
}

// output runs a program to its end and returns its standard output; ctx ends it.
func output(ctx context.Context, env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = attributes()
	if env != nil {
		cmd.Env = append(os.Environ(), env...)
	}
	out, err := cmd.Output()
	if err != nil {
		said := ""
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			said = "\n" + strings.TrimSpace(string(exit.Stderr))
		}
		return "", fmt.Errorf("%s: %w%s", strings.Join(argv, " "), err, said)
	}
	return string(out), nil
}
