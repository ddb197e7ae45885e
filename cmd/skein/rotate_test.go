package main

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"skein/catalog"
	"skein/consensus"
	"skein/flightproto"
	"skein/sqlstate"
)

// signingKeys are those that a worker tells.
func (w *watcher) signingKeys(ctx context.Context) []catalog.SigningKey {
	w.t.Helper()
	reply, err := w.conns[0].Meta(ctx, consensus.MetaReadSnapshot, []byte("{}"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	var snapshot consensus.MetaSnapshot
	if err := json.Unmarshal(reply.GetBody(), &snapshot); err != nil {
		w.t.Fatal(err)
	}
	return snapshot.Keys
}

// A statement that runs while the key is replaced goes on, whichever gateway runs
// it; what was signed with the old key is good until it runs out, and new requests
// are signed with the new one.
func TestRotatedKeys(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	conn := dial(t, c.flight)
	spreadTables(t, conn)
	w := watch(t, c)
	ctx := testContext(t)
	before := w.signingKeys(ctx)
	old := flightproto.NewAuthority(func() []catalog.SigningKey { return before }, "", time.Now)
	sign := func(a *flightproto.Authority) []byte {
		envelope, err := a.Sign(flightproto.Claims{User: "test", Subject: flightproto.SubjectStatus, Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return envelope
	}
	open, err := conn.Run(ctx, spread("SELECT F.id, S.id FROM F JOIN S ON F.g = S.g", "cut"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if b, err := open.Next(); err != nil || b == nil {
		t.Fatalf("first rows %v, error %v", b, err)
	}
	if _, stderr, code := command(t, "", "admin", "rotate-key", "--addr", c.flight); code != 0 {
		t.Fatal(stderr)
	}
	after := w.signingKeys(ctx)
	if len(before) != 1 || len(after) != 2 || after[0].ValidUntil == 0 || slices.Equal(after[0].Secret, after[1].Secret) {
		t.Fatalf("the keys were %v and are %v", before, after)
	}
	rows := 0
	for {
		b, err := open.Next()
		if err != nil {
			t.Fatalf("a statement that ran broke off after %d batches: %v", rows, err)
		}
		if b == nil {
			break
		}
		rows++
	}
	if _, err := query(ctx, conn, spread("SELECT count(*) FROM F", "cut")); err != nil {
		t.Errorf("a statement after it: %v", err)
	}
	for _, worker := range w.conns {
		eventually(t, "a worker knows both keys", func(ctx context.Context) error {
			for _, a := range []*flightproto.Authority{old, flightproto.NewAuthority(func() []catalog.SigningKey { return after }, "", time.Now)} {
				if _, err := worker.Status(ctx, sign(a)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	// Once it has run out nothing is signed with it any more.
	late := time.UnixMilli(after[0].ValidUntil).Add(time.Minute)
	expired := flightproto.NewAuthority(func() []catalog.SigningKey { return after }, "", func() time.Time { return late })
	if _, err := expired.Verify(flightproto.SubjectStatus, sign(old)); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Errorf("the old key, later: %v", err)
	}
}
