package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// demoLimit bounds a whole demo.
const demoLimit = 60 * time.Second

// faultReplay is the fault that can be planted: what a link carries again comes with a byte missing.
const faultReplay = "replay"

// plantedFault checks a fault that a process is to have: none but the demo's own processes may have one.
func plantedFault(name string) (string, error) {
	switch {
	case name == "":
	case name != faultReplay:
		return "", &usage{fmt.Sprintf("--break=%s: the only fault that can be planted is %s", name, faultReplay)}
	case os.Getenv(demoEnv) != "1":
		return "", &usage{"--break is for `linkproxy demo --break=" + faultReplay + "` only"}
	}
	return name, nil
}

func (w *world) cmdDemo() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "see it work: a download and an echo that survive cuts, all on this machine",
		Description: "Starts `linkproxy host` and `linkproxy up` as two processes with folders of their own, pairs them, and puts two\n" +
			"emulated routes of 20 and 80 ms between them. While a web client downloads through SOCKS5 and an echo stays open\n" +
			"on a fixed port, the routes are switched, cut, silenced and taken away. Every byte that arrives is verified.\n" +
			"It needs nothing but this program, touches none of your settings, and takes some 20 seconds.\n\n" +
			"   linkproxy demo\n" +
			"   linkproxy demo --break=replay     plants a fault in the link: the demo has to find it\n\n" +
			"Exit code 0: no byte was lost or repeated, no connection ended, no stall was too long; 1: otherwise.",
		Flags: []cli.Flag{
			jsonFlag,
			&cli.StringFlag{Name: "break", Usage: "plant a `FAULT` that has to be found: replay"},
		},
		Action: func(c *cli.Context) error {
			if _, err := args(c, 0, 0, "demo [--json] [--break=replay]"); err != nil {
				return err
			}
			if f := c.String("break"); f != "" && f != faultReplay {
				return &usage{fmt.Sprintf("--break=%s: the only fault that can be planted is %s", f, faultReplay)}
			}
			return w.demo(c.Context, c.String("break"), c.Bool("json"))
		},
	}
}

// demo runs the demo and prints its report; an error is why it is not all right.
func (w *world) demo(ctx context.Context, fault string, asJSON bool) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: finding this program: %w", err)
	}
	ctx, stop := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("demo: not finished after %v", demoLimit))
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	d := &demo{
		exe: exe, fault: fault, progress: newProgress(w.err, isTerminal(w.err)), start: time.Now(), fail: fail,
		routes: map[uint64]string{},
	}
	report, err := d.play(ctx)
	interrupted := errors.Is(context.Cause(ctx), context.Canceled)
	fail(nil)
	d.cleanup()
	d.progress.end()
	switch {
	case interrupted:
		return &exitCode{exitError, errors.New("interrupted: the demo was not finished")}
	case err != nil:
		return err
	}
	report.Took = time.Since(d.start).Milliseconds()
	if err := report.write(w.out, asJSON); err != nil {
		return fmt.Errorf("demo: writing the report: %w", err)
	}
	if len(report.Found) > 0 {
		return fmt.Errorf("demo: not all is right:\n%s", strings.Join(report.Found, "\n"))
	}
	w.note("all right: %d events, no byte lost, none twice, no connection closed", len(report.Rows))
	return nil
}

// play sets up, runs the events and lets the apps finish. Once events were begun, all that goes wrong is in the report.
func (d *demo) play(ctx context.Context) (*demoReport, error) {
	d.progress.say("setting up two machines and two routes on this one")
	if err := d.setUp(ctx); err != nil {
		return nil, err
	}
	if err := d.begin(ctx); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	d.progress.show(d.line)
	r := &demoReport{}
	for _, e := range d.events() {
		d.progress.say("%s  next: %s", d.line(), e.name)
		row, err := d.run(ctx, e)
		if err != nil {
			row.Problem = err.Error()
		}
		r.Rows = append(r.Rows, row)
		if err != nil {
			d.conclude(r)
			return r, nil
		}
	}
	d.progress.say("%s  next: the rest at full speed", d.line())
	if err := d.finishApps(ctx); err != nil {
		r.Found = append(r.Found, err.Error())
	}
	d.conclude(r)
	return r, nil
}

// conclude sums up.
func (d *demo) conclude(r *demoReport) {
	r.Want = <-d.hash
	select {
	case <-d.download.done:
		if d.download.err == nil {
			r.Got = fmt.Sprintf("%x", d.download.sum.Sum(nil))
		}
	default:
	}
	now := time.Now()
	_, echoes, _, _ := d.typing.counts(now)
	r.sum(echoes, app{"download", d.download.stream.facts(now)}, app{"echo", d.typing.stream.facts(now)})
}

// line is the moving line.
func (d *demo) line() string {
	now := time.Now()
	f := d.download.stream.facts(now)
	_, echoes, trip, _ := d.typing.counts(now)
	d.mu.Lock()
	using := d.using
	d.mu.Unlock()
	return fmt.Sprintf("%4.1f s  %3d of %d MB  route: %s  echo %d in %d ms", now.Sub(d.start).Seconds(), f.came/1e6, demoSize/1000000,
		using, echoes, trip.Milliseconds())
}
