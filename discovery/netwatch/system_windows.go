package netwatch

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// The layouts that winrows.go reads are those of this system.
var (
	_ [winRouteRow]struct{}    = [unsafe.Sizeof(windows.MibIpForwardRow2{})]struct{}{}
	_ [winRouteIndex]struct{}  = [unsafe.Offsetof(windows.MibIpForwardRow2{}.InterfaceIndex)]struct{}{}
	_ [winRoutePrefix]struct{} = [unsafe.Offsetof(windows.MibIpForwardRow2{}.DestinationPrefix)]struct{}{}
	_ [winRouteHop]struct{}    = [unsafe.Offsetof(windows.MibIpForwardRow2{}.NextHop)]struct{}{}
	_ [winRouteMetric]struct{} = [unsafe.Offsetof(windows.MibIpForwardRow2{}.Metric)]struct{}{}
	_ [winRouteLoop]struct{}   = [unsafe.Offsetof(windows.MibIpForwardRow2{}.Loopback)]struct{}{}
	_ [winTableHead]struct{}   = [unsafe.Offsetof(windows.MibIpForwardTable2{}.Table)]struct{}{}
	_ [winIfaceIndex]struct{}  = [unsafe.Offsetof(windows.MibIpInterfaceRow{}.InterfaceIndex)]struct{}{}
	_ [winInet6]struct{}       = [windows.AF_INET6]struct{}{}
)

var (
	iphlpapi          = windows.NewLazySystemDLL("iphlpapi.dll")
	getIPNetTable     = iphlpapi.NewProc("GetIpNetTable2")
	powrprof          = windows.NewLazySystemDLL("powrprof.dll")
	registerResume    = powrprof.NewProc("PowerRegisterSuspendResumeNotification")
	unregisterResume  = powrprof.NewProc("PowerUnregisterSuspendResumeNotification")
	kernelbase        = windows.NewLazySystemDLL("kernelbase.dll")
	interruptTime     = kernelbase.NewProc("QueryInterruptTime")
	interruptTimeOwn  = kernelbase.NewProc("QueryUnbiasedInterruptTime")
	errAdaptersChange = errors.New("the list grew while it was read")
)

// helper is Windows: its IP Helper and its power notices. The system calls back on threads of its own.
type helper struct {
	heard   *signal
	notices []windows.Handle
	resume  uintptr
	params  *resumeParams // held for as long as it is registered
}

func newSystem() system { return &helper{} }

// resumeParams is DEVICE_NOTIFY_SUBSCRIBE_PARAMETERS.
type resumeParams struct {
	callback uintptr
	context  uintptr
}

const (
	notifyCallback  = 2 // DEVICE_NOTIFY_CALLBACK
	resumeSuspend   = 0x7
	resumeAutomatic = 0x12
	adaptersFirst   = 16 << 10 // bytes; what Microsoft suggests to begin with
	adaptersTries   = 4
	dadPreferred    = 4 // IpDadStatePreferred
	dadDeprecated   = 3
	operUp          = 1 // IfOperStatusUp
)

// listen registers for notices. The three callbacks are made once a Watcher, and never given back: the system has no way to.
func (s *helper) listen(heard *signal) (changes, wakes bool, err error) {
	s.heard = heard
	iface := windows.NewCallback(func(_ uintptr, row *[winIfaceRow]byte, kind uint32) uintptr {
		var b []byte
		if row != nil {
			b = row[:]
		}
		if n := heardInWindows(kind, b); n.changed {
			heard.add(n)
		}
		return 0
	})
	other := windows.NewCallback(func(_, _ uintptr, kind uint32) uintptr {
		if n := heardInWindows(kind, nil); n.changed {
			heard.add(n)
		}
		return 0
	})
	for _, f := range []func(*windows.Handle) error{
		func(h *windows.Handle) error {
			return windows.NotifyIpInterfaceChange(windows.AF_UNSPEC, iface, nil, false, h)
		},
		func(h *windows.Handle) error {
			return windows.NotifyUnicastIpAddressChange(windows.AF_UNSPEC, other, nil, false, h)
		},
		func(h *windows.Handle) error {
			return windows.NotifyRouteChange2(windows.AF_UNSPEC, other, nil, false, h)
		},
	} {
		var h windows.Handle
		if e := f(&h); e != nil {
			err = errors.Join(err, e)
			continue
		}
		s.notices = append(s.notices, h)
	}
	changes = err == nil
	if e := s.listenResume(); e != nil {
		return changes, false, errors.Join(err, e)
	}
	return changes, true, err
}

func (s *helper) listenResume() error {
	if err := registerResume.Find(); err != nil {
		return err
	}
	s.params = &resumeParams{callback: windows.NewCallback(func(_ uintptr, kind uint32, _ uintptr) uintptr {
		if kind == resumeAutomatic {
			s.heard.add(news{woke: true})
		}
		return 0
	})}
	if code, _, _ := registerResume.Call(notifyCallback, uintptr(unsafe.Pointer(s.params)), uintptr(unsafe.Pointer(&s.resume))); code != 0 {
		return fmt.Errorf("asking to be told of waking up: %w", windows.Errno(code))
	}
	return nil
}

// close returns when no callback runs any more.
func (s *helper) close() {
	for _, h := range s.notices {
		_ = windows.CancelMibChangeNotify2(h) // fails only for a handle that is none
	}
	if s.resume != 0 {
		_, _, _ = unregisterResume.Call(s.resume)
	}
}

func (s *helper) read() (r Reading, err error) {
	metrics := map[int][2]int{} // IPv4's and IPv6's, by index
	if r.Links, err = adapters(metrics); err != nil {
		return Reading{}, fmt.Errorf("listing adapters: %w", err)
	}
	var table *windows.MibIpForwardTable2
	if err := windows.GetIpForwardTable2(windows.AF_UNSPEC, &table); err != nil {
		return Reading{}, fmt.Errorf("listing routes: %w", err)
	}
	defer windows.FreeMibTable(unsafe.Pointer(table))
	gates, ok := winGateways(tableBytes(unsafe.Pointer(table), winRouteRow), func(index int, six bool) int {
		if six {
			return metrics[index][1]
		}
		return metrics[index][0]
	})
	if !ok {
		return Reading{}, errors.New("listing routes: the system's table cannot be read")
	}
	r.Gateways = gates
	resolve(r.Gateways)
	return r, nil
}

// tableBytes are the bytes of a table that the system made.
func tableBytes(table unsafe.Pointer, row int) []byte {
	return unsafe.Slice((*byte)(table), winTableHead+int(*(*uint32)(table))*row)
}

func resolve(gates []Gateway) {
	var table unsafe.Pointer
	if len(gates) == 0 || getIPNetTable.Find() != nil {
		return
	}
	if code, _, _ := getIPNetTable.Call(windows.AF_UNSPEC, uintptr(unsafe.Pointer(&table))); code != 0 || table == nil {
		return // then they are not read
	}
	defer windows.FreeMibTable(table)
	winResolve(gates, tableBytes(table, winNeighRow))
}

// adapters lists interfaces with their addresses, and fills in what each adds to the metrics of its routes.
func adapters(metrics map[int][2]int) (links []Link, err error) {
	const flags = windows.GAA_FLAG_SKIP_ANYCAST | windows.GAA_FLAG_SKIP_MULTICAST | windows.GAA_FLAG_SKIP_DNS_SERVER
	size := uint32(adaptersFirst)
	for range adaptersTries {
		buf := make([]byte, size)
		first := (*windows.IpAdapterAddresses)(unsafe.Pointer(&buf[0]))
		err = windows.GetAdaptersAddresses(windows.AF_UNSPEC, flags, 0, first, &size)
		switch {
		case errors.Is(err, windows.ERROR_BUFFER_OVERFLOW):
			err = errAdaptersChange
			continue
		case errors.Is(err, windows.ERROR_NO_DATA):
			return nil, nil
		case err != nil:
			return nil, err
		}
		for a := first; a != nil; a = a.Next {
			l := link(a)
			metrics[l.Index] = [2]int{int(a.Ipv4Metric), int(a.Ipv6Metric)}
			links = append(links, l)
		}
		return links, nil
	}
	return nil, err
}

func link(a *windows.IpAdapterAddresses) Link {
	l := Link{Name: windows.UTF16PtrToString(a.FriendlyName), Index: int(a.IfIndex), Running: a.OperStatus == operUp}
	if l.Index == 0 {
		l.Index = int(a.Ipv6IfIndex)
	}
	l.Kind, l.Virtual = winKind(a.IfType, windows.UTF16PtrToString(a.Description))
	for u := a.FirstUnicastAddress; u != nil; u = u.Next {
		if u.DadState != dadPreferred && u.DadState != dadDeprecated { // not yet known to be ours alone
			continue
		}
		if ip, ok := netip.AddrFromSlice(u.Address.IP()); ok {
			l.Addrs = append(l.Addrs, netip.PrefixFrom(ip.Unmap(), int(u.OnLinkPrefixLength)))
		}
	}
	return l
}

// systemAsleep measures the time that Windows counts as sleep. The clock that package time compares by goes on in it, so that a wall
// clock would say nothing.
func systemAsleep() func(now time.Time) time.Duration {
	if interruptTime.Find() != nil || interruptTimeOwn.Find() != nil {
		return nil
	}
	return func(time.Time) time.Duration {
		var all, awake uint64 // units of 100 ns
		_, _, _ = interruptTime.Call(uintptr(unsafe.Pointer(&all)))
		_, _, _ = interruptTimeOwn.Call(uintptr(unsafe.Pointer(&awake)))
		return time.Duration(all-awake) * 100
	}
}
