package main_test

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// runBound runs a command as somebody whom file modes bind, also for root.
func runBound(c *exec.Cmd) error {
	done := make(chan error)
	go func() {
		// Never unlocked, as the thread has lost rights; and never ended before the tests are, as the kernel would then kill
		// what this thread has ever started (dieWithTest).
		runtime.LockOSThread()
		defer func() { select {} }()
		for _, right := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
			held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, right, 0, 0, 0)
			if err == nil && held == 1 && unix.Geteuid() == 0 {
				err = unix.Prctl(unix.PR_CAPBSET_DROP, right, 0, 0, 0)
			}
			if err != nil {
				done <- fmt.Errorf("giving up the right to read all files: %w", err)
				return
			}
		}
		done <- c.Run()
	}()
	return <-done
}
