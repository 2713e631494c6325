package core

import (
	"strings"
	"testing"
)

// playBroken plays a schedule with the planted fault on both sides.
func playBroken(b []byte) (broken string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			broken = string(p)
		default:
			panic(p)
		}
	}()
	w := newWorld(&tape{b: b}, newStats(), nil)
	for _, s := range w.side {
		s.c.cfg.BreakReplay = true
	}
	w.play()
	return ""
}

// TestPlantedFaultIsFound is the negative control of TestSchedules: the judge finds a core that carries bytes again wrongly.
func TestPlantedFaultIsFound(t *testing.T) {
	const seeds = 100
	found := 0
	for seed := range uint64(seeds) {
		switch broken := playBroken(tapeOf(seed + 1)); {
		case broken == "":
		case !strings.Contains(broken, "wrong bytes"):
			t.Errorf("seed %d: the fault was found as something else: %s", seed+1, broken)
		default:
			found++
		}
	}
	t.Logf("found by %d of %d schedules", found, seeds)
	if found < seeds/4 { // most schedules carry bytes again that had arrived already
		t.Errorf("the fault was found by %d of %d schedules only", found, seeds)
	}
}
