package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// The options of an ingest, by CommandStatementIngest's options.
const (
	// ingestOnConflict says what becomes of rows whose primary key is taken:
	// error, ignore or replace.
	ingestOnConflict = "skein.on_conflict"
	// ingestWriteID names the write for its client, who may repeat it under the
	// same name: it happens once. At most maxWriteID bytes, never used for other
	// rows.
	ingestWriteID = "skein.write_id"
	// ingestWriteAttempt counts the repetitions, from 0.
	ingestWriteAttempt = "skein.write_attempt"
	// ingestWriteTablets are the ids of the table's tablets as the client knew them
	// before the first attempt, separated by commas. What became of an attempt is
	// known to the tablets that it was for, so a repetition needs the same.
	ingestWriteTablets = "skein.write_tablets"
)

const (
	maxWriteID = 128
	// maxWriteAttempts bounds the repetitions: each asks after all before it.
	maxWriteAttempts = 100
	// writeDoubtPause is about how often a tablet that does not know the outcome of
	// an attempt yet is asked again.
	writeDoubtPause = 50 * time.Millisecond
)

// ingestSettings are the options of an ingest.
type ingestSettings struct {
	onConflict pb.WriteHeader_OnConflict
	write      *clientWrite // nil where the client names none
}

// clientWrite is a write that its client has named and may repeat.
type clientWrite struct {
	id      string
	attempt int
	tablets []catalog.TabletID // ascending
}

func ingestOptions(options map[string]string) (ingestSettings, error) {
	settings := ingestSettings{onConflict: pb.WriteHeader_ERROR}
	write := clientWrite{}
	for key, value := range options {
		bad := func(want string) error {
			return sqlstate.New(sqlstate.InvalidParameter, "%s of the ingest is %q, not %s", key, value, want)
		}
		switch key {
		case ingestOnConflict:
			mode, ok := map[string]pb.WriteHeader_OnConflict{
				"error": pb.WriteHeader_ERROR, "ignore": pb.WriteHeader_IGNORE, "replace": pb.WriteHeader_REPLACE,
			}[value]
			if !ok {
				return settings, bad("error, ignore or replace")
			}
			settings.onConflict = mode
		case ingestWriteID:
			if value == "" || len(value) > maxWriteID {
				return settings, bad(fmt.Sprintf("a text of 1 to %d bytes", maxWriteID))
			}
			write.id = value
		case ingestWriteAttempt:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n >= maxWriteAttempts {
				return settings, bad(fmt.Sprintf("a number from 0 to %d", maxWriteAttempts-1))
			}
			write.attempt = n
		case ingestWriteTablets:
			for _, text := range strings.Split(value, ",") {
				id, err := strconv.ParseUint(text, 10, 64)
				if err != nil {
					return settings, bad("a list of tablet ids")
				}
				write.tablets = append(write.tablets, catalog.TabletID(id))
			}
			slices.Sort(write.tablets)
		default:
			return settings, sqlstate.New(sqlstate.InvalidParameter, "unknown option %q of the ingest", key).
				WithHint("the options are %s, %s, %s and %s", ingestOnConflict, ingestWriteID, ingestWriteAttempt, ingestWriteTablets)
		}
	}
	switch {
	case write.id != "" && write.tablets != nil:
		settings.write = &write
	case write.id != "" || write.tablets != nil || write.attempt != 0:
		return settings, sqlstate.New(sqlstate.InvalidParameter, "%s, %s and %s of an ingest go together", ingestWriteID, ingestWriteTablets, ingestWriteAttempt)
	}
	return settings, nil
}

// transaction is the id of the transaction of an attempt.
func (c *clientWrite) transaction(table *catalog.Table, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", table.ID, attempt, c.id))
	return hex.EncodeToString(sum[:idBytes])
}

// earlier reports whether an attempt before this one has stored the rows, and how
// many. Otherwise none of them ever will: they are ended.
func (c *clientWrite) earlier(ctx context.Context, g *Server, snap *snapshot, table *catalog.Table) (done bool, rows int64, err error) {
	tablets := make([]catalog.TabletID, len(table.Tablets))
	for i := range table.Tablets {
		tablets[i] = table.Tablets[i].ID
	}
	slices.Sort(tablets)
	if !slices.Equal(tablets, c.tablets) {
		if c.attempt == 0 {
			return false, 0, sqlstate.New(sqlstate.SerializationFailure, "table %s has other tablets than the write is for", table.QualifiedName()).
				WithHint("read the ids of its tablets again and repeat the write under another id")
		}
		return false, 0, sqlstate.New(sqlstate.ObjectNotInState,
			"the tablets of %s have changed since the write was first tried, so its outcome is not known", table.QualifiedName()).
			WithHint("check whether the rows are there before you repeat the write")
	}
	for attempt := range c.attempt {
		done, rows, err = g.endWrite(ctx, snap, tablets, c.transaction(table, attempt))
		if done || err != nil {
			return done, rows, err
		}
	}
	return false, 0, nil
}

// endWrite asks all tablets of a table how a transaction has ended, and ends it
// where it has not. It is committed if any tablet says so: only its primary
// decides that, and is asked, too.
func (g *Server) endWrite(ctx context.Context, snap *snapshot, tablets []catalog.TabletID, txn string) (committed bool, rows int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	answers := make([]*pb.TransactResponse, len(tablets))
	ask := func(ctx context.Context, i int) (err error) {
		answers[i], err = g.transact(ctx, snap, &pb.TransactRequest{
			Step: pb.TransactRequest_RESOLVE, TransactionId: txn, TabletId: uint64(tablets[i]),
		})
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range tablets {
		group.Go(func() error { return ask(groupCtx, i) })
	}
	if err := group.Wait(); err != nil {
		return false, 0, fmt.Errorf("asking what became of an earlier attempt: %w", err)
	}
	for _, a := range answers {
		committed = committed || a.GetOutcome() == pb.TransactResponse_COMMITTED
	}
	if !committed {
		return false, 0, nil
	}
	for i := range tablets {
		// A tablet that is prepared hears of the decision soon, from the earlier
		// attempt's gateway or from the primary.
		for answers[i].GetOutcome() == pb.TransactResponse_PREPARED {
			select {
			case <-time.After(writeDoubtPause/2 + rand.N(writeDoubtPause)):
			case <-ctx.Done():
				return false, 0, causeOf(ctx, ctx.Err())
			}
			if err := ask(ctx, i); err != nil {
				return false, 0, fmt.Errorf("waiting for a commit to reach tablet %d: %w", tablets[i], err)
			}
		}
		if changes := answers[i].GetChanges(); answers[i].GetOutcome() == pb.TransactResponse_COMMITTED {
			rows += int64(changes.GetInserted() + changes.GetReplaced())
		}
		g.observe(answers[i].GetCommitTimestamp())
	}
	return true, rows, nil
}
