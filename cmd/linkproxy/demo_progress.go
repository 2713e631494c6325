package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// moveEvery is how often the moving line of a terminal is drawn, plainEvery how often a line is printed elsewhere.
	moveEvery  = 200 * time.Millisecond
	plainEvery = 5 * time.Second
)

// progress tells what goes on: a line that moves on a terminal, plain lines otherwise. Its loop alone writes.
type progress struct {
	out    io.Writer
	moving bool
	lines  chan string
	stop   chan struct{} // closed by end
	gone   chan struct{} // closed when nothing is written any more

	mu  sync.Mutex // guards the following
	now func() string
}

func newProgress(out io.Writer, moving bool) *progress {
	p := &progress{out: out, moving: moving, lines: make(chan string), stop: make(chan struct{}), gone: make(chan struct{})}
	go p.loop()
	return p
}

// show sets what makes the moving line.
func (p *progress) show(now func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}

// say prints a line that stays.
func (p *progress) say(format string, a ...any) {
	select {
	case p.lines <- fmt.Sprintf(format, a...):
	case <-p.gone:
	}
}

// end clears the moving line and returns when nothing is written any more.
func (p *progress) end() {
	close(p.stop)
	<-p.gone
}

func (p *progress) loop() {
	defer close(p.gone)
	every, line, clear := plainEvery, "%s\n", ""
	if p.moving {
		every, line, clear = moveEvery, "\r\x1b[K%s", "\r\x1b[K"
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case s := <-p.lines:
			fmt.Fprintf(p.out, "%s%s\n", clear, s)
		case <-t.C:
			p.mu.Lock()
			now := p.now
			p.mu.Unlock()
			if now != nil {
				fmt.Fprintf(p.out, line, now())
			}
		case <-p.stop:
			fmt.Fprint(p.out, clear)
			return
		}
	}
}
