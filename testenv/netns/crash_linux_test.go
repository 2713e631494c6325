package netns

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// crashName makes the test program build a world and wait to be killed.
const crashName = "linkproxy-netns-crash"

// crash builds a world with traffic and a program that has a child of its own, says in which namespaces, and waits.
func crash() error {
	w, err := New()
	if err != nil {
		return err
	}
	a, err := w.Host("a")
	if err != nil {
		return err
	}
	b, err := w.Host("b")
	if err != nil {
		return err
	}
	if _, err := w.Link(a.If("wlan0", "192.168.1.10/24"), b.If("eth0", "192.168.1.20/24")); err != nil {
		return err
	}
	cmd := a.Command("sh", "-c", "readlink /proc/self/ns/net; (trap '' TERM HUP INT; exec sleep 1000) & readlink /proc/$!/ns/net; wait")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // for good
	return err
}

// TestNothingIsLeft kills a program that has a world, in several ways. All that belongs to the world holds the
// program's output, so that its end is the end of them all.
func TestNothingIsLeft(t *testing.T) {
	newWorld(t) // or skip
	before := interfaces(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{crashName}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			stdin, err := cmd.StdinPipe()
			must(t, err)
			defer stdin.Close()
			read, write, err := os.Pipe()
			must(t, err)
			defer read.Close()
			cmd.Stdout, cmd.Stderr = write, write
			must(t, cmd.Start())
			must(t, write.Close())
			must(t, read.SetReadDeadline(time.Now().Add(30*time.Second)))
			lines := bufio.NewReader(read)
			inside, err := lines.ReadString('\n')
			must(t, err)
			child, err := lines.ReadString('\n')
			must(t, err)
			inside = strings.TrimSpace(inside)
			if strings.TrimSpace(child) != inside || !strings.HasPrefix(inside, "net:[") {
				t.Fatalf("the program is in %q, its child in %q", inside, child)
			}
			if who := holders(t, inside); len(who) < 3 {
				t.Fatalf("only %v hold %s, want the program, its child and the world's maker", who, inside)
			}
			must(t, syscall.Kill(-cmd.Process.Pid, sig)) // the group, as Ctrl-C does
			if err := cmd.Wait(); err == nil {
				t.Error("it ended well")
			}
			rest, err := io.ReadAll(lines)
			if err != nil {
				t.Fatalf("somebody lives on: %v; %v hold %s", err, holders(t, inside), inside)
			}
			if len(rest) > 0 {
				t.Errorf("it said: %s", rest)
			}
			// Files are closed one after the other when a process ends.
			for until := time.Now().Add(10 * time.Second); ; {
				who := holders(t, inside)
				if len(who) == 0 {
					break
				}
				if time.Now().After(until) {
					t.Fatalf("%v hold %s", who, inside)
				}
			}
		})
	}
	if after := interfaces(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("interfaces were %v and are %v", before, after)
	}
}

func interfaces(t *testing.T) (names []string) {
	t.Helper()
	all, err := net.Interfaces()
	must(t, err)
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// holders are the processes and mounts that keep a namespace.
func holders(t *testing.T, ns string) (who []string) {
	t.Helper()
	for _, pattern := range []string{"/proc/[0-9]*/ns/net", "/proc/[0-9]*/fd/*"} {
		links, err := filepath.Glob(pattern)
		must(t, err)
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && to == ns {
				who = append(who, l)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), ns) {
		who = append(who, "a mount")
	}
	return who
}
