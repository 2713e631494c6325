package pipe

import (
	"errors"
	"io"
)

// readiness is what lets the way down do without a goroutine while nothing comes.
type readiness interface {
	// OnReadable calls f once, from any goroutine, when there is a byte, an end or an error to read.
	OnReadable(f func())
	// WriteAvailable writes to w what can be read without waiting. nil: nothing more now; io.EOF: the end; an error with
	// WriteFailed() bool says whether w failed; any other is one of reading.
	WriteAvailable(w io.Writer) (int64, error)
}

// drainState is guarded by copier.mu. Only a copy with a readiness peer uses it.
type drainState struct {
	used    bool // the way down is drained by callbacks
	running bool // somebody drains
	over    bool // nobody may start any more
	arming  bool // drainNow waits for more: if that is there already, a goroutine takes over
}

func (c *copier) startDown() {
	r, ok := c.down.src.(readiness)
	if !ok {
		go c.runDown()
		return
	}
	c.drain.used = true
	c.nowait = nowaitOf(c.down.dst)
	c.arm(r)
}

func (c *copier) runDown() {
	defer close(c.downDone)
	c.run(&c.down)
	c.isOver(&c.down)
	c.watchEnded(&c.down)
}

func (c *copier) arm(r readiness) {
	r.OnReadable(func() {
		c.mu.Lock()
		start := !c.drain.over && !c.drain.running
		if start {
			c.drain.running = true
		}
		now := c.nowait != nil && !c.drain.arming && !c.down.dropping
		c.mu.Unlock()
		switch {
		case !start:
		case now:
			c.drainNow(r)
		default:
			go c.drainDown(r)
		}
	})
}

// drainNow carries what is there in the goroutine that brought it, as far as the app takes it without waiting; that spares
// a change of goroutines for each record. A goroutine does whatever else there is to do.
func (c *copier) drainNow(r readiness) {
	n, err := r.WriteAvailable(c.nowait)
	c.down.n += n
	if err != nil {
		go c.drainDown(r)
		return
	}
	c.mu.Lock()
	c.drain.running = false
	over := c.drain.over
	c.drain.arming = true
	c.mu.Unlock()
	if over {
		close(c.downDone)
		return
	}
	c.arm(r)
	c.mu.Lock()
	c.drain.arming = false
	c.mu.Unlock()
}

// drainDown carries what is there now and ends; the next byte starts another one.
func (c *copier) drainDown(r readiness) {
	more := c.drainOnce(r)
	c.mu.Lock()
	c.drain.running = false
	if !more {
		c.drain.over = true
	}
	over := c.drain.over
	c.mu.Unlock()
	if over {
		c.isOver(&c.down)
		close(c.downDone)
		return
	}
	c.arm(r)
}

// drainOnce reports whether the way down goes on.
func (c *copier) drainOnce(r readiness) bool {
	for {
		dropping := c.isDropping(&c.down)
		var w io.Writer = c.down.dst
		if dropping {
			w = io.Discard
		}
		n, err := r.WriteAvailable(w)
		if !dropping {
			c.down.n += n
		}
		var failed interface{ WriteFailed() bool }
		switch {
		case c.isAborted():
			return false
		case err == nil:
			return true
		case errors.Is(err, io.EOF):
			c.readEnded(&c.down)
			return false
		case errors.As(err, &failed) && failed.WriteFailed():
			c.writeFailed(&c.down, err)
		default:
			c.readFailed(&c.down, err)
			return false
		}
	}
}

// stopDraining forbids further drains and reports whether the caller has to close downDone, as nobody is left who would.
// Called with mu held.
func (c *copier) stopDraining() bool {
	if !c.drain.used || c.drain.over {
		return false
	}
	c.drain.over = true
	return !c.drain.running
}
