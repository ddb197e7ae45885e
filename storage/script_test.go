package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"

	"skein/catalog"
	"skein/columnar"
)

// logEntry is a group of commands that a Raft log hands out together; index is
// that of the last.
type logEntry struct {
	index    uint64
	commands []Command
}

// scriptTable has a key, a number and a text that makes rows as large as wanted.
func scriptTable() *catalog.Table {
	return tableOf([]int{0}, catalog.BigInt, catalog.BigInt, catalog.Text)
}

// script is a log of all kinds of commands, the same for equal seeds.
type script struct {
	t       testing.TB
	rng     *rand.Rand
	entries []logEntry
	index   uint64
	keys    int64
	txns    int
	ts      uint64
}

func newScript(t testing.TB, seed uint64, entries int) *script {
	s := &script{t: t, rng: rand.New(rand.NewPCG(seed, 7)), ts: 1 << 12}
	for len(s.entries) < entries {
		s.next()
	}
	return s
}

func (s *script) log(commands ...Command) {
	s.index += uint64(len(commands))
	s.entries = append(s.entries, logEntry{s.index, commands})
}

func (s *script) txn() string {
	s.txns++
	return fmt.Sprint("t", s.txns)
}

func (s *script) tick() uint64 {
	s.ts += 1 << 12
	return s.ts
}

// rows encodes new rows, some with keys that exist, with texts of so many bytes.
func (s *script) rows(n, text int) *Segment {
	keys, values := make([]int64, n), make([]int64, n)
	texts, err := columnar.NewBuilder(catalog.Text)
	if err != nil {
		s.t.Fatal(err)
	}
	raw := make([]byte, text)
	var word [8]byte
	for i := range n {
		s.keys++
		keys[i], values[i] = s.keys, s.rng.Int64()
		for j := range raw {
			if j%8 == 0 {
				binary.LittleEndian.PutUint64(word[:], s.rng.Uint64())
			}
			raw[j] = word[j%8] & 0x7f
		}
		if err := texts.AppendBytes(raw); err != nil {
			s.t.Fatal(err)
		}
	}
	return encoded(s.t, scriptTable(), batchOf(ints(keys...), ints(values...), texts.Finish()))
}

func (s *script) rowIDs(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = s.rng.Uint64N(uint64(s.keys) + 1)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *script) next() {
	id := s.txn()
	switch s.rng.IntN(10) {
	case 0, 1, 2: // a small write
		s.log(Commit{Txn: id, Timestamp: s.tick(), Inline: s.rows(1+s.rng.IntN(20), 20).Parts()[0]})
	case 3: // one whose value goes to the value log
		s.log(Commit{Txn: id, Timestamp: s.tick(), Inline: s.rows(100, 100).Parts()[0]})
	case 4: // a staged one of several parts
		commands := stages(id, 0, s.rows(8_000, 300))
		for _, c := range commands {
			s.log(c)
		}
		s.log(Commit{Txn: id, Segments: 1, Timestamp: s.tick()})
	case 5: // a staged one that is prepared first, or aborted
		s.log(stages(id, 0, s.rows(50, 200))...)
		if s.rng.IntN(3) == 0 {
			s.log(Abort{Txn: id})
			return
		}
		s.log(Prepare{Txn: id, Primary: testTablet, Segments: 1})
		s.log(Commit{Txn: id, Segments: 1, Timestamp: s.tick()})
	case 6: // deletes
		s.log(StageDelete{Txn: id, Rows: s.rowIDs(1 + s.rng.IntN(30)), Snapshot: s.ts})
		s.log(Commit{Txn: id, Deletes: 1, Timestamp: s.tick()})
	case 7:
		s.log(Commit{Txn: id, InlineDelete: s.rowIDs(1), Timestamp: s.tick()})
	case 8: // a group that is larger than one transaction of the database
		var commands []Command
		for range 450 {
			commands = append(commands, Commit{Txn: s.txn(), Timestamp: s.tick(), Inline: s.rows(10, 280).Parts()[0]})
		}
		s.log(commands...)
	case 9:
		if s.rng.IntN(4) == 0 {
			s.log(Truncate{Txn: id, Timestamp: s.tick()})
			return
		}
		s.log(Resolve{Txn: id})
	}
}

// replay applies what the tablet has not yet.
func (s *script) replay(tab *Tablet, after func(logEntry) error) error {
	for _, e := range s.entries {
		if e.index <= tab.Applied() {
			continue
		}
		if _, err := tab.Apply(e.index, e.commands...); err != nil {
			return err
		}
		if after != nil {
			if err := after(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// digests applies the log to a store of its own and returns what the tablet
// holds after each entry, by its index, 0 for nothing.
func (s *script) digests() map[uint64]uint64 {
	s.t.Helper()
	tab := mustTablet(s.t, openQuiet(s.t, s.t.TempDir(), Options{}), scriptTable())
	out := map[uint64]uint64{0: digest(s.t, tab)}
	err := s.replay(tab, func(e logEntry) error { out[e.index] = digest(s.t, tab); return nil })
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// digest is a hash of all that a tablet holds: rows with ids, unless some are
// in doubt, and unfinished transactions.
func digest(t testing.TB, tab *Tablet) uint64 {
	t.Helper()
	h := xxhash.New()
	for _, tx := range tab.Staged() {
		fmt.Fprintln(h, tx.Txn, tx.Segments, tx.Deletes, tx.Bytes)
	}
	doubt := tab.InDoubt()
	fmt.Fprintln(h, doubt, tab.Rows())
	if len(doubt) > 0 {
		return h.Sum64()
	}
	b := func() *columnar.Batch {
		snapshot, err := tab.Snapshot(math.MaxUint64 - 1)
		if err != nil {
			t.Fatal(err)
		}
		defer snapshot.Release()
		return drain(t, snapshot, ScanOptions{Columns: []int{0, 1, 2}, RowIDs: true})
	}()
	var key []byte
	for i := range b.Len {
		key = catalog.AppendKey(key[:0], b.Cols, i)
		_, _ = h.Write(key)
	}
	return h.Sum64()
}
