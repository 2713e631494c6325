// Command cmd runs streamcheck against the real world: a server behind anything that carries TCP, and a client that opens a
// connection as an app would and reports what the app would have noticed.
//
//	go run ./testenv/streamcheck/cmd serve :7000
//	go run ./testenv/streamcheck/cmd tick --socks 127.0.0.1:1080 devbox:7000 --for 60s
//	go run ./testenv/streamcheck/cmd both --json -- linkproxy connect devbox:7000
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"linkproxy/testenv/streamcheck"
)

const usage = `usage: cmd serve ADDRESS                    answer clients on a TCP address
       cmd KIND [flags] TARGET              open a TCP connection to TARGET (host:port) and report
       cmd KIND [flags] -- COMMAND [ARG…]   the same over the standard input and output of a command

KIND is tick (little, steadily), up, down or both (as much as goes), keys (each message is answered) or idle (waits,
then one echo). It ends with --for or --bytes, or with Ctrl-C. Exit status 1: a byte was lost, repeated, swapped or
changed, or the stream did not end as it should.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; the end of ctx asks it to end politely.
func run(ctx context.Context, args []string, out, log io.Writer) int {
	if len(args) == 2 && args[0] == "serve" {
		return serve(ctx, args[1], out, log)
	}
	o, err := parse(args, log)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) { // else it is printed already
			fmt.Fprintln(log, err)
		}
		return 2
	}
	conn, err := o.open(context.WithoutCancel(ctx), log)
	if err != nil {
		fmt.Fprintln(log, "opening the connection:", err)
		return 1
	}
	o.plan.Stop = ctx.Done()
	r := streamcheck.Run(context.WithoutCancel(ctx), conn, o.plan)
	if o.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		_, err = fmt.Fprintln(out, r.String())
	}
	if err != nil || !r.Whole() {
		return 1
	}
	return 0
}

// serve serves until ctx is done, with a line for each client.
func serve(ctx context.Context, address string, out, log io.Writer) int {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		fmt.Fprintln(log, err)
		return 1
	}
	fmt.Fprintln(out, "listening on", ln.Addr())
	reports, printed := make(chan streamcheck.Report), make(chan struct{})
	go func() {
		defer close(printed)
		for r := range reports {
			fmt.Fprintln(out, r.String())
		}
	}()
	err = streamcheck.ServeAll(ctx, ln, func(r streamcheck.Report) { reports <- r })
	close(reports)
	<-printed
	if err != nil {
		fmt.Fprintln(log, err)
		return 1
	}
	return 0
}

// options are those of a client.
type options struct {
	plan                streamcheck.Plan
	socks, http, target string
	command             []string
	json                bool
}

func parse(args []string, log io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("cmd", flag.ContinueOnError)
	f.SetOutput(log)
	f.Usage = func() {
		fmt.Fprint(log, usage)
		f.PrintDefaults()
	}
	var (
		d     = f.Duration("for", 0, "end after so long (idle: wait so long)")
		n     = f.Int64("bytes", 0, "end after so many bytes each way")
		every = f.Duration("every", 10*time.Millisecond, "from one message to the next (tick, keys)")
		size  = f.Int("size", 0, "bytes of a message or write; 0 = the kind's own")
		rate  = f.Int64("read-rate", 0, "read at most so many bytes a second; 0 = all")
		seed  = f.Uint64("seed", 0, "seed of the bytes; 0 = at random")
	)
	f.StringVar(&o.socks, "socks", "", "address of a SOCKS5 `proxy` to go through")
	f.StringVar(&o.http, "http", "", "address of an HTTP `proxy` to go through")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	if i := slices.Index(args, "--"); i >= 0 {
		args, o.command = args[:i], args[i+1:]
	}
	words, err := interleaved(f, args)
	if err != nil {
		return nil, err
	}
	if want := 2 - min(1, len(o.command)); len(words) != want || o.socks != "" && o.http != "" {
		f.Usage()
		return nil, flag.ErrHelp
	}
	if o.target = words[len(words)-1]; *seed == 0 {
		*seed = randomSeed()
	}
	if o.plan, err = planOf(words[0], *seed, *every, *d, *n); err != nil {
		return nil, err
	}
	for _, flow := range []*streamcheck.Flow{&o.plan.Up, &o.plan.Down} {
		if *size > 0 && flow.Size > 0 {
			flow.Size = *size
		}
		flow.ReadRate = *rate
	}
	return o, nil
}

// interleaved parses flags that stand before, between and behind words.
func interleaved(f *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if args = f.Args(); len(args) == 0 {
			return words, nil
		}
		words, args = append(words, args[0]), args[1:]
	}
}

func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

func planOf(kind string, seed uint64, every, d time.Duration, n int64) (streamcheck.Plan, error) {
	ways := map[string]streamcheck.Directions{"up": streamcheck.Up, "down": streamcheck.Down, "both": streamcheck.Both}
	switch {
	case kind == "tick":
		return streamcheck.Tick(seed, every, d), nil
	case kind == "keys":
		return streamcheck.Keys(seed, every, d), nil
	case kind == "idle":
		return streamcheck.Idle(seed, d), nil
	case ways[kind] != 0:
		return streamcheck.Blast(seed, ways[kind], d, n), nil
	}
	return streamcheck.Plan{}, fmt.Errorf("no such kind of traffic: %q (tick, keys, idle, up, down, both)", kind)
}

// open opens the connection as the options say.
func (o *options) open(ctx context.Context, log io.Writer) (net.Conn, error) {
	switch {
	case len(o.command) > 0:
		cmd := exec.Command(o.command[0], o.command[1:]...)
		cmd.Stderr = log
		return streamcheck.Start(cmd)
	case o.socks != "":
		return streamcheck.DialSOCKS5(ctx, o.socks, o.target, "")
	case o.http != "":
		return streamcheck.DialHTTP(ctx, o.http, o.target)
	}
	return streamcheck.Dial(ctx, strings.TrimSpace(o.target))
}
