// Package netns is a world of hosts for tests on Linux, as root: every host is a network namespace, its TCP is the
// kernel's, and each link between two interfaces is a pair of TAP devices with a process in between that delays, limits
// and loses Ethernet frames. ARP, IPv6 neighbour discovery and multicast pass as on a cable. Elsewhere the package
// builds and [Supported] says why it cannot run.
//
//	func TestMain(m *testing.M) { netns.Main(); os.Exit(m.Run()) }
//
//	w, err := netns.New()
//	laptop, err := w.Host("laptop")
//	server, err := w.Host("server")
//	l, err := w.Link(laptop.If("wlan0", "192.168.1.10/24"), server.If("eth0", "192.168.1.20/24"))
//	l.SetDelay(10 * time.Millisecond)
//	conn, err := laptop.Dial(ctx, "tcp", "192.168.1.20:80")
//
// The verbs mean what they mean in package testenv; up is from the end named first to the other. A world has no name
// outside its own processes: namespaces, interfaces and what runs inside are gone with [World.Close], and also when the
// process that made it is killed.
package netns

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// Main makes the process that moves a world's frames out of a copy of this program. It must come first in TestMain, or
// in main, of every program that calls [New]; in the program itself it does nothing.
func Main() {
	if code, mine := emulatorMain(os.Args[0]); mine {
		os.Exit(code)
	}
}

// Supported says why worlds cannot be made here; nil: they can.
func Supported() error { return supported() }

// World is a set of hosts and the links between them. Its methods may be called from any goroutine.
type World struct {
	// RealTime is how the emulator's threads are scheduled: true is before all ordinary programs. Without it delays are
	// only as exact as the load of the machine allows.
	RealTime bool

	em       *emulator
	requests chan request // to loop, which alone talks with the emulator
	closing  chan struct{}
	done     chan struct{} // loop has ended
	stop     sync.Once

	mu      sync.Mutex // guards what follows
	hosts   []*Host
	links   int
	failure error // of the emulator, the first
}

// errClosed is the answer of a world that is closed.
var errClosed = errors.New("netns: the world is closed")

// request is one order to the emulator.
type request struct {
	build  func() order // called by loop, so that two changes of one link cannot overtake each other
	fds    []int        // to hand over
	answer chan answer
}

type answer struct {
	reply reply
	err   error
}

// order is a request as the emulator reads it.
type order struct {
	Verb   string
	Link   int
	Faults [2]Faults // up, down
}

// reply is what the emulator answers to each order.
type reply struct {
	Err      string
	RealTime bool
	Counts   [2]Count // up, down
}

// New makes an empty world. The caller closes it.
func New() (*World, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	em, err := startEmulator()
	if err != nil {
		return nil, fmt.Errorf("netns: starting the emulator: %w", err)
	}
	w := &World{em: em, requests: make(chan request), closing: make(chan struct{}), done: make(chan struct{})}
	go w.loop()
	r, err := w.ask(func() order { return order{Verb: "hello"} })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w; does TestMain call netns.Main first?", err), w.Close())
	}
	w.RealTime = r.RealTime
	return w, nil
}

// loop owns the conversation with the emulator and the faults of all links.
func (w *World) loop() {
	defer close(w.done)
	for {
		select {
		case q := <-w.requests:
			r, err := w.em.call(q.build(), q.fds)
			if err != nil {
				w.fail(err)
			}
			q.answer <- answer{r, err}
		case <-w.closing:
			if err := w.em.stop(); err != nil {
				w.fail(err)
			}
			return
		}
	}
}

func (w *World) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		w.failure = err
	}
}

// ask lets the emulator carry out an order; what it changes holds when ask returns.
func (w *World) ask(build func() order, fds ...int) (reply, error) {
	q := request{build: build, fds: fds, answer: make(chan answer, 1)}
	select {
	case w.requests <- q:
	case <-w.closing:
		return reply{}, errClosed
	}
	a := <-q.answer
	return a.reply, a.err
}

// Host makes a machine with a loopback interface. The name is for messages and for the MAC addresses of its interfaces.
func (w *World) Host(name string) (*Host, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("netns: making host %s: %w", name, err)
	}
	h := &Host{name: name, w: w, ns: ns, routes: map[string][]string{}}
	if _, err := w.ask(func() order { return order{Verb: "host"} }, int(ns.file.Fd())); err != nil {
		ns.close()
		return nil, fmt.Errorf("netns: making host %s: %w", name, err)
	}
	w.mu.Lock()
	w.hosts = append(w.hosts, h)
	w.mu.Unlock()
	for _, s := range hostSysctls {
		if err := h.Sysctl(s.key, s.value); err != nil {
			return nil, err
		}
	}
	return h, h.IP("link", "set", "lo", "up")
}

// Switch makes a host whose interfaces form one LAN segment: each end of a [World.Link] that names it is a port.
func (w *World) Switch(name string) (*Host, error) {
	h, err := w.Host(name)
	if err != nil {
		return nil, err
	}
	h.bridge = true
	// Without multicast snooping a group is heard by all, also before its members have reported.
	return h, h.IP("link", "add", bridgeName, "up", "type", "bridge", "mcast_snooping", "0")
}

// bridgeName is the interface of a switch that joins its ports.
const bridgeName = "br0"

// Link makes two interfaces and joins them. Both are up, and what Go and the kernel say of them is true, when it returns.
func (w *World) Link(a, b End) (*Link, error) {
	var taps []int
	defer func() { // the emulator has its own
		for _, fd := range taps {
			closeFD(fd)
		}
	}()
	for _, e := range []End{a, b} {
		tap, err := e.Host.ns.tap(e.Name)
		if err != nil {
			return nil, fmt.Errorf("netns: making interface %s of %s: %w", e.Name, e.Host.name, err)
		}
		taps = append(taps, tap)
	}
	w.mu.Lock()
	l := &Link{w: w, id: w.links, a: a, b: b}
	w.links++
	w.mu.Unlock()
	for _, e := range []End{a, b} {
		if err := e.setUp(); err != nil {
			return nil, err
		}
	}
	// Only now, so that the first frames of one do not meet an interface that is down.
	if _, err := w.ask(func() order { return order{Verb: "link", Link: l.id} }, taps...); err != nil {
		return nil, fmt.Errorf("netns: making link %s: %w", l, err)
	}
	return l, nil
}

// Close kills the programs that still run inside, takes everything away and returns when the emulator is gone. Sockets
// made by Dial and Listen hold their namespace until they are closed. It returns the first error the emulator had.
func (w *World) Close() error {
	w.stop.Do(func() { close(w.closing) })
	<-w.done
	w.mu.Lock()
	hosts, err := w.hosts, w.failure
	w.hosts = nil
	w.mu.Unlock()
	for _, h := range hosts {
		h.ns.close()
	}
	return err
}
