package streamcheck

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"
)

// exitPatience is how long a process may take to exit after it has closed its output, before it is killed.
const exitPatience = 5 * time.Second

// Process is a process whose standard input and output are a connection, as those of ssh's ProxyCommand are.
type Process struct {
	cmd  *exec.Cmd
	in   *os.File
	out  *os.File
	once sync.Once
	err  error // of the exit

	mu    sync.Mutex
	ended bool // its output is at its end
}

var _ net.Conn = (*Process)(nil)

// Start starts cmd, whose Stdin and Stdout must not be set, and returns it as a connection. Closing it ends the process.
func Start(cmd *exec.Cmd) (*Process, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	err = cmd.Start()
	if err = errors.Join(err, theirIn.Close(), theirOut.Close()); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return &Process{cmd: cmd, in: in, out: out}, nil
}

// Read reads the process's output.
func (p *Process) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if errors.Is(err, io.EOF) {
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
	}
	return n, err
}

// Write writes to the process's input.
func (p *Process) Write(b []byte) (int, error) { return p.in.Write(b) }

// CloseWrite closes the process's input.
func (p *Process) CloseWrite() error { return p.in.Close() }

// Close closes both and waits for the exit: see [Process.Exit]. A process whose output has not ended is killed.
func (p *Process) Close() error {
	_ = p.in.Close() // may be closed already
	_ = p.out.Close()
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	p.once.Do(func() {
		patience := exitPatience
		if !ended {
			patience = 0
		}
		t := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
		p.err = p.cmd.Wait()
		t.Stop()
	})
	return nil
}

// Exit is how the process exited, after Close: nil is status 0, else an *exec.ExitError.
func (p *Process) Exit() error { return p.err }

// LocalAddr is a name for this end.
func (p *Process) LocalAddr() net.Addr { return processAddr("stdio") }

// RemoteAddr is the process's path.
func (p *Process) RemoteAddr() net.Addr { return processAddr(p.cmd.Path) }

// SetDeadline sets both deadlines.
func (p *Process) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetReadDeadline is that of the process's output.
func (p *Process) SetReadDeadline(t time.Time) error { return p.out.SetReadDeadline(t) }

// SetWriteDeadline is that of the process's input.
func (p *Process) SetWriteDeadline(t time.Time) error { return p.in.SetWriteDeadline(t) }

// processAddr is the address of an end of a process's stdio.
type processAddr string

// Network is "stdio".
func (processAddr) Network() string { return "stdio" }

func (a processAddr) String() string { return string(a) }
