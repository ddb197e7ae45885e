package storage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
)

// TestKeysAreFoundWhereTheyAreStored looks keys of every type and shape up in
// segments in and out of key order, without anything being cached, and compares
// with the keys themselves.
func TestKeysAreFoundWhereTheyAreStored(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 9))
	s := openTest(t, t.TempDir())
	id := catalog.TabletID(0)
	for name, types := range map[string][]arrow.DataType{
		"bigint": {catalog.BigInt}, "smallint, integer": {catalog.SmallInt, catalog.Integer},
		"text": {catalog.Text}, "text, bigint": {catalog.Text, catalog.BigInt}, "boolean, text": {catalog.Boolean, catalog.Text},
		"uuid": {catalog.UUID}, "wide decimal": {catalog.Decimal(38, 10)}, "double": {catalog.Double}, "real, date": {catalog.Real, catalog.Date},
		"bytea, boolean": {catalog.Bytea, catalog.Boolean}, "interval": {catalog.Interval}, "timestamp, text": {catalog.Timestamp, catalog.Text},
		"list": {arrow.ListOf(catalog.Text)},
	} {
		for _, sorted := range []bool{true, false} {
			for _, spread := range []int{12, 1 << 20} {
				t.Run(fmt.Sprintf("%s sorted=%t of %d", name, sorted, spread), func(t *testing.T) {
					id++
					findAll(t, s, id, rng, types, sorted, spread)
				})
			}
		}
	}
}

func findAll(t *testing.T, s *Store, tablet catalog.TabletID, rng *rand.Rand, types []arrow.DataType, sorted bool, spread int) {
	const rows = 6000
	order := make([]int, len(types))
	for i := range order {
		order[i] = i
	}
	table := tableOf(order, types...)
	cols := make([]*columnar.Vector, len(types))
	for i, dt := range types {
		cols[i] = randomVector(t, rng, dt, rows, spread, 0)
	}
	if sorted {
		perm, keys := make([]int32, rows), make([][]byte, rows)
		for i := range perm {
			perm[i], keys[i] = int32(i), catalog.AppendKey(nil, cols, i)
		}
		slices.SortStableFunc(perm, func(a, b int32) int { return bytes.Compare(keys[a], keys[b]) })
		for i := range cols {
			cols[i] = columnar.Gather(cols[i], perm, nil)
		}
	}
	seg := encoded(t, table, batchOf(cols...))
	tab, err := s.OpenTablet(table, tablet)
	if err != nil {
		t.Fatal(err)
	}
	mustOutcome(t, tab, Staged, stages("a", 0, seg)...)
	r := &chunkReader{store: s, table: table, tablet: tab.id, space: tab.state.space, instance: tab.state.instance, read: s.view}
	meta := tab.state.txns["a"].segments[0].meta
	id := tab.state.txns["a"].segments[0].id
	where := make(map[string][]int)
	for row := range rows {
		key := string(catalog.AppendKey(nil, cols, row))
		where[key] = append(where[key], row)
	}
	for range 200 {
		key := catalog.AppendKey(nil, cols, rng.IntN(rows))
		switch rng.IntN(4) {
		case 0:
			key[len(key)-1-rng.IntN(len(key))/2] ^= byte(1 + rng.IntN(3))
		case 1:
			key = append(key, 1)
		}
		got, err := r.keyRows(id, meta, &keyProbe{key, hashOf(key)})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if want := where[string(key)]; !slices.Equal(got, want) {
			t.Fatalf("key %x: rows %v, want %v", key, got, want)
		}
	}
}

// TestFormerTextBlocks reads blocks as earlier releases wrote them: of 2,048
// rows, whose number the chunk does not say.
func TestFormerTextBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 9))
	v := randomVector(t, rng, catalog.Text, 2*firstTextBlock+77, 1<<20, 0)
	chunk := []byte{byte(encTextBlocks), 0}
	var blocks []byte
	for from := 0; from < v.Len; from += firstTextBlock {
		at := len(blocks)
		blocks = appendStringBlock(blocks, v.Slice(from, min(from+firstTextBlock, v.Len)))
		size := uint32(len(blocks) - at)
		chunk = append(chunk, byte(size), byte(size>>8), byte(size>>16), byte(size>>24))
	}
	chunk = append(chunk, blocks...)
	whole, err := decodeChunk(catalog.Text, v.Len, chunk)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameValues(whole, v); err != nil {
		t.Error(err)
	}
	part, err := decodeRange(catalog.Text, v.Len, wholeChunk(chunk), 2000, 2100, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameValues(part, v.Slice(2000, 2100)); err != nil {
		t.Error(err)
	}
}
