package config

import (
	"slices"
	"testing"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "17": 17, "4k": 4 << 10, "4KiB": 4 << 10, "512 MiB": 512 << 20, "3GB": 3 << 30, "1t": 1 << 40,
	} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5G", "4Q", "4_", "9999999999T", "kb"} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted as %d", text, got)
		}
	}
}

func TestCacheFollowsTheMemoryLimit(t *testing.T) {
	m := Memory{MemoryLimit: 8 << 30}
	for _, tc := range []struct {
		cache Cache
		limit Size
		want  int64
	}{
		{Cache{}, 8 << 30, 1 << 30},
		{Cache{}, 1 << 30, minCache},
		{Cache{CacheBytes: 5 << 20}, 8 << 30, 5 << 20},
	} {
		m.MemoryLimit = tc.limit
		if got := tc.cache.Bytes(&m); got != tc.want {
			t.Errorf("cache of %+v below %d is %d, want %d", tc.cache, tc.limit, got, tc.want)
		}
	}
}

func TestMemoryLimitLeavesRoom(t *testing.T) {
	for total, want := range map[int64]int64{
		0: 0, 512 << 20: 256 << 20, 1 << 30: 624 << 20, 2 << 30: (2 << 30) / 5 * 4, 64 << 30: (64 << 30) / 5 * 4,
	} {
		if got := defaultLimit(total); got != want {
			t.Errorf("of %d bytes %d are the limit, want %d", total, got, want)
		}
	}
}

func TestOperatorsStayBelowTheLimit(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		memory                   Memory
		most, cache, all, single int64
	}{
		{Memory{MemoryLimit: 16 << 30}, 2 << 30, 2 << 30, 2 << 30, 512 * mib},
		{Memory{MemoryLimit: 624 * mib}, 2 << 30, 256 * mib, 184 * mib, 184 * mib},
		{Memory{MemoryLimit: 256 * mib}, 2 << 30, 256 * mib, 32 * mib, 32 * mib},
		{Memory{MemoryLimit: 624 * mib, NodeMemory: 3 << 30, QueryMemory: 1 << 30}, 2 << 30, 256 * mib, 3 << 30, 1 << 30},
	} {
		all := tc.memory.Operators(tc.most, tc.cache)
		if single := tc.memory.QueryOperators(512*mib, all); all != tc.all || single != tc.single {
			t.Errorf("%+v: %d for all queries and %d for one, want %d and %d", tc.memory, all, single, tc.all, tc.single)
		}
	}
}

func TestLimitFiles(t *testing.T) {
	two, one := "/r/memory.max", "/r/memory/memory.limit_in_bytes"
	for groups, want := range map[string][]string{
		"":        {two, one},
		"0::/\n":  {two, one},
		"0::/a/b": {two, one, "/r/a/b/memory.max", "/r/a/memory.max"},
		"5:cpu,cpuacct:/x\n4:memory:/a\n1:name=systemd:/y\n": {two, one, "/r/memory/a/memory.limit_in_bytes"},
		"2:hugetlb,memory:/../../c":                          {two, one, "/r/memory/c/memory.limit_in_bytes"},
		"nonsense":                                           {two, one},
	} {
		if got := limitFiles("/r", groups); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", groups, got, want)
		}
	}
}
