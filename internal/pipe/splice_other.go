//go:build !linux

package pipe

import "net"

type splicer struct{}

func newSplicer(*net.TCPConn, net.Conn) (*splicer, bool) { return nil, false }

func (d *direction) moveSpliced(w waiter, _ *splicer) (rerr, werr error) { return d.moveBuffered(w) }

// tellsUnsent says that unsent knows.
const tellsUnsent = false

func unsent(net.Conn) int { return 0 }

func isRealEnd(net.Conn) bool { return true }
