package main

import "testing"

func TestHalfOf(t *testing.T) {
	for have, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 16: 8} {
		if got := halfOf(have); got != want {
			t.Errorf("of %d processors: %d, want %d", have, got, want)
		}
	}
}
