package main

import (
	"os/exec"
	"syscall"
)

// standApart keeps the terminal's Ctrl-C from a child, which the demo itself ends, and has the kernel end it if the demo is
// killed.
func standApart(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
