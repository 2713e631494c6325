// Command mutate proves the tests by faults: it plants known ones in a copy of the module, one at a time, and says which test
// of the package finds each.
//
//	go run ./testenv/mutate                  all of them
//	go run ./testenv/mutate -only FIN        those whose name matches
//	go run ./testenv/mutate -sample 6        six, spread over the list; it trusts that the tests pass without a fault
//
// It exits with 1 if a fault survives, if the list no longer fits the code, or if the tests fail without any fault.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// hardLimit ends a run that hangs; a full one takes some minutes.
const hardLimit = 40 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, hardLimit, fmt.Errorf("not done after %s", hardLimit))
	err := play(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// play is the program: it runs what args ask for and tells w of each fault as soon as it is judged.
func play(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.SetOutput(w)
	root := flags.String("root", ".", "`folder` of the module")
	only := flags.String("only", "", "plant only faults whose name or file matches this `expression`")
	sample := flags.Int("sample", 0, "plant only `n` faults, spread over the list; zero: all")
	workers := flags.Int("workers", min(2, runtime.NumCPU()), "how many at a time")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("mutate: reading the arguments: %w", err)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("mutate: reading the arguments: %w", err)
	}
	list := slices.DeleteFunc(allFaults(), func(f fault) bool {
		return !pattern.MatchString(f.name) && !pattern.MatchString(f.file)
	})
	list = spread(list, *sample)
	if len(list) == 0 {
		return fmt.Errorf("mutate: no fault matches %q; leave -only out for all", *only)
	}
	start := time.Now()
	r := &runner{root: *root, workers: max(1, *workers), args: extraArgs}
	tasks := list
	if *sample == 0 {
		tasks = append(sound(list), list...)
	}
	n, bad := len(list), 0
	err = r.run(ctx, tasks, func(v verdict) {
		fmt.Fprintln(w, v)
		if !v.good() {
			bad++
		}
	})
	if err != nil {
		return err
	}
	took := time.Since(start).Round(time.Second)
	if bad > 0 {
		return fmt.Errorf("mutate: %d of %d went wrong, in %s; where a fault survived, write the test that finds it", bad, len(tasks), took)
	}
	fmt.Fprintf(w, "%d faults, each found, in %s\n", n, took)
	return nil
}

// spread picks n of list at equal distances; 0: all.
func spread(list []fault, n int) []fault {
	if n <= 0 || n >= len(list) {
		return list
	}
	var out []fault
	for i := range n {
		out = append(out, list[i*len(list)/n])
	}
	return out
}

// sound is a task for each package of list without a fault: where its tests fail anyway, they prove nothing.
func sound(list []fault) []fault {
	var out []fault
	for _, f := range list {
		if !slices.ContainsFunc(out, func(o fault) bool { return o.pkg() == f.pkg() }) {
			out = append(out, fault{name: noFault, file: f.file, finder: f.finder})
		}
	}
	slices.SortFunc(out, func(a, b fault) int { return cmp.Compare(a.pkg(), b.pkg()) })
	return out
}

// run judges every task, workers at a time, and calls tell, never twice at once.
func (r *runner) run(ctx context.Context, tasks []fault, tell func(verdict)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan fault)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range r.workers {
		wg.Go(func() {
			if err := r.work(ctx, next, func(v verdict) { mu.Lock(); tell(v); mu.Unlock() }); err != nil {
				cancel(err)
			}
		})
	}
	for _, f := range tasks {
		select {
		case next <- f:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
