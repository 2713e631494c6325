package netns

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestDelay measures how exactly a delay is kept, beside nothing and beside load. A frame counts if neither its sender
// nor the machine was held up: the control is a thread on each processor, before all others, that sleeps for a moment
// again and again and writes down when it woke up late.
func TestDelay(t *testing.T) {
	for _, c := range []struct {
		name string
		load func(t *testing.T, w *World)
	}{
		{"idle", func(*testing.T, *World) {}},
		{"busy", busy},
	} {
		t.Run(c.name, func(t *testing.T) {
			laptop, server, l := pair(t)
			if !l.w.RealTime && os.Getenv("LINKPROXY_STRICT") != "1" {
				t.Skip("no real-time priority here (CAP_SYS_NICE, RT bandwidth of the control group): delays are as exact as the load allows")
			}
			const delay = 10 * ms
			l.SetDelay(delay)
			c.load(t, l.w)
			freezes := watchFreezes(t)
			samples := probe(t, laptop, server, 3000)
			frozen := freezes()
			var errs []time.Duration
			held := 0
			for _, s := range samples {
				if overlaps(frozen, s.sent, s.came) {
					held++
					continue
				}
				errs = append(errs, s.came.Sub(s.sent)-delay)
			}
			if len(errs) < 500 {
				t.Fatalf("only %d of %d frames count", len(errs), len(samples))
			}
			slices.Sort(errs)
			at := func(q float64) time.Duration { return errs[int(q*float64(len(errs)-1))] }
			t.Logf("delay of 10 ms, error: median %v, p99 %v, p99.9 %v, most %v, least %v; %d frames, %d more during %d freezes; real time: %v",
				at(0.5), at(0.99), at(0.999), at(1), at(0), len(errs), held, len(frozen), l.w.RealTime)
			const goal, slack = ms, 5 // other machines' schedulers
			if at(0.5) >= goal || at(0.99) >= slack*goal || at(0) < -100*time.Microsecond {
				t.Errorf("the goal is less than %v at the median and at p99, and never early", goal)
			}
		})
	}
}

// busy keeps the processors and another link of the world occupied.
func busy(t *testing.T, w *World) {
	a, b := host(t, w, "a"), host(t, w, "b")
	join(t, w, a.If("eth0", "10.9.0.1/24"), b.If("eth0", "10.9.0.2/24"))
	near, far := connect(t, a, b, "10.9.0.2:0")
	t.Log("beside a bulk copy with", congestion(t, near))
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(near, zeros{}) })
	wg.Go(func() { _, _ = io.Copy(io.Discard, far) })
	t.Cleanup(func() { near.Close(); far.Close(); wg.Wait() })
	for range runtime.NumCPU() {
		must(t, a.Command("sh", "-c", "while :; do :; done").Start())
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

type sample struct{ sent, came time.Time }

// probe sends n datagrams, one a millisecond, and says when each was sent and when it came to the other host's kernel.
func probe(t *testing.T, from, to *Host, n int) (samples []sample) {
	t.Helper()
	pc, err := to.ListenPacket("udp", "192.168.1.20:0")
	must(t, err)
	defer pc.Close()
	far := pc.(*net.UDPConn)
	raw, err := far.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	}))
	must(t, err)
	must(t, far.SetReadBuffer(4<<20))
	near, err := from.Dial(t.Context(), "udp", far.LocalAddr().String())
	must(t, err)
	defer near.Close()
	sent := make(map[uint32]time.Time)
	b := make([]byte, 4)
	tick := time.NewTicker(ms)
	defer tick.Stop()
	for i := range uint32(n) {
		<-tick.C
		binary.BigEndian.PutUint32(b, i)
		before := time.Now()
		_, err := near.Write(b)
		must(t, err)
		if time.Since(before) < 200*time.Microsecond { // else the sender was held up
			sent[i] = before.Round(0)
		}
	}
	oob := make([]byte, 100)
	for range n - 1 { // the first made ARP ask
		must(t, far.SetReadDeadline(time.Now().Add(patience)))
		_, oobn, _, _, err := far.ReadMsgUDP(b, oob)
		must(t, err)
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		must(t, err)
		ts := (*unix.Timespec)(unsafe.Pointer(&msgs[0].Data[0]))
		i := binary.BigEndian.Uint32(b)
		if s, ok := sent[i]; ok && i > 100 {
			samples = append(samples, sample{s, time.Unix(ts.Unix())})
		}
	}
	return samples
}

func overlaps(frozen []sample, from, to time.Time) bool {
	return slices.ContainsFunc(frozen, func(f sample) bool { return f.sent.Before(to) && from.Before(f.came) })
}

// Names of the test program as the control: as started, and with its priority.
const (
	watchName   = "linkproxy-netns-watch"
	watchRTName = "linkproxy-netns-watch-rt"
)

// watchFreezes starts the control; the function it returns ends it and says when the machine stood still.
func watchFreezes(t *testing.T) func() []sample {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{watchName}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the control does not start")
	}
	return func() (frozen []sample) {
		must(t, in.Close())
		for lines.Scan() {
			var from, to int64
			_, err := fmt.Sscan(lines.Text(), &from, &to)
			must(t, err)
			frozen = append(frozen, sample{time.Unix(0, from), time.Unix(0, to)})
		}
		must(t, cmd.Wait())
		return frozen
	}
}

// watch is the control: it says that it has begun, and at the end when it woke up late.
func watch() {
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(runtime.NumCPU() + 4)
	const nap, late = 200 * time.Microsecond, 500 * time.Microsecond
	frozen := make(chan [2]int64, 1<<16)
	for cpu := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(cpu)
			_ = unix.SchedSetaffinity(0, &set) // a processor that is not ours to use is not used by others of us either
			for {
				from := time.Now()
				_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(nap)}, nil)
				if to := time.Now(); to.Sub(from) > nap+late {
					frozen <- [2]int64{from.UnixNano(), to.UnixNano()}
				}
			}
		}()
	}
	fmt.Println("watching")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for range len(frozen) {
		f := <-frozen
		fmt.Println(f[0], f[1])
	}
}

// helper turns the test program into one of its helpers.
func helper(arg0 string) {
	switch arg0 {
	case crashName:
		if err := crash(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	case watchName:
		runtime.LockOSThread()
		preferMe(2)
		_ = syscall.Exec("/proc/self/exe", []string{watchRTName}, os.Environ())
		os.Exit(1)
	case watchRTName:
		watch()
		os.Exit(0)
	}
}
