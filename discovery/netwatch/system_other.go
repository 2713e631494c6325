//go:build !linux && !darwin && !windows

package netwatch

import (
	"errors"
	"time"
)

// plain is any other system: what package net knows, by the clock. Routers and kinds beyond the names are unknown.
type plain struct{}

func newSystem() system { return plain{} }

func (plain) read() (r Reading, err error) {
	r.Links, err = stdLinks()
	return r, err
}

func (plain) listen(*signal) (changes, wakes bool, err error) {
	return false, false, errors.ErrUnsupported
}

func (plain) close() {}

func systemAsleep() func(time.Time) time.Duration { return nil }
