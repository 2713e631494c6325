package state

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"linkproxy/dialer/route"
)

// childEnv makes the test binary act as another process on a state folder: "TASK\nFOLDER\nNAME".
const childEnv = "LINKPROXY_STATE_TEST_CHILD"

func TestMain(m *testing.M) {
	if task := os.Getenv(childEnv); task != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent closes it to let all children go at once
		if err := runChild(strings.Split(task, "\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func runChild(args []string) error {
	task, dir, name := args[0], args[1], args[2]
	switch task {
	case "learn":
		for i := range childRoutes {
			s := Open(Config{Dir: dir})
			at := epoch.Add(time.Duration(i) * time.Minute)
			s.Save("p", s.Load("p").With(at, home("5f3a"), childRoute(name, i), route.RouteMemory{LastSuccess: at}))
			s.Close()
		}
		return nil
	case "secret":
		secret, err := InstallSecret(dir)
		fmt.Printf("%x", secret)
		return err
	case "crash":
		return crash(dir, name)
	}
	return fmt.Errorf("no such task: %s", task)
}

// crash saves much, and kills this process as soon as the temporary file is there.
func crash(dir, name string) error {
	s := Open(Config{Dir: dir})
	for i := range maxPeers - 2 {
		s.Save(fmt.Sprint(name, i), large(i))
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	written := make(chan struct{})
	go func() { defer close(written); s.Close() }()
	for {
		if _, err := os.Lstat(filepath.Join(dir, memoryFile+".tmp")); err == nil {
			return self.Kill()
		}
		select {
		case <-written:
			return nil // too late; the parent tries again
		default:
		}
	}
}

// childRoutes is how many routes each child learns of.
const childRoutes = 5

func childRoute(name string, i int) string { return fmt.Sprintf("direct:%s:%d", name, i+1) }

type child struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	ended    error
}

// children runs one process per task, lets all go at once, and waits for them.
func children(t *testing.T, tasks ...[]string) []*child {
	t.Helper()
	all := make([]*child, len(tasks))
	starts := make([]io.Closer, len(tasks))
	for i, task := range tasks {
		c := &child{cmd: exec.CommandContext(t.Context(), os.Args[0])}
		c.cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(task, "\n"))
		c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
		var err error
		if starts[i], err = c.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all[i] = c
	}
	for _, start := range starts {
		_ = start.Close()
	}
	for _, c := range all {
		c.ended = c.cmd.Wait()
	}
	return all
}
