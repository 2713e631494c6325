//go:build linux || darwin

package netwatch

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemAsleep measures the time that the kernel counts as sleep, which setting the clock does not change.
func systemAsleep() func(now time.Time) time.Duration {
	if _, ok := kernelAsleep(); !ok {
		return nil
	}
	return func(time.Time) time.Duration {
		d, _ := kernelAsleep() // it could be read once
		return d
	}
}

func kernelAsleep() (time.Duration, bool) {
	var all, awake unix.Timespec
	if unix.ClockGettime(clockAll, &all) != nil || unix.ClockGettime(clockAwake, &awake) != nil {
		return 0, false
	}
	return time.Duration(all.Nano() - awake.Nano()), true
}
