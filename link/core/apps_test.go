package core

import (
	"bytes"
	"errors"
	"time"
)

// pick is a stream and a side of it, by the schedule; nil: there is none.
func (w *world) pick() (*pair, int) {
	if len(w.pairs) == 0 {
		return nil, 0
	}
	n := w.t.n(256)
	p := w.pairs[len(w.pairs)-1-(n>>1)%len(w.pairs)]
	i := n & 1
	if p.s[i] == nil || w.side[i].c == nil {
		return nil, 0
	}
	return p, i
}

func (w *world) open() {
	if len(w.pairs) >= 12 {
		return
	}
	hold := []time.Duration{0, 0, 0, 5 * time.Second, 40 * time.Second}[w.t.n(5)]
	open := w.side[client].c.Open
	if w.t.n(2) == 1 {
		open = w.side[client].c.OpenEarly
	}
	s, ok := open(w.now, "target:22", uint8(w.t.n(2)), hold)
	if !ok {
		return
	}
	p := &pair{id: s.ID}
	p.s[client] = s
	p.lazy = [2]bool{w.t.n(8) == 1, w.t.n(8) == 1}
	s.Ctx = p
	w.pairs = append(w.pairs, p)
	w.side[client].all = append(w.side[client].all, s)
	w.log("client: opens stream %d, hold %v", s.ID, hold)
}

// writeApp has the app write up to n bytes.
func (w *world) writeApp(p *pair, i, n int) {
	if p.closed[i] || p.lent[i] != nil {
		return
	}
	w.log("%s: app of stream %d at %d writes %d", names[i], p.id, p.wrote[i], n)
	for n > 0 {
		b := p.content(i, p.wrote[i], n)
		got := p.s[i].Write(w.now, b)
		p.wrote[i] += uint64(got)
		if got < len(b) {
			return
		}
		n -= got
	}
}

// lend begins a write into lent room; giveBack ends it, perhaps much later.
func (w *world) lend(p *pair, i, n int) {
	if p.closed[i] || p.lent[i] != nil {
		return
	}
	if b := p.s[i].Tail(n); len(b) > 0 {
		p.lent[i] = b
	}
}

func (w *world) giveBack(p *pair, i int) {
	b := p.lent[i]
	if b == nil {
		return
	}
	p.lent[i] = nil
	n := w.t.n(256) % (len(b) + 1)
	copy(b, p.content(i, p.wrote[i], n))
	before := p.s[i].out.end
	p.s[i].Grow(w.now, n)
	p.wrote[i] += p.s[i].out.end - before
	w.log("%s: app of stream %d fills %d", names[i], p.id, n)
}

// readApp has the app read up to n bytes; true: something came of it.
func (w *world) readApp(p *pair, i, n int) bool {
	s, some := p.s[i], false
	w.turnedAway(p)
	if p.quit[i] || p.ended[i] {
		return false
	}
	for n > 0 {
		b := s.Peek()
		if len(b) == 0 {
			break
		}
		b = b[:min(n, len(b))]
		if want := p.content(1-i, p.read[i], len(b)); !bytes.HasPrefix(b, want) || len(want) == 0 {
			w.fail("stream %d at %s: wrong bytes from %d on", p.id, names[i], p.read[i])
		} else {
			b = b[:len(want)]
		}
		p.read[i] += uint64(len(b))
		if p.read[i] > p.wrote[1-i] {
			w.fail("stream %d at %s: %d bytes read, %d written", p.id, names[i], p.read[i], p.wrote[1-i])
		}
		n -= len(b)
		s.Discard(w.now, len(b))
		w.stat.reads++
		some = true
	}
	return w.readEnd(p, i) || some
}

// turnedAway: a stream beyond the host's bound may end by REFUSED.
func (w *world) turnedAway(p *pair) {
	code, refused := p.s[client].Refusal()
	if refused && p.s[host] == nil && code == CodeBusy && w.side[host].acct.maxStreams < 100 {
		p.damage()
	}
}

// readEnd takes the end of a direction and judges it.
func (w *world) readEnd(p *pair, i int) bool {
	eof, err := p.s[i].ReadEnd()
	switch {
	case eof && (!p.closed[1-i] || p.read[i] != p.wrote[1-i]):
		w.fail("stream %d at %s: EOF after %d bytes, %d written, closed %v", p.id, names[i], p.read[i], p.wrote[1-i], p.closed[1-i])
	case err != nil && !p.damaged[1-i] && !p.abandoned:
		w.fail("stream %d at %s: %v though nobody ended it", p.id, names[i], err)
	case eof, err != nil:
		p.ended[i], p.eof[i] = true, eof
		w.log("%s: stream %d ends: EOF %v, %v", names[i], p.id, eof, err)
		return true
	}
	return false
}

func (w *world) closeApp(p *pair, i int) {
	if p.closed[i] || p.lent[i] != nil {
		return
	}
	p.closed[i] = true
	p.s[i].CloseWrite()
	w.log("%s: app of stream %d closes at %d", names[i], p.id, p.wrote[i])
}

func (w *world) quitApp(p *pair, i int, abort bool) {
	w.log("%s: app of stream %d quits, abort %v", names[i], p.id, abort)
	p.quit[i] = true
	p.damaged[1-i] = true
	if abort {
		p.damaged[i] = true
		p.s[i].Reset(uint32(p.id))
		return
	}
	p.s[i].Stop(uint32(p.id))
}

func (w *world) refuse(p *pair) {
	w.log("host: refuses stream %d", p.id)
	p.damage()
	p.quit[host] = true
	p.s[host].Refuse(1)
}

// finishApp has an app do all that is left of its part.
func (w *world) finishApp(p *pair, i int) bool {
	if p.s[i] == nil || w.side[i].c == nil {
		return false
	}
	w.giveBack(p, i)
	some := w.readApp(p, i, 1<<30)
	if i == host && !p.s[host].accepted {
		p.s[host].Accept(w.now)
	}
	if err := p.s[i].WriteErr(); err != nil && !p.damaged[i] && !p.abandoned && !p.closed[i] {
		w.fail("%s: stream %d: write error %v though nobody ended it", names[i], p.id, err)
	}
	if !p.closed[i] {
		w.closeApp(p, i)
		some = true
	}
	return some
}

// finishCheck is what must hold once everything had its time.
func (w *world) finishCheck() {
	for _, p := range w.pairs {
		if p.s[host] == nil && !p.damaged[0] {
			if s := p.s[client]; !s.refused && !p.abandoned {
				w.fail("stream %d never came in", p.id)
			}
			continue
		}
		for i := range 2 {
			if p.s[i] == nil || w.side[i].c == nil {
				continue
			}
			if !p.s[i].retired {
				w.fail("%s: stream %d never retires: %s", names[i], p.id, p.s[i].describe())
			}
			if !p.damaged[1-i] && !p.abandoned && (!p.eof[i] || p.read[i] != p.wrote[1-i]) {
				w.fail("%s: stream %d delivered %d of %d, EOF %v", names[i], p.id, p.read[i], p.wrote[1-i], p.eof[i])
			}
			if !p.quit[i] && !p.ended[i] {
				w.fail("%s: the app of stream %d was never told of its end", names[i], p.id)
			}
		}
	}
	for i, s := range w.side {
		if s.c == nil {
			continue
		}
		if s.acct.used != 0 || s.acct.streams != 0 || len(s.c.streams) != 0 || s.c.turnedAway != 0 {
			w.fail("%s: %d bytes and %d streams are still charged, %d streams live, %d turned away", names[i], s.acct.used, s.acct.streams, len(s.c.streams), s.c.turnedAway)
		}
		if w.crashed {
			continue
		}
		w.checkIdle(i, s.c)
	}
}

// checkIdle: nothing is left to say or to wait for.
func (w *world) checkIdle(i int, c *Core) {
	for _, k := range append(c.list(), c.orphans) {
		if o := w.connOf(i, k); o != nil && (o.over[1-i] || o.pipe[0].cut || !k.attached) {
			continue // only the transport can tell this side that the other has let go of it
		}
		for _, v := range k.say {
			if v != 0 {
				w.fail("%s: carrier %d still has something to say", names[i], k.gen)
			}
		}
		if len(k.fast) > 0 || len(k.slow) > 0 {
			w.fail("%s: carrier %d still has bytes to carry", names[i], k.gen)
		}
		if e, since, ok := k.oldest(); ok && w.now-since > 10*time.Second {
			w.fail("%s: carrier %d waits for the SEEN of a %v since %v", names[i], k.gen, e.kind, since)
		}
	}
	for _, s := range append(append(append([]*Stream(nil), c.keys.list...), c.fast.list...), c.bulk.list...) {
		if s.sendable() {
			w.fail("%s: stream %d still waits to send", names[i], s.ID)
		}
	}
}

var errCrash = errors.New("the other side knows nothing of the link")
