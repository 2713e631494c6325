package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary play the roles, as the program does when it starts itself again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role, ok := roles()[os.Args[1]]; ok {
			os.Exit(playRole(role, os.Args[1], os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// TestSmoke runs the whole program on the tunnel that needs nothing installed, and finds no process or file left.
func TestSmoke(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: reads /proc")
	}
	t.Setenv("TMPDIR", t.TempDir())
	o, err := parseOptions([]string{"-quick", "-tunnels", "tls-relay"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	if err := run(t.Context(), o, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	for _, r := range rows() {
		if r.key == rowBinary || strings.Contains(r.name, "SOCKS5") || strings.Contains(r.name, "`up`") {
			continue // linkproxy's alone
		}
		_, rest, ok := strings.Cut(out.String(), "| "+r.name+", "+r.unit+" | ")
		value, _, _ := strings.Cut(rest, " ")
		var v float64
		if _, err := fmt.Sscan(value, &v); !ok || err != nil || v < 0 {
			t.Errorf("%s: %q is no figure", r.name, value)
		}
	}
	if t.Failed() {
		t.Log(&out)
	}
	below, err := self.tree([]int{os.Getpid()})
	if err != nil || len(below) != 1 {
		t.Errorf("processes left: %v, %v", below, err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

// A run that is told to stop in its middle leaves nothing either.
func TestInterrupted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: reads /proc")
	}
	t.Setenv("TMPDIR", t.TempDir())
	o, err := parseOptions([]string{"-tunnels", "tls-relay"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	err = run(ctx, o, io.Discard, writerFunc(func() { cancel(enough) })) // at the first line of progress
	if !errors.Is(err, enough) {
		t.Errorf("error %v, want one that says why", err)
	}
	if below, err := self.tree([]int{os.Getpid()}); err != nil || len(below) != 1 {
		t.Errorf("processes left: %v, %v", below, err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestMissingPrograms(t *testing.T) {
	k := &kind{programs: []string{"sh", "no-such-program-as-this"}}
	if got := k.missing(); !slices.Equal(got, []string{"no-such-program-as-this"}) {
		t.Errorf("missing %v", got)
	}
	for args, want := range map[string]string{
		"-tunnels carrier-pigeon": "carrier-pigeon", "-rounds 0x": "rounds", "-rounds -1": "rounds", "more": "more",
	} {
		o, err := parseOptions(strings.Fields(args), io.Discard)
		if err == nil {
			err = (&bench{progress: io.Discard}).choose(t.Context(), o)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %s", args, err, want)
		}
	}
}

func TestStatistics(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	nan := math.NaN()
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"p50 of 1..100", percentile(slices.Clone(hundred), 50), 50},
		{"p99 of 1..100", percentile(slices.Clone(hundred), 99), 99},
		{"p100 of 1..100", percentile(slices.Clone(hundred), 100), 100},
		{"p99 of one", percentile([]float64{7}, 99), 7},
		{"p99 of two", percentile([]float64{9, 7}, 99), 9},
		{"p50 of none", percentile(nil, 50), nan},
		{"median of three", median([]float64{9, 1, 4}), 4},
		{"median of four", median([]float64{9, 1, 4, 6}), 5},
		{"median of none", median(nil), nan},
		// The second round was slow for both: the ratio of the medians would be 10/4.
		{"ratio", ratio([]float64{2, 20, 3}, []float64{1, 10, 4}), 2},
		{"ratio of different rounds", ratio([]float64{1, 2}, []float64{1}), nan},
		{"ratio to nothing", ratio([]float64{1}, []float64{0}), nan},
		{"ratio of none", ratio(nil, nil), nan},
	} {
		if c.got != c.want && !(math.IsNaN(c.got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	byTunnel := map[string][]float64{nameLinkproxy: {10, 12, 11}, nameTLSRelay: {10, 10, 10}, nameOpenSSH: {20, 24, 22}}
	for _, c := range []struct {
		g    goal
		want string
	}{
		{goal{limit: 1.15, of: nameTLSRelay}, "met"},
		{goal{limit: 1.05, of: nameTLSRelay}, "**missed**: 1.10 ×"},
		{goal{limit: 0.5, of: nameOpenSSH}, "met"},
		{goal{atLeast: true, limit: 1.1, of: nameTLSRelay}, "met"},
		{goal{atLeast: true, limit: 1.2, of: nameTLSRelay}, "**missed**: 1.10 ×"},
		{goal{limit: 11}, "met"},
		{goal{limit: 10.9}, "**missed**"},
		{goal{limit: 1, of: "stunnel"}, "–"},
	} {
		if got := c.g.verdict(byTunnel); got != c.want {
			t.Errorf("%s: %q, want %q", c.g.text(), got, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	all := kinds()
	b := &bench{kinds: []*kind{all[0], all[1]}, rounds: 3, results: results{}, notes: []string{"A note."}, began: time.Now()}
	for i, v := range []float64{3, 4, 3.3} {
		b.results.add(rowCPUDown, nameLinkproxy, v)
		b.results.add(rowCPUDown, nameTLSRelay, []float64{2, 4, 3}[i])
	}
	b.results.add(rowBinary, nameLinkproxy, 12.34)
	var out bytes.Buffer
	if err := b.report(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n| measure | linkproxy | tls-relay | goal for linkproxy | met |\n|---|---:|---:|---|---|\n",
		"\n| CPU per GiB, both ends, 1 stream down, s | 3.30 (1.10) | 3.00 | ≤ 1.15 × tls-relay, ≤ 1 × OpenSSH -L (gcm) | met, – |\n",
		"\n| CPU per GiB, both ends, 1 stream down, s | 3.00 · 4.00 · 3.30 | 2.00 · 4.00 · 3.00 |\n",
		"\n| binary, MB | 12.3 | – | ≤ 15 | met |\n",
		"\nA note.\n",
		runtime.Version(),
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
}

// TestTarget speaks to the services directly, and finds that wrong bytes are seen at either end.
func TestTarget(t *testing.T) {
	p := newPattern()
	dial := func() net.Conn {
		client, server := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			(&target{pattern: p}).serve(server)
		}()
		t.Cleanup(func() { client.Close(); <-done })
		return client
	}
	const chunk, place = 3*blockSize + 17, 1<<40 + 5
	buf := make([]byte, blockSize)

	down := dial()
	down.Write(append(header(serviceSource, chunk, place), 1))
	if err := p.receive(down, buf, place, chunk); err != nil {
		t.Errorf("source: %v", err)
	}
	down.Write([]byte{1})
	if err := p.receive(down, buf, place, chunk); !errors.Is(err, errWrongBytes) {
		t.Errorf("the second chunk taken for the first: error %v", err)
	}

	up := dial()
	up.Write(header(serviceSink, chunk, place))
	var answers []byte
	var sends sync.WaitGroup
	for _, from := range []int64{place, place + chunk, place + 2*chunk + 1} { // the third lost a byte
		sends.Go(func() { p.send(up, from, chunk) })
		var a [1]byte
		if _, err := io.ReadFull(up, a[:]); err != nil {
			t.Errorf("sink: %v", err)
		}
		answers = append(answers, a[0])
		if a[0] == chunkWrong {
			break
		}
	}
	sends.Wait() // the sink takes all, right or wrong
	if string(answers) != "kkx" {
		t.Errorf("sink answered %q, want kkx", answers)
	}
}

func TestSOCKS5(t *testing.T) {
	for _, c := range []struct{ name, answer, want string }{
		{"right", "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", ""},
		{"refused", "\x05\x00\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00", "05 05"},
		{"password", "\x05\x02", "05 02"},
		{"cut", "\x05\x00\x05", "EOF"},
	} {
		var sent bytes.Buffer
		err := socks5(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(c.answer), &sent}, "devbox:5432")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if c.want == "" && sent.String() != "\x05\x01\x00\x05\x01\x00\x03\x06devbox\x15\x38" {
			t.Errorf("sent %q", &sent)
		}
	}
}

func TestProcFS(t *testing.T) {
	root := t.TempDir()
	add := func(pid int, stat string, more map[string]string) {
		dir := filepath.Join(root, fmt.Sprint(pid))
		if err := os.MkdirAll(filepath.Join(dir, "task", fmt.Sprint(pid)), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range more {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stat := func(pid, parent int, name string, ticks int) string {
		return fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194560 1 2 3 4 %d 20 3 4 20 0 1 0 5", pid, name, parent, ticks)
	}
	status := func(rss int) map[string]string {
		return map[string]string{"status": fmt.Sprintf("Name:\tx\nVmRSS:\t  %d kB\n", rss)}
	}
	add(10, stat(10, 1, "sshd", 100), status(1000))
	add(11, stat(11, 10, "sshd: a) (b c", 200), status(500))
	add(12, stat(12, 11, "x", 300), status(50))
	add(13, stat(13, 1, "other", 4000), status(7))
	for pid, n := range map[string]int{"10": 3, "11": 4, "12": 5} {
		path := filepath.Join(root, pid, "task", pid, "status")
		text := fmt.Sprintf("voluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t99\n", n)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs := procFS(root)
	for name, c := range map[string]struct {
		read func([]int) (float64, error)
		want float64
	}{
		"cpu":      {fs.cpu, (100 + 200 + 300 + 3*27) / 100.0},
		"rss":      {fs.rss, 1550},
		"wake-ups": {fs.wakeUps, 12},
	} {
		if got, err := c.read([]int{10, 11}); err != nil || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	if _, err := fs.cpu([]int{99}); err == nil {
		t.Error("a process that is gone used no time, it seems")
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (a b) c) S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0"))
	f.Add([]byte("1 (a) S"))
	f.Add([]byte(") S x 1 1 0 -1 4194560 1 2 3 4 5 6 7 99999999999999999999"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseStat(data)
		if err != nil {
			return
		}
		again := fmt.Appendf(nil, "1 (x) S %d 0 0 0 0 0 0 0 0 0 %d 0 0 0", s.parent, s.ticks)
		if got, err := parseStat(again); err != nil || got != s {
			t.Errorf("%+v read again is %+v, %v", s, got, err)
		}
	})
}
