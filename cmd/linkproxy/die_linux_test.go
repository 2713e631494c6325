package main_test

import (
	"os/exec"
	"syscall"
)

// dieWithTest has the kernel end a child whose test was killed.
func dieWithTest(c *exec.Cmd) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
