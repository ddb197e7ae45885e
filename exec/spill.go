package exec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"skein/columnar"
	"skein/sqlstate"
)

// spillSpace is where the operators of one fragment put rows that do not fit in
// memory.
type spillSpace struct {
	dir    string
	limit  uint64 // bytes, 0 for no limit
	used   *atomic.Int64
	budget *Budget // of the buffers
	// total and written count the bytes that were ever written, by all and by one
	// operator; nil when nobody asks.
	total, written *atomic.Int64
}

// counting is the same space to one operator whose bytes and buffers are counted
// by themselves.
func (s *spillSpace) counting(written *atomic.Int64, budget *Budget) *spillSpace {
	own := *s
	own.written, own.budget = written, budget
	return &own
}

// Shared returns the environment with one spill space, whose bound is for all that
// is done with it together.
func (e *Env) Shared() *Env { return e.withSpill() }

// withSpill returns the environment with a spill space: of its own, unless it
// has one.
func (e *Env) withSpill() *Env {
	own := *e
	if own.SpillDir != "" && own.spill == nil {
		own.spill = &spillSpace{dir: own.SpillDir, limit: own.MaxSpill, used: new(atomic.Int64), budget: own.Budget, total: own.Spilled}
	}
	return &own
}

func (e *Env) spills() bool { return e.spill != nil }

// spillBufferSize is the write and read buffer of one file.
const spillBufferSize = 32 << 10

// spillFile is rows on disk: Arrow IPC, compressed with LZ4. It is written,
// then finished, then read once. It has no name: it is unlinked as soon as it
// is open, so that nothing is left behind whatever happens to the process.
type spillFile struct {
	space    *spillSpace
	operator string
	schema   *arrow.Schema
	file     *os.File
	buffer   *bufio.Writer
	writer   *ipc.Writer
	rows     int64
	size     int64
	failed   error    // of the disk or the limit, which the IPC writer would hide
	acct     *Account // of the buffer
}

func (s *spillSpace) create(operator string, schema *arrow.Schema) (*spillFile, error) {
	file, err := s.temporary(operator)
	if err != nil {
		return nil, err
	}
	f := &spillFile{space: s, operator: operator, schema: schema, file: file, acct: s.budget.workingAccount(operator)}
	f.acct.charge(spillBufferSize)
	f.buffer = bufio.NewWriterSize((*spillSink)(f), spillBufferSize)
	f.writer = ipc.NewWriter(f.buffer, ipc.WithSchema(schema), ipc.WithLZ4())
	return f, nil
}

// temporary opens a new file that has no name.
func (s *spillSpace) temporary(operator string) (*os.File, error) {
	file, err := os.CreateTemp(s.dir, "skein-spill-*")
	if err != nil {
		return nil, sqlstate.New(sqlstate.IOError, "%s cannot spill to disk: %w", operator, err).
			WithHint("Check that the spill directory exists and is writable.")
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("unlinking a spill file: %w", err), file.Close())
	}
	return file, nil
}

// take counts bytes on disk against the limit.
func (s *spillSpace) take(operator string, bytes int) error {
	used := s.used.Add(int64(bytes))
	if s.limit == 0 || uint64(used) <= s.limit {
		for _, count := range []*atomic.Int64{s.total, s.written} {
			if count != nil {
				count.Add(int64(bytes))
			}
		}
		return nil
	}
	s.used.Add(-int64(bytes))
	return sqlstate.New(sqlstate.DiskFull, "%s has more rows than fit in memory and in the spill budget of %s",
		operator, formatBytes(int64(s.limit))).
		WithHint("Raise the memory or the spill budget, or make the query keep fewer rows: filter earlier, select fewer columns, add a LIMIT.")
}

func ioError(operator string, err error) error {
	code := sqlstate.IOError
	if errors.Is(err, syscall.ENOSPC) {
		code = sqlstate.DiskFull
	}
	return sqlstate.New(code, "%s cannot spill to disk: %w", operator, err)
}

// spillSink counts what a file writes against the limit.
type spillSink spillFile

func (s *spillSink) Write(p []byte) (int, error) {
	if s.failed = s.space.take(s.operator, len(p)); s.failed != nil {
		return 0, s.failed
	}
	s.size += int64(len(p))
	n, err := s.file.Write(p)
	if err != nil {
		s.failed = ioError(s.operator, err)
	}
	return n, err
}

// write appends the selected rows of a batch.
func (f *spillFile) write(b *columnar.Batch) error {
	if b.Rows() == 0 {
		return nil
	}
	rec, err := columnar.ToArrow(b, f.schema)
	if err != nil {
		return fmt.Errorf("spilling %s: %w", f.operator, err)
	}
	defer rec.Release()
	f.rows += int64(b.Rows())
	return f.check(f.writer.Write(rec))
}

func (f *spillFile) check(err error) error {
	if err == nil {
		return nil
	}
	if f.failed != nil {
		return f.failed
	}
	return fmt.Errorf("spilling %s: %w", f.operator, err)
}

// finish ends writing.
func (f *spillFile) finish() error {
	if f.writer == nil {
		return nil
	}
	err := f.check(f.writer.Close())
	if e := f.check(f.buffer.Flush()); err == nil {
		err = e
	}
	f.writer, f.buffer = nil, nil
	f.acct.Close()
	return err
}

// close gives the disk space back; a nil file has none.
func (f *spillFile) close() error {
	if f == nil || f.file == nil {
		return nil
	}
	f.space.used.Add(-f.size)
	f.acct.Close()
	err := f.file.Close()
	f.file, f.writer, f.buffer = nil, nil, nil
	return err
}

// open returns an operator that reads the finished file and closes it.
func (f *spillFile) open() (Operator, error) {
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading what %s spilled: %w", f.operator, err)
	}
	reader, err := ipc.NewReader(bufio.NewReaderSize(f.file, spillBufferSize))
	if err != nil {
		return nil, fmt.Errorf("reading what %s spilled: %w", f.operator, err)
	}
	return &spillReader{file: f, reader: reader}, nil
}

// spillReader emits a file's batches.
type spillReader struct {
	file   *spillFile
	reader *ipc.Reader
}

func (r *spillReader) Schema() *arrow.Schema { return r.file.schema }

func (r *spillReader) Close() error {
	if r.reader != nil {
		r.reader.Release()
		r.reader = nil
	}
	return r.file.close()
}

func (r *spillReader) Next(ctx context.Context) (*columnar.Batch, error) {
	if err := canceled(ctx); err != nil {
		return nil, err
	}
	if r.reader == nil || !r.reader.Next() {
		if r.reader != nil && r.reader.Err() != nil && !errors.Is(r.reader.Err(), io.EOF) {
			return nil, fmt.Errorf("reading what %s spilled: %w", r.file.operator, r.reader.Err())
		}
		return nil, nil
	}
	b, err := columnar.FromRecord(r.reader.RecordBatch(), r.file.schema)
	if err != nil {
		return nil, fmt.Errorf("reading what %s spilled: %w", r.file.operator, err)
	}
	return b, nil
}

const (
	spillFanout   = 16 // partitions at one depth
	maxSpillDepth = 4
	// spillGather is how many rows of a partition are gathered before they are
	// written, unless they are large.
	spillGather      = 1024
	spillGatherBytes = 64 << 10
)

// spillSet is rows partitioned by a hash of their keys, one file per partition.
// Several goroutines may add, each with a spillFeed of its own.
type spillSet struct {
	schema *arrow.Schema
	keys   []int
	depth  int
	mu     [spillFanout]sync.Mutex
	files  [spillFanout]*spillFile
	stores [spillFanout]*rowStore // rows that are not written yet
}

func newSpillSet(space *spillSpace, operator string, schema *arrow.Schema, keys []int, depth int) (*spillSet, error) {
	s := &spillSet{schema: schema, keys: keys, depth: depth}
	for p := range s.files {
		var err error
		if s.files[p], err = space.create(operator, schema); err != nil {
			return nil, errors.Join(err, s.close())
		}
		if s.stores[p], err = newRowStore(schema, space.budget.workingAccount(operator)); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// spillFeed is one goroutine's way into a set.
type spillFeed struct {
	set    *spillSet
	hasher partitionHasher
	sels   [spillFanout][]int32
}

func (s *spillSet) feed() *spillFeed {
	return &spillFeed{set: s, hasher: partitionHasher{keys: s.keys}}
}

// add writes the selected rows of a batch to their partitions.
func (f *spillFeed) add(b *columnar.Batch) error {
	for p := range f.sels {
		f.sels[p] = f.sels[p][:0]
	}
	// Rows may have been routed by the hash itself before: mix it anew at every
	// depth.
	seed := mix64(uint64(f.set.depth)+1, nullHash) | 1
	for i, h := range f.hasher.hash(b) {
		p := mix64(h, seed) >> 60
		f.sels[p] = append(f.sels[p], int32(rowAt(b.Sel, i)))
	}
	for p, sel := range f.sels {
		if len(sel) == 0 {
			continue
		}
		if err := f.set.append(p, b, sel); err != nil {
			return err
		}
	}
	return nil
}

func (s *spillSet) append(p int, b *columnar.Batch, sel []int32) error {
	s.mu[p].Lock()
	defer s.mu[p].Unlock()
	if err := s.stores[p].append(b.Cols, sel, len(sel)); err != nil {
		return err
	}
	if s.stores[p].rows < spillGather && s.stores[p].held() < spillGatherBytes {
		return nil
	}
	return s.flush(p)
}

func (s *spillSet) flush(p int) error {
	store := s.stores[p]
	if store.rows == 0 {
		return nil
	}
	out := outVectors(s.schema)
	store.view(0, store.rows, out)
	err := s.files[p].write(&columnar.Batch{Cols: out, Len: store.rows})
	store.reset()
	return err
}

// finish writes what is gathered.
func (s *spillSet) finish() error {
	for p := range s.files {
		if err := s.flush(p); err != nil {
			return err
		}
		s.stores[p].free()
		if err := s.files[p].finish(); err != nil {
			return err
		}
	}
	return nil
}

func (s *spillSet) close() error {
	if s == nil {
		return nil
	}
	var first error
	for p, f := range s.files {
		if s.stores[p] != nil {
			s.stores[p].free()
		}
		if err := f.close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// skewFactor is how much of a set one partition must have for another round of
// partitioning to be pointless: its rows are mostly of one key.
const skewFactor = 0.9

// nextDepth is the depth at which a partition is to be worked on.
func (s *spillSet) nextDepth(p int) int {
	total := int64(0)
	for _, f := range s.files {
		total += f.rows
	}
	if s.depth > 0 && float64(s.files[p].rows) > skewFactor*float64(total) {
		return maxSpillDepth
	}
	return s.depth + 1
}

// addStore adds all rows of a store.
func (f *spillFeed) addStore(ctx context.Context, store *rowStore) error {
	out := outVectors(f.set.schema)
	for lo := 0; lo < store.rows; lo += columnar.BatchRows {
		if err := canceled(ctx); err != nil {
			return err
		}
		hi := min(lo+columnar.BatchRows, store.rows)
		store.view(lo, hi, out)
		if err := f.add(&columnar.Batch{Cols: out, Len: hi - lo}); err != nil {
			return err
		}
	}
	return nil
}
