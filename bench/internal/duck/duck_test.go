package duck

import (
	"context"
	"math/big"
	"path/filepath"
	"testing"

	"skein/bench/internal/compare"
)

func TestValues(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "duck.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, _, err := db.Query(context.Background(), `SELECT 1.50::DECIMAL(15,2), 7::INTEGER, sum(x), 'a', DATE '2024-02-29',
		TIMESTAMP '2024-02-29 10:00:00', NULL, 0.5::DOUBLE, true FROM (VALUES (9000000000000000000), (9000000000000000000)) AS t(x)`)
	if err != nil {
		t.Fatal(err)
	}
	want := compare.Rows{{
		big.NewRat(3, 2), big.NewRat(7, 1), new(big.Rat).SetInt(new(big.Int).Mul(big.NewInt(18), big.NewInt(1e18))),
		"a", "2024-02-29", "2024-02-29 10:00:00", nil, 0.5, true,
	}}
	if diff := compare.Difference(got, want, nil); diff != "" {
		t.Error(diff)
	}
	if _, _, err := db.Query(context.Background(), "SELECT nope"); err == nil {
		t.Error("a wrong query gave no error")
	}
}
