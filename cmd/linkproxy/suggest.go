package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/dialer"
)

// nearest is the known name that another one was probably meant to be; "": none is near. Two slips are a typing error, in a
// short name one.
func nearest(name string, known []string) string {
	const longName = 5
	best, found := 2, ""
	if len(name) < longName {
		best = 1
	}
	for _, k := range known {
		if n := slips(strings.ToLower(name), strings.ToLower(k)); n > 0 && (n < best || n == best && found == "") {
			best, found = n, k
		}
	}
	return found
}

// slips is how many letters have to be added, left out, replaced or swapped with their neighbour to make b of a.
func slips(a, b string) int {
	x, y := []rune(a), []rune(b)
	var before, last []int
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		before, last, row = last, row, make([]int, len(y)+1)
		row[0] = i + 1
		for j := range y {
			same := 1
			if x[i] == y[j] {
				same = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+same)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(y)]
}

// mistyped is an error about a name that is probably a peer's, mistyped.
type mistyped struct {
	name, meant string
	cause       error
}

func (e *mistyped) Error() string {
	return fmt.Sprintf("no peer %s; did you mean %s? (%v)", e.name, e.meant, e.cause)
}

func (e *mistyped) Unwrap() error { return e.cause }

// unmistyped adds to an error that says that a name leads nowhere which peer was probably meant; other errors stay as they are.
func unmistyped(err error, name string, known []string) error {
	var dns *net.DNSError
	var target *config.TargetError
	var unknown *dialer.Error
	switch {
	case errors.As(err, &dns) && !dns.IsTimeout, errors.As(err, &target), errors.As(err, &unknown) && unknown.Reason() == "unknown_peer":
	default:
		return err
	}
	if host, _, split := net.SplitHostPort(name); split == nil {
		name = host
	}
	label := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), "."), "."+config.InternalDomain)
	if meant := nearest(label, known); meant != "" {
		return &mistyped{cmp.Or(label, name), meant, err}
	}
	return err
}

// peerNames are the names of the config in force.
func (u *up) peerNames() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var names []string
	for _, p := range u.cfg.Peers {
		names = append(names, p.Name)
	}
	return names
}
