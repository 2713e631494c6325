package host

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// plan is what a dial to an address does: after a while it fails, or connects.
type plan struct {
	after time.Duration
	err   error
}

var forever = plan{time.Hour, errors.New("never comes")}

// tracked is a connection that knows whether it was closed.
type tracked struct {
	net.Conn
	addr   string
	closed bool
}

func (c *tracked) Close() error {
	c.closed = true
	return nil
}

// dialler dials by plans and notes when each dial began and what it gave out.
type dialler struct {
	plans map[string]plan
	start time.Time
	mu    sync.Mutex // guards began
	began []string
	given chan *tracked
}

func (d *dialler) connect(ctx context.Context, network, address string) (net.Conn, error) {
	p := d.plans[address]
	d.mu.Lock()
	d.began = append(d.began, time.Since(d.start).String()+" "+network+" "+address)
	d.mu.Unlock()
	timer := time.NewTimer(p.after)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	case <-timer.C:
	}
	if p.err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: p.err}
	}
	c := &tracked{addr: address}
	d.given <- c
	return c, nil
}

func TestDialRaces(t *testing.T) {
	const ms = time.Millisecond
	refused, unreachable := syscall.ECONNREFUSED, syscall.EHOSTUNREACH
	for name, c := range map[string]struct {
		dns    string
		plans  map[string]plan
		began  string // when each dial began
		won    string // or the reason
		at     time.Duration
		limit  time.Duration
		cancel time.Duration
	}{
		"one": {
			"10.0.0.1",
			map[string]plan{"10.0.0.1:1": {30 * ms, nil}},
			"0s tcp 10.0.0.1:1", "10.0.0.1:1", 30 * ms, 0, 0,
		},
		"first is silent": {
			"10.0.0.1 10.0.0.2",
			map[string]plan{"10.0.0.1:1": forever, "10.0.0.2:1": {30 * ms, nil}},
			"0s tcp 10.0.0.1:1, 250ms tcp 10.0.0.2:1", "10.0.0.2:1", 280 * ms, 0, 0,
		},
		"a failure pulls the next forward": {
			"10.0.0.1 10.0.0.2",
			map[string]plan{"10.0.0.1:1": {5 * ms, refused}, "10.0.0.2:1": {30 * ms, nil}},
			"0s tcp 10.0.0.1:1, 5ms tcp 10.0.0.2:1", "10.0.0.2:1", 35 * ms, 0, 0,
		},
		"families alternate": {
			"fd00::1 fd00::2 10.0.0.1 10.0.0.2",
			map[string]plan{"[fd00::1]:1": forever, "10.0.0.1:1": forever, "[fd00::2]:1": forever, "10.0.0.2:1": {10 * ms, nil}},
			"0s tcp [fd00::1]:1, 250ms tcp 10.0.0.1:1, 500ms tcp [fd00::2]:1, 750ms tcp 10.0.0.2:1", "10.0.0.2:1", 760 * ms, 0, 0,
		},
		"slow first wins": {
			"10.0.0.1 10.0.0.2",
			map[string]plan{"10.0.0.1:1": {260 * ms, nil}, "10.0.0.2:1": forever},
			"0s tcp 10.0.0.1:1, 250ms tcp 10.0.0.2:1", "10.0.0.1:1", 260 * ms, 0, 0,
		},
		"refused says more than unreachable": {
			"10.0.0.1 fd00::1",
			map[string]plan{"10.0.0.1:1": {1 * ms, unreachable}, "[fd00::1]:1": {2 * ms, refused}},
			"0s tcp 10.0.0.1:1, 1ms tcp [fd00::1]:1", "refused", 3 * ms, 0, 0,
		},
		"refused says more than silence": {
			"10.0.0.1 10.0.0.2",
			map[string]plan{"10.0.0.1:1": {1 * ms, refused}, "10.0.0.2:1": {time.Second, syscall.ETIMEDOUT}},
			"0s tcp 10.0.0.1:1, 1ms tcp 10.0.0.2:1", "refused", 1001 * ms, 0, 0,
		},
		"unreachable": {
			"10.0.0.1",
			map[string]plan{"10.0.0.1:1": {0, unreachable}},
			"0s tcp 10.0.0.1:1", "unreachable", 0, 0, 0,
		},
		"this host is out of files": {
			"10.0.0.1",
			map[string]plan{"10.0.0.1:1": {0, syscall.EMFILE}},
			"0s tcp 10.0.0.1:1", "busy", 0, 0, 0,
		},
		"one that was not tried may be well": {
			"10.0.0.1 10.0.0.2",
			map[string]plan{"10.0.0.1:1": {1 * ms, refused}, "10.0.0.2:1": {1 * ms, syscall.ENFILE}},
			"0s tcp 10.0.0.1:1, 1ms tcp 10.0.0.2:1", "busy", 2 * ms, 0, 0,
		},
		"kernel gives up": {
			"10.0.0.1",
			map[string]plan{"10.0.0.1:1": {time.Second, syscall.ETIMEDOUT}},
			"0s tcp 10.0.0.1:1", "timeout", time.Second, 0, 0,
		},
		"silence": {
			"10.0.0.1",
			map[string]plan{"10.0.0.1:1": forever},
			"0s tcp 10.0.0.1:1", "timeout", 10 * time.Second, 0, 0,
		},
		"own limit": {
			"10.0.0.1",
			map[string]plan{"10.0.0.1:1": forever},
			"0s tcp 10.0.0.1:1", "timeout", time.Second, time.Second, 0,
		},
		"no limit": {
			"10.0.0.1",
			map[string]plan{"10.0.0.1:1": {time.Hour, nil}},
			"0s tcp 10.0.0.1:1", "10.0.0.1:1", time.Hour, -1, 0,
		},
		"the caller gives up": {
			"10.0.0.1 10.0.0.2",
			map[string]plan{"10.0.0.1:1": forever},
			"0s tcp 10.0.0.1:1", "", 100 * ms, 0, 100 * ms,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &dialler{plans: c.plans, start: time.Now(), given: make(chan *tracked, 16)}
				p := &Policy{
					Allow: rules(t, "10.0.0.0/8:1", "[fd00::/8]:1"), Timeout: c.limit,
					Resolve: answers(t, map[string]string{"x.internal": c.dns}), Connect: d.connect,
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				conn, rule, err := p.Dial(ctx, "x.internal:1")
				got := reasonOf(err)
				if err == nil {
					got = conn.(*tracked).addr
					if rule.lo != 1 || conn.(*tracked).closed {
						t.Errorf("rule %v; closed: %v", rule, conn.(*tracked).closed)
					}
				}
				if began := strings.Join(d.began, ", "); got != c.won || time.Since(d.start) != c.at || began != c.began {
					t.Errorf("got %q (%v) at %v, dials: %s\nwant %q at %v, dials: %s", got, err, time.Since(d.start), began, c.won, c.at, c.began)
				}
				if c.cancel > 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want context.Canceled", err)
				}
			})
		})
	}
}

// TestLoserIsClosed: two connect at the same instant; one is returned, the other closed.
func TestLoserIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialler{
			plans: map[string]plan{"127.0.0.1:1": {260 * time.Millisecond, nil}, "[::1]:1": {10 * time.Millisecond, nil}},
			start: time.Now(), given: make(chan *tracked, 2),
		}
		// A dial that does not notice that it was cancelled.
		p := &Policy{Connect: func(_ context.Context, network, address string) (net.Conn, error) {
			return d.connect(context.Background(), network, address)
		}}
		conn, _, err := p.Dial(t.Context(), "localhost:1")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if c := <-d.given; c.closed == (c == conn.(*tracked)) {
				t.Errorf("%s: closed %v, returned %v", c.addr, c.closed, c == conn.(*tracked))
			}
		}
	})
}

// TestDialOnlyWhatWasJudged: a resolver that changes its mind is asked once.
func TestDialOnlyWhatWasJudged(t *testing.T) {
	asked := 0
	p := &Policy{
		Allow: rules(t, "x.example:1"),
		Own:   func() ([]netip.Addr, error) { return nil, nil },
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			asked++
			return []netip.Addr{netip.MustParseAddr([]string{"203.0.113.9", "127.0.0.1"}[min(asked-1, 1)])}, nil
		},
		Connect: func(_ context.Context, network, address string) (net.Conn, error) {
			if address != "203.0.113.9:1" {
				t.Errorf("dialled %s", address)
			}
			return nil, syscall.ECONNREFUSED
		},
	}
	if _, _, err := p.Dial(t.Context(), "x.example:1"); reasonOf(err) != "refused" || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	if _, _, err := p.Dial(t.Context(), "x.example:1"); reasonOf(err) != "not_allowed" {
		t.Errorf("rebound: %v", err)
	}
}

func TestDialForReal(t *testing.T) {
	defer goleak.VerifyNone(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	var p Policy
	for _, target := range []string{port, ":" + port, "localhost:" + port, "127.0.0.1:" + port} {
		c, rule, err := p.Dial(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		if c.RemoteAddr().String() != ln.Addr().String() || rule.String() != "127.0.0.1:*" {
			t.Errorf("%s: dialled %v by %s", target, c.RemoteAddr(), rule)
		}
		c.Close()
	}
	ln.Close()
	_, _, err = p.Dial(t.Context(), "127.0.0.1:"+port)
	if reasonOf(err) != "refused" || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "start the service") {
		t.Errorf("nobody listens: %v", err)
	}
}
