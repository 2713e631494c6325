package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// spareFiles are those that a process of a run has open beside two for each idle connection.
const spareFiles = 200

// plan says how much of everything.
type plan struct {
	rounds  int
	bulk    time.Duration  // of each throughput figure
	echo    time.Duration  // of each figure of small messages
	loaded  time.Duration  // of the figure under a bulk copy, whose tail needs more samples
	conns   int            // most connections of one figure: each leaves a port in TIME_WAIT
	idle    int            // connections open for the figure of memory
	settle  time.Duration  // from the last of them to the look at memory
	wakeUps time.Duration  // how long wake-ups are counted
	only    *regexp.Regexp // nil: all
	budget  time.Duration  // no further round is begun that would make the run longer
}

func planFor(o options) plan {
	p := plan{
		rounds: 3, bulk: 1500 * time.Millisecond, echo: time.Second, loaded: 2 * time.Second, conns: 4000,
		idle: 5000, settle: 5 * time.Second, wakeUps: 20 * time.Second,
	}
	if o.quick {
		p = plan{
			rounds: 1, bulk: 200 * time.Millisecond, echo: 200 * time.Millisecond, loaded: 300 * time.Millisecond, conns: 500,
			idle: 300, settle: 500 * time.Millisecond, wakeUps: 3 * time.Second,
		}
	}
	if o.rounds > 0 {
		p.rounds = o.rounds
	}
	p.budget, p.only = o.budget, o.only
	return p
}

// bench is a run.
type bench struct {
	procs      *procs
	plan       plan
	progress   io.Writer
	began      time.Time
	loadBefore string

	linkproxy string // path of the binary
	kinds     []*kind
	versions  []string
	notes     []string
	target    *proc
	addr      string // of the target
	rounds    int    // done
	results   results
}

// results are the figures, by row and tunnel, one for each round.
type results map[rowKey]map[string][]float64

func (r results) add(row rowKey, tunnel string, value float64) {
	if r[row] == nil {
		r[row] = map[string][]float64{}
	}
	r[row][tunnel] = append(r[row][tunnel], value)
}

// figures are what one step of measuring one tunnel found.
type figures map[rowKey]float64

func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%4.0f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// choose finds out which tunnels can be measured, and names what is missing.
func (b *bench) choose(ctx context.Context, o options) error {
	for _, name := range o.tunnels {
		if !slices.Contains(kindNames(), name) {
			return fmt.Errorf("-tunnels: there is no %q; there are %s", name, strings.Join(kindNames(), ", "))
		}
	}
	for _, k := range kinds() {
		if k.name != nameTLSRelay && !slices.Contains(o.tunnels, k.key) {
			continue
		}
		if missing := k.missing(); len(missing) > 0 {
			what := fmt.Sprintf("%s is not measured: %s not found; install %s", k.name, strings.Join(missing, ", "), k.packages)
			if o.strict {
				return errors.New(what)
			}
			b.note("%s.", what)
			b.say("%s", what)
			continue
		}
		if k.name == nameLinkproxy {
			if err := b.findLinkproxy(ctx, o.linkproxy); err != nil {
				return err
			}
		}
		if v := k.versionLine(ctx); v != "" {
			b.versions = append(b.versions, v)
		}
		b.kinds = append(b.kinds, k)
	}
	return nil
}

func (b *bench) findLinkproxy(ctx context.Context, path string) (err error) {
	if path == "" {
		b.say("building linkproxy")
		if path, err = buildLinkproxy(ctx, b.procs.dir); err != nil {
			return fmt.Errorf("building linkproxy: %w", err)
		}
	}
	b.linkproxy, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(b.linkproxy)
	if err != nil {
		return fmt.Errorf("the linkproxy binary: %w; build it, or leave -linkproxy out", err)
	}
	b.results.add(rowBinary, nameLinkproxy, float64(info.Size())/1e6)
	return nil
}

// measure runs everything and fills results.
func (b *bench) measure(ctx context.Context) (err error) {
	if b.target, b.addr, err = startListener(b.procs, "target"); err != nil {
		return err
	}
	if err := b.flow(ctx); err != nil {
		return err
	}
	if b.plan.only != nil {
		b.note("Only the steps that match %q.", b.plan.only)
		return nil
	}
	return b.memory(ctx)
}

// flow measures what moves: rounds of measures, in each of which the tunnels take turns.
func (b *bench) flow(ctx context.Context) error {
	var tunnels []*tunnel
	defer func() {
		for _, t := range tunnels {
			b.procs.stop(append(t.near, t.far...)...)
		}
	}()
	for _, k := range b.kinds {
		t, err := b.start(ctx, k)
		if err != nil {
			return err
		}
		tunnels = append(tunnels, t)
	}
	for b.rounds < b.plan.rounds {
		began := time.Now()
		for _, s := range steps() {
			if b.plan.only != nil && !b.plan.only.MatchString(s.name) {
				continue
			}
			for i := range tunnels {
				// Each round another one begins.
				t := tunnels[(i+b.rounds)%len(tunnels)]
				if err := b.step(ctx, s, t); err != nil {
					return fmt.Errorf("%s: %s: %w", t.kind.name, s.name, err)
				}
			}
		}
		b.rounds++
		left := b.plan.budget - b.memoryTime() - time.Since(b.began)
		if took := time.Since(began); b.rounds < b.plan.rounds && took > left {
			b.note("Rounds: %d instead of %d, because one took %.0f s (-budget).", b.rounds, b.plan.rounds, took.Seconds())
			break
		}
	}
	return nil
}

// start builds a tunnel and returns when an echo has come through it.
func (b *bench) start(ctx context.Context, k *kind) (*tunnel, error) {
	dir, err := os.MkdirTemp(b.procs.dir, k.key+"-")
	if err != nil {
		return nil, err
	}
	s := &setup{procs: b.procs, dir: dir, target: b.addr, linkproxy: b.linkproxy}
	if s.near, err = freePort(); err != nil {
		return nil, err
	}
	if s.far, err = freePort(); err != nil {
		return nil, err
	}
	t, err := k.start(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", k.name, err)
	}
	t.kind = k
	for end := time.Now().Add(startWait); ; time.Sleep(pollPause) {
		_, err = b.load(ctx, t, job{Kind: "connect", Streams: 1, Max: 1})
		if err == nil {
			return t, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			for _, p := range append(t.near, t.far...) {
				err = p.failed(err)
			}
			return nil, fmt.Errorf("nothing comes through %s: %w", k.name, err)
		}
	}
}

// step runs one step on one tunnel and keeps the figures.
func (b *bench) step(ctx context.Context, s step, t *tunnel) error {
	f, err := s.run(ctx, b, t)
	if err != nil {
		return err
	}
	var said []string
	for _, r := range rows() {
		if v, ok := f[r.key]; ok {
			b.results.add(r.key, t.kind.name, v)
			said = append(said, fmt.Sprintf("%s %s", r.format(v), r.unit))
		}
	}
	b.say("round %d/%d  %s, %s: %s", b.rounds+1, b.plan.rounds, s.name, t.kind.name, strings.Join(said, ", "))
	return nil
}

// spread is a pause for what the step before has left to do, such as closing its connections.
const spread = 100 * time.Millisecond

// load lets a load process do a job to its end.
func (b *bench) load(ctx context.Context, t *tunnel, j job) (outcome, error) {
	p, err := b.startLoad(t, j)
	if err != nil {
		return outcome{}, err
	}
	defer b.procs.stop(p)
	o, err := p.outcome(j, false)
	if err == nil {
		err = ctx.Err()
	}
	return o, err
}

func (b *bench) startLoad(t *tunnel, j job) (*proc, error) {
	if j.Addr == "" {
		j.Addr = t.addr
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return b.procs.startSelf("load", string(text))
}

// outcome reads what a load process says: that it is ready, or that it has ended.
func (p *proc) outcome(j job, ready bool) (outcome, error) {
	const spare = time.Minute // for what was begun in time
	for {
		line, err := p.line(j.For + spare)
		if err != nil {
			return outcome{}, err
		}
		var o outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			return outcome{}, fmt.Errorf("reading %q from %s: %w", line, p.name, err)
		}
		if o.Error != "" {
			return o, errors.New(o.Error)
		}
		if o.Ready == ready {
			return o, nil
		}
	}
}

// finish tells a load process to end and reads what it has to say.
func (b *bench) finish(p *proc, j job) (outcome, error) {
	if err := p.in.Close(); err != nil {
		return outcome{}, err
	}
	return p.outcome(j, false)
}

// step is a thing to do with each tunnel in each round.
type step struct {
	name string
	run  func(ctx context.Context, b *bench, t *tunnel) (figures, error)
}

func steps() []step {
	return []step{
		{"1 stream down", bulkStep("down", 1, rowDown1, rowCPUDown)},
		{"1 stream up", bulkStep("up", 1, rowUp1, rowCPUUp)},
		{"8 streams down", bulkStep("down", 8, rowDown8, "")},
		{"8 streams up", bulkStep("up", 8, rowUp8, "")},
		{"connect and echo", connectStep},
		{"50 clients", clientsStep},
		{"round trip", pingStep},
		{"round trip under bulk", loadedStep},
	}
}

const gib = 1 << 30

func bulkStep(kind string, streams int, speed, cpu rowKey) func(context.Context, *bench, *tunnel) (figures, error) {
	return func(ctx context.Context, b *bench, t *tunnel) (figures, error) {
		time.Sleep(spread)
		before, err := self.cpu(t.allIDs())
		if err != nil {
			return nil, err
		}
		o, err := b.load(ctx, t, job{Kind: kind, Streams: streams, For: b.plan.bulk})
		if err != nil {
			return nil, err
		}
		after, err := self.cpu(t.allIDs())
		if err != nil {
			return nil, err
		}
		amount := float64(o.Bytes) / gib
		f := figures{speed: amount / o.Seconds}
		if cpu != "" {
			f[cpu] = (after - before) / amount
		}
		return f, nil
	}
}

func connectStep(ctx context.Context, b *bench, t *tunnel) (figures, error) {
	time.Sleep(spread)
	o, err := b.load(ctx, t, job{Kind: "connect", Streams: 1, Max: b.plan.conns, For: b.plan.echo})
	return figures{rowConnect50: o.P50, rowConnect99: o.P99}, err
}

func clientsStep(ctx context.Context, b *bench, t *tunnel) (figures, error) {
	time.Sleep(spread)
	o, err := b.load(ctx, t, job{Kind: "connect", Streams: 50, Max: b.plan.conns, For: b.plan.echo})
	return figures{rowClients: float64(o.Count) / o.Seconds}, err
}

func pingStep(ctx context.Context, b *bench, t *tunnel) (figures, error) {
	time.Sleep(spread)
	o, err := b.load(ctx, t, job{Kind: "ping", For: b.plan.echo})
	return figures{rowPing50: o.P50, rowPing99: o.P99}, err
}

// loadedStep measures round trips while another process copies through the same tunnel.
func loadedStep(ctx context.Context, b *bench, t *tunnel) (figures, error) {
	time.Sleep(spread)
	bulk := job{Kind: "down", Streams: 1, For: b.plan.loaded + time.Minute}
	p, err := b.startLoad(t, bulk)
	if err != nil {
		return nil, err
	}
	defer b.procs.stop(p)
	if _, err := p.outcome(bulk, true); err != nil {
		return nil, err
	}
	o, err := b.load(ctx, t, job{Kind: "ping", For: b.plan.loaded})
	if err != nil {
		return nil, err
	}
	if _, err := b.finish(p, bulk); err != nil {
		return nil, fmt.Errorf("the bulk copy beside it: %w", err)
	}
	return figures{rowLoaded50: o.P50, rowLoaded99: o.P99}, nil
}
