package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holder names the process that listens on addr, as far as this user may see it; empty otherwise.
func holder(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return ""
	}
	inode := listeningInode(at)
	if inode == "" {
		return ""
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != "socket:["+inode+"]" {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		name, _ := os.ReadFile("/proc/" + pid + "/comm")
		return fmt.Sprintf("%s (process %s)", bytes.TrimSpace(name), pid)
	}
	return ""
}

// listeningInode finds the socket that listens on at's port, at its address or at all (proc_net_tcp(5)).
func listeningInode(at netip.AddrPort) string {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		defer f.Close()
		s := bufio.NewScanner(f)
		for s.Scan() {
			fields := strings.Fields(s.Text())
			const listen = "0A"
			if len(fields) < 10 || fields[3] != listen {
				continue
			}
			ip, port, ok := procAddr(fields[1])
			if ok && port == at.Port() && (ip.IsUnspecified() || ip.Unmap() == at.Addr().Unmap()) {
				return fields[9]
			}
		}
	}
	return ""
}

// procAddr reads an address as the kernel prints it: 32-bit words in the machine's byte order.
func procAddr(s string) (ip netip.Addr, port uint16, ok bool) {
	host, p, found := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	n, perr := strconv.ParseUint(p, 16, 16)
	if !found || err != nil || perr != nil {
		return ip, 0, false
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	ip, ok = netip.AddrFromSlice(raw)
	return ip, uint16(n), ok
}
