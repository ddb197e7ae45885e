package config

import "testing"

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
