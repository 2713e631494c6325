package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The emulator is a process of its own, since a program under test must not spoil its timing: no garbage is collected,
// no goroutine waits for a processor, and all its threads have real-time priority. It is a copy of this program with
// one of these names.
const (
	emulatorName   = "linkproxy-netns"     // as started: it sets its priority and becomes
	emulatorRTName = "linkproxy-netns-tap" // the emulator, all of whose threads inherit it
)

// callLimit bounds an order, which takes microseconds.
const callLimit = 10 * time.Second

// processors is how many goroutines Go lets run at once: more than there are links, so that none ever waits for a turn.
const processors = 256

// maxOrder is the largest order or reply, in bytes.
const maxOrder = 4096

// emulator is the world's end of the conversation.
type emulator struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
}

func startEmulator() (*emulator, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	near, far := os.NewFile(uintptr(pair[0]), "emulator"), os.NewFile(uintptr(pair[1]), "world")
	defer near.Close()
	defer far.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	// Should a test program not call Main, it runs no test instead.
	cmd.Args = []string{emulatorName, "-test.run=^$"}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{far}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the program alone; the emulator cleans up
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	return &emulator{cmd: cmd, conn: conn.(*net.UnixConn)}, nil
}

// call gives an order and waits until it is carried out.
func (e *emulator) call(o order, fds []int) (reply, error) {
	msg, err := json.Marshal(o)
	if err != nil {
		return reply{}, fmt.Errorf("netns: order %s: %w", o.Verb, err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	buf := make([]byte, maxOrder)
	n := 0
	err = e.conn.SetDeadline(time.Now().Add(callLimit))
	if err == nil {
		_, _, err = e.conn.WriteMsgUnix(msg, rights, nil)
	}
	if err == nil {
		n, err = e.conn.Read(buf)
	}
	if err != nil {
		return reply{}, fmt.Errorf("netns: order %s: the emulator is gone: %w", o.Verb, err)
	}
	var r reply
	if err := json.Unmarshal(buf[:n], &r); err != nil {
		return reply{}, fmt.Errorf("netns: order %s: %w", o.Verb, err)
	}
	if r.Err != "" {
		return reply{}, fmt.Errorf("netns: order %s: %s", o.Verb, r.Err)
	}
	return r, nil
}

// stop ends the emulator as the end of this process would.
func (e *emulator) stop() error {
	e.conn.Close()
	if err := e.cmd.Wait(); err != nil {
		return fmt.Errorf("netns: the emulator: %w", err)
	}
	return nil
}

// emulatorMain is the emulator, if the program was started as one.
func emulatorMain(arg0 string) (code int, mine bool) {
	switch arg0 {
	case emulatorName:
		runtime.LockOSThread()
		realTime := preferMe(1)
		err := syscall.Exec("/proc/self/exe", []string{emulatorRTName, strconv.FormatBool(realTime)}, os.Environ())
		fmt.Fprintln(os.Stderr, "netns: the emulator: becoming itself:", err)
		return 1, true
	case emulatorRTName:
		runtime.LockOSThread() // the main thread answers orders
		if err := serve(os.Args[1] == "true"); err != nil {
			fmt.Fprintln(os.Stderr, "netns: the emulator:", err)
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// stuck is how long a thread with real-time priority may compute without any wait before the kernel kills the
// process: far more than the links ever do (see pause), and soon enough for a person to get the machine back.
const stuck = 10 * time.Second

// preferMe gives the thread, and those it makes from now on, a real-time priority, or the best there is.
func preferMe(priority uint32) (realTime bool) {
	limit := unix.Rlimit{Cur: uint64(stuck.Microseconds()), Max: uint64(stuck.Microseconds())}
	if err := unix.Setrlimit(unix.RLIMIT_RTTIME, &limit); err == nil {
		err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: priority}, 0)
		if err == nil {
			return true
		}
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // World.RealTime says that it is only this, or not even this
	return false
}

// server is the emulator's side of the conversation.
type server struct {
	realTime bool
	hosts    []int // namespaces
	links    map[int]*cable
}

// serve answers orders until the world is gone, and then kills what runs in its hosts.
func serve(realTime bool) error {
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(processors)
	debug.SetMemoryLimit(256 << 20) // orders by the million, before one collection
	s := &server{realTime: realTime, links: map[int]*cable{}}
	parent := os.Getppid()
	buf, oob := make([]byte, maxOrder), make([]byte, maxOrder)
	for {
		n, oobn, _, _, err := unix.Recvmsg(3, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			return s.clean(parent)
		}
		var o order
		var r reply
		fds, err := receivedFiles(oob[:oobn])
		if err == nil {
			err = json.Unmarshal(buf[:n], &o)
		}
		if err == nil {
			r, err = s.obey(o, fds)
		}
		if err != nil {
			r = reply{Err: err.Error()}
		}
		msg, err := json.Marshal(r)
		if err != nil {
			return err
		}
		// A world that is gone meanwhile is noticed above.
		_ = unix.Sendmsg(3, msg, nil, nil, unix.MSG_NOSIGNAL)
	}
}

func receivedFiles(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) == 0 {
		return nil, err
	}
	return unix.ParseUnixRights(&msgs[0])
}

func (s *server) obey(o order, fds []int) (reply, error) {
	switch {
	case o.Verb == "hello":
		return reply{RealTime: s.realTime}, nil
	case o.Verb == "host" && len(fds) == 1:
		s.hosts = append(s.hosts, fds[0])
		return reply{}, nil
	case o.Verb == "link" && len(fds) == 2:
		c, err := newCable(o.Link, [2]int{fds[0], fds[1]})
		if err != nil {
			return reply{}, err
		}
		s.links[o.Link] = c
		go c.run()
	}
	c := s.links[o.Link]
	if c == nil {
		return reply{}, fmt.Errorf("no such link or order: %s", o.Verb)
	}
	return c.obey(o)
}

// clean kills all programs that are inside the hosts.
func (s *server) clean(parent int) error {
	spare := map[string]bool{strconv.Itoa(os.Getpid()): true, strconv.Itoa(parent): true}
	inside := map[uint64]bool{}
	for _, fd := range s.hosts {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		inside[st.Ino] = true
	}
	for range 1000 { // a killed process takes a moment, and may have started another
		left := 0
		all, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		for _, dir := range all {
			var st unix.Stat_t
			pid := filepath.Base(dir)
			if spare[pid] || unix.Stat(dir+"/ns/net", &st) != nil || !inside[st.Ino] {
				continue
			}
			left++
			if n, err := strconv.Atoi(pid); err == nil {
				_ = unix.Kill(n, unix.SIGKILL) // gone already
			}
		}
		if left == 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("programs in a host do not die")
}
