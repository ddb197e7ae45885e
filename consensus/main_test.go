package consensus

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package if goroutines are left when all tests are done.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
