package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"linkproxy/proxy"
)

// nearby is how many ports beyond a taken one are tried for a suggestion.
const nearby = 20

// taken makes an error of a listening address more useful: who holds it, and which port nearby is free.
func taken(addr string, err error) error {
	var in *proxy.InUseError
	switch {
	case errors.As(err, &in):
		addr = in.Addr
	case !isInUse(err):
		return fmt.Errorf("listening on %s: %w", addr, err)
	}
	text := fmt.Sprintf("%s is taken", addr)
	if who := holder(addr); who != "" {
		text += " by " + who
	}
	if free := freeNear(addr); free != "" {
		text += fmt.Sprintf("; %s is free: change the config to it, or stop the other program", free)
	} else {
		text += ": stop that program, or choose another address in the config"
	}
	return errors.New(text)
}

// freeNear finds a free port a little above a taken one.
func freeNear(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	p, err := strconv.Atoi(port)
	if err != nil {
		return ""
	}
	for i := p + 1; i <= p+nearby && i < 1<<16; i++ {
		at := net.JoinHostPort(host, strconv.Itoa(i))
		if ln, err := net.Listen("tcp", at); err == nil {
			ln.Close()
			return at
		}
	}
	return ""
}
