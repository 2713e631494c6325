package main

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// hangups never delivers: Windows has no SIGHUP; the file is watched.
func hangups() chan os.Signal { return nil }

func stopHangups(chan os.Signal) {}

// isInUse says whether a listening address is held by another socket.
func isInUse(err error) bool { return errors.Is(err, windows.WSAEADDRINUSE) }
