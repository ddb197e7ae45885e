package consensus

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package if goroutines are left when all tests are done.
func TestMain(m *testing.M) {
	if work := os.Getenv(childEnv); work != "" {
		os.Exit(runChild(work))
	}
	goleak.VerifyTestMain(m)
}
