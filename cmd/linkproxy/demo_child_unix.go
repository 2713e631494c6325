//go:build unix && !linux

package main

import (
	"os/exec"
	"syscall"
)

// standApart keeps the terminal's Ctrl-C from a child, which the demo itself ends.
func standApart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
