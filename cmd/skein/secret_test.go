package main

import (
	"context"
	"strings"
	"testing"

	"skein/consensus"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// A cluster with a secret works as any other, and its workers do nothing for those
// who do not know the secret, nor do they tell them the keys.
func TestClusterSecret(t *testing.T) {
	const secret = "correct horse battery staple"
	c := startCluster(t, "--cluster-secret", secret)
	c.awaitWorkers()
	own := dial(t, c.flight)
	eventually(t, "creating a table", func(ctx context.Context) error {
		_, err := own.Exec(ctx, `CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY) WITH (tablets = 3)`)
		return err
	})
	ctx := testContext(t)
	if _, err := own.Exec(ctx, "INSERT INTO t VALUES (1), (2), (3), (4)"); err != nil {
		t.Fatal(err)
	}
	rows, err := query(ctx, own, "SELECT count(*) FROM t x JOIN t y ON x.id = y.id + 1")
	if err != nil || strings.Join(rows, ",") != "3" {
		t.Fatalf("%v, %v", rows, err)
	}
	_, address, _ := strings.Cut(c.members[0], "/")
	stranger, err := flightproto.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	for name, ask := range map[string]func() error{
		"metadata": func() error {
			_, err := stranger.Meta(ctx, consensus.MetaReadSnapshot, []byte("{}"), nil)
			return err
		},
		"key": func() error {
			_, err := stranger.Meta(ctx, consensus.MetaAddKey, []byte("{}"), nil)
			return err
		},
		"status": func() error { _, err := stranger.Status(ctx, nil); return err },
		"truncation": func() error {
			_, err := stranger.Transact(ctx, &pb.TransactRequest{Step: pb.TransactRequest_TRUNCATE, TransactionId: "x", TabletId: 100})
			return err
		},
	} {
		if err := ask(); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
			t.Errorf("%s: %v", name, err)
		}
	}
}
