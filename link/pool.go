package link

import (
	"math"
	"sync"
	"sync/atomic"
)

// DefaultPool is the memory for stream bytes of a process, in bytes, beyond the 32 KiB that each stream has for itself.
const DefaultPool = 256 << 20

// DefaultStreams is the most streams one key may have at a time.
const DefaultStreams = 8192

// Pool is the memory for stream bytes that all links of a process share. It limits what is granted anew and takes nothing
// back; no key has more than a quarter of it. Safe for concurrent use.
type Pool struct {
	limit int64
	used  atomic.Int64
}

// NewPool returns a pool of limit bytes; zero: DefaultPool.
func NewPool(limit int64) *Pool {
	if limit == 0 {
		limit = DefaultPool
	}
	return &Pool{limit: limit}
}

// Used is how many bytes are charged now.
func (p *Pool) Used() int64 { return p.used.Load() }

// account is one key's share of a pool and its count of streams.
type account struct {
	pool       *Pool
	used       atomic.Int64
	streams    atomic.Int64
	maxStreams int64
}

func (p *Pool) account(maxStreams int) *account {
	switch {
	case maxStreams == 0:
		maxStreams = DefaultStreams
	case maxStreams < 0:
		maxStreams = math.MaxInt
	}
	return &account{pool: p, maxStreams: int64(maxStreams)}
}

// Charge implements core.Account.
func (a *account) Charge(n int) bool {
	if a.used.Add(int64(n)) > a.pool.limit/4 {
		a.used.Add(-int64(n))
		return false
	}
	if a.pool.used.Add(int64(n)) > a.pool.limit {
		a.pool.used.Add(-int64(n))
		a.used.Add(-int64(n))
		return false
	}
	return true
}

// Release implements core.Account.
func (a *account) Release(n int) {
	a.used.Add(-int64(n))
	a.pool.used.Add(-int64(n))
}

// AddStream implements core.Account.
func (a *account) AddStream() bool {
	if a.streams.Add(1) > a.maxStreams {
		a.streams.Add(-1)
		return false
	}
	return true
}

// RemoveStream implements core.Account.
func (a *account) RemoveStream() { a.streams.Add(-1) }

// Sizes of the buffers stream bytes lie in: for keystrokes, for what fits the implicit credit, for bulk.
const (
	smallBuffer = 2 << 10
	largeBuffer = 32 << 10
	hugeBuffer  = 64 << 10
)

// buffers lends buffers of three sizes; it is shared by everything in the process, as sync.Pool works best that way.
type buffers struct{ small, large, huge sync.Pool }

var sharedBuffers buffers

// Get implements core.Memory.
func (m *buffers) Get(n int) []byte {
	if n <= smallBuffer {
		if b, ok := m.small.Get().(*[smallBuffer]byte); ok {
			return b[:]
		}
		return new([smallBuffer]byte)[:]
	}
	if n > largeBuffer {
		if b, ok := m.huge.Get().(*[hugeBuffer]byte); ok {
			return b[:]
		}
		return new([hugeBuffer]byte)[:]
	}
	if b, ok := m.large.Get().(*[largeBuffer]byte); ok {
		return b[:]
	}
	return new([largeBuffer]byte)[:]
}

// Put implements core.Memory.
func (m *buffers) Put(b []byte) {
	switch len(b) {
	case smallBuffer:
		m.small.Put((*[smallBuffer]byte)(b))
	case largeBuffer:
		m.large.Put((*[largeBuffer]byte)(b))
	case hugeBuffer:
		m.huge.Put((*[hugeBuffer]byte)(b))
	}
}
