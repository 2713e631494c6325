package streamcheck

import (
	"net"
	"sync"
	"time"
)

// sender is the writing side of one direction.
type sender struct {
	conn   net.Conn
	flow   Flow
	key    uint64
	stop   <-chan struct{} // a flow without end ends as planned; nil = never
	quit   <-chan struct{} // the run is over
	answer *progress       // not nil: send what it says has come, until it is over
	sent   func(end int64) // called before each write with the position behind it; may be nil
	hold   bool            // wait for stop before the end mark, though nothing is sent

	pos int64
}

// run sends the flow and its end mark, and returns the error of a write.
func (s *sender) run() error {
	if s.flow.Size > 0 {
		if err := s.bytes(); err != nil {
			return err
		}
	} else if s.hold {
		sleep(forever, s.stop, s.quit)
	}
	pad := int(-s.pos & (word - 1))
	last := make([]byte, pad, pad+markSize)
	fill(last, s.key, s.pos)
	n, err := s.conn.Write(append(last, endMark(s.key, s.pos+int64(pad))...))
	s.pos += int64(min(n, pad))
	return err
}

func (s *sender) bytes() error {
	sleep(s.flow.After, s.stop, s.quit)
	buf := make([]byte, s.flow.Size)
	start := time.Now()
	next := start
	for {
		n := s.ready(start)
		if n == 0 {
			return nil
		}
		fill(buf[:n], s.key, s.pos)
		if s.sent != nil {
			s.sent(s.pos + int64(n))
		}
		m, err := s.conn.Write(buf[:n])
		s.pos += int64(m)
		if err != nil {
			return err
		}
		if s.flow.Every > 0 {
			now := time.Now()
			for next = next.Add(s.flow.Every); next.Before(now); next = next.Add(s.flow.Every) { // as a ticker that was missed
			}
			if !sleep(next.Sub(now), s.stop, s.quit) {
				return nil
			}
		}
	}
}

// ready is how many bytes to send now; 0 = the flow has ended.
func (s *sender) ready(start time.Time) int {
	n := int64(s.flow.Size)
	if s.answer != nil {
		return int(min(n, s.answer.wait(s.pos, s.quit)-s.pos))
	}
	if over(s.quit) || s.flow.Bytes == 0 && over(s.stop) || s.flow.For > 0 && time.Since(start) >= s.flow.For {
		return 0
	}
	if s.flow.Bytes > 0 {
		n = min(n, s.flow.Bytes-s.pos)
	}
	return int(n)
}

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sleep waits for d; false when a or b (nil = never) is closed before.
func sleep(d time.Duration, a, b <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-a:
	case <-b:
	}
	return false
}

// progress is how far a direction has come, for the sender of its answers.
type progress struct {
	mu    sync.Mutex
	n     int64
	ended bool
	moved chan struct{} // closed at the next change; nil = nobody waits
}

func (p *progress) set(n int64, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n, p.ended = n, ended
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
}

// wait returns the progress when it is beyond n, or n when there will be no more.
func (p *progress) wait(n int64, quit <-chan struct{}) int64 {
	for {
		now, moved := p.look(n)
		if moved == nil {
			return now
		}
		select {
		case <-moved:
		case <-quit:
			return n
		}
	}
}

func (p *progress) look(n int64) (int64, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n > n || p.ended {
		return max(p.n, n), nil
	}
	if p.moved == nil {
		p.moved = make(chan struct{})
	}
	return n, p.moved
}
