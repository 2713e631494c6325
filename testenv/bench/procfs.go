package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clockTicks is USER_HZ, the unit of times in /proc/PID/stat: 100 on every Linux platform Go runs on.
const clockTicks = 100

// procStat is what is needed of /proc/PID/stat (proc_pid_stat(5)).
type procStat struct {
	parent int
	ticks  int64 // user and system time, own and of children waited for
}

// parseStat reads /proc/PID/stat. The second field, the program's name, may hold spaces and brackets.
func parseStat(data []byte) (procStat, error) {
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return procStat{}, errors.New("no program name in brackets")
	}
	const (
		parentField = 1 // counted from the state, which follows the name
		firstTime   = 11
		times       = 4
	)
	f := strings.Fields(string(data[end+1:]))
	if len(f) < firstTime+times {
		return procStat{}, fmt.Errorf("%d fields after the name, want at least %d", len(f), firstTime+times)
	}
	var s procStat
	var err error
	if s.parent, err = strconv.Atoi(f[parentField]); err != nil {
		return procStat{}, fmt.Errorf("parent: %w", err)
	}
	for _, v := range f[firstTime : firstTime+times] {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("time: %w", err)
		}
		s.ticks += n
	}
	return s, nil
}

// parseStatus reads the number after "key:" in /proc/PID/status.
func parseStatus(data []byte, key string) (int64, error) {
	for line := range strings.Lines(string(data)) {
		name, rest, ok := strings.Cut(line, ":")
		if !ok || name != key {
			continue
		}
		f := strings.Fields(rest)
		if len(f) == 0 {
			return 0, fmt.Errorf("%s has no value", key)
		}
		return strconv.ParseInt(f[0], 10, 64)
	}
	return 0, fmt.Errorf("no %s", key)
}

// procFS is a /proc file system.
type procFS string

// tree returns the processes below roots, roots included.
func (p procFS) tree(roots []int) (map[int]procStat, error) {
	dirs, err := filepath.Glob(filepath.Join(string(p), "[0-9]*"))
	if err != nil {
		return nil, err
	}
	all := map[int]procStat{}
	children := map[int][]int{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue // ended since it was listed
		}
		s, err := parseStat(data)
		if err != nil {
			return nil, fmt.Errorf("%s/stat: %w", d, err)
		}
		all[pid] = s
		children[s.parent] = append(children[s.parent], pid)
	}
	found := map[int]procStat{}
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		pid := todo[0]
		s, alive := all[pid]
		if _, seen := found[pid]; seen || !alive {
			continue
		}
		found[pid] = s
		todo = append(todo[:len(todo):len(todo)], children[pid]...)
	}
	for _, pid := range roots {
		if _, ok := found[pid]; !ok {
			return nil, fmt.Errorf("process %d is gone", pid)
		}
	}
	return found, nil
}

// cpu is the CPU time, in seconds, that the processes below roots have used.
func (p procFS) cpu(roots []int) (float64, error) {
	tree, err := p.tree(roots)
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, s := range tree {
		ticks += s.ticks
	}
	return float64(ticks) / clockTicks, nil
}

// rss is the resident memory, in KiB, of the processes below roots.
func (p procFS) rss(roots []int) (float64, error) {
	tree, err := p.tree(roots)
	if err != nil {
		return 0, err
	}
	var sum int64
	for pid := range tree {
		n, err := p.status(filepath.Join(strconv.Itoa(pid), "status"), "VmRSS")
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return float64(sum), nil
}

// wakeUps counts how often a thread of the processes below roots has gone to sleep of its own accord, which is how
// often one was woken.
func (p procFS) wakeUps(roots []int) (float64, error) {
	tree, err := p.tree(roots)
	if err != nil {
		return 0, err
	}
	var sum int64
	for pid := range tree {
		tasks, err := os.ReadDir(filepath.Join(string(p), strconv.Itoa(pid), "task"))
		if err != nil {
			return 0, err
		}
		for _, t := range tasks {
			n, err := p.status(filepath.Join(strconv.Itoa(pid), "task", t.Name(), "status"), "voluntary_ctxt_switches")
			if errors.Is(err, os.ErrNotExist) {
				continue // a thread that ended
			}
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return float64(sum), nil
}

func (p procFS) status(path, key string) (int64, error) {
	full := filepath.Join(string(p), path)
	data, err := os.ReadFile(full)
	if err != nil {
		return 0, err
	}
	n, err := parseStatus(data, key)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", full, err)
	}
	return n, nil
}
