package main

import "syscall"

// attributes put a process in a group of its own, so that Ctrl-C reaches it through us alone, and end it when we die
// without having had the time to.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// raiseFileLimit lets this process and its children open as many files as the hard limit allows and returns how many.
// Go raises its own limit unasked, but not that of its children.
func raiseFileLimit() (int, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	const enough = 1 << 20
	l.Cur = min(l.Max, enough)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	return int(l.Cur), nil
}
