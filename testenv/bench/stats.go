package main

import (
	"math"
	"slices"
)

// percentile is the nearest-rank percentile of samples, p in (0, 100]; NaN when there are none. It sorts samples.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	slices.Sort(samples)
	rank := int(math.Ceil(p / 100 * float64(len(samples))))
	return samples[min(max(rank, 1), len(samples))-1]
}

// median is the middle of values, or the mean of the middle two; NaN when there are none. It leaves values as they are.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// ratio is the median over the rounds of value/base, so that a round in which the whole machine was slow counts like
// any other; NaN when a round of one has no counterpart in the other.
func ratio(values, base []float64) float64 {
	if len(values) != len(base) {
		return math.NaN()
	}
	each := make([]float64, len(values))
	for i := range values {
		if base[i] == 0 {
			return math.NaN()
		}
		each[i] = values[i] / base[i]
	}
	return median(each)
}
