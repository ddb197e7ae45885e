package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skein/bench/internal/compare"
	"skein/bench/internal/skeinproc"
)

// soakTable is what the clients write to, each to keys of its own.
const soakTable = `CREATE TABLE IF NOT EXISTS soaked (client BIGINT NOT NULL, id BIGINT NOT NULL, n BIGINT, note TEXT, PRIMARY KEY (client, id))
	PARTITION BY HASH (client) WITH (tablets = 3)`

// Bounds of what one client does at a time.
const (
	ingestedRows = 200
	longestWait  = 150 * time.Millisecond // before a query is cancelled
)

// totals is what all clients have done.
type totals struct{ queries, writes, ingests, cancels atomic.Int64 }

func (t *totals) String() string {
	return fmt.Sprintf("%d queries, %d writes, %d ingests and %d cancels", t.queries.Load(), t.writes.Load(), t.ingests.Load(), t.cancels.Load())
}

// soaker is one client, which remembers what it has written.
type soaker struct {
	id     int64
	client *skeinproc.Client
	random *rand.Rand
	texts  []string
	want   []compare.Rows
	rows   map[int64]int64 // its rows of the table: n by id
	next   int64           // the next id that was never used
	done   *totals
}

// step does one thing: mostly it asks, else it writes or begins what it then cancels.
func (s *soaker) step(ctx context.Context) error {
	switch k := s.random.IntN(20); {
	case k < 12:
		return s.ask(ctx)
	case k < 17:
		return s.write(ctx)
	case k < 18:
		return s.ingest(ctx)
	default:
		return s.cancel(ctx)
	}
}

// ask runs one of the queries of tables that nobody changes.
func (s *soaker) ask(ctx context.Context) error {
	at := s.random.IntN(len(s.texts))
	rows, _, err := s.client.Query(ctx, s.texts[at])
	if err != nil {
		return fmt.Errorf("%s: %w", s.texts[at], err)
	}
	if d := compare.Difference(rows, s.want[at], nil); d != "" {
		return fmt.Errorf("%s: other rows: %s", s.texts[at], d)
	}
	s.done.queries.Add(1)
	return nil
}

// write inserts, updates or deletes one row.
func (s *soaker) write(ctx context.Context) error {
	id, n, any := int64(0), s.random.Int64N(1000), false
	for id = range s.rows { // in the map's random order
		any = true
		break
	}
	var text string
	switch k := s.random.IntN(3); {
	case !any || k == 0:
		id = s.next
		s.next++
		text = fmt.Sprintf("INSERT INTO soaked VALUES (%d, %d, %d, 'inserted')", s.id, id, n)
	case k == 1:
		text = fmt.Sprintf("UPDATE soaked SET n = %d, note = 'updated' WHERE client = %d AND id = %d", n, s.id, id)
	default:
		text, n = fmt.Sprintf("DELETE FROM soaked WHERE client = %d AND id = %d", s.id, id), -1
	}
	if err := s.client.Exec(ctx, text); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if n < 0 {
		delete(s.rows, id)
	} else {
		s.rows[id] = n
	}
	s.done.writes.Add(1)
	return nil
}

// ingest adds some rows at once.
func (s *soaker) ingest(ctx context.Context) error {
	fields := []arrow.Field{{Name: "client", Type: arrow.PrimitiveTypes.Int64}, {Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "note", Type: arrow.BinaryTypes.String}}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	from := s.next
	for range ingestedRows {
		for i, v := range []int64{s.id, s.next, s.next % 7} {
			b.Field(i).(*array.Int64Builder).Append(v)
		}
		b.Field(3).(*array.StringBuilder).Append("ingested")
		s.next++
	}
	record := b.NewRecordBatch()
	defer record.Release()
	rows, err := array.NewRecordReader(record.Schema(), []arrow.RecordBatch{record})
	if err != nil {
		return err
	}
	defer rows.Release()
	if _, err := s.client.Ingest(ctx, "soaked", rows); err != nil {
		return fmt.Errorf("ingesting: %w", err)
	}
	for id := from; id < s.next; id++ {
		s.rows[id] = id % 7
	}
	s.done.ingests.Add(1)
	return nil
}

// cancel breaks a long query off.
func (s *soaker) cancel(ctx context.Context) error {
	text := endless[s.random.IntN(len(endless))][1]
	short, cancel := context.WithTimeout(ctx, time.Duration(s.random.Int64N(int64(longestWait))))
	defer cancel()
	_, _, err := s.client.Query(short, text)
	// The transport's own timer may be a moment ahead of ours.
	if code := status.Code(err); short.Err() == nil && code != codes.DeadlineExceeded && code != codes.Canceled {
		return fmt.Errorf("%s: it was to be canceled and ended: %w", text, err)
	}
	s.done.cancels.Add(1)
	return nil
}

// check compares the client's rows with what it has written.
func (s *soaker) check(ctx context.Context) error {
	rows, _, err := s.client.Query(ctx, fmt.Sprintf("SELECT count(*) || ' ' || count(DISTINCT id) || ' ' || coalesce(sum(n), 0) FROM soaked WHERE client = %d", s.id))
	if err != nil {
		return err
	}
	sum := int64(0)
	for _, n := range s.rows {
		sum += n
	}
	got, want := fmt.Sprint(rows), fmt.Sprintf("[[%d %d %d]]", len(s.rows), len(s.rows), sum)
	if got != want {
		return fmt.Errorf("the table has %s of the client's rows where it wrote %s", got, want)
	}
	return nil
}

// soakOne is a client that works until a moment.
func soakOne(ctx context.Context, address string, round, i int, end time.Time, texts []string, want []compare.Rows, done *totals) (err error) {
	client, err := skeinproc.Dial(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	s := &soaker{
		id: int64(round*1_000_000 + i), client: client, random: rand.New(rand.NewPCG(uint64(round), uint64(i))),
		texts: texts, want: want, rows: map[int64]int64{}, done: done,
	}
	for err == nil && time.Now().Before(end) {
		err = s.step(ctx)
	}
	if err == nil {
		err = s.check(ctx)
	}
	if ctx.Err() != nil { // another client has failed
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("client %d: %w", i, err)
	}
	return nil
}
