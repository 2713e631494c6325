package netns

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// vnetHeader is what stands before each frame on a TAP device with IFF_VNET_HDR: struct virtio_net_hdr.
	vnetHeader = 10
	// burst is how many frames are taken from one side before the other side gets a turn.
	burst = 16
	// busyLimit is how long a cable may work without a wait, and busyPause the wait that it takes then: a thread with
	// real-time priority that never waits is killed.
	busyLimit = time.Second
	busyPause = 20 * time.Microsecond
)

// offloads lets a host hand over large TCP segments whole; checksums are always left open.
const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN

// cable is a link in the emulator: one thread that moves the frames between two TAP devices.
type cable struct {
	taps   [2]int
	wake   int // eventfd
	orders chan cableOrder
	ways   [2]way // up: from taps[0] to taps[1]
	base   time.Time
	spill  [maxFrame]byte // takes frames that are lost
}

// way is one direction.
type way struct {
	lane    *lane
	ring    ring
	count   Count
	offload int // as set for the device it reads from, -1 = never yet
}

type cableOrder struct {
	order  order
	answer chan reply
}

func newCable(id int, taps [2]int) (*cable, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	c := &cable{taps: taps, wake: wake, orders: make(chan cableOrder, 1), base: time.Now()}
	for i := range c.ways {
		// Not from Go's heap: its pages come when they are touched and are of no concern to the collector.
		data, err := unix.Mmap(-1, 0, ringBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return nil, err
		}
		c.ways[i] = way{lane: newLane(uint64(2*id + i)), ring: ring{data: data, slots: make([]slot, ringFrames)}, offload: -1}
	}
	return c, nil
}

// obey gives the cable's thread an order and waits until it is carried out.
func (c *cable) obey(o order) (reply, error) {
	q := cableOrder{order: o, answer: make(chan reply, 1)}
	c.orders <- q
	if _, err := unix.Write(c.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return reply{}, err
	}
	return <-q.answer, nil
}

func (c *cable) now() time.Duration { return time.Since(c.base) }

// run moves frames until the process ends.
func (c *cable) run() {
	runtime.LockOSThread()
	// Without real-time priority the kernel would wake us 50 µs late to save power.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	fds := []unix.PollFd{{Fd: int32(c.taps[0])}, {Fd: int32(c.taps[1])}, {Fd: int32(c.wake)}}
	idle := c.now()
	for {
		c.deliver()
		for i := range fds {
			fds[i].Events = unix.POLLIN
		}
		now := c.now()
		n, err := unix.Ppoll(fds, c.timeout(now), nil)
		if err != nil { // EINTR; what is ready will be so again
			continue
		}
		if then := c.now(); n == 0 || then-now > busyPause {
			idle = then
		} else if then-idle > busyLimit {
			unix.Nanosleep(&unix.Timespec{Nsec: int64(busyPause)}, nil)
			idle = then
		}
		if fds[2].Revents != 0 {
			c.takeOrders()
		}
		for i := range c.ways {
			if fds[i].Revents&unix.POLLIN != 0 {
				c.receive(i)
			} else if fds[i].Revents != 0 {
				fds[i].Fd = -1 // the device is gone; its namespace ends
			}
		}
	}
}

// timeout is until the next frame arrives; nil: none is on its way.
func (c *cable) timeout(now time.Duration) *unix.Timespec {
	var next *unix.Timespec
	for i := range c.ways {
		due, ok := c.ways[i].ring.due()
		if !ok {
			continue
		}
		t := unix.NsecToTimespec(int64(max(due-now, 0)))
		if next == nil || t.Nano() < next.Nano() {
			next = &t
		}
	}
	return next
}

// takeOrders carries out what obey has sent.
func (c *cable) takeOrders() {
	var b [8]byte
	_, _ = unix.Read(c.wake, b[:]) // it was readable
	for {
		select {
		case q := <-c.orders:
			q.answer <- c.carryOut(q.order)
		default:
			return
		}
	}
}

func (c *cable) carryOut(o order) reply {
	if o.Verb == "count" {
		return reply{Counts: [2]Count{c.ways[0].count, c.ways[1].count}}
	}
	now := c.now()
	for i := range c.ways {
		w, f := &c.ways[i], o.Faults[i]
		w.lane.set(now, f)
		if f.Hole {
			w.count.Lost += w.ring.drop()
		}
		offload := offloads
		if f.perPacket() {
			offload = unix.TUN_F_CSUM
		}
		if offload == w.offload {
			continue
		}
		if err := unix.IoctlSetInt(c.taps[i], unix.TUNSETOFFLOAD, offload); err != nil {
			return reply{Err: "setting offloads: " + err.Error()}
		}
		w.offload = offload
	}
	return reply{}
}

// receive takes frames from taps[i] as they come, and lets both ways deliver meanwhile.
func (c *cable) receive(i int) {
	w := &c.ways[i]
	for range burst {
		buf := w.ring.space()
		full := buf == nil
		if full {
			buf = c.spill[:]
		}
		n, err := unix.Read(c.taps[i], buf)
		if err != nil || n <= vnetHeader {
			return
		}
		due, ok := w.lane.admit(c.now(), n-vnetHeader)
		if full || !ok {
			w.count.Lost++
			continue
		}
		w.ring.push(n, due)
		c.deliver()
	}
}

// deliver writes what has arrived.
func (c *cable) deliver() {
	for i := range c.ways {
		w := &c.ways[i]
		for {
			due, ok := w.ring.due()
			if !ok || due > c.now() {
				break
			}
			frame := w.ring.pop()
			if c.answer(i, frame[vnetHeader:]) {
				w.count.Lost++
				continue
			}
			if _, err := unix.Write(c.taps[1-i], frame); err != nil {
				w.count.Lost++ // the interface is down
				continue
			}
			w.count.Frames++
			w.count.Bytes += int64(len(frame) - vnetHeader)
			if isARP(frame[vnetHeader:]) {
				w.count.ARP += int64(len(frame) - vnetHeader)
			}
		}
	}
}

// answer sends RST back for a frame that has come from taps[i] and is to be refused; false: it is to pass.
func (c *cable) answer(i int, frame []byte) bool {
	f := &c.ways[i].lane.Faults
	if !f.Refuse && !f.Reset {
		return false
	}
	s, ok := parseSegment(frame)
	if !ok || !f.answered(s) {
		return false
	}
	back := &c.ways[1-i]
	buf := back.ring.space()
	if buf == nil {
		return true
	}
	clear(buf[:vnetHeader]) // checksums are complete, nothing is offloaded
	n := s.reset(buf[vnetHeader:])
	if due, ok := back.lane.admit(c.now(), n); ok {
		back.ring.push(vnetHeader+n, due)
	}
	return true
}
