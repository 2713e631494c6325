package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"linkproxy/cmd/linkproxy/config"
	"linkproxy/dialer"
)

const (
	// tellAfter is how long a person waits without a word.
	tellAfter = 2 * time.Second
	// tellEvery is how often it is said again: one line on the screen of somebody who has started something else.
	tellEvery = 10 * time.Second
)

// opening is a stream that may not be open yet.
type opening interface {
	// WaitOpened returns when the target has answered, or the stream has ended.
	WaitOpened(context.Context) error
}

// tellWaiting says on standard error, now and then, that a stream is not open yet, what is tried and for how long, and that it
// goes on once it does. done waits until it has nothing more to say, which is when the stream is open or over.
func (w *world) tellWaiting(target string, o opening) (done func()) {
	over := make(chan struct{})
	opened := make(chan error, 1)
	go func() { opened <- o.WaitOpened(context.Background()) }()
	go func() {
		defer close(over)
		began := time.Now()
		timer := time.NewTimer(tellAfter)
		defer timer.Stop()
		for said := false; ; said = true {
			select {
			case err := <-opened:
				if said && err == nil {
					w.note("linkproxy: connected to %s", target)
				}
				return
			case <-timer.C:
				w.note("linkproxy: %s", w.waitingFor(target, time.Since(began)))
				timer.Reset(tellEvery)
			}
		}
	}()
	return func() { <-over }
}

// waitingFor says what is tried for a target, after some time.
func (w *world) waitingFor(target string, since time.Duration) string {
	text := fmt.Sprintf("%s does not answer yet", target)
	cfg, _, err := config.LoadPeers(w.config)
	if err != nil {
		return text + "; still trying"
	}
	var routes []string
	if name, _, err := connectTarget(cfg, target); err == nil {
		p, _ := cfg.Peer(name)
		for _, r := range p.Routes {
			routes = append(routes, r.String())
		}
	}
	if len(routes) > 0 {
		text += "; trying " + strings.Join(routes, ", ")
	}
	wait := cfg.Listen.Wait
	if wait == 0 {
		wait = dialer.DefaultWait
	}
	if left := wait - since; left > 0 {
		text += fmt.Sprintf(", for up to %s more", ago(left+time.Second-1))
	}
	return text
}
