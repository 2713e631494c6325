package netwatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// rtnetlink is Linux. Its sockets are opened by listen and stay in the namespace of that moment.
type rtnetlink struct {
	asks   int // the socket for dumps; -1: none
	asksNo error
	seq    uint32
	buf    []byte

	tells *os.File // the multicast groups
	clock *os.File // a timer that ends when the clock is set, which waking up does
	done  sync.WaitGroup
}

func newSystem() system { return &rtnetlink{asks: -1, buf: make([]byte, datagramMax)} }

const (
	// datagramMax is above what the kernel puts into one datagram (32 KiB).
	datagramMax = 64 << 10
	// dumpTime is how long the kernel may take to answer; it needs microseconds.
	dumpTime = 2 * time.Second
	// dumpTries is how often a dump is asked for anew that was overtaken by a change.
	dumpTries = 3
)

// groups are what is listened to. Not neighbours: they change state every few seconds.
const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) |
	1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1)

func (s *rtnetlink) listen(heard *signal) (changes, wakes bool, err error) {
	s.asks, s.asksNo = netlinkSocket(0, 0)
	if s.asksNo == nil {
		tv := unix.NsecToTimeval(dumpTime.Nanoseconds())
		s.asksNo = unix.SetsockoptTimeval(s.asks, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	}
	fd, err := netlinkSocket(unix.SOCK_NONBLOCK, groups)
	if err == nil {
		s.tells = os.NewFile(uintptr(fd), "rtnetlink")
		s.done.Go(func() { s.follow(heard) })
	}
	clock, err2 := clockTimer()
	if err2 == nil {
		s.clock = clock
		s.done.Go(func() { s.followClock(heard) })
	}
	return err == nil, err2 == nil, errors.Join(err, err2)
}

func netlinkSocket(flags int, groups uint32) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, fmt.Errorf("opening a netlink socket: %w", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("binding a netlink socket: %w", err)
	}
	return fd, nil
}

// follow passes on what the kernel tells.
func (s *rtnetlink) follow(heard *signal) {
	buf := make([]byte, datagramMax)
	for {
		n, err := s.tells.Read(buf)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, unix.ENOBUFS): // more than fits: some of it is lost, so look
			heard.add(news{changed: true})
		case err != nil:
			heard.add(news{changed: true, err: err})
			return
		default:
			if what := heardIn(buf[:n]); what.changed {
				heard.add(what)
			}
		}
	}
}

// clockTimer is a timer that is cancelled when the wall clock jumps. The kernel takes waking up for such a jump, and tells it at
// once and to everybody.
func clockTimer() (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening a timer: %w", err)
	}
	if err := armTimer(fd); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("setting a timer: %w", err)
	}
	return os.NewFile(uintptr(fd), "timerfd"), nil
}

func armTimer(fd int) error {
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: math.MaxInt32}}
	return unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil)
}

// followClock has the loop look at its clock whenever the kernel says that it jumped.
func (s *rtnetlink) followClock(heard *signal) {
	buf := make([]byte, 8)
	for {
		_, err := s.clock.Read(buf)
		if !errors.Is(err, unix.ECANCELED) {
			if !errors.Is(err, os.ErrClosed) {
				heard.add(news{err: err})
			}
			return
		}
		heard.add(news{})
	}
}

func (s *rtnetlink) close() {
	for _, f := range []*os.File{s.tells, s.clock} {
		if f != nil {
			_ = f.Close() // ends its reader; nothing was written
		}
	}
	s.done.Wait()
	if s.asks >= 0 {
		_ = unix.Close(s.asks)
	}
}

func (s *rtnetlink) read() (Reading, error) {
	if s.asksNo != nil {
		return Reading{}, s.asksNo
	}
	t := devices{sys: os.DirFS("/sys/class/net")}
	err := s.dump(unix.RTM_GETLINK, unix.AF_UNSPEC, unix.SizeofIfInfomsg, func() { t.list = nil }, func(m message) {
		if d, ok := parseLink(m.body); ok && m.kind == unix.RTM_NEWLINK {
			d.mac = append([]byte(nil), d.mac...)
			t.list = append(t.list, d)
		}
	})
	if err != nil {
		return Reading{}, fmt.Errorf("listing interfaces: %w", err)
	}
	addrs := map[int][]netip.Prefix{}
	err = s.dump(unix.RTM_GETADDR, unix.AF_UNSPEC, unix.SizeofIfAddrmsg, func() { clear(addrs) }, func(m message) {
		if i, p, ok := parseAddr(m.body); ok && m.kind == unix.RTM_NEWADDR {
			addrs[i] = append(addrs[i], p)
		}
	})
	if err != nil {
		return Reading{}, fmt.Errorf("listing addresses: %w", err)
	}
	r := Reading{Links: t.links(addrs)}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		gates, err := s.gateways(family)
		if err != nil {
			return Reading{}, fmt.Errorf("listing routes: %w", err)
		}
		r.Gateways = append(r.Gateways, gates...)
	}
	s.resolve(r.Gateways)
	return r, nil
}

// gateways are the default routes of one family.
func (s *rtnetlink) gateways(family byte) (gates []Gateway, err error) {
	err = s.dump(unix.RTM_GETROUTE, family, unix.SizeofRtMsg, func() { gates = nil }, func(m message) {
		if g, ok := parseRoute(m.body); ok && m.kind == unix.RTM_NEWROUTE {
			gates = append(gates, g...)
		}
	})
	return gates, err
}

// resolve adds the routers' hardware addresses, as far as the kernel knows them.
func (s *rtnetlink) resolve(gates []Gateway) {
	if len(gates) == 0 {
		return
	}
	macs := map[neighbour][]byte{}
	err := s.dump(unix.RTM_GETNEIGH, unix.AF_UNSPEC, unix.SizeofNdMsg, func() { clear(macs) }, func(m message) {
		if n, mac, ok := parseNeigh(m.body); ok && m.kind == unix.RTM_NEWNEIGH {
			macs[n] = append([]byte(nil), mac...)
		}
	})
	if err != nil {
		return // then they are not read
	}
	for n, g := range gates {
		gates[n].MAC = macs[neighbour{g.Index, g.Addr}]
	}
}

// dump asks for a whole table. reset is called before each try, f for each entry; it keeps nothing of the message.
func (s *rtnetlink) dump(kind uint16, family byte, size int, reset func(), f func(message)) (err error) {
	for range dumpTries {
		reset()
		var overtaken bool
		if overtaken, err = s.dumpOnce(kind, family, size, f); err != nil || !overtaken {
			return err
		}
	}
	return nil // what changed meanwhile is told, and looked at again
}

func (s *rtnetlink) dumpOnce(kind uint16, family byte, size int, f func(message)) (overtaken bool, err error) {
	s.seq++
	req := make([]byte, unix.SizeofNlMsghdr+size)
	binary.NativeEndian.PutUint32(req, uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], kind)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(req[8:], s.seq)
	req[unix.SizeofNlMsghdr] = family
	if err := unix.Sendto(s.asks, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, err
	}
	for until := time.Now().Add(dumpTime); time.Now().Before(until); {
		n, _, err := unix.Recvfrom(s.asks, s.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, err
		}
		done, inTheWay, err := dumpPart(s.buf[:n], s.seq, f)
		overtaken = overtaken || inTheWay
		if done || err != nil {
			return overtaken, err
		}
	}
	return false, unix.ETIMEDOUT
}

// dumpPart reads one datagram of the answer to a dump.
func dumpPart(b []byte, seq uint32, f func(message)) (done, overtaken bool, err error) {
	malformed := eachMessage(b, func(m message) bool {
		if m.seq != seq { // of a dump that was given up
			return true
		}
		overtaken = overtaken || m.flags&unix.NLM_F_DUMP_INTR != 0
		switch m.kind {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			done = true
			if code := attrInt(m.body); code < 0 {
				err = syscall.Errno(-code)
			}
			return false
		}
		f(m)
		return true
	})
	return done, overtaken, errors.Join(err, malformed)
}

// The kernel's clocks: clockAll goes on while the machine sleeps, clockAwake stands still.
const (
	clockAll   = unix.CLOCK_BOOTTIME
	clockAwake = unix.CLOCK_MONOTONIC
)
