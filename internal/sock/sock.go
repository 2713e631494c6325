// Package sock is what package net does not offer of sockets: the options of those that carriers run over, and writing without
// waiting.
package sock

import (
	"net"
	"syscall"
	"time"
)

const (
	// userTimeout is how long sent bytes may stay unacknowledged before the system gives the connection up. The link knows
	// of a dead carrier long before; this only collects garbage.
	userTimeout = 120 * time.Second
	// notSent is how many bytes not yet sent a socket takes, in bytes: what lies in it can neither be reordered nor taken
	// to another carrier.
	notSent = 32 << 10
	// keepIdle and keepEvery find ends that are gone while nothing was sent. The link asks sooner where that matters.
	keepIdle  = 2 * time.Minute
	keepEvery = 30 * time.Second
	keepCount = 4
)

// Tune sets what a carrier's socket should have: no delay, little unsent, the system's patience, and BBR where there is it.
// It does what can be done; connections that are no TCP sockets stay as they are.
func Tune(c net.Conn) {
	t, ok := c.(interface {
		syscall.Conn
		SetNoDelay(on bool) error
		SetKeepAliveConfig(net.KeepAliveConfig) error
	})
	if !ok {
		return
	}
	_ = t.SetNoDelay(true)
	_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepEvery, Count: keepCount})
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { tune(fd) })
}
