//go:build !windows

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// hangups delivers SIGHUP: read the config again.
func hangups() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

func stopHangups(c chan os.Signal) { signal.Stop(c) }

// isInUse says whether a listening address is held by another socket.
func isInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
