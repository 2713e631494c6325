package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Fact is one thing a decision rested on, with its value as it was then.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Decision is what was decided about a peer's routes, or a move of its link.
type Decision struct {
	At      time.Time `json:"at"`
	What    string    `json:"what"`
	Why     string    `json:"why"`
	Facts   []Fact    `json:"facts,omitempty"`
	Routes  []string  `json:"routes,omitempty"` // each with its reasons, in the order of trying
	Changes []string  `json:"would_change,omitempty"`
}

// Why says where a peer is, what would move it, and the last decisions about it, oldest first.
type Why struct {
	Peer      string     `json:"peer"`
	Now       string     `json:"now"`
	Moves     string     `json:"moves"` // when it would move, in a sentence; empty: nothing is in use
	Decisions []Decision `json:"decisions"`
}

// Event is a decision with the peer it is about.
type Event struct {
	Peer string `json:"peer"`
	Decision
	Missed int `json:"missed,omitempty"` // events before this one that are not told, as the reader was too slow
}

// Checked is what a check of one route found out, and where the route would stand in a race.
type Checked struct {
	Route     string `json:"route"`
	Works     bool   `json:"works"`     // the peer answered; nothing was attached
	Reachable bool   `json:"reachable"` // something at the address took the connection
	RightKey  bool   `json:"right_key"` // the peer's own key was proved
	NoKey     bool   `json:"no_key"`    // it has none, as no agent runs there: a TCP connection was answered, and no more is known
	Outcome   string `json:"outcome"`
	Error     string `json:"error,omitempty"`
	// RoundTripMicros is of one question; HandshakeMicros from the open socket until both keys were proved; TookMicros is all.
	RoundTripMicros int64  `json:"rtt_us,omitempty"`
	HandshakeMicros int64  `json:"handshake_us,omitempty"`
	TookMicros      int64  `json:"took_us"`
	Address         string `json:"address,omitempty"` // that answered, numeric
	Local           string `json:"local,omitempty"`   // this machine's own address
	Through         string `json:"through,omitempty"` // the interface that has it, and its network
	InUse           bool   `json:"in_use"`
	Place           int    `json:"place"` // in a race now, from 1; 0: it would not be tried
	Rank            string `json:"rank"`  // why there
}

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson" // one JSON value a line
)

// reply answers with JSON, or says why not.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		answer(w, err)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	_ = json.NewEncoder(w).Encode(v) // the client has left
}

// serveEvents sends events, one a line, until there are none, the client leaves or the server ends.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", typeNDJSON)
	w.WriteHeader(http.StatusOK)
	if err := rc.Flush(); err != nil {
		return
	}
	line := json.NewEncoder(w)
	// An error is of the context or of a client that left: nobody is there to hear it.
	_ = s.Events(r.Context(), r.URL.Query().Has("follow"), func(e Event) error {
		if err := line.Encode(e); err != nil {
			return err
		}
		return rc.Flush()
	})
}

// Why asks where a peer is and what was decided about it.
func (c *Client) Why(ctx context.Context, peer string) (why Why, err error) {
	err = c.get(ctx, "/v1/why", url.Values{"peer": {peer}}, &why)
	return why, err
}

// Check has every route of a peer checked now, beside its link.
func (c *Client) Check(ctx context.Context, peer string) (list []Checked, err error) {
	err = c.get(ctx, "/v1/check", url.Values{"peer": {peer}}, &list)
	return list, err
}

// Events calls each with the events that are kept, oldest first, and with follow with those to come, until ctx ends, the
// server ends (both nil) or each fails.
func (c *Client) Events(ctx context.Context, follow bool, each func(Event) error) error {
	q := url.Values{}
	if follow {
		q.Set("follow", "")
	}
	resp, err := c.do(ctx, http.MethodGet, "/v1/events", q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var e Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("control: reading events: %w", err)
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// get asks for JSON.
func (c *Client) get(ctx context.Context, path string, q url.Values, into any) error {
	resp, err := c.do(ctx, http.MethodGet, path, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("control: reading the answer: %w", err)
	}
	return nil
}
