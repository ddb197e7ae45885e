package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"skein/columnar"
)

// A log that can spill keeps at most rowLogMemory bytes in memory, and no more
// than one in rowLogShare of any budget, so that the operators which read it have
// room, too.
const (
	rowLogMemory = 64 << 20
	rowLogShare  = 4
)

// rowLog is a list of batches that can be read any number of times: in memory
// at first, on disk where that does not suffice and there is a spill space. It
// is written and changed by one goroutine at a time; reading batches that are
// there may be done by several at once.
type rowLog struct {
	schema   *arrow.Schema
	operator string
	acct     *Account
	space    *spillSpace // nil: all is kept in memory
	file     *spillFile
	offset   int64 // end of file
	entries  []logEntry
	memory   int64 // held by entries
	most     int64 // that they may hold before more go to disk
	rows     int64
}

// logEntry is one batch, or where it is in the file.
type logEntry struct {
	batch *columnar.Batch
	acct  *Account // of batch
	at    int64
	size  int64
}

func newRowLog(operator string, schema *arrow.Schema, env *Env) *rowLog {
	l := &rowLog{schema: schema, operator: operator, acct: env.Budget.Account(operator), space: env.spill, most: rowLogMemory}
	for b := env.Budget; b != nil; b = b.parent {
		if b.limit > 0 {
			l.most = min(l.most, b.limit/rowLogShare)
		}
	}
	return l
}

// append copies the selected rows of a batch to the end.
func (l *rowLog) append(b *columnar.Batch) error {
	if b.Rows() == 0 {
		return nil
	}
	l.rows += int64(b.Rows())
	if l.space == nil || l.memory < l.most {
		store, err := newRowStore(l.schema, l.acct)
		if err != nil {
			return err
		}
		if err = store.append(b.Cols, b.Sel, b.Len); err == nil {
			acct := l.acct.split(store.held())
			l.memory += acct.Held()
			l.entries = append(l.entries, logEntry{batch: store.batch(), acct: acct})
			return nil
		}
		store.free()
		if l.space == nil {
			return err
		}
	}
	return l.spill(b)
}

// spill writes a batch to the file, as a stream of its own.
func (l *rowLog) spill(b *columnar.Batch) error {
	if l.file == nil {
		var err error
		if l.file, err = l.space.create(l.operator, l.schema); err != nil {
			return err
		}
	}
	rec, err := columnar.ToArrow(b, l.schema)
	if err != nil {
		return fmt.Errorf("spilling %s: %w", l.operator, err)
	}
	defer rec.Release()
	var encoded bytes.Buffer
	w := ipc.NewWriter(&encoded, ipc.WithSchema(l.schema), ipc.WithLZ4())
	if err = w.Write(rec); err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("spilling %s: %w", l.operator, err)
	}
	n := int64(encoded.Len())
	if _, err := (*spillSink)(l.file).Write(encoded.Bytes()); err != nil {
		return l.file.check(err)
	}
	l.entries = append(l.entries, logEntry{at: l.offset, size: n})
	l.offset += n
	return nil
}

// release gives up batch i, which is not read any more.
func (l *rowLog) release(i int) {
	if e := &l.entries[i]; e.batch != nil {
		e.batch = nil
		l.memory -= e.acct.Held()
		e.acct.Close()
	}
}

// reset forgets all rows.
func (l *rowLog) reset() error {
	for i := range l.entries {
		l.release(i)
	}
	l.acct.Close()
	l.entries, l.rows, l.offset = l.entries[:0], 0, 0
	err := l.file.close()
	l.file = nil
	return err
}

// logCursor reads batches of a log; one that it has read from disk lives until
// the next.
type logCursor struct {
	log    *rowLog
	reader *ipc.Reader
	view   columnar.Batch
}

// load returns the batch of an entry.
func (c *logCursor) load(e logEntry) (*columnar.Batch, error) {
	c.drop()
	if e.batch != nil {
		c.view = *e.batch
		return &c.view, nil
	}
	doing := "reading what " + c.log.operator + " spilled"
	var err error
	if c.reader, err = ipc.NewReader(io.NewSectionReader(c.log.file.file, e.at, e.size)); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if !c.reader.Next() {
		return nil, fmt.Errorf("%s: %w", doing, errors.Join(io.ErrUnexpectedEOF, c.reader.Err()))
	}
	b, err := columnar.FromRecord(c.reader.RecordBatch(), c.log.schema)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return b, nil
}

func (c *logCursor) drop() {
	if c.reader != nil {
		c.reader.Release()
		c.reader = nil
	}
}

// logReader reads the rows that a log has. Closing it leaves them there.
type logReader struct {
	logCursor
	next int
}

func newLogReader(l *rowLog) *logReader { return &logReader{logCursor: logCursor{log: l}} }

func (r *logReader) Schema() *arrow.Schema { return r.log.schema }

func (r *logReader) Close() error {
	r.drop()
	return nil
}

func (r *logReader) Next(ctx context.Context) (*columnar.Batch, error) {
	if r.next >= len(r.log.entries) {
		return nil, nil
	}
	if err := canceled(ctx); err != nil {
		return nil, err
	}
	r.next++
	return r.load(r.log.entries[r.next-1])
}
