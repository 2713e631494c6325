//go:build !linux

package main

import (
	"errors"
	"syscall"
)

// attributes are the default ones: run refuses this system before it starts anything.
func attributes() *syscall.SysProcAttr { return nil }

func raiseFileLimit() (int, error) { return 0, errors.ErrUnsupported }
