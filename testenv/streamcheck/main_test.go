package streamcheck

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(asPipe); address != "" {
		os.Exit(pipe(address))
	}
	goleak.VerifyTestMain(m)
}
