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

// memory is the edges of sim: three networks in memory. It must be used within a testing/synctest bubble.
type memory struct {
	carriers, client, host testenv.Net
	addresses              []string
	ways                   []*memoryWay
	port                   int
}

// queue is what a carrier's socket takes beyond what is under way, in bytes: TCP_NOTSENT_LOWAT of its sockets.
const queue = 32 << 10

// addressOf is where the host listens for a link: a plausible address of its class.
func addressOf(l Link, i int) string {
	network := map[string]string{"lan": "192.168.1.", "tailnet": "100.64.0.", "direct": "198.51.100."}[l.Class()]
	return fmt.Sprintf("%s%d:7000", network, 20+i)
}

func (m *memory) link(l Link) (way, string, error) {
	at := addressOf(l, len(m.addresses))
	m.addresses = append(m.addresses, at)
	w := &memoryWay{Route: m.carriers.Route(at)}
	if l.Rate > 0 {
		w.SetBuffer(int(l.Rate/8*int64(2*l.Delay/time.Millisecond)/1000) + queue)
	}
	m.ways = append(m.ways, w)
	return w, at, nil
}

func (m *memory) hostListeners() (lns []net.Listener, err error) {
	for _, at := range m.addresses {
		ln, err := m.carriers.Listen(at)
		if err != nil {
			return nil, err
		}
		lns = append(lns, ln)
	}
	return lns, nil
}

func (m *memory) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return m.carriers.DialContext(ctx, network, address)
}

func (m *memory) doors() (net.Listener, error) {
	m.port++
	return m.client.Listen(fmt.Sprintf("127.0.0.1:%d", 1080+m.port))
}

func (m *memory) door(ctx context.Context, at net.Addr) (net.Conn, error) {
	return m.client.Dial(ctx, at.String())
}

func (m *memory) pipe() (app, process net.Conn, err error) {
	a, p := testenv.Pipe()
	return a, p, nil
}

func (m *memory) target() (net.Listener, error) { return m.host.Listen("127.0.0.1:9000") }

func (m *memory) policy() host.Policy {
	return host.Policy{
		Connect: m.host.DialContext,
		Own:     func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil },
	}
}

func (m *memory) down(w way, on bool) error {
	w.BlackHole(on, on)
	w.(*memoryWay).Unreachable(on)
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

// memoryWay gives a testenv.Route what a testenv.Path and a kernel can.
type memoryWay struct {
	*testenv.Route

	mu    sync.Mutex
	timer *time.Timer // of patience
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

// Fin ends all connections in order.
func (w *memoryWay) Fin() {
	for _, c := range w.Conns() {
		_ = c.CloseWrite() // an end that is closed already has said so
	}
}
