package pipe

import (
	"io"
	"time"
)

// watchEnded waits, while the other way still goes on, for the source of d to be gone altogether: it has ended its own way,
// so nobody reads it any more, and a silent other side could keep the copy for ever. What it said is delivered; what can no
// longer be delivered to it is treated as after a failed write. Called by whoever ran d, when d is over.
func (c *copier) watchEnded(d *direction) {
	c.mu.Lock()
	d.watched = d.ended && !d.back.over && !c.aborted
	watch := d.watched
	c.mu.Unlock()
	if !watch || !waitGone(d.src) {
		return
	}
	c.mu.Lock()
	left := !c.aborted && !d.back.ended && !d.back.dropping
	c.mu.Unlock()
	if left {
		c.writeFailed(d.back, io.ErrClosedPipe)
	}
}

// isOver tells that d moves nothing any more: who watches the end of its way need not.
func (c *copier) isOver(d *direction) {
	c.mu.Lock()
	d.over = true
	watched := d.back.watched
	c.mu.Unlock()
	if watched {
		_ = d.back.src.SetReadDeadline(time.Unix(1, 0))
	}
}
