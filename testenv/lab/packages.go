package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"linkproxy/dialer"
	"linkproxy/dialer/route"
	"linkproxy/host"
	"linkproxy/link"
	"linkproxy/proxy"
	"linkproxy/state/identity"
)

// way is a link of a world: both testenv.Route and testenv.Path are one.
type way interface {
	SetDelay(d time.Duration)
	SetRate(bytesPerSecond int64)
	BlackHole(up, down bool)
	LoseLarge(up, down int)
	Heal()
	CutAfter(up bool, n int64)
	Reset()
	Fin()
	Refuse(on bool) error
	Bytes() (up, down int64)
}

// edges are where the packages touch a world.
type edges interface {
	// link makes a link to the host; address is where a client dials it.
	link(l Link) (w way, address string, err error)
	// hostListeners are what a new host process listens on.
	hostListeners() ([]net.Listener, error)
	// dial opens a carrier.
	dial(ctx context.Context, network, address string) (net.Conn, error)
	// doors listens for apps at a local endpoint of the client, and door opens one.
	doors() (net.Listener, error)
	door(ctx context.Context, at net.Addr) (net.Conn, error)
	// pipe is standard input and output of a `connect`.
	pipe() (app, process net.Conn, err error)
	// target listens on the host's own loopback; policy reaches it.
	target() (net.Listener, error)
	policy() host.Policy
	// down takes the client's interface of a link away, or gives it back.
	down(w way, on bool) error
	// sleep has a machine, client or host, fall asleep or wake, and jump sets its clock.
	sleep(who string, on bool) error
	jump(who string, d time.Duration) error
	close() error
}

const peerName = "devbox"

// packages is the product as packages of this process.
type packages struct {
	sc     *Scenario
	edges  edges
	start  time.Time
	faulty bool // see host.Config.BreakReplay

	hostKey, key *identity.Key
	trust        *identity.Trust
	ways         map[string]way
	routes       []route.Route
	target       net.Listener
	log          *decisions

	mu      sync.Mutex // guards the following
	host    *host.Server
	boot    uint64 // of the host
	client  *client
	clone   *client
	alone   []*dialer.Dialer
	clients uint64         // boots of the client so far
	dials   int            // carriers' sockets
	moves   map[string]int // switches seen, by link and time
	total   int
	in      string // the link last moved to with "use next"
	wg      sync.WaitGroup
}

// newPackages starts host and client; dir is for the trust list.
func newPackages(sc *Scenario, e edges, dir string) (*packages, error) {
	return plantedPackages(sc, e, dir, false)
}

// plantedPackages is newPackages with a host that is at fault, if so: for the control of the lab itself.
func plantedPackages(sc *Scenario, e edges, dir string, faulty bool) (w *packages, err error) {
	w = &packages{
		sc: sc, edges: e, faulty: faulty, start: time.Now(), ways: map[string]way{}, moves: map[string]int{},
	}
	w.log = &decisions{start: w.start, names: map[string]string{}}
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	if w.hostKey, err = identity.NewKey(rand.Reader); err != nil {
		return w, err
	}
	if w.key, err = identity.NewKey(rand.Reader); err != nil {
		return w, err
	}
	if w.trust, err = identity.OpenTrust(dir); err != nil {
		return w, err
	}
	if _, err = w.trust.Add(w.key.Fingerprint(), "laptop", w.start); err != nil {
		return w, err
	}
	if w.target, err = e.target(); err != nil {
		return w, err
	}
	for _, l := range sc.Links {
		if err = w.addLink(l); err != nil {
			return w, err
		}
	}
	if err = w.startHost(); err != nil {
		return w, err
	}
	w.client, err = w.newClient(w.nextBoot())
	return w, err
}

func (w *packages) addLink(l Link) error {
	y, address, err := w.edges.link(l)
	if err != nil {
		return err
	}
	y.SetDelay(l.Delay)
	y.SetRate(l.Rate / 8)
	r, err := route.ParseRoute(l.Class()+":"+address, 0)
	if err != nil {
		return err
	}
	w.ways[l.Name] = y
	w.routes = append(w.routes, r)
	w.log.names[r.ID()] = l.Name
	return nil
}

// instances of the processes: any numbers that differ.
var hostInstance, clientInstance = [16]byte{1}, [16]byte{2}

func (w *packages) startHost() error {
	lns, err := w.edges.hostListeners()
	if err != nil {
		return err
	}
	w.boot++
	w.host = host.New(host.Config{
		Key: w.hostKey, Process: link.Process{Instance: hostInstance, Boot: w.boot}, Trust: w.trust,
		Policy: w.edges.policy(), Hold: w.sc.Set.Hold, Pool: link.NewPool(w.sc.Set.Pool),
		BreakReplay: w.faulty,
	})
	h := w.host
	for _, ln := range lns {
		w.wg.Go(func() { _ = h.Serve(ln) }) // ends with the host; a listener that fails shows in every figure
	}
	return nil
}

func (w *packages) nextBoot() uint64 {
	w.clients++
	return w.clients
}

// Target is where the host's streams arrive.
func (w *packages) Target() net.Listener { return w.target }

func (w *packages) targetAddr() string { return w.target.Addr().String() }

// Door opens a local endpoint as an app does.
func (w *packages) Door(ctx context.Context, via string) (Door, error) {
	_, port, err := net.SplitHostPort(w.targetAddr())
	if err != nil {
		return Door{}, err
	}
	d := Door{Via: via, Target: net.JoinHostPort(peerName, port)}
	w.mu.Lock()
	c := w.client
	if via == "clone" {
		c, d.Via = w.clone, "socks"
	}
	w.mu.Unlock()
	switch {
	case c == nil:
		return d, errors.New("lab: there is no clone; clone client comes first")
	case via == "forward":
		d.Conn, err = w.edges.door(ctx, c.lns[1].Addr())
	case via == "stdio":
		d.Conn, err = w.stdio(ctx, c.dialer)
	case via == "alone":
		own := w.newDialer(nil, link.Process{Instance: identity.Ephemeral(nil).ID, Boot: 1})
		w.mu.Lock()
		w.alone = append(w.alone, own)
		w.mu.Unlock()
		d.Conn, err = w.stdio(ctx, own)
	default:
		d.Conn, err = w.edges.door(ctx, c.lns[0].Addr())
	}
	return d, err
}

// stdio is a `connect` process.
func (w *packages) stdio(ctx context.Context, d *dialer.Dialer) (net.Conn, error) {
	stream, err := open(ctx, d, w.targetAddr())
	if err != nil {
		return nil, err
	}
	app, process, err := w.edges.pipe()
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	w.wg.Go(func() {
		if proxy.Stdio(context.Background(), process, process, stream) != nil {
			resetConn(process) // an exit code of its own: no clean end
		}
		_ = process.Close()
	})
	return app, nil
}

func resetConn(c net.Conn) {
	switch c := c.(type) {
	case interface{ Reset(uint32) }:
		c.Reset(0)
	case *net.TCPConn:
		_ = c.SetLinger(0) // the Close that follows sends the reset
	}
}

// Act does one thing.
func (w *packages) Act(ctx context.Context, a Act, n int) error {
	switch a.Verb {
	case "use":
		return w.use(ctx, a.Links[0])
	case "restart", "crash", "clone":
		return w.processAct(a)
	case "note":
		return nil
	case "sleep":
		return w.sleep(ctx, a)
	case "clock":
		return w.edges.jump(a.Who, a.D)
	}
	for _, name := range a.Links {
		if err := fault(w.edges, w.ways[name], a, n); err != nil {
			return err
		}
	}
	return nil
}

// fault does one thing to one link.
func fault(e edges, y way, a Act, n int) error {
	switch a.Verb {
	case "blackhole":
		y.BlackHole(a.Up, a.Down)
	case "large":
		y.LoseLarge(chosen(a.Up, a.N), chosen(a.Down, a.N))
	case "heal":
		y.Heal()
	case "reset":
		y.Reset()
	case "fin":
		y.Fin()
	case "refuse", "accept":
		return y.Refuse(a.Verb == "refuse")
	case "down", "up":
		return e.down(y, a.Verb == "down")
	case "rate":
		y.SetRate(a.Rate / 8)
	case "rtt":
		y.SetDelay(a.D / 2)
	case "cut":
		y.CutAfter(a.Up, a.N+int64(n)*a.Step)
	default:
		return fmt.Errorf("%s: not in this world", a.Verb)
	}
	return nil
}

// sleep is what the other side sees of it, for a time. Processes in memory cannot be stopped.
func (w *packages) sleep(ctx context.Context, a Act) error {
	if err := w.edges.sleep(a.Who, true); err != nil {
		return err
	}
	w.wg.Go(func() {
		_ = wait(ctx, time.Now().Add(a.D)) // an early end wakes it, too
		_ = w.edges.sleep(a.Who, false)    // it could fall asleep
	})
	return nil
}

func chosen(on bool, n int64) int {
	if on {
		return int(n)
	}
	return 0
}

// use moves the link as planned; the outcome shows in the log.
func (w *packages) use(ctx context.Context, name string) error {
	w.mu.Lock()
	if name == "next" {
		name = nextLink(w.sc, w.in)
	}
	w.in = name
	i := slices.IndexFunc(w.sc.Links, func(l Link) bool { return l.Name == name })
	d := w.client.dialer
	w.mu.Unlock()
	w.wg.Go(func() {
		if err := d.Use(ctx, peerName, w.routes[i].ID(), false); err != nil {
			w.log.say("use " + name + ": " + err.Error())
		}
	})
	return nil
}

// nextLink is the link behind one in the order of the scenario.
func nextLink(sc *Scenario, in string) string {
	i := slices.IndexFunc(sc.Links, func(l Link) bool { return l.Name == in })
	return sc.Links[(max(i, 0)+1)%len(sc.Links)].Name
}

func (w *packages) processAct(a Act) error {
	if a.Verb == "crash" {
		w.crash(a.Who)
	}
	w.mu.Lock()
	old, oldHost := w.client, w.host
	w.mu.Unlock()
	var err error
	var c *client
	switch {
	case a.Verb == "clone":
		c, err = w.newClient(w.nextBoot()) // what a copied state folder makes of it
	case a.Who == "client":
		old.close()
		c, err = w.newClient(w.nextBoot())
	default:
		_ = oldHost.Close()
		w.mu.Lock()
		err = w.startHost()
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		return err
	case a.Verb == "clone":
		w.clone = c
	case a.Who == "client":
		w.client = c
	}
	return nil
}

// crash has the system close the sockets of a process that says nothing any more.
func (w *packages) crash(who string) {
	if who == "client" {
		w.client.die()
	}
	for _, y := range w.ways {
		_ = y.Refuse(true) // while it dies nobody comes back
		y.Reset()
	}
	defer func() {
		for _, y := range w.ways {
			_ = y.Refuse(false) // an error shows in every dial
		}
	}()
	if who == "client" {
		w.client.close()
	} else {
		_ = w.host.Close()
	}
}

// Look asks the product.
func (w *packages) Look(context.Context) (Look, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := Look{Active: "none"}
	for _, p := range w.client.dialer.Status() {
		if p.Link == nil {
			continue
		}
		for _, c := range p.Link.Carriers {
			if c.Active {
				l.Active = w.log.names[c.Name]
			}
		}
		for _, s := range p.Link.Switches {
			key := fmt.Sprint(p.Link.ID, s.At, s.To)
			if _, ok := w.moves[key]; !ok && s.From != 0 {
				w.moves[key]++
				w.total++
				w.log.sayAt(p.Link.At(s.At), fmt.Sprintf("switch %s -> %s planned=%v (%s)",
					w.log.names[p.RouteOf[s.From]], w.log.names[p.RouteOf[s.To]], s.Planned, s.Reason))
			}
		}
	}
	l.Switches = w.total
	for _, h := range w.host.Status() {
		l.Streams += h.HostLink.Status.Streams
	}
	return l, nil
}

// Counts reads the counters of the world.
func (w *packages) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := Counts{Bytes: map[string]int64{}, Dials: w.dials}
	for name, y := range w.ways {
		up, down := y.Bytes()
		c.Bytes[name] = up + down
	}
	return c
}

// Log is what the client has decided.
func (w *packages) Log() []string { return w.log.lines() }

// Close ends all.
func (w *packages) Close() error {
	w.mu.Lock()
	clients := []*client{w.client, w.clone}
	alone, h := w.alone, w.host
	w.mu.Unlock()
	for _, c := range clients {
		if c != nil {
			c.close()
		}
	}
	for _, d := range alone {
		_ = d.Close()
	}
	if h != nil {
		_ = h.Close()
	}
	if w.target != nil {
		_ = w.target.Close()
	}
	w.wg.Wait()
	return w.edges.close()
}
