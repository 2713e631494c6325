// Command bench measures linkproxy next to other encrypted tunnels and prints one Markdown table, all from one run:
//
//	go run ./testenv/bench            about five minutes
//	go run ./testenv/bench -quick     under a minute: does it work at all; the figures mean little
//
// tls-relay is the yardstick (see tlsrelay.go), OpenSSH -L is always there, stunnel and shadowsocks-libev where
// installed. Each tunnel is a pair of real processes on the loopback interface. The target server and the load client
// are processes of their own too, so that what /proc says of the tunnel's processes is the tunnel's alone.
//
// Absolute figures follow the machine and what else runs on it; ratios within one run are what counts. Therefore the
// tunnels take turns inside each measure of each round, and a ratio is the median of the ratios of the rounds.
// Bytes are checked while they are measured: a wrong one ends the run. It needs Linux, because it reads /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// hardLimit ends a run that hangs; a full one takes about five minutes.
const hardLimit = 15 * time.Minute

func main() {
	if len(os.Args) > 1 {
		if role, ok := roles()[os.Args[1]]; ok {
			os.Exit(playRole(role, os.Args[1], os.Args[2:]))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, hardLimit)
	o, err := parseOptions(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	cancel()
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// roles are what the program also is when it starts itself again.
func roles() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"target":     targetMain,
		"load":       loadMain,
		"relay-near": relayNear,
		"relay-far":  relayFar,
	}
}

func playRole(role func([]string) error, name string, args []string) int {
	if err := role(args); err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", name, err)
		return 1
	}
	return 0
}

// options are the command line.
type options struct {
	quick     bool
	strict    bool
	rounds    int // 0: the plan's own
	tunnels   []string
	linkproxy string         // path of the binary; "" builds it
	only      *regexp.Regexp // steps to take; nil: all, and memory
	budget    time.Duration  // no further round is begun that would not end within it
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.BoolVar(&o.quick, "quick", false, "one short round, under a minute: a smoke test, not a measurement")
	fs.BoolVar(&o.strict, "strict", false, "fail when a program to compare with is missing, instead of naming it")
	fs.IntVar(&o.rounds, "rounds", 0, "how many rounds (default 3, with -quick 1)")
	fs.StringVar(&o.linkproxy, "linkproxy", "", "the linkproxy binary (default: build ./cmd/linkproxy)")
	fs.DurationVar(&o.budget, "budget", 5*time.Minute, "begin no round that would end later than this")
	fs.Func("only", "take only the steps whose name matches this regular expression, and measure no memory", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	names := fs.String("tunnels", strings.Join(kindNames(), ","), "which tunnels to measure; tls-relay is always among them")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see -help", fs.Arg(0))
	}
	if o.rounds < 0 || o.rounds > 100 {
		return o, fmt.Errorf("-rounds %d: give 1 to 100", o.rounds)
	}
	o.tunnels = strings.Split(*names, ",")
	return o, nil
}

// run measures and writes the report to stdout and progress to stderr. When it returns, its processes and temporary
// files are gone.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("this needs Linux, because it reads /proc; this is %s", runtime.GOOS)
	}
	files, err := raiseFileLimit()
	if err != nil {
		return fmt.Errorf("raising the limit of open files: %w", err)
	}
	dir, err := os.MkdirTemp("", "linkproxy-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ps := &procs{dir: dir}
	defer ps.killAll()
	defer context.AfterFunc(ctx, ps.killAll)()

	b := &bench{procs: ps, plan: planFor(o), progress: stderr, began: time.Now(), loadBefore: loadAverage(), results: results{}}
	if o.quick {
		b.note("This was a quick run, which shows that everything works. Its figures mean little.")
	}
	if most := (files - spareFiles) / 2; b.plan.idle > most {
		b.note("Idle connections: %d instead of %d, because of the limit of open files (%d).", most, b.plan.idle, files)
		b.plan.idle = most
	}
	if err := b.choose(ctx, o); err != nil {
		return err
	}
	if err := b.measure(ctx); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		return err
	}
	return b.report(stdout)
}
