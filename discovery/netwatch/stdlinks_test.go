package netwatch

import (
	"net/netip"
	"slices"
	"testing"
)

// What package net knows of this machine: its loopback at least, which never counts.
func TestStdLinks(t *testing.T) {
	links, err := stdLinks()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(links, func(l Link) bool { return l.Kind == Loopback })
	if at < 0 {
		t.Fatal("this machine has no loopback interface, or package net does not show it")
	}
	l := links[at]
	if l.Index == 0 || !l.Running || !slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr().IsLoopback() }) {
		t.Errorf("loopback is %+v", l)
	}
	if _, ok := usable(l, nil, Override{}); ok {
		t.Error("loopback counts")
	}
}
