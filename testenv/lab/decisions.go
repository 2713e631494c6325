package lab

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// decisions collects what the client logs, with the time since the start and links by their names.
type decisions struct {
	start time.Time
	names map[string]string // route to link

	mu    sync.Mutex
	list  []decision
	dials int // told in the words of a log
}

type decision struct {
	at   time.Duration
	text string
}

func (d *decisions) say(text string) { d.sayAt(time.Now(), text) }

// hear takes a line that a process logs.
func (d *decisions) hear(line string) {
	if strings.Contains(line, "connection ended") {
		return // every app's
	}
	d.say(line)
	if n := dialsIn(line); n > 0 {
		d.mu.Lock()
		d.dials += n
		d.mu.Unlock()
	}
}

// dialsIn is how many sockets a line of a log speaks of: a race's dial, one for another carrier, or a check of some routes.
func dialsIn(line string) int {
	switch {
	case strings.Contains(line, " do=dial "), strings.Contains(line, "dialling for a "), strings.Contains(line, "dial for a standby: "):
		return 1
	case strings.Contains(line, "check: ["):
		_, list, _ := strings.Cut(line, "check: [")
		list, _, _ = strings.Cut(list, "]")
		return len(strings.Fields(list))
	}
	return 0
}

func (d *decisions) sayAt(at time.Time, text string) {
	for _, id := range slices.Sorted(maps.Keys(d.names)) {
		text = strings.ReplaceAll(text, id, d.names[id])
		if _, addr, ok := strings.Cut(id, ":"); ok {
			if _, err := netip.ParseAddrPort(addr); err == nil {
				text = strings.ReplaceAll(text, addr, d.names[id])
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, decision{at.Sub(d.start), text})
}

// lines sorts by time, and within an instant by text: the order of goroutines means nothing.
func (d *decisions) lines() (out []string) {
	d.mu.Lock()
	list := slices.Clone(d.list)
	d.mu.Unlock()
	for i := range list {
		list[i].at = list[i].at.Round(time.Millisecond) // finer, the size of a certificate shows
	}
	slices.SortFunc(list, func(a, b decision) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.text, b.text))
	})
	for _, l := range list {
		out = append(out, fmt.Sprintf("%12s  %s", l.at, l.text))
	}
	return out
}

func (d *decisions) logger() *slog.Logger { return slog.New(&logHandler{d: d}) }

// logHandler writes a record as one line, without time and level.
type logHandler struct{ d *decisions }

func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler       { return h } // the peer's name, which is always the same
func (h *logHandler) WithGroup(string) slog.Handler            { return h }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	h.d.say(text)
	return nil
}
