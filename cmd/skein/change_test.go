package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"skein/sqlstate"
)

// A statement of a script and its answer: rows as CSV, a count, or an error's
// code.
type scriptStep struct {
	sql  string
	want string
}

// codeOf is the SQLSTATE in the text of an error, "" for none.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	_, rest, _ := strings.Cut(err.Error(), "(SQLSTATE ")
	return rest[:min(5, len(rest))]
}

func runScript(t *testing.T, address string, steps []scriptStep) {
	t.Helper()
	c := dial(t, address)
	for _, step := range steps {
		var got string
		lines, err := query(testContext(t), c, step.sql)
		switch {
		case err != nil:
			got = codeOf(err)
		default:
			got = strings.Join(lines, " ")
		}
		if got != step.want {
			t.Fatalf("%s: got %q, want %q (%v)", step.sql, got, step.want, err)
		}
	}
}

func TestReturning(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	runScript(t, server.flight, []scriptStep{
		{"CREATE TABLE r (id INT PRIMARY KEY, v DECIMAL(8,2) DEFAULT 1.5, n TEXT) WITH (tablets = 2)", ""},
		{"INSERT INTO r (id, n) VALUES (1, 'a') RETURNING *", "1,1.50,a"},
		{"INSERT INTO r (id) VALUES (2) RETURNING id * 10 AS ten, upper(n), v", "20,,1.50"},
		{"INSERT INTO r VALUES (1, 2, 'b') ON CONFLICT DO NOTHING RETURNING id", ""},
		{"INSERT INTO r AS x VALUES (1, 2, 'b') ON CONFLICT (id) DO UPDATE SET v = x.v + excluded.v, n = excluded.n RETURNING x.*", "1,3.50,b"},
		{"INSERT INTO r VALUES (1, 2, 'b') ON CONFLICT (id) DO UPDATE SET v = v + 1", "42702"},
		{"INSERT INTO r VALUES (1, 2, 'b') ON CONFLICT (v) DO NOTHING", "42P10"},
		{"INSERT INTO r VALUES (1, 2, 'b') ON CONFLICT ON CONSTRAINT r_pkey DO UPDATE SET n = NULL WHERE r.n = 'x' RETURNING id", ""},
		{"UPDATE r SET v = DEFAULT, n = 'c' WHERE id = 1 RETURNING v, n", "1.50,c"},
		{"UPDATE r SET (v, n) = (9, 'd') WHERE id = 1 RETURNING v, n", "9.00,d"},
		{"UPDATE r SET v = s.x FROM (VALUES (1, 7.25), (1, 7.25)) AS s (id, x) WHERE r.id = s.id RETURNING r.id, r.v, s.x", "1,7.25,7.25"},
		{"UPDATE r SET id = NULL", "23502"},
		{"UPDATE r SET nope = 1", "42703"},
		{"UPDATE r SET v = 1, v = 2", "42601"},
		{"UPDATE r SET v = count(*)", "42803"},
		{"UPDATE r SET v = 12345678901", "22003"},
		{"DELETE FROM r USING (VALUES (2)) AS s (id) WHERE r.id = s.id RETURNING r.id, s.id", "2,2"},
		{"DELETE FROM r RETURNING n", "d"},
		{"SELECT count(*) FROM r", "0"},
	})
}

func TestAlterTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := startDev(t, dir)
	runScript(t, server.flight, []scriptStep{
		{"CREATE TABLE a (x INT, id INT PRIMARY KEY, y TEXT) WITH (tablets = 2)", ""},
		{"INSERT INTO a VALUES (1, 1, 'one'), (2, 2, 'two')", ""},
		{"ALTER TABLE a ADD COLUMN z INT NOT NULL DEFAULT 5", ""},
		{"ALTER TABLE a ADD COLUMN z INT", "42701"},
		{"ALTER TABLE a ADD COLUMN IF NOT EXISTS z INT", ""},
		{"ALTER TABLE a ADD COLUMN q INT NOT NULL", "0A000"},
		{"SELECT * FROM a ORDER BY id", "1,1,one,5 2,2,two,5"},
		{"UPDATE a SET z = 6 WHERE id = 1", ""},
		{"INSERT INTO a VALUES (3, 3, 'three')", ""},
		{"SELECT id, z FROM a WHERE z = 5 ORDER BY id", "2,5 3,5"},
		{"ALTER TABLE a DROP COLUMN x", ""},
		{"ALTER TABLE a DROP COLUMN x", "42703"},
		{"ALTER TABLE a DROP COLUMN IF EXISTS x", ""},
		{"ALTER TABLE a DROP COLUMN id", "0A000"},
		{"SELECT * FROM a ORDER BY id", "1,one,6 2,two,5 3,three,5"},
		{"ALTER TABLE a ADD COLUMN x TEXT, DROP COLUMN y", ""},
		{"SELECT * FROM a ORDER BY id", "1,6, 2,5, 3,5,"},
		{"INSERT INTO a VALUES (2, 0, 'new') ON CONFLICT (id) DO UPDATE SET x = excluded.x, z = excluded.z", ""},
		{"ALTER TABLE a RENAME COLUMN z TO w", ""},
		{"ALTER TABLE a RENAME TO b", ""},
		{"SELECT * FROM a", "42P01"},
		{"ALTER TABLE a RENAME TO c", "42P01"},
		{"ALTER TABLE IF EXISTS a RENAME TO c", ""},
		{"ALTER TABLE b RENAME COLUMN w TO id", "42701"},
		{"ALTER TABLE b ALTER COLUMN w TYPE BIGINT", "0A000"},
		{"SELECT id, w, x FROM b ORDER BY id", "1,6, 2,0,new 3,5,"},
	})
	server.stop()
	server = startDev(t, dir)
	runScript(t, server.flight, []scriptStep{
		{"SELECT id, w, x FROM b ORDER BY id", "1,6, 2,0,new 3,5,"},
		{"TRUNCATE b", ""},
		{"SELECT count(*) FROM b", "0"},
		{"INSERT INTO b VALUES (1, 1, 'again') RETURNING *", "1,1,again"},
	})
}

// Concurrent increments of one row must all count, however often they meet.
func TestConcurrentIncrements(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	mustExec(t, c, "CREATE TABLE n (id INT PRIMARY KEY, v BIGINT NOT NULL) WITH (tablets = 3)")
	mustExec(t, c, "INSERT INTO n VALUES (1, 0), (2, 0)")
	const writers, each = 6, 15
	var group errgroup.Group
	for w := range writers {
		group.Go(func() error {
			own := dial(t, server.flight)
			for i := 0; i < each; {
				statement := "UPDATE n SET v = v + 1 WHERE id = 1"
				if w%2 == 1 {
					statement = "INSERT INTO n VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET v = n.v + excluded.v"
				}
				affected, err := own.Exec(testContext(t), statement)
				switch {
				case err == nil && affected == 1:
					i++
				case err == nil:
					return fmt.Errorf("%s: %d rows", statement, affected)
				case codeOf(err) != string(sqlstate.SerializationFailure):
					return errors.Join(fmt.Errorf("%s failed", statement), err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	got, err := query(testContext(t), c, "SELECT id, v FROM n ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("1,%d", writers*each), "2,0"}, got); diff != "" {
		t.Error(diff)
	}
}

// Changes of more rows than a gateway holds back go to the tablets as streams.
func TestBulkChanges(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	const digits = "(VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))"
	mustExec(t, c, "CREATE TABLE big (id BIGINT PRIMARY KEY, v BIGINT NOT NULL) WITH (tablets = 2)")
	for _, step := range []struct {
		sql  string
		rows int64
		want string // count, sum(id), sum(v)
	}{
		{"INSERT INTO big SELECT a.d + 10*b.d + 100*c.d + 1000*d.d + 10000*e.d, 1 FROM " + digits + " AS a (d), " + digits + " AS b (d), " +
			digits + " AS c (d), " + digits + " AS d (d), " + digits + " AS e (d)", 100000, "100000,4999950000,100000"},
		{"UPDATE big SET v = v + 1", 100000, "100000,4999950000,200000"},
		{"UPDATE big SET id = id + 1", 100000, "100000,5000050000,200000"},
		{"DELETE FROM big WHERE id % 2 = 0", 50000, "50000,2500000000,100000"},
		{"INSERT INTO big SELECT id - id % 4, 5 FROM big WHERE id % 4 = 1 ON CONFLICT DO NOTHING", 25000, "75000,3749950000,225000"},
		{"INSERT INTO big SELECT id, 7 FROM big ON CONFLICT (id) DO UPDATE SET v = excluded.v", 75000, "75000,3749950000,525000"},
		{"INSERT INTO big SELECT id + 1, 1 FROM big WHERE id < 50000 ON CONFLICT (id) DO UPDATE SET v = big.v + excluded.v", 37500, ""},
		{"DELETE FROM big", -1, "0,,"},
	} {
		affected, err := c.Exec(testContext(t), step.sql)
		if err != nil || step.rows >= 0 && affected != step.rows {
			t.Fatalf("%s: %d rows, %v; want %d", step.sql, affected, err, step.rows)
		}
		got, err := query(testContext(t), c, "SELECT count(*), sum(id), sum(v) FROM big")
		if err != nil {
			t.Fatal(err)
		}
		if step.want != "" && got[0] != step.want {
			t.Fatalf("after %s: %q, want %q", step.sql, got[0], step.want)
		}
	}
}

// A DELETE that is executed with several sets of parameters counts each row
// once, and an upsert sees what earlier sets wrote.
func TestChangesWithParameterSets(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	mustExec(t, c, "CREATE TABLE s (id BIGINT PRIMARY KEY, v BIGINT NOT NULL) WITH (tablets = 2)")
	conn := connectADBC(t, server.flight)
	for _, step := range []struct {
		sql  string
		ids  []int64
		rows int64
		want string
	}{
		{"INSERT INTO s VALUES (?, 1)", []int64{1, 2, 3, 4}, 4, "1,1 2,1 3,1 4,1"},
		{"UPDATE s SET v = v + 1 WHERE id = ?", []int64{1, 1, 2}, 3, "1,3 2,2 3,1 4,1"},
		{"INSERT INTO s VALUES (?, 5) ON CONFLICT (id) DO UPDATE SET v = s.v + excluded.v", []int64{1, 9, 9}, 3, "1,8 2,2 3,1 4,1 9,10"},
		{"INSERT INTO s VALUES (?, 6) ON CONFLICT (id) DO UPDATE SET v = excluded.v", []int64{4, 4, 5}, 3, "1,8 2,2 3,1 4,6 5,6 9,10"},
		{"INSERT INTO s VALUES (?, 0) ON CONFLICT DO NOTHING", []int64{1, 6, 6}, 1, "1,8 2,2 3,1 4,6 5,6 6,0 9,10"},
		{"DELETE FROM s WHERE id = ?", []int64{6, 6, 7, 9}, 2, "1,8 2,2 3,1 4,6 5,6"},
	} {
		s := statement(t, conn, step.sql)
		if err := s.Prepare(testContext(t)); err != nil {
			t.Fatal(err)
		}
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.AppendValues(step.ids, nil)
		ids := b.NewArray()
		rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}, nil), []arrow.Array{ids}, int64(len(step.ids)))
		if err := s.Bind(testContext(t), rec); err != nil {
			t.Fatal(err)
		}
		affected, err := s.ExecuteUpdate(testContext(t))
		if err != nil || affected != step.rows {
			t.Errorf("%s: %d rows, %v; want %d", step.sql, affected, err, step.rows)
		}
		got, err := query(testContext(t), c, "SELECT * FROM s ORDER BY id")
		if err != nil || strings.Join(got, " ") != step.want {
			t.Errorf("after %s: %q, %v; want %q", step.sql, got, err, step.want)
		}
	}
}
