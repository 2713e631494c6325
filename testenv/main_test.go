package testenv

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// verbs is what all worlds understand.
type verbs interface {
	SetDelay(time.Duration)
	SetRate(int64)
	BlackHole(up, down bool)
	LoseLarge(up, down int)
	Heal()
	CutAfter(up bool, n int64)
	Reset()
	Fin()
	Refuse(on bool) error
	Hang(on bool)
	Live() int
	Bytes() (up, down int64)
}

var (
	_ verbs = (*Route)(nil)
	_ verbs = (*Path)(nil)
)
