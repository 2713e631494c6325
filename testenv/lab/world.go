package lab

import (
	"context"
	"net"
	"strings"
	"time"
)

// World is the product in one kind of world: a client and a host, the links between them, and the doors for apps.
type World interface {
	// Door opens a connection to an app's local endpoint, or, for stdio and alone, to the target itself; see Door.
	Door(ctx context.Context, via string) (Door, error)
	// Target is where the host's streams arrive.
	Target() net.Listener
	// Act does one thing; n is how many of the same came before. It returns at once where the thing takes time, as a sleep.
	Act(ctx context.Context, a Act, n int) error
	// Look asks the product.
	Look(ctx context.Context) (Look, error)
	// Counts reads the counters of the world, without touching the product.
	Counts() Counts
	// Log is what the product's client has decided so far.
	Log() []string
	// Close ends all and waits for it.
	Close() error
}

// Door is what an app does to reach the target.
type Door struct {
	Conn   net.Conn
	Via    string // socks or http: Conn leads to a proxy that has to be asked; else it leads to the target
	Target string // host:port to ask for
}

// Look is what the product says of itself.
type Look struct {
	Active   string // name of the link in use, "none" without any
	Switches int    // since the start
	Streams  int    // held by the host
}

// Counts are those of a world.
type Counts struct {
	Bytes map[string]int64 // by link, both directions
	Dials int              // sockets opened towards the host so far
}

func (c Counts) sum() (n int64) {
	for _, b := range c.Bytes {
		n += b
	}
	return n
}

// bucketOf is the width of the buckets of a scenario's series.
func bucketOf(end time.Duration) time.Duration {
	return max(50*time.Millisecond, (end / 600).Round(time.Millisecond))
}

// Baselines are what the same events can be played to, for comparison: none knows more than the first link. compare names
// the first word of each, in lower case. TCP is with the system's congestion control.
var Baselines = []string{"ssh -L", "TCP", "BBR", "CUBIC"}

// baselineOf finds a baseline by the word of a scenario.
func baselineOf(word string) (string, bool) {
	for _, b := range Baselines {
		if first, _, _ := strings.Cut(strings.ToLower(b), " "); first == word {
			return b, true
		}
	}
	return "", false
}
