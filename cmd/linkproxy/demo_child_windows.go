package main

import (
	"os/exec"
	"syscall"
)

// standApart keeps the console's Ctrl-C from a child, which the demo itself ends.
func standApart(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
