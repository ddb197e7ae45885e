package config

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Size is a number of bytes. Its text form is a whole number with an optional
// unit: KiB, MiB, GiB or TiB, the i and B at will.
type Size int64

// UnmarshalText reads the text form.
func (s *Size) UnmarshalText(text []byte) error {
	number := strings.TrimSpace(string(text))
	unit := strings.TrimLeft(number, "0123456789")
	number = strings.TrimSuffix(number, unit)
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return fmt.Errorf("size %q is not a number with an optional unit, for example 512MiB", text)
	}
	letter := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(unit)), "b"), "i")
	shift := strings.Index("_kmgt", letter) * 10 // "" is found at 0
	if len(letter) > 1 || letter == "_" || shift < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("size %q has no unit of KiB, MiB, GiB, TiB or is too large", text)
	}
	*s = Size(n << shift)
	return nil
}

// Memory holds the settings of the process's memory.
type Memory struct {
	// GCPercent is how much the heap may grow over what is live before it is
	// collected, as GOGC has it.
	GCPercent int `koanf:"gc_percent"`
	// MemoryLimit is where collecting becomes eager, as GOMEMLIMIT has it; 0
	// takes four fifths of what the machine or the container has, or less where
	// that leaves too little for what the runtime does not count.
	MemoryLimit Size `koanf:"memory_limit"`
	// NodeMemory and QueryMemory bound what the operators of all queries and of
	// one query hold: sorts, hash tables, windows; 0 takes what Operators and
	// QueryOperators say. Beyond them rows go to temporary files.
	NodeMemory  Size `koanf:"node_memory"`
	QueryMemory Size `koanf:"query_memory"`
	// PProf serves the runtime's profiles on the HTTP address.
	PProf bool `koanf:"pprof"`
}

// Cache holds the settings of what a worker keeps decoded in memory.
type Cache struct {
	CacheBytes Size `koanf:"cache"` // 0 takes an eighth of the memory limit
}

// defaultGCPercent trades memory for time where there is much short-lived data
// over a small live heap, which is what streams of batches look like.
const defaultGCPercent = 100

func memoryFlags(fs *pflag.FlagSet) {
	fs.Int("gc-percent", defaultGCPercent, "growth of the heap before it is collected, in percent")
	fs.String("memory-limit", "0", "memory the process aims to stay below, for example 4GiB; 0 for 80 % of what there is, less below 2GiB")
	fs.String("node-memory", "0", "memory for the operators of all queries, for example 4GiB; 0 for 2GiB, and 1GiB of a gateway, less below a small memory limit")
	fs.String("query-memory", "0", "memory for the operators of one query, for example 256MiB; 0 for that of all, and 512MiB of a gateway")
	fs.Bool("pprof", false, "serve the runtime's profiles at /debug/pprof/ of the HTTP address")
}

func cacheFlags(fs *pflag.FlagSet) {
	fs.String("cache", "0", "memory for decoded columns, for example 1GiB; 0 for an eighth of the memory limit")
}

func (m *Memory) validate() error {
	if m.GCPercent < 10 {
		return fmt.Errorf("gc_percent is %d; it must be at least 10", m.GCPercent)
	}
	if m.MemoryLimit != 0 && m.MemoryLimit < 256<<20 {
		return fmt.Errorf("memory_limit is %d bytes; give at least 256MiB, or 0 for the default", m.MemoryLimit)
	}
	if m.QueryMemory != 0 && m.QueryMemory < minQueryMemory || m.NodeMemory != 0 && m.NodeMemory < minQueryMemory {
		return fmt.Errorf("node_memory or query_memory is below %d bytes; give more, or 0 for the default", minQueryMemory)
	}
	return nil
}

// minQueryMemory is what operators need for their batches and buffers.
const minQueryMemory = 16 << 20

// Limit is the memory limit in bytes, 0 where none is set or can be found out.
func (m *Memory) Limit() int64 {
	if m.MemoryLimit > 0 {
		return int64(m.MemoryLimit)
	}
	return defaultLimit(physicalMemory())
}

// uncounted is the memory that stays free of the runtime's by default: pages of
// the database's files, stacks of C, and what the heap grows beyond its limit
// while it is collected. A container is given no more when it runs out.
const uncounted = 400 << 20

// defaultLimit is the memory limit where there are total bytes.
func defaultLimit(total int64) int64 {
	return max(min(total/5*4, total-uncounted), total/2)
}

// Operators is what the operators of all queries may hold on a node, of whose
// memory cache bytes are used otherwise: most, or half of what is left below the
// memory limit if that is less.
func (m *Memory) Operators(most, cache int64) int64 {
	if m.NodeMemory > 0 {
		return int64(m.NodeMemory)
	}
	if limit := m.Limit(); limit > 0 {
		return max(min(most, (limit-cache)/2), 2*minQueryMemory)
	}
	return most
}

// QueryOperators is what the operators of one query may hold: most, or what all
// may if that is less.
func (m *Memory) QueryOperators(most, all int64) int64 {
	if m.QueryMemory > 0 {
		return int64(m.QueryMemory)
	}
	return min(most, all)
}

// Apply sets the runtime's limits. GOGC and GOMEMLIMIT, where set, go before
// the defaults but not before settings.
func (m *Memory) Apply() {
	if os.Getenv("GOGC") == "" || m.GCPercent != defaultGCPercent {
		debug.SetGCPercent(m.GCPercent)
	}
	if limit := m.Limit(); limit > 0 && (os.Getenv("GOMEMLIMIT") == "" || m.MemoryLimit > 0) {
		debug.SetMemoryLimit(limit)
	}
}

// minCache is the least default of the cache.
const minCache = 256 << 20

// Bytes is the cache's budget.
func (c *Cache) Bytes(m *Memory) int64 {
	if c.CacheBytes > 0 {
		return int64(c.CacheBytes)
	}
	return max(m.Limit()/8, minCache)
}

// physicalMemory is the machine's memory or, if less, that of a control group
// that the process is in, such as a container; 0 where the operating system does
// not tell.
func physicalMemory() int64 {
	total := machineMemory()
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		groups = nil // no control groups: the roots are looked at all the same
	}
	for _, name := range limitFiles("/sys/fs/cgroup", string(groups)) {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // of another version of control groups, or the root of all
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && (total == 0 || n < total) {
			total = n
		}
	}
	return total
}

// limitFiles lists the files that may limit the memory of a process, by what
// /proc/self/cgroup says of it: those of its groups of version 2 and 1 below
// root and of all that they are in. A container often sees its own group as the
// root, whatever its path.
func limitFiles(root, groups string) []string {
	one := filepath.Join(root, "memory")
	files := []string{filepath.Join(root, "memory.max"), filepath.Join(one, "memory.limit_in_bytes")}
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) < 3 {
			continue
		}
		for path := filepath.Clean("/" + parts[2]); path != "/"; path = filepath.Dir(path) {
			switch {
			case parts[1] == "":
				files = append(files, filepath.Join(root, path, "memory.max"))
			case slices.Contains(strings.Split(parts[1], ","), "memory"):
				files = append(files, filepath.Join(one, path, "memory.limit_in_bytes"))
			}
		}
	}
	return files
}

func machineMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
