// Package control is how other linkproxy commands talk to a running `up` or `host`: HTTP/1.1 over a Unix socket in the state
// folder (a named pipe on Windows), reachable by the same user only. GET /v1/status, /v1/why and /v1/check answer with JSON, GET
// /v1/events with a line of JSON for each event, POST /v1/… acts, and CONNECT opens a stream to PEER:PORT, which is how `linkproxy
// connect` rides on the link that `up` holds.
package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Route is one way to a peer, with what the last race learned of it and what is remembered here.
type Route struct {
	Route    string `json:"route"`
	Outcome  string `json:"outcome,omitempty"` // of the last race, as in docs/routes.md
	Error    string `json:"error,omitempty"`
	TookMS   int64  `json:"took_ms,omitempty"`
	Attached bool   `json:"attached"`
	// Place is where it would stand in a race now, from 1; 0: it would not be tried. State says in words how it stands.
	Place       int       `json:"place"`
	Demoted     bool      `json:"demoted"` // it would be tried last
	State       string    `json:"state"`
	Class       string    `json:"class"` // as it ranks here
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastFailure time.Time `json:"last_failure,omitzero"` // since then
	HandshakeUS int64     `json:"handshake_us,omitempty"`
	Failing     bool      `json:"failing,omitempty"`
	Penalty     *Penalty  `json:"penalty,omitempty"`
}

// Penalty is what is held against a route on this network because it did not hold.
type Penalty struct {
	Step      int       `json:"step"`
	Until     time.Time `json:"until,omitzero"`
	CoolUntil time.Time `json:"cool_until,omitzero"` // it did not attach: not upgraded to until then
	Reasons   []string  `json:"reasons,omitempty"`
}

// Network is what one interface of this machine shows of where it is.
type Network struct {
	Interface string `json:"interface"`
	Kind      string `json:"kind"`
	Network   string `json:"network,omitempty"` // its fingerprint in words; empty: it cannot be told from others
	Metered   bool   `json:"metered"`
	Default   bool   `json:"default"`
}

// Carrier is one connection that serves a link.
type Carrier struct {
	Generation uint64    `json:"generation"`
	Route      string    `json:"route"`
	State      string    `json:"state"` // active, standby, bulk, draining, attaching
	Suspect    bool      `json:"suspect"`
	RTTMicros  int64     `json:"rtt_us"`
	Unseen     int       `json:"unseen_bytes"` // stream bytes sent and not yet confirmed on this carrier
	BytesIn    uint64    `json:"bytes_in"`
	BytesOut   uint64    `json:"bytes_out"`
	Since      time.Time `json:"since"`
}

// Switch is one move of a link from one carrier to another.
type Switch struct {
	At   time.Time `json:"at"`
	From uint64    `json:"from"`
	To   uint64    `json:"to"`
	// FromRoute and ToRoute are what is known of the routes' names.
	FromRoute string `json:"from_route,omitempty"`
	ToRoute   string `json:"to_route,omitempty"`
	Planned   bool   `json:"planned"`
	Unseen    int    `json:"unseen_bytes"` // stream bytes not confirmed on the old carrier at that moment
	Reason    string `json:"reason"`
}

// Stream is one app connection.
type Stream struct {
	ID       uint64    `json:"id"`
	Target   string    `json:"target"`
	Since    time.Time `json:"since"`
	BytesIn  uint64    `json:"bytes_in"`
	BytesOut uint64    `json:"bytes_out"`
	Open     bool      `json:"open"` // the target has answered
}

// Link is one resumable session.
type Link struct {
	ID       string    `json:"id"`
	State    string    `json:"state"` // connected, waiting (no carrier), ended
	Since    time.Time `json:"since"`
	Carriers []Carrier `json:"carriers"`
	Streams  []Stream  `json:"streams"`
	Switches []Switch  `json:"switches"`
	BytesIn  uint64    `json:"bytes_in"`
	BytesOut uint64    `json:"bytes_out"`
	Repeated uint64    `json:"repeated_bytes"` // sent a second time because a carrier was left or doubted
	Moves    uint64    `json:"moves"`          // how often a carrier came into use, the first time included
	Doubtful bool      `json:"doubtful"`       // the carrier in use does not answer at present
	LostAt   time.Time `json:"lost_at,omitzero"`
}

// Peer is a peer of `up`, or a client of `host`.
type Peer struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`                 // empty: NoAgent
	NoAgent bool      `json:"no_agent,omitempty"` // no linkproxy runs there: a connection ends with its route
	State   string    `json:"state"`              // idle, connecting, connected, waiting
	Error   string    `json:"error,omitempty"`
	Next    time.Time `json:"next_try,omitzero"`
	NextWhy string    `json:"next_try_why,omitempty"`
	Waiting int       `json:"waiting_apps,omitempty"`
	Pin     string    `json:"pin,omitempty"` // what the user wants used, "lan --only"; empty: the choice is open
	Active  string    `json:"active_route,omitempty"`
	Standby []string  `json:"standby_routes,omitempty"`
	RacedAt time.Time `json:"raced_at,omitzero"`
	Routes  []Route   `json:"routes,omitempty"` // in the order of the next race
	Links   []Link    `json:"links"`
	Conns   []Conn    `json:"connections,omitempty"` // with NoAgent, in place of links
}

// Conn is one connection to a peer without an agent. It cannot move.
type Conn struct {
	Target string    `json:"target"` // peer:port
	Route  string    `json:"route"`
	Since  time.Time `json:"since"`
}

// Status is what a running process shows.
type Status struct {
	Role    string    `json:"role"` // up, host
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
	Listens []string  `json:"listens"`
	Config  string    `json:"config,omitempty"` // why the newest config file is not in force
	// Networks are where this machine is; Tailnet: it has a tailnet interface.
	Networks []Network `json:"networks,omitempty"`
	Tailnet  bool      `json:"tailnet,omitempty"`
	Peers    []Peer    `json:"peers"`
}

// Server answers on a control socket. Fields left nil answer 404.
type Server struct {
	Status func() Status
	Use    func(ctx context.Context, peer, route string, only bool) error
	Drop   func(link string) error
	// Why says where a peer is and what was decided about it; Check checks each of its routes now.
	Why   func(ctx context.Context, peer string) (Why, error)
	Check func(ctx context.Context, peer string) ([]Checked, error)
	// Events sends what is kept of all peers, oldest first, and with follow goes on with what comes, until ctx ends. An error of
	// send ends it.
	Events func(ctx context.Context, follow bool, send func(Event) error) error
	// Connect opens a stream at once; if it has WaitOpened(ctx) error, the client is told when the target has answered.
	Connect func(ctx context.Context, target string) (net.Conn, error)
	// Copy moves bytes both ways between a client's connection and a stream, until both have ended.
	Copy func(client, stream net.Conn)
}

// headerReason carries the class of a failure, so that `connect` can choose its exit code.
const headerReason = "Linkproxy-Reason"

// headerTarget carries what CONNECT is to open: a target may name a host behind a peer, which no authority can say.
const headerTarget = "Linkproxy-Target"

// Error is a failure the other side reported.
type Error struct {
	Text string
	Why  string // its class as a word
}

func (e *Error) Error() string { return e.Text }

// Reason is the class of the failure as a word.
func (e *Error) Reason() string { return e.Why }

// headerTime bounds how long a client of the socket may take to say what it wants.
const headerTime = 10 * time.Second

// farewell bounds how long the end waits for the answers that are under way: each ends with the context, unless its client
// does not read.
const farewell = time.Second

// Serve answers on ln until ctx ends, then returns nil once no connection is left.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: headerTime, BaseContext: func(net.Listener) context.Context { return ctx }}
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if srv.Shutdown(late) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(ln)
	if !stop() {
		<-ended
		return nil
	}
	srv.Close()
	return fmt.Errorf("control: serving %s: %w", ln.Addr(), err)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect && s.Connect != nil:
		s.serveConnect(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/v1/status" && s.Status != nil:
		reply(w, s.Status(), nil)
	case r.Method == http.MethodGet && r.URL.Path == "/v1/why" && s.Why != nil:
		why, err := s.Why(r.Context(), r.URL.Query().Get("peer"))
		reply(w, why, err)
	case r.Method == http.MethodGet && r.URL.Path == "/v1/check" && s.Check != nil:
		list, err := s.Check(r.Context(), r.URL.Query().Get("peer"))
		reply(w, list, err)
	case r.Method == http.MethodGet && r.URL.Path == "/v1/events" && s.Events != nil:
		s.serveEvents(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/use" && s.Use != nil:
		answer(w, s.Use(r.Context(), r.URL.Query().Get("peer"), r.URL.Query().Get("route"), r.URL.Query().Has("only")))
	case r.Method == http.MethodPost && r.URL.Path == "/v1/drop" && s.Drop != nil:
		answer(w, s.Drop(r.URL.Query().Get("link")))
	default:
		http.Error(w, "control: no such request: "+r.Method+" "+r.URL.Path, http.StatusNotFound)
	}
}

func answer(w http.ResponseWriter, err error) {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var classed interface{ Reason() string }
	if errors.As(err, &classed) {
		w.Header().Set(headerReason, classed.Reason())
	}
	http.Error(w, err.Error(), http.StatusBadGateway)
}

// serveConnect opens a stream and, by hijack, leaves HTTP. The client's bytes flow to the stream at once; the answer goes
// back when the target has answered, so that a refusal keeps its reason and nothing costs a round trip.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request) {
	ctx := context.WithoutCancel(r.Context()) // it ends when the client says no more, who may well want to hear still
	stream, err := s.Connect(ctx, r.Header.Get(headerTarget))
	if err != nil {
		answer(w, err)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		stream.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if early, _ := buf.Reader.Peek(buf.Reader.Buffered()); len(early) > 0 {
		if _, err := stream.Write(early); err != nil {
			stream.Close()
			conn.Close()
			return
		}
	}
	s.Copy(conn, &answering{Conn: stream, ctx: ctx})
}

// Client talks to a control socket.
type Client struct {
	// Dial connects to the socket.
	Dial func(ctx context.Context) (net.Conn, error)
}

// ErrNotRunning tells that nothing answers on the socket.
var ErrNotRunning = errors.New("control: no linkproxy is running")

func (c *Client) http() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx) },
		DisableKeepAlives: true,
	}}
}

// Status asks what the running process shows.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var st Status
	err := c.get(ctx, "/v1/status", nil, &st)
	return st, err
}

// Use asks for a route or class of a peer to be preferred, and the link moved there; only: nothing else is to be used. The route
// "auto" leaves the choice open again.
func (c *Client) Use(ctx context.Context, peer, route string, only bool) error {
	q := url.Values{"peer": {peer}, "route": {route}}
	if only {
		q.Set("only", "")
	}
	return c.post(ctx, "/v1/use", q)
}

// Drop asks a host to end a held link.
func (c *Client) Drop(ctx context.Context, link string) error {
	return c.post(ctx, "/v1/drop", url.Values{"link": {link}})
}

func (c *Client) post(ctx context.Context, path string, q url.Values) error {
	resp, err := c.do(ctx, http.MethodPost, path, q)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (c *Client) do(ctx context.Context, method, path string, q url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://linkproxy"+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	resp, err := c.http().Do(req)
	switch {
	case errors.Is(err, ErrNotRunning):
		return nil, ErrNotRunning
	case err != nil:
		return nil, fmt.Errorf("control: asking the running linkproxy: %w", err)
	}
	if resp.StatusCode >= 300 {
		return nil, failed(resp)
	}
	return resp, nil
}
