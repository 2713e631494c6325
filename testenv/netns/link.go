package netns

import (
	"fmt"
	"time"
)

// Faults are those of one direction of a link. The zero value passes each frame at once.
type Faults struct {
	Delay   time.Duration // one way
	Jitter  time.Duration // each frame takes up to so much more, drawn from a fixed seed; frames keep their order
	Rate    int64         // bytes of frames a second; 0 = as fast as the machine
	Loss    float64       // share of frames lost by chance, drawn from a fixed seed, 0 to 1
	Queue   time.Duration // a frame that would wait longer for Rate is lost; 0 = 100 ms
	Hole    bool          // nothing arrives, neither what is on its way
	Large   int           // IP packets of more bytes are lost without a word; 0 = none
	Outages Outages
	Refuse  bool // a SYN is answered by RST: dials get ECONNREFUSED after a round trip; connections live on
	Reset   bool // any other TCP packet is answered by RST, as by a NAT that lost its state; its sender gets ECONNRESET
}

// Outages are times when a direction loses everything that is sent. They follow from the seed and from when they were
// set; equal values set at once in both directions coincide.
type Outages struct {
	Seed   uint64
	Share  float64       // of the time, 0 to 1; 0 = none
	Length time.Duration // of an outage in the mean; each lasts between half and one and a half of it
}

// defaultQueue is what a queue holds that nobody set: as in package testenv.
const defaultQueue = 100 * time.Millisecond

// Link joins two interfaces of two hosts. A change holds when its method returns; frames on their way keep their time
// of arrival, and none overtakes another. A direction holds 64 MiB or 131 072 frames on their way and loses what is
// beyond. The verbs have no error: if the emulator is gone, so are all interfaces, and [World.Close] says why.
type Link struct {
	w      *World
	id     int
	a, b   End
	faults [2]Faults // up, down; owned by the world's loop
}

// Count is what became of the frames of one direction.
type Count struct {
	Frames, Bytes int64 // delivered; a frame as a host sees it, which may be several segments at once
	Lost          int64 // frames, for whatever reason
	ARP           int64 // of Bytes, those by which the systems look for each other: no program asked for them
}

func (l *Link) String() string {
	return fmt.Sprintf("%s/%s-%s/%s", l.a.Host.name, l.a.Name, l.b.Host.name, l.b.Name)
}

// Shape changes any of the faults at once. f must only change what its arguments point to.
func (l *Link) Shape(f func(up, down *Faults)) {
	_, _ = l.w.ask(func() order {
		f(&l.faults[0], &l.faults[1])
		return order{Verb: "set", Link: l.id, Faults: l.faults}
	})
}

// SetDelay makes each direction take d; the round trip is 2 d.
func (l *Link) SetDelay(d time.Duration) {
	l.Shape(func(up, down *Faults) { up.Delay, down.Delay = d, d })
}

// SetJitter makes each frame of both directions take up to d more.
func (l *Link) SetJitter(d time.Duration) {
	l.Shape(func(up, down *Faults) { up.Jitter, down.Jitter = d, d })
}

// SetRate lets each direction carry so many bytes of frames a second, with a queue of 100 ms; 0 = no limit.
func (l *Link) SetRate(bytesPerSecond int64) {
	l.Shape(func(up, down *Faults) { up.Rate, down.Rate = bytesPerSecond, bytesPerSecond })
}

// SetLoss makes both directions lose such a share of their frames by chance; 0 = none.
func (l *Link) SetLoss(share float64) {
	l.Shape(func(up, down *Faults) { up.Loss, down.Loss = share, share })
}

// SetQueue bounds how long a frame waits for the rate of its direction; one that would wait longer is lost. 0 = 100 ms.
func (l *Link) SetQueue(d time.Duration) {
	l.Shape(func(up, down *Faults) { up.Queue, down.Queue = d, d })
}

// BlackHole makes the directions named lose everything, also what is on its way. A direction not named is healed.
func (l *Link) BlackHole(up, down bool) {
	l.Shape(func(u, d *Faults) { u.Hole, d.Hole = up, down })
}

// LoseLarge makes a direction lose IP packets of more than so many bytes; 0 = none.
func (l *Link) LoseLarge(up, down int) {
	l.Shape(func(u, d *Faults) { u.Large, d.Large = up, down })
}

// SetOutages makes both directions lose everything at the same times; Share 0 ends it.
func (l *Link) SetOutages(o Outages) {
	l.Shape(func(up, down *Faults) { up.Outages, down.Outages = o, o })
}

// Refuse makes dials over the link, either way, fail with ECONNREFUSED. The error is always nil, as package testenv's
// other worlds may have one.
func (l *Link) Refuse(on bool) error {
	l.Shape(func(up, down *Faults) { up.Refuse, down.Refuse = on, on })
	return nil
}

// Heal ends every fault. Delay, jitter, rate and loss by chance, which are the link's nature, stay.
func (l *Link) Heal() {
	l.Shape(func(up, down *Faults) {
		for _, f := range []*Faults{up, down} {
			f.Hole, f.Large, f.Outages, f.Refuse, f.Reset = false, 0, Outages{}, false, false
		}
	})
}

// Count says what was delivered and lost so far, up and down.
func (l *Link) Count() (up, down Count) {
	r, _ := l.w.ask(func() order { return order{Verb: "count", Link: l.id} })
	return r.Counts[0], r.Counts[1]
}
