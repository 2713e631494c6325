package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// demoRow is what came of one event. Times are milliseconds.
type demoRow struct {
	Event         string `json:"event"`
	Unseen        int    `json:"unseen_bytes"` // on their way to the client, not confirmed, when it happened
	EchoStall     int64  `json:"echo_stall_ms"`
	DownloadStall int64  `json:"download_stall_ms"`
	Limit         int64  `json:"stall_limit_ms"`
	Late          int64  `json:"machine_late_ms"` // how late this machine was at worst by itself
	Lost          uint64 `json:"bytes_lost"`
	Repeated      uint64 `json:"bytes_repeated"`
	Altered       uint64 `json:"bytes_altered"`
	Again         uint64 `json:"link_sent_again_bytes"`
	Link          string `json:"link"`
	BothSides     bool   `json:"both_sides_agree"` // on the carrier in use, afterwards
	Problem       string `json:"problem,omitempty"`
	Watched       bool   `json:"watched"` // to its end; otherwise the figures say nothing
}

// demoReport is the outcome of a demo.
type demoReport struct {
	Rows     []demoRow `json:"events"`
	Bytes    uint64    `json:"download_bytes"`
	Ticks    int       `json:"echo_ticks"`
	Lost     uint64    `json:"bytes_lost"` // in all, of both apps
	Repeated uint64    `json:"bytes_repeated"`
	Altered  uint64    `json:"bytes_altered"`
	Want     string    `json:"sha256_expected"`
	Got      string    `json:"sha256_got"` // empty: the download was not finished
	Took     int64     `json:"took_ms"`
	Found    []string  `json:"found"` // what is not right; empty: all is
}

// fill takes what the apps saw.
func (r *demoRow) fill(down, echo streamFacts) {
	r.EchoStall, r.DownloadStall = echo.stall.Milliseconds(), down.stall.Milliseconds()
	r.Lost, r.Repeated, r.Altered = down.lost+echo.lost, down.repeated+echo.repeated, down.altered+echo.altered
}

// link takes what the link tells of itself.
func (r *demoRow) link(d *demo, before, after demoView) {
	r.Again = after.host.Repeated - before.host.Repeated + after.up.Repeated - before.up.Repeated
	if after.up.ID != before.up.ID || after.host.ID != before.host.ID {
		r.Problem = "the link was replaced by another"
		return
	}
	var did []string
	for _, s := range after.up.Switches[min(len(before.up.Switches), len(after.up.Switches)):] {
		where := fmt.Sprintf("carrier %d", s.To)
		if to := d.routeOf(s.To); to != nil {
			where = to.label
		}
		how := s.Reason
		if s.Planned {
			how = "planned"
		}
		did = append(did, fmt.Sprintf("%s, %s", where, how))
	}
	r.Link = strings.Join(did, "; ")
	c, _ := inUse(after.host)
	if r.BothSides = agreed(after); r.BothSides && r.Link != "" {
		r.Link += fmt.Sprintf("; host agrees (carrier %d)", c.Generation)
	}
}

// judge says what is wrong with a row.
func (r *demoRow) judge() {
	r.Watched = true
	var wrong []string
	if r.Problem != "" {
		wrong = append(wrong, r.Problem)
	}
	if r.Lost+r.Repeated+r.Altered > 0 {
		wrong = append(wrong, fmt.Sprintf("%d bytes lost, %d repeated, %d altered", r.Lost, r.Repeated, r.Altered))
	}
	allowed := r.Limit + 3*r.Late // three processes take part, each may be as late as this one was
	if worst := max(r.EchoStall, r.DownloadStall); worst > allowed {
		wrong = append(wrong, fmt.Sprintf("an app stood still for %s, allowed are %s", millis(worst), millis(allowed)))
	}
	if !r.BothSides && r.Problem == "" {
		wrong = append(wrong, "the two sides do not use the same carrier")
	}
	if r.Link == "" && r.Problem == "" {
		wrong = append(wrong, "the link has no record of a switch")
	}
	r.Problem = strings.Join(wrong, "; ")
}

// app is what one of the apps has seen in all.
type app struct {
	name string
	streamFacts
}

// sum takes the whole streams and judges them.
func (r *demoReport) sum(echoes int, down, echo app) {
	r.Bytes, r.Ticks = down.came, echoes
	r.Lost, r.Repeated, r.Altered = down.lost+echo.lost, down.repeated+echo.repeated, down.altered+echo.altered
	for _, row := range r.Rows {
		if row.Problem != "" {
			r.Found = append(r.Found, row.Event+": "+row.Problem)
		}
	}
	for _, a := range []app{down, echo} {
		if a.wrong() {
			r.Found = append(r.Found, fmt.Sprintf("%s: %d bytes lost, %d repeated, %d altered, the first at %d", a.name, a.lost, a.repeated,
				a.altered, a.firstBad))
		}
	}
	switch {
	case r.Got == "":
		r.Found = append(r.Found, "the download was not finished")
	case r.Want != r.Got:
		r.Found = append(r.Found, "the SHA-256 of the download is not the expected one")
	}
}

// write prints the table, or JSON.
func (r *demoReport) write(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tin\tlongest stall\t\tbytes\t\t\t")
	fmt.Fprintln(t, "event\tflight\techo\tdownload\tlost\trepeated\tresult\twhat the link did")
	for _, w := range r.Rows {
		result := "ok"
		if w.Problem != "" {
			result = "FAILED"
		}
		if !w.Watched {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\t-\t%s\t-\n", w.Event, result)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", w.Event, bytesOf(uint64(w.Unseen)), millis(w.EchoStall),
			millis(w.DownloadStall), w.Lost, w.Repeated, result, w.Link)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d bytes downloaded and %d echoes heard, each over one connection, in %.1f s: %d bytes lost, %d repeated\n"+
		"SHA-256 expected  %s\nSHA-256 received  %s\n", r.Bytes, r.Ticks, float64(r.Took)/1000, r.Lost, r.Repeated, r.Want, cmp.Or(r.Got, "not known"))
	return err
}

// millis says a time as people read it in a table.
func millis(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.2f s", (time.Duration(ms) * time.Millisecond).Seconds())
}
