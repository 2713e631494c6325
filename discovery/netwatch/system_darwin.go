package netwatch

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/net/route"
	"golang.org/x/sys/unix"
)

// The layout that bsdroute.go reads is that of this system.
var (
	_ [sizeofRtMsg]struct{} = [unix.SizeofRtMsghdr]struct{}{}
	_ [bsdVersion]struct{}  = [unix.RTM_VERSION]struct{}{}
	_ [bsdInet6]struct{}    = [unix.AF_INET6]struct{}{}
	_ [bsdLink]struct{}     = [unix.AF_LINK]struct{}{}
	_ [rtfScoped]struct{}   = [unix.RTF_IFSCOPE]struct{}{}
	_ [rtfLLInfo]struct{}   = [unix.RTF_LLINFO]struct{}{}
)

// routing is macOS.
type routing struct {
	tells *os.File // a routing socket
	done  sync.WaitGroup
}

func newSystem() system { return &routing{} }

// messageMax is above what one read of a routing socket gives.
const messageMax = 64 << 10

// listen hears of changes. Of waking up this system tells only frameworks that need C.
func (s *routing) listen(heard *signal) (changes, wakes bool, err error) {
	fd, err := unix.Socket(unix.AF_ROUTE, unix.SOCK_RAW, unix.AF_UNSPEC)
	if err != nil {
		return false, false, fmt.Errorf("opening a routing socket: %w", err)
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return false, false, fmt.Errorf("opening a routing socket: %w", err)
	}
	s.tells = os.NewFile(uintptr(fd), "route")
	s.done.Go(func() { s.follow(heard) })
	return true, false, nil
}

// follow passes on what the kernel tells.
func (s *routing) follow(heard *signal) {
	buf := make([]byte, messageMax)
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
			if what := heardInBSD(buf[:n]); what.changed {
				heard.add(what)
			}
		}
	}
}

func (s *routing) close() {
	if s.tells != nil {
		_ = s.tells.Close() // ends its reader; nothing was written
	}
	s.done.Wait()
}

func (s *routing) read() (r Reading, err error) {
	if r.Links, err = stdLinks(); err != nil {
		return Reading{}, err
	}
	describe(r.Links)
	table, err := route.FetchRIB(unix.AF_UNSPEC, unix.NET_RT_DUMP, 0)
	if err != nil {
		return Reading{}, fmt.Errorf("listing routes: %w", err)
	}
	gates, ok := bsdGateways(table)
	if !ok {
		return Reading{}, errors.New("listing routes: the system's table cannot be read")
	}
	r.Gateways = gates
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if table, err := route.FetchRIB(family, unix.NET_RT_FLAGS, unix.RTF_LLINFO); err == nil { // else not read
			bsdResolve(r.Gateways, table)
		}
	}
	return r, nil
}

const (
	siocgifFunctionalType = 0xc02069ad // SIOCGIFFUNCTIONALTYPE; `ifconfig -v` prints it as "type"
	siocgifExpensive      = 0xc02069a0 // SIOCGIFEXPENSIVE: a hotspot, a modem
)

// describe adds what the system says of each link: its kind, and whether it is metered.
func describe(links []Link) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		fd = -1 // each question fails
	} else {
		defer unix.Close(fd)
	}
	for n := range links {
		l := &links[n]
		if kind, ok := askInterface(fd, siocgifFunctionalType, l.Name); ok {
			l.Kind, l.Virtual = darwinKind(kind)
		}
		if k, virtual := byName(l.Name); l.Kind == 0 && !virtual && k == Wired {
			l.Kind = Other // en0 may be either
		}
		if expensive, ok := askInterface(fd, siocgifExpensive, l.Name); ok {
			l.Metered = expensive != 0
		}
	}
}

// askInterface asks for one number about an interface (struct ifreq).
func askInterface(fd int, what uintptr, name string) (answer uint32, ok bool) {
	var req struct {
		name   [unix.IFNAMSIZ]byte
		answer uint32
		_      [12]byte
	}
	if len(name) >= len(req.name) {
		return 0, false
	}
	copy(req.name[:], name)
	//lint:ignore SA1019 x/sys has no wrapper for these two questions, nor a general one
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), what, uintptr(unsafe.Pointer(&req)))
	return req.answer, errno == 0
}

// The kernel's clocks: clockAll goes on while the machine sleeps, clockAwake stands still.
const (
	clockAll   = unix.CLOCK_MONOTONIC_RAW
	clockAwake = unix.CLOCK_UPTIME_RAW
)
