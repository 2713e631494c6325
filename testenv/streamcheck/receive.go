package streamcheck

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// readSize is the size of the reader's buffer for small messages.
const readSize = 4 << 10

// receiver is the reading side of one direction.
type receiver struct {
	src   io.Reader
	flow  Flow
	start time.Time
	quit  <-chan struct{}
	v     *verifier
	m     *meter
	moved func(n int64) // called with the bytes verified so far after each read; may be nil

	taken int64 // bytes that came, for ReadRate
	free  time.Time
}

func newReceiver(src io.Reader, f Flow, key uint64, w *Way, start time.Time, each bool) *receiver {
	return &receiver{
		src: src, flow: f, start: start, free: start,
		v: &verifier{key: key, w: w}, m: newMeter(w, start, f, each),
	}
}

// run reads until the end mark and then, if more, until more says so or the stream ends. It returns the error that ended
// the reading before that, io.EOF among them.
func (r *receiver) run(more func(tail []byte) bool) error {
	buf := make([]byte, max(readSize, r.flow.Size))
	for !r.v.ended || more(r.v.tail) {
		if !r.lag() {
			return errGivenUp
		}
		n, err := r.src.Read(buf)
		if n > 0 {
			r.got(time.Now(), buf[:n])
		}
		if err != nil {
			r.finish(err)
			return err
		}
	}
	r.finish(nil)
	return nil
}

// errGivenUp says that the run was ended from this side.
var errGivenUp = errors.New("streamcheck: the run was given up")

func (r *receiver) got(now time.Time, p []byte) {
	before := len(r.v.tail)
	ended := r.v.ended
	r.v.take(p, now.Sub(r.start))
	n := len(p) - (len(r.v.tail) - before)
	if r.v.ended && !ended {
		n = max(0, n-markSize)
	}
	if n > 0 {
		r.m.arrived(now, n)
	}
	if r.moved != nil {
		r.moved(r.v.w.Verified)
	}
	r.taken += int64(len(p))
}

// lag holds the reader back as the flow says; false when the run is over.
func (r *receiver) lag() bool {
	if r.v.ended {
		return true
	}
	paused := false
	if now := time.Now(); r.flow.StopFor > 0 && now.Sub(r.start) >= r.flow.StopAt {
		if !sleep(r.start.Add(r.flow.StopAt+r.flow.StopFor).Sub(now), r.quit, nil) {
			return false
		}
		r.flow.StopFor, paused = 0, true
	}
	if r.flow.ReadRate > 0 && r.taken > 0 {
		r.free = r.free.Add(time.Duration(float64(r.taken) / float64(r.flow.ReadRate) * float64(time.Second)))
		r.taken, paused = 0, true
		if now := time.Now(); r.free.Before(now) {
			r.free = now
		} else if !sleep(r.free.Sub(now), r.quit, nil) {
			return false
		}
	}
	if paused {
		r.m.paused(time.Now())
	}
	return true
}

// finish settles the direction; err is what ended it, nil = the end mark.
func (r *receiver) finish(err error) {
	now := time.Now()
	r.v.finish(now.Sub(r.start))
	if !r.v.ended && r.flow.Size > 0 {
		r.m.gap(now)
	}
	r.v.w.End = r.endOf(err)
}

// endOf is how the direction ended.
func (r *receiver) endOf(err error) string {
	var reset interface{ Reason() string }
	switch {
	case r.v.ended:
		return EndClean
	case over(r.quit):
		return EndCancelled
	case errors.Is(err, io.EOF):
		return EndEarly
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.As(err, &reset):
		return EndReset
	case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrClosed):
		return EndCancelled
	}
	return EndError
}
