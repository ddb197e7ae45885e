package storage

import (
	"os"
	"strings"
)

// bootID tells one run of the machine from the next, "" if that is unknown.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
