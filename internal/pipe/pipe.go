package pipe

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Linger is how long, once one direction has ended, bytes that cannot be delivered any more are still read and dropped.
// Closing with unread bytes makes the kernel send a reset, which would destroy the end of an answer still on its way.
// It starts again as long as the app is seen to take bytes.
const Linger = 5 * time.Second

// ResetCode is what Copy gives to a connection's Reset: no particular reason, the other side was reset.
const ResetCode uint32 = 0

// Result is what a copy did. Up counts bytes app → peer, Down peer → app, both as accepted by the receiving connection.
// Err is the first failure, an *Error, and nil if both directions came to their end.
type Result struct {
	Up, Down int64
	Err      error
}

// Error says on which side of a copy something failed.
type Error struct {
	Side string // "app" or "peer"
	Op   string // "read" or "write"
	Err  error
}

func (e *Error) Error() string { return "pipe: " + e.Op + " " + e.Side + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Copy moves bytes both ways between app and peer until both directions ended, on the calling goroutine and at most one
// more. Both connections are closed and nothing of it runs any more when it returns.
func Copy(app, peer net.Conn) Result { return CopyAfter(app, peer, nil) }

// CopyAfter is Copy with a head: head runs on the way up before anything is read from app, while the way down already
// flows. What it returns goes to peer first (bytes read ahead by a parser, or first bytes that had to be looked at). If
// it fails, both sides are reset, and nothing of app's reached peer. io.EOF with or without bytes means that app ended.
func CopyAfter(app, peer net.Conn, head func() ([]byte, error)) Result {
	return copyAfter(app, peer, head, Linger)
}

func copyAfter(app, peer net.Conn, head func() ([]byte, error), linger time.Duration) Result {
	if s, ok := peer.(interface{ Socket() net.Conn }); ok {
		defer peer.Close()
		peer = s.Socket()
	}
	c := &copier{downDone: make(chan struct{}), lingerTime: linger}
	c.up = direction{src: app, dst: peer, srcName: "app", dstName: "peer"}
	c.down = direction{src: peer, dst: app, srcName: "peer", dstName: "app"}
	c.up.back, c.down.back = &c.down, &c.up
	cutIfKilled(app, true)
	cutIfKilled(peer, true)
	if g, ok := peer.(goer); ok {
		g.OnGone(c.gone)
		defer g.OnGone(nil)
	}
	c.startDown()
	c.runUp(head)
	c.isOver(&c.up)
	c.watchEnded(&c.up)
	<-c.downDone
	c.stopLinger()
	c.closeBoth()
	return Result{Up: c.up.n, Down: c.down.n, Err: c.err}
}

// copier is one pair. Each direction's n and writeErr belong to whoever runs that direction; mu guards the rest.
type copier struct {
	up, down   direction
	downDone   chan struct{}
	nowait     io.Writer // writes to the app without waiting; nil: that cannot be done
	lingerTime time.Duration

	mu                   sync.Mutex
	err                  error // the first failure
	aborted              bool
	peerGone, peerFailed bool // see gone
	linger               *time.Timer
	drain                drainState

	lingering sync.WaitGroup // timer callbacks that may still run
}

type direction struct {
	src, dst         net.Conn
	srcName, dstName string
	back             *direction // the other way round
	n                int64

	// guarded by copier.mu
	ended    bool // src came to its end
	dropping bool // a write failed: src is read and dropped
	hard     bool // the failed write said that dst was reset: no end read from dst is a clean one
	over     bool // nothing moves any more
	watched  bool // see watchEnded
}

// readFailed ends everything: a connection that cannot be read is gone in both directions.
func (c *copier) readFailed(d *direction, err error) {
	c.abort(&Error{Side: d.srcName, Op: "read", Err: err})
}

// goer is a stream that tells, also while nobody reads or writes it, that it takes nothing more: failed says that it was
// reset or has failed, otherwise the other side only wants to hear no more.
type goer interface{ OnGone(f func(failed bool)) }

// gone is called when the peer takes nothing more. While the way down goes on, its reader finds out what else there is; once
// that has ended nobody would look, and a silent app could keep the copy for ever.
func (c *copier) gone(failed bool) {
	c.mu.Lock()
	c.peerGone, c.peerFailed = true, c.peerFailed || failed
	c.mu.Unlock()
	c.endIfGone()
}

// endIfGone ends the copy if the way down has ended and the peer takes nothing more. Where the app talks on, the linger time
// does it.
func (c *copier) endIfGone() {
	c.mu.Lock()
	over := c.peerGone && c.down.ended && !c.up.dropping
	failed := c.peerFailed
	c.mu.Unlock()
	switch {
	case !over:
	case failed:
		c.abort(&Error{Side: c.up.dstName, Op: "write", Err: io.ErrClosedPipe})
	default:
		c.finish()
	}
}

// cutIfKilled has the system reset a connection that is open when this process dies: cut short, it must not look complete.
func cutIfKilled(c net.Conn, on bool) {
	t, ok := c.(interface{ SetLinger(sec int) error })
	switch {
	case !ok:
	case on:
		_ = t.SetLinger(0)
	default:
		_ = t.SetLinger(-1)
	}
}

// closeBoth closes both sides; what was written to them still arrives.
func (c *copier) closeBoth() {
	if !c.isAborted() {
		cutIfKilled(c.up.src, false)
		cutIfKilled(c.up.dst, false)
	}
	_ = c.up.src.Close()
	_ = c.up.dst.Close()
}

// abort resets both sides, once.
func (c *copier) abort(cause error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = cause
	}
	if c.aborted {
		c.mu.Unlock()
		return
	}
	c.aborted = true
	idle := c.stopDraining()
	c.mu.Unlock()
	reset(c.up.src)
	reset(c.up.dst)
	if idle {
		close(c.downDone)
	}
}

// readEnded passes src's end on. An end that follows a reset is none: the kernel tells of a reset once, and if a write
// was told, the next read returns a plain end. Linux can be asked; elsewhere what the write said has to do, which is not
// known yet if both happen at the same moment.
func (c *copier) readEnded(d *direction) {
	real := isRealEnd(d.src)
	c.mu.Lock()
	d.ended = true
	fake := !real || d.back.hard
	deaf := d.dropping
	last := d.back.ended && !d.back.dropping // both are closed now, which says the end too
	first := c.err
	c.mu.Unlock()
	if fake {
		if first == nil {
			first = &Error{Side: d.srcName, Op: "read", Err: io.ErrUnexpectedEOF}
		}
		c.abort(first)
		return
	}
	if !deaf && !last && !closeWrite(d.dst) {
		c.finish()
		return
	}
	c.settle()
	c.endIfGone()
}

// writeFailed turns d into a reader that drops, so that src is not held up and its end is still seen.
func (c *copier) writeFailed(d *direction, err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = &Error{Side: d.dstName, Op: "write", Err: err}
	}
	d.dropping = true
	d.hard = isReset(err)
	both := d.back.dropping || (d.hard && d.back.ended)
	first := c.err
	c.mu.Unlock()
	if both {
		c.abort(first)
		return
	}
	c.settle()
}

// settle starts the linger time if one direction has ended and the other one only drops.
func (c *copier) settle() {
	c.mu.Lock()
	var talked *direction
	switch {
	case c.up.ended && c.down.dropping && !c.down.ended:
		talked = &c.up
	case c.down.ended && c.up.dropping && !c.up.ended:
		talked = &c.down
	}
	if talked == nil || c.linger != nil || c.aborted {
		c.mu.Unlock()
		return
	}
	if talked == &c.up && c.drain.used {
		// The app has said all and takes nothing more. What it said is safe with a stream that is closed, so nothing needs to
		// be fetched from far away only to be dropped.
		c.mu.Unlock()
		c.finish()
		return
	}
	c.startLinger(talked, unsent(talked.dst))
	c.mu.Unlock()
}

// startLinger is called with mu held.
func (c *copier) startLinger(talked *direction, left int) {
	c.lingering.Add(1)
	c.linger = time.AfterFunc(c.lingerTime, func() {
		defer c.lingering.Done()
		c.lingered(talked, left)
	})
}

// lingered ends the linger time, or starts it again if dst took bytes meanwhile.
func (c *copier) lingered(talked *direction, before int) {
	left := unsent(talked.dst)
	c.mu.Lock()
	again := left > 0 && left < before && c.linger != nil
	if again {
		c.startLinger(talked, left)
	}
	c.mu.Unlock()
	if !again {
		c.finish()
	}
}

func (c *copier) stopLinger() {
	c.mu.Lock()
	if c.linger != nil && c.linger.Stop() {
		c.lingering.Done()
	}
	c.linger = nil
	c.mu.Unlock()
	c.lingering.Wait()
}

// finish closes both sides without an error of its own and lets whoever still reads run out.
func (c *copier) finish() {
	c.mu.Lock()
	if c.aborted {
		c.mu.Unlock()
		return
	}
	c.aborted = true
	idle := c.stopDraining()
	c.mu.Unlock()
	cutIfKilled(c.up.src, false)
	cutIfKilled(c.up.dst, false)
	_ = c.up.src.Close()
	_ = c.up.dst.Close()
	if idle {
		close(c.downDone)
	}
}

func (c *copier) isAborted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aborted
}

func (c *copier) hasEnded(d *direction) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.ended
}

func (c *copier) isDropping(d *direction) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.dropping
}

func (c *copier) runUp(head func() ([]byte, error)) {
	ended := false
	if head != nil {
		first, err := head()
		if err != nil && !errors.Is(err, io.EOF) {
			c.readFailed(&c.up, err)
			return
		}
		ended = err != nil
		if len(first) > 0 {
			if err := c.up.write(first); err != nil {
				c.writeFailed(&c.up, err)
			}
		}
	}
	if ended {
		c.readEnded(&c.up)
		return
	}
	c.run(&c.up)
}

// run moves d's bytes until src ends or fails; after a failed write it goes on dropping.
func (c *copier) run(d *direction) {
	if !c.isDropping(d) {
		rerr, werr := d.move()
		if werr == nil {
			c.sourceDone(d, rerr)
			return
		}
		if c.isAborted() {
			return
		}
		c.writeFailed(d, werr)
	}
	c.sourceDone(d, c.drop(d))
}

func (c *copier) sourceDone(d *direction, rerr error) {
	switch {
	case c.isAborted():
	case errors.Is(rerr, errDropped):
		c.finish() // the system resets who still sends
	case rerr == nil:
		c.readEnded(d)
	default:
		c.readFailed(d, rerr)
	}
}
