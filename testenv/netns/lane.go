package netns

import (
	"math/rand/v2"
	"time"
)

// etherHeader is what a frame is longer than its IP packet.
const etherHeader = 14

// lane decides when a frame of one direction arrives. It is pure: times are since the emulator began.
type lane struct {
	Faults
	free   time.Duration // when Rate has served all that was accepted
	last   time.Duration // when the last frame accepted arrives
	outage outage
	jitter *rand.Rand
	loss   *rand.Rand
}

func newLane(seed uint64) *lane {
	return &lane{jitter: rand.New(rand.NewPCG(seed, 0)), loss: rand.New(rand.NewPCG(seed, 2))}
}

// set changes the faults from now on.
func (l *lane) set(now time.Duration, f Faults) {
	if f.Outages != l.Outages {
		l.outage = newOutage(now, f.Outages)
	}
	l.Faults = f
}

// admit says when a frame of so many bytes arrives that is sent now; false: it is lost.
func (l *lane) admit(now time.Duration, frame int) (due time.Duration, ok bool) {
	dead := l.outage.dead(now)
	if l.Hole || dead || l.Large > 0 && frame-etherHeader > l.Large {
		return 0, false
	}
	if l.Loss > 0 && l.loss.Float64() < l.Loss {
		return 0, false
	}
	if l.Rate > 0 {
		start := max(now, l.free)
		if start-now > l.queue() {
			return 0, false
		}
		now = start + time.Duration(int64(frame)*int64(time.Second)/l.Rate)
		l.free = now
	}
	now += l.Delay
	if l.Jitter > 0 {
		now += time.Duration(l.jitter.Int64N(int64(l.Jitter)))
	}
	l.last = max(now, l.last)
	return l.last, true
}

func (l *lane) queue() time.Duration {
	if l.Queue > 0 {
		return l.Queue
	}
	return defaultQueue
}

// perPacket says whether the faults depend on packets, so that they must come one by one.
func (f Faults) perPacket() bool {
	return f.Rate > 0 || f.Loss > 0 || f.Large > 0 || f.Jitter > 0 || f.Refuse || f.Reset
}

// outage plays [Outages].
type outage struct {
	Outages
	down  bool
	until time.Duration
	rng   *rand.Rand
}

// newOutage begins with a time without outage.
func newOutage(now time.Duration, o Outages) outage {
	return outage{Outages: o, down: true, until: now, rng: rand.New(rand.NewPCG(o.Seed, 1))}
}

// dead says whether everything sent at now is lost; now never goes back.
func (o *outage) dead(now time.Duration) bool {
	if o.Share <= 0 || o.Length <= 0 {
		return false
	}
	for now >= o.until {
		o.down = !o.down
		mean := float64(o.Length)
		if !o.down {
			mean *= (1 - min(o.Share, 1)) / o.Share
		}
		o.until += time.Duration(mean * (0.5 + o.rng.Float64()))
	}
	return o.down
}
