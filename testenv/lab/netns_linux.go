package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"linkproxy/control"
	"linkproxy/state/identity"
	"linkproxy/testenv/netns"
)

// Where things listen in netns.
const (
	nsTarget  = "127.0.0.1:9000"
	nsTCP     = ":9000" // the same, for plain TCP over a link
	nsHost    = ":" + port
	nsProxy   = "127.0.0.1:1080"
	nsForward = "127.0.0.1:15000"
	nsClone   = "127.0.0.1:1081"
)

// spaces is the product as processes in network namespaces.
type spaces struct {
	sc    *Scenario
	exe   string // the linkproxy binary
	dir   string
	start time.Time

	world        *netns.World
	laptop, box  *netns.Host
	links        map[string]*wire
	target       net.Listener
	host, client *process
	clone        *process
	log          *decisions

	mu    sync.Mutex // guards the following
	moves map[string]bool
	total int
	in    string
	conns []*process // `connect` processes
	wg    sync.WaitGroup
}

// wire is one link.
type wire struct {
	*netns.Link
	name string // the client's interface
	far  string // the host's address
}

// newSpaces makes the world without any process of the product.
func newSpaces(sc *Scenario, exe, dir string) (w *spaces, err error) {
	w = &spaces{sc: sc, exe: exe, dir: dir, start: time.Now(), links: map[string]*wire{}, moves: map[string]bool{}}
	w.log = &decisions{start: w.start, names: map[string]string{}}
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	if w.world, err = netns.New(); err != nil {
		return w, err
	}
	if w.laptop, err = w.world.Host("laptop"); err != nil {
		return w, err
	}
	if w.box, err = w.world.Host("devbox"); err != nil {
		return w, err
	}
	if err = w.setSystems(); err != nil {
		return w, err
	}
	for i, l := range sc.Links {
		if err = w.addLink(l, i); err != nil {
			return w, err
		}
	}
	w.target, err = w.box.Listen("tcp", nsTCP)
	return w, err
}

func (w *spaces) addLink(l Link, i int) error {
	p := planOf(l, i)
	y := &wire{name: p.near, far: p.farAddr}
	var err error
	y.Link, err = w.world.Link(w.laptop.If(p.near, p.nearAddr+"/24"), w.box.If(p.far, p.farAddr+"/24"))
	if err != nil {
		return err
	}
	y.SetDelay(l.Delay)
	y.setRate(l.Rate / 8)
	y.SetLoss(l.Loss)
	w.links[l.Name] = y
	w.log.names[w.routeOf(l.Name)] = l.Name
	return nil
}

// leastQueue is what the queue of a slow link holds: a modem that holds two packets would be none.
const leastQueue = 10 * 1514

// setRate sets the rate, in bytes a second, with a queue of 100 ms or leastQueue.
func (y *wire) setRate(rate int64) {
	y.SetRate(rate)
	if rate > 0 {
		y.SetQueue(max(100*time.Millisecond, leastQueue*time.Second/time.Duration(rate)))
	}
}

// setSystems makes both machines look for no router, since there is none and an idle link would carry little else, and lets
// their sockets have what the scenario wants.
func (w *spaces) setSystems() error {
	for _, h := range []*netns.Host{w.laptop, w.box} {
		if err := h.Sysctl("net.ipv6.conf.default.router_solicitations", "0"); err != nil {
			return fmt.Errorf("%w: %w", ErrCannot, err)
		}
		if w.sc.Set.Buffers == 0 {
			continue
		}
		for _, key := range []string{"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"} {
			if err := h.Sysctl(key, fmt.Sprintf("4096 131072 %d", w.sc.Set.Buffers)); err != nil {
				return fmt.Errorf("%w: %w", ErrCannot, err)
			}
		}
	}
	return nil
}

func (w *spaces) routeOf(link string) string {
	for _, l := range w.sc.Links {
		if l.Name == link {
			return l.Class() + ":" + w.links[link].far + nsHost
		}
	}
	return ""
}

// newProduct makes the world and starts `host` and `up` in it.
func newProduct(ctx context.Context, sc *Scenario, exe, dir string) (World, error) {
	w, err := newSpaces(sc, exe, dir)
	if err != nil {
		return nil, err
	}
	if err := w.setUp(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *spaces) setUp(ctx context.Context) error {
	hostState, upState := filepath.Join(w.dir, "host"), filepath.Join(w.dir, "up")
	for _, d := range []string{hostState, upState} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	hostKey, err := identity.LoadOrCreateKey(hostState)
	if err != nil {
		return err
	}
	key, err := identity.LoadOrCreateKey(upState)
	if err != nil {
		return err
	}
	trust, err := identity.OpenTrust(hostState)
	if err != nil {
		return err
	}
	if _, err := trust.Add(key.Fingerprint(), "laptop", time.Now()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, "host.toml"), []byte(w.hostConfig()), 0o600); err != nil {
		return err
	}
	text := w.upConfig(hostKey.Fingerprint().String(), nsProxy, nsForward)
	if err := os.WriteFile(filepath.Join(w.dir, "up.toml"), []byte(text), 0o600); err != nil {
		return err
	}
	w.host = &process{w: w, on: w.box, role: "host", name: "host"}
	w.client = &process{w: w, on: w.laptop, role: "up", name: "up", log: w.log}
	if err := w.host.start(ctx); err != nil {
		return err
	}
	return w.client.start(ctx)
}

func (w *spaces) hostConfig() string {
	rule := fmt.Sprintf("{ to = %q }", nsTarget)
	if w.sc.Set.Hold > 0 {
		rule = fmt.Sprintf("{ to = %q, hold = %q }", nsTarget, w.sc.Set.Hold)
	}
	return fmt.Sprintf("[host]\nlisten = %q\nallow = [%s]\n", nsHost, rule)
}

func (w *spaces) upConfig(id, proxy, forward string) string {
	var routes []string
	for _, l := range w.sc.Links {
		routes = append(routes, fmt.Sprintf("%q", w.routeOf(l.Name)))
	}
	hold := ""
	if w.sc.Set.Hold > 0 {
		hold = fmt.Sprintf("hold = %q\n", w.sc.Set.Hold)
	}
	return fmt.Sprintf("[listen]\nsocks = %q\nhttp = %q\n\n[[forward]]\nlisten = %q\nto = \"devbox:9000\"\n%s\n"+
		"[[peer]]\nname = \"devbox\"\nid = %q\nstandby = %q\nroutes = [%s]\n",
		proxy, proxy, forward, hold, id, w.sc.Set.Standby, strings.Join(routes, ", "))
}

// Target is where the host's streams arrive.
func (w *spaces) Target() net.Listener { return w.target }

// Door opens a local endpoint as an app does.
func (w *spaces) Door(ctx context.Context, via string) (Door, error) {
	d := Door{Via: via, Target: "devbox:9000"}
	var err error
	switch via {
	case "stdio", "alone":
		args := []string{"connect", "devbox:9000"}
		if via == "alone" {
			args = []string{"connect", "--alone", "devbox:9000"}
		}
		d.Conn, err = w.stdio(args)
	case "clone":
		d.Via = "socks"
		d.Conn, err = w.laptop.Dial(ctx, "tcp", nsClone)
	case "forward":
		d.Conn, err = w.laptop.Dial(ctx, "tcp", nsForward)
	default:
		d.Conn, err = w.laptop.Dial(ctx, "tcp", nsProxy)
	}
	return d, err
}

// Act does one thing.
func (w *spaces) Act(ctx context.Context, a Act, n int) error {
	switch a.Verb {
	case "use":
		return w.use(ctx, a.Links[0])
	case "restart", "crash":
		return w.restart(ctx, a)
	case "sleep":
		return w.sleep(ctx, a)
	case "clone":
		return w.startClone(ctx)
	case "note":
		return nil
	}
	for _, name := range a.Links {
		if err := w.links[name].fault(w.laptop, a); err != nil {
			return err
		}
	}
	return nil
}

func (y *wire) fault(laptop *netns.Host, a Act) error {
	switch a.Verb {
	case "blackhole":
		y.BlackHole(a.Up, a.Down)
	case "large":
		y.LoseLarge(chosen(a.Up, a.N), chosen(a.Down, a.N))
	case "heal":
		y.Heal()
	case "reset":
		return laptop.Reset(y.name)
	case "refuse", "accept":
		return y.Refuse(a.Verb == "refuse")
	case "down":
		return laptop.Down(y.name)
	case "up":
		return laptop.Up(y.name)
	case "rate":
		y.setRate(a.Rate / 8)
	case "rtt":
		y.SetDelay(a.D / 2)
	default:
		return fmt.Errorf("%s: not in this world", a.Verb)
	}
	return nil
}

func (w *spaces) use(ctx context.Context, name string) error {
	if w.client == nil {
		return nil // a baseline has one way
	}
	w.mu.Lock()
	if name == "next" {
		name = nextLink(w.sc, w.in)
	}
	w.in = name
	w.mu.Unlock()
	w.wg.Go(func() {
		if err := w.client.control().Use(ctx, peerName, w.routeOf(name), false); err != nil {
			w.log.say("use " + name + ": " + err.Error())
		}
	})
	return nil
}

func (w *spaces) restart(ctx context.Context, a Act) error {
	p := w.host
	if a.Who == "client" {
		p = w.client
	}
	if p == nil {
		return nil
	}
	if a.Verb == "crash" {
		p.kill()
	} else {
		p.stop()
	}
	return p.start(ctx)
}

// sleep stops a process; nothing passes its links meanwhile, as its interfaces are off.
func (w *spaces) sleep(ctx context.Context, a Act) error {
	p := w.host
	if a.Who == "client" {
		p = w.client
	}
	for _, y := range w.links {
		y.BlackHole(true, true)
	}
	if p != nil {
		if err := p.signal(syscall.SIGSTOP); err != nil {
			return err
		}
	}
	w.wg.Go(func() {
		_ = wait(ctx, time.Now().Add(a.D)) // an early end wakes it, too
		for _, y := range w.links {
			y.Heal()
		}
		if p != nil {
			_ = p.signal(syscall.SIGCONT) // an error means that it has ended
		}
	})
	return nil
}

// startClone starts a second `up` with a copy of the first one's state folder.
func (w *spaces) startClone(ctx context.Context) error {
	if w.client == nil {
		return nil
	}
	dir := filepath.Join(w.dir, "clone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"key.pem", "up.instance"} {
		b, err := os.ReadFile(filepath.Join(w.dir, "up", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	b, err := os.ReadFile(filepath.Join(w.dir, "up.toml"))
	if err != nil {
		return err
	}
	text := strings.NewReplacer(nsProxy, nsClone, nsForward, "127.0.0.1:15001").Replace(string(b))
	if err := os.WriteFile(filepath.Join(w.dir, "clone.toml"), []byte(text), 0o600); err != nil {
		return err
	}
	w.clone = &process{w: w, on: w.laptop, role: "up", name: "clone"}
	return w.clone.start(ctx)
}

// Look asks both processes.
func (w *spaces) Look(ctx context.Context) (Look, error) {
	l := Look{Active: "none"}
	if w.client == nil {
		return l, nil
	}
	st, err := w.client.control().Status(ctx)
	if err != nil {
		return l, fmt.Errorf("asking `linkproxy up`: %w", err)
	}
	w.mu.Lock()
	for _, p := range st.Peers {
		for _, k := range p.Links {
			w.readLink(&l, k)
		}
	}
	l.Switches = w.total
	w.mu.Unlock()
	if st, err = w.host.control().Status(ctx); err != nil {
		return l, fmt.Errorf("asking `linkproxy host`: %w", err)
	}
	for _, p := range st.Peers {
		for _, k := range p.Links {
			if k.State != "ended" {
				l.Streams += len(k.Streams)
			}
		}
	}
	return l, nil
}

func (w *spaces) readLink(l *Look, k control.Link) {
	names := map[uint64]string{}
	for _, c := range k.Carriers {
		names[c.Generation] = w.log.names[c.Route]
		if c.State == "active" && k.State == "connected" {
			l.Active = w.log.names[c.Route]
		}
	}
	for _, s := range k.Switches {
		key := fmt.Sprint(k.ID, s.At.UnixNano(), s.To)
		if w.moves[key] || s.From == 0 {
			continue
		}
		w.moves[key] = true
		w.total++
		w.log.sayAt(s.At, fmt.Sprintf("switch %s -> %s planned=%v (%s)", names[s.From], names[s.To], s.Planned, s.Reason))
	}
}

// Counts reads the counters of the links, and what the client has logged of its dials.
func (w *spaces) Counts() Counts {
	c := Counts{Bytes: map[string]int64{}}
	for name, y := range w.links {
		up, down := y.Count()
		c.Bytes[name] = up.Bytes - up.ARP + down.Bytes - down.ARP
	}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	c.Dials = w.log.dials
	return c
}

// Log is what the client has said.
func (w *spaces) Log() []string { return w.log.lines() }

// Close ends all processes and the world.
func (w *spaces) Close() error {
	w.wg.Wait()
	w.mu.Lock()
	conns := w.conns
	w.mu.Unlock()
	for _, p := range append(conns, w.client, w.clone, w.host) {
		if p != nil {
			_ = p.signal(syscall.SIGCONT)
			p.stop()
		}
	}
	var errs []error
	if w.target != nil {
		_ = w.target.Close() // who served it has closed it
	}
	if w.world != nil {
		errs = append(errs, w.world.Close())
	}
	return errors.Join(errs...)
}

// congestion is the congestion control of the world: what carriers ask for where the system has it, and the default.
func (w *spaces) congestion() string {
	def, err := w.laptop.GetSysctl("net.ipv4.tcp_congestion_control")
	if err != nil {
		return "unknown"
	}
	b, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if strings.Contains(string(b), "bbr") {
		return fmt.Sprintf("carriers BBR, all else %s", def)
	}
	return def + " (no BBR here)"
}
