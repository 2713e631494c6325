package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"linkproxy/host"
	"linkproxy/testenv"
)

// memory is the edges of sim: a laptop and a devbox of a testenv.World, with an interface each for every link. It must be
// used within a testing/synctest bubble.
type memory struct {
	world       *testenv.World
	laptop, box *testenv.Host
	addresses   []string // where the host listens
	ways        []*memoryWay
}

func newMemory(sc *Scenario) *memory {
	w := testenv.NewWorld(seedOf(sc.Name))
	return &memory{world: w, laptop: w.Host("laptop"), box: w.Host("devbox")}
}

// plan is how a link looks on both machines, in sim and in netns.
type plan struct {
	near, far         string // interfaces
	nearAddr, farAddr string
}

func planOf(l Link, i int) plan {
	p := map[string]plan{
		"lan":     {near: "wlan0", far: "eth0", nearAddr: "192.168.1"},
		"tailnet": {near: "tailscale0", far: "tailscale0", nearAddr: "100.64.0"},
		"direct":  {near: "wwan0", far: "eth1", nearAddr: "198.51.100"},
	}[l.Class()]
	if digit := l.Name[len(l.Class()):]; digit != "" {
		p.near, p.far, p.nearAddr = p.near+digit, p.far+digit, fmt.Sprintf("10.%s.%d", digit, i)
	}
	p.nearAddr, p.farAddr = p.nearAddr+".10", p.nearAddr+".20"
	return p
}

// port is the host's.
const port = "8639"

// unsent is what a carrier's socket takes beyond what is under way, in bytes: TCP_NOTSENT_LOWAT of its sockets.
const unsent = 32 << 10

func (m *memory) link(l Link) (way, string, error) {
	p := planOf(l, len(m.ways))
	r := m.world.Link(l.Name, l.Name)
	w := &memoryWay{Route: r, near: m.laptop.Add(p.near, l.Name, p.nearAddr+"/24")}
	m.box.Add(p.far, l.Name, p.farAddr+"/24")
	if l.Rate > 0 {
		w.SetBuffer(int(float64(l.Rate)/8*2*l.Delay.Seconds()) + unsent)
	}
	m.ways = append(m.ways, w)
	at := net.JoinHostPort(p.farAddr, port)
	m.addresses = append(m.addresses, at)
	return w, at, nil
}

func (m *memory) hostListeners() (lns []net.Listener, err error) {
	for _, at := range m.addresses {
		ln, err := m.box.Listen(context.Background(), "tcp", at)
		if err != nil {
			return lns, err
		}
		lns = append(lns, ln)
	}
	return lns, nil
}

func (m *memory) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return m.laptop.Dial(ctx, network, address)
}

func (m *memory) doors() (net.Listener, error) {
	return m.laptop.Listen(context.Background(), "tcp", "127.0.0.1:0")
}

func (m *memory) door(ctx context.Context, at net.Addr) (net.Conn, error) {
	return m.laptop.Dial(ctx, "tcp", at.String())
}

func (m *memory) pipe() (app, process net.Conn, err error) {
	a, p := testenv.Pipe()
	return a, p, nil
}

func (m *memory) target() (net.Listener, error) {
	return m.box.Listen(context.Background(), "tcp", "127.0.0.1:9000")
}

func (m *memory) policy() host.Policy {
	return host.Policy{
		Connect: m.box.Dial,
		Own:     func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil },
	}
}

func (m *memory) down(w way, on bool) error {
	w.(*memoryWay).near.Up(!on)
	return nil
}

func (m *memory) machine(who string) *testenv.Host {
	if who == "client" {
		return m.laptop
	}
	return m.box
}

// sleep makes a machine fall silent; its processes, which share this one's time, go on.
func (m *memory) sleep(who string, on bool) error {
	if on {
		m.machine(who).Suspend()
	} else {
		m.machine(who).Resume()
	}
	for _, w := range m.ways {
		w.giveUp(on)
	}
	return nil
}

func (m *memory) jump(who string, d time.Duration) error {
	m.machine(who).Jump(d)
	return nil
}

func (m *memory) close() error {
	for _, w := range m.ways {
		w.giveUp(false)
	}
	return nil
}

// patience is how long a system retransmits before it gives a connection up: what carriers ask for.
const patience = 120 * time.Second

// memoryWay gives a testenv.Route what a kernel does at its ends.
type memoryWay struct {
	*testenv.Route
	near *testenv.Interface

	mu    sync.Mutex
	timer *time.Timer // of patience
}

// SetRate also bounds the queue, to 100 ms as in the other worlds.
func (w *memoryWay) SetRate(bytesPerSecond int64) {
	w.Route.SetRate(bytesPerSecond)
	if bytesPerSecond > 0 {
		w.SetQueue(max(int(bytesPerSecond/10), 3*1500))
	}
}

// BlackHole also has the systems at both ends give up what was in the hole for too long.
func (w *memoryWay) BlackHole(up, down bool) {
	w.Route.BlackHole(up, down)
	w.giveUp(up || down)
}

// Heal ends all faults.
func (w *memoryWay) Heal() {
	w.Route.Heal()
	w.giveUp(false)
}

func (w *memoryWay) giveUp(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if on {
		w.timer = time.AfterFunc(patience, w.Reset)
	}
}
