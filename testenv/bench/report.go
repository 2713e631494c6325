package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// rowKey names a row of the table.
type rowKey string

const (
	rowCPUDown       rowKey = "cpu down"
	rowCPUUp         rowKey = "cpu up"
	rowDown1         rowKey = "down 1"
	rowDown8         rowKey = "down 8"
	rowUp1           rowKey = "up 1"
	rowUp8           rowKey = "up 8"
	rowConnect50     rowKey = "connect p50"
	rowConnect99     rowKey = "connect p99"
	rowClients       rowKey = "clients"
	rowPing50        rowKey = "ping p50"
	rowPing99        rowKey = "ping p99"
	rowLoaded50      rowKey = "loaded p50"
	rowLoaded99      rowKey = "loaded p99"
	rowNear          rowKey = "idle near"
	rowFar           rowKey = "idle far"
	rowSOCKSNear     rowKey = "idle near, SOCKS5"
	rowSOCKSFar      rowKey = "idle far, SOCKS5"
	rowBinary        rowKey = "binary"
	rowUnusedRSS     rowKey = "unused rss"
	rowUnusedWakeUps rowKey = "unused wake-ups"
)

// row is a measure of the table.
type row struct {
	key    rowKey
	name   string
	unit   string
	digits int
	goals  []goal // linkproxy's
}

// goal is a bound for linkproxy's figure, from the project's goals.
type goal struct {
	atLeast bool    // else at most
	limit   float64 // the bound, or the factor of another tunnel's figure …
	of      string  // … of this one
}

func (r row) format(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', r.digits, 64)
}

// rows are the table in its order.
func rows() []row {
	relay := func(factor float64) []goal { return []goal{{limit: factor, of: nameTLSRelay}} }
	fast := []goal{{atLeast: true, limit: 0.9, of: nameTLSRelay}}
	most := func(limit float64) []goal { return []goal{{limit: limit}} }
	return []row{
		// OpenSSH is the peer that multiplexes among those of a run.
		{rowCPUDown, "CPU per GiB, both ends, 1 stream down", "s", 2, append(relay(1.15), goal{limit: 1, of: nameOpenSSH})},
		{rowCPUUp, "CPU per GiB, both ends, 1 stream up", "s", 2, nil},
		{rowDown1, "throughput, 1 stream down", "GiB/s", 3, fast},
		{rowDown8, "throughput, 8 streams down", "GiB/s", 3, fast},
		{rowUp1, "throughput, 1 stream up", "GiB/s", 3, fast},
		{rowUp8, "throughput, 8 streams up", "GiB/s", 3, fast},
		{rowConnect50, "new connection + first echo, p50", "µs", 0, []goal{{limit: 0.8, of: nameOpenSSH}}},
		{rowConnect99, "new connection + first echo, p99", "µs", 0, []goal{{limit: 0.8, of: nameOpenSSH}}},
		{rowClients, "new connections a second, 50 clients", "1/s", 0, []goal{{atLeast: true, limit: 1.2, of: nameOpenSSH}}},
		{rowPing50, "64-byte round trip, idle, p50", "µs", 0, relay(1.1)},
		{rowPing99, "64-byte round trip, idle, p99", "µs", 0, nil},
		{rowLoaded50, "64-byte round trip beside a bulk copy, p50", "µs", 0, relay(1.5)},
		{rowLoaded99, "64-byte round trip beside a bulk copy, p99", "µs", 0, relay(1.5)},
		{rowNear, "RSS per idle connection, near (fixed port)", "KiB", 1, most(12)},
		{rowFar, "RSS per idle connection, far (fixed port)", "KiB", 1, most(12)},
		{rowSOCKSNear, "RSS per idle connection, near (SOCKS5)", "KiB", 1, most(28)},
		{rowSOCKSFar, "RSS per idle connection, far (SOCKS5)", "KiB", 1, nil},
		{rowBinary, "binary", "MB", 1, most(15)},
		{rowUnusedRSS, "`up` with no stream open: RSS", "MB", 1, most(25)},
		{rowUnusedWakeUps, "`up` with no stream open: wake-ups a minute", "1/min", 0, most(10)},
	}
}

// text is the goal as the table shows it.
func (g goal) text() string {
	sign := "≤"
	if g.atLeast {
		sign = "≥"
	}
	limit := strconv.FormatFloat(g.limit, 'g', -1, 64)
	if g.of == "" {
		return sign + " " + limit
	}
	return sign + " " + limit + " × " + g.of
}

// verdict compares linkproxy's figures with the goal: "met", "missed" and by how much, or "–" without figures.
func (g goal) verdict(byTunnel map[string][]float64) string {
	own := byTunnel[nameLinkproxy]
	value := median(own)
	if g.of != "" {
		value = ratio(own, byTunnel[g.of])
	}
	switch {
	case math.IsNaN(value):
		return "–"
	case g.atLeast && value >= g.limit, !g.atLeast && value <= g.limit:
		return "met"
	case g.of != "":
		return fmt.Sprintf("**missed**: %.2f ×", value)
	}
	return "**missed**"
}

// report writes the whole result as Markdown.
func (b *bench) report(w io.Writer) error {
	var out bytes.Buffer
	b.preface(&out)
	b.table(&out)
	b.everyRound(&out)
	_, err := w.Write(out.Bytes())
	return err
}

func (b *bench) preface(out *bytes.Buffer) {
	fmt.Fprintf(out, "%s.\n", machine())
	fmt.Fprintf(out, "Load average before the run %s, after it %s. The run took %.0f s.\n",
		b.loadBefore, loadAverage(), time.Since(b.began).Seconds())
	if len(b.versions) > 0 {
		fmt.Fprintf(out, "Compared with: %s.\n", strings.Join(b.versions, "; "))
	}
	fmt.Fprintf(out, "\nMedians; rounds: %d, in which the tunnels take turns; in brackets the ratio to tls-relay, as the median of the\n"+
		"ratios of the rounds. Everything runs on 127.0.0.1, encrypted with AES-128-GCM unless a tunnel chooses otherwise.\n"+
		"Memory is measured once, on fresh tunnels with %d connections open, each after one echo; wake-ups over %v.\n",
		b.rounds, b.plan.idle, b.plan.wakeUps)
	for _, n := range b.notes {
		fmt.Fprintf(out, "\n%s\n", n)
	}
}

// table is the one of medians.
func (b *bench) table(out *bytes.Buffer) {
	head, rule := "\n| measure |", "|---|"
	for _, k := range b.kinds {
		head += " " + k.name + " |"
		rule += "---:|"
	}
	fmt.Fprintf(out, "%s goal for linkproxy | met |\n%s---|---|\n", head, rule)
	for _, r := range rows() {
		byTunnel, ok := b.results[r.key]
		if !ok {
			continue
		}
		fmt.Fprintf(out, "| %s, %s |", r.name, r.unit)
		for _, k := range b.kinds {
			fmt.Fprintf(out, " %s |", r.cell(k.name, byTunnel))
		}
		var goals, verdicts []string
		for _, g := range r.goals {
			goals = append(goals, g.text())
			verdicts = append(verdicts, g.verdict(byTunnel))
		}
		fmt.Fprintf(out, " %s | %s |\n", orDash(goals), orDash(verdicts))
	}
	fmt.Fprint(out, "\nNot here, because it takes the network laboratory: the pipe through 50 ms and 1 % loss.\n")
}

func orDash(list []string) string {
	if len(list) == 0 {
		return "–"
	}
	return strings.Join(list, ", ")
}

// cell is a tunnel's median with its ratio to tls-relay.
func (r row) cell(name string, byTunnel map[string][]float64) string {
	values := byTunnel[name]
	text := r.format(median(values))
	if q := ratio(values, byTunnel[nameTLSRelay]); name != nameTLSRelay && !math.IsNaN(q) {
		text += fmt.Sprintf(" (%.2f)", q)
	}
	return text
}

// everyRound shows what the medians are of, so that a reader can see how quiet the machine was.
func (b *bench) everyRound(out *bytes.Buffer) {
	if b.rounds < 2 {
		return
	}
	head, rule := "| measure |", "|---|"
	for _, k := range b.kinds {
		head += " " + k.name + " |"
		rule += "---:|"
	}
	fmt.Fprintf(out, "\nEach round:\n\n%s\n%s\n", head, rule)
	for _, r := range rows() {
		if len(b.results[r.key][nameTLSRelay]) < 2 {
			continue
		}
		fmt.Fprintf(out, "| %s, %s |", r.name, r.unit)
		for _, k := range b.kinds {
			var each []string
			for _, v := range b.results[r.key][k.name] {
				each = append(each, r.format(v))
			}
			fmt.Fprintf(out, " %s |", strings.Join(each, " · "))
		}
		fmt.Fprintln(out)
	}
}

// machine says where the run was.
func machine() string {
	first := func(path, key string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			return "unknown"
		}
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
				return strings.TrimSpace(value)
			}
		}
		return strings.TrimSpace(string(data))
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, Linux %s, TCP congestion control %s, %s",
		first("/proc/cpuinfo", "model name"), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		first("/proc/sys/kernel/osrelease", ""), first("/proc/sys/net/ipv4/tcp_congestion_control", ""), runtime.Version())
}

// loadAverage is that of the last minute: how busy the machine is with other things, or has been with this.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(data), " ")
	return one
}
