package consensus

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package if goroutines are left when all tests are done.
func TestMain(m *testing.M) {
	if work := os.Getenv(childEnv); work != "" {
		os.Exit(runChild(work))
	}
	flag.Parse()
	atOnce := true
	flag.Visit(func(f *flag.Flag) { atOnce = atOnce && f.Name != "test.parallel" })
	if atOnce { // the tests wait for timers and disks more than they compute
		if err := flag.Set("test.parallel", "5"); err != nil {
			panic(err) // the flag is package testing's
		}
	}
	goleak.VerifyTestMain(m)
}
