package streamcheck

import (
	"errors"
	"fmt"
	"time"
)

// Plan is what a client and its server do. The zero value of each direction sends nothing.
type Plan struct {
	Kind string `json:"kind"` // a name for reports: tick, blast, keys, idle
	Seed uint64 `json:"seed"` // of the bytes; runs at the same time should differ
	Up   Flow   `json:"up"`
	Down Flow   `json:"down"`
	// Answer makes the server send as many bytes as it gets, as soon as it has them, instead of what Down says of pace
	// and length; the client measures the round trips.
	Answer bool `json:"answer,omitempty"`
	// Arrivals lists the time of each read in the report.
	Arrivals bool `json:"arrivals,omitempty"`
	// Stop ends the run as planned when it is closed: the client sends no more, but for Bytes that it owes, and a server
	// whose Down is without end stops when Up has ended. Nil = never.
	Stop <-chan struct{} `json:"-"`
}

// Flow is how one direction is sent and how its reader reads.
type Flow struct {
	Size  int           `json:"size,omitempty"`  // bytes of a write, and of a read at most; 0 = this direction sends nothing
	Every time.Duration `json:"every,omitempty"` // from one write to the next; 0 = as fast as it goes
	After time.Duration `json:"after,omitempty"` // before the first write
	For   time.Duration `json:"for,omitempty"`   // ends after that time since the first write
	Bytes int64         `json:"bytes,omitempty"` // ends after so many bytes; the first of both ends it; both 0 = see Plan.Stop

	ReadRate int64         `json:"read_rate,omitempty"` // the reader takes at most so many bytes a second; 0 = all
	StopAt   time.Duration `json:"stop_at,omitempty"`   // the reader stops reading then, counted from the start of the run,
	StopFor  time.Duration `json:"stop_for,omitempty"`  // for so long; 0 = it does not
}

// forever is a wait that only Stop ends.
const forever = 1<<63 - 1

func (f Flow) endless() bool { return f.For == 0 && f.Bytes == 0 }

const (
	tickSize  = 32 // a message: three words and more, so that one is enough to find a place in the sequence
	blastSize = 64 << 10
	mostSize  = 4 << 20 // bound of Size: a server takes plans from strangers
)

// Tick sends 32 bytes each way every so often (10 to 20 ms shows any stall) for d; d = 0: until [Plan.Stop].
func Tick(seed uint64, every, d time.Duration) Plan {
	f := Flow{Size: tickSize, Every: every, For: d}
	return Plan{Kind: "tick", Seed: seed, Up: f, Down: f}
}

// Directions of [Blast].
type Directions int

// The directions of a blast.
const (
	Up   Directions = 1 << iota // client to server
	Down                        // server to client
	Both = Up | Down
)

// Blast sends as fast as it goes, for d or n bytes each way, whichever is over first; 0 = no such bound; both 0: until
// [Plan.Stop].
func Blast(seed uint64, ways Directions, d time.Duration, n int64) Plan {
	f := Flow{Size: blastSize, For: d, Bytes: n}
	p := Plan{Kind: "blast", Seed: seed}
	if ways&Up != 0 {
		p.Up = f
	}
	if ways&Down != 0 {
		p.Down = f
	}
	return p
}

// Keys sends 32 bytes every so often for d, as keystrokes, and each is answered; d = 0: until [Plan.Stop].
func Keys(seed uint64, every, d time.Duration) Plan {
	return Plan{
		Kind: "keys", Seed: seed, Answer: true,
		Up: Flow{Size: tickSize, Every: every, For: d}, Down: Flow{Size: blastSize},
	}
}

// Idle opens, waits, 0 = until [Plan.Stop], then sends 32 bytes and has them answered: [Report.Trips] holds how long that
// took.
func Idle(seed uint64, wait time.Duration) Plan {
	if wait <= 0 {
		wait = forever
	}
	return Plan{
		Kind: "idle", Seed: seed, Answer: true,
		Up: Flow{Size: tickSize, After: wait, Bytes: tickSize}, Down: Flow{Size: tickSize},
	}
}

// Slow is p with readers of both directions that take so many bytes a second (0 = all) and do not read from at for d.
func (p Plan) Slow(bytesPerSecond int64, at, d time.Duration) Plan {
	for _, f := range []*Flow{&p.Up, &p.Down} {
		f.ReadRate, f.StopAt, f.StopFor = bytesPerSecond, at, d
	}
	return p
}

// check refuses what would not end or not fit.
func (p *Plan) check() error {
	for _, f := range []Flow{p.Up, p.Down} {
		if f.Size < 0 || f.Size > mostSize || f.Bytes < 0 || f.Bytes > longest || f.ReadRate < 0 {
			return fmt.Errorf("streamcheck: reading a plan: a size of %d, %d bytes, %d bytes a second is out of bounds",
				f.Size, f.Bytes, f.ReadRate)
		}
		if min(f.Every, f.After, f.For, f.StopAt, f.StopFor) < 0 {
			return errors.New("streamcheck: reading a plan: a time is negative")
		}
	}
	return nil
}
