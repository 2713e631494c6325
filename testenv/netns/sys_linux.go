package netns

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// supported makes what a world is made of, and lets it go.
func supported() error {
	for _, program := range []string{"ip", "ss"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("netns: program %s is needed (Debian: package iproute2): %w", program, err)
		}
	}
	ns, err := newNamespace()
	if err != nil {
		return fmt.Errorf("netns: a network namespace cannot be made, which takes root (CAP_SYS_ADMIN): %w", err)
	}
	defer ns.close()
	tap, err := ns.tap("tap0")
	if err != nil {
		return fmt.Errorf("netns: a TAP device cannot be made, which takes /dev/net/tun and CAP_NET_ADMIN: %w", err)
	}
	closeFD(tap)
	return nil
}

// namespace is a network namespace without a name: it lives as long as somebody holds it.
type namespace struct{ file *os.File }

const threadNamespace = "/proc/thread-self/ns/net"

// newNamespace makes a namespace.
func newNamespace() (ns *namespace, err error) {
	err = onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() error {
		file, err := os.Open(threadNamespace)
		ns = &namespace{file}
		return err
	})
	return ns, err
}

// do calls f on a thread inside the namespace.
func (ns *namespace) do(f func() error) error {
	return onThread(func() error { return setns(ns.file) }, f)
}

// onThread calls enter, which changes the thread's namespace, then f on the same thread, and brings the thread back.
func onThread(enter, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	outside, err := os.Open(threadNamespace)
	if err != nil {
		return err
	}
	defer outside.Close()
	if err := enter(); err != nil {
		return err
	}
	defer func() {
		if err := setns(outside); err != nil {
			panic(fmt.Sprintf("netns: a thread cannot leave a namespace: %v", err)) // it would spoil all that runs on it later
		}
	}()
	return f()
}

// setns brings the calling thread into a namespace; os.ErrClosed: the world is gone.
func setns(ns *os.File) error {
	raw, err := ns.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = unix.Setns(int(fd), unix.CLONE_NEWNET) }), err)
}

func (ns *namespace) close() { ns.file.Close() }

// closeFD closes a descriptor that nobody can have a use for if that fails.
func closeFD(fd int) { _ = unix.Close(fd) }

// tap makes a TAP device in the namespace, which lives as long as the descriptor.
func (ns *namespace) tap(name string) (fd int, err error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	fd = -1
	err = ns.do(func() error {
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return errors.Join(
			unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, ifindex(name)),
			unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr))
	})
	if err != nil && fd >= 0 {
		closeFD(fd)
	}
	return fd, err
}

// ifindex gives an interface the same index in all namespaces: package net keeps one table of names and indices per
// process, by which it reads the zone in fe80::1%wlan0.
func ifindex(name string) int {
	f := fnv.New32a()
	f.Write([]byte(name))
	return 1000 + int(f.Sum32()%1_000_000)
}

// allowCongestion calls f while namespaces may use the congestion control named. They may only use what the machine
// allows to all; it gets its list back.
func allowCongestion(name string, f func() error) error {
	file, err := os.OpenFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("netns: allowing %s: %w", name, err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil { // other test programs do the same
		return fmt.Errorf("netns: allowing %s: %w", name, err)
	}
	before := make([]byte, 1024)
	n, err := file.ReadAt(before, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("netns: allowing %s: %w", name, err)
	}
	before = bytes.TrimSpace(before[:n])
	if _, err := file.WriteAt([]byte(string(before)+" "+name), 0); err != nil {
		return fmt.Errorf("netns: allowing %s: %w", name, err)
	}
	err = f()
	_, back := file.WriteAt(before, 0)
	return errors.Join(err, back)
}
