package exec

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadClock says that threadCPU and threadID work.
const threadClock = true

// threadCPU is the processor time that the calling thread has used.
func threadCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // a seccomp filter may forbid it
	}
	return time.Duration(t.Nano())
}

func threadID() int { return unix.Gettid() }
