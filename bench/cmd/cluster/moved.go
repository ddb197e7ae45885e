package main

import (
	"context"
	"fmt"
	"strings"

	"skein/bench/internal/compare"
	"skein/bench/internal/skeinproc"
	"skein/bench/internal/tpchdata"
	"skein/bench/tpch"
)

// joinText joins two tables on the order's key. From scale factor 1 on both sides
// are too large to be broadcast.
const joinText = `SELECT o_orderpriority, count(*), sum(l_extendedprice * (1 - l_discount))
FROM %s, %s WHERE o_orderkey = l_orderkey GROUP BY o_orderpriority ORDER BY o_orderpriority`

// moved compares the join of tables that are cut by its key with that of tables
// that are cut by others, so that all rows have to move.
func moved(ctx context.Context, o *options, _ *skeinproc.Cluster, client *skeinproc.Client) error {
	for table, by := range map[string]string{"orders": "o_custkey", "lineitem": "l_partkey"} {
		statement, err := tpch.CreateTable(table, table+"_moved")
		if err != nil {
			return err
		}
		// A primary key must hold the column that cuts the table.
		statement = strings.NewReplacer("PRIMARY KEY (l_orderkey", "PRIMARY KEY (l_partkey, l_orderkey",
			"NOT NULL PRIMARY KEY", "NOT NULL").Replace(statement)
		statement += fmt.Sprintf(" PARTITION BY HASH (%s) WITH (tablets = %d)", by, o.tablets)
		if err := client.Exec(ctx, statement); err != nil {
			return fmt.Errorf("creating %s_moved: %w", table, err)
		}
		if _, err := client.Load(ctx, table+"_moved", tpchdata.File(o.parquet, table)); err != nil {
			return fmt.Errorf("loading %s_moved: %w", table, err)
		}
	}
	here, err := best(ctx, o.runs, client, fmt.Sprintf(joinText, "lineitem", "orders"))
	if err != nil {
		return err
	}
	text := fmt.Sprintf(joinText, "lineitem_moved", "orders_moved")
	apart, err := best(ctx, o.runs, client, text)
	if err != nil {
		return err
	}
	plan, _, err := client.Query(ctx, "EXPLAIN "+text)
	if err != nil {
		return err
	}
	how := "broadcast"
	if strings.Contains(strings.ToLower(fmt.Sprint(plan)), "repartition") {
		how = "repartitioned"
	}
	ratio := apart.took / here.took
	fmt.Printf("lineitem joined with orders: colocated %.1f ms, %s %.1f ms, ratio %.2f (at most %.1f)\n", here.took, how, apart.took, ratio, mostMoved)
	if d := compare.Difference(apart.rows, here.rows, []int{0}); d != "" {
		return fmt.Errorf("the %s join gives other rows: %s", how, d)
	}
	if ratio > mostMoved {
		return fmt.Errorf("the %s join takes %.2f times as long as the colocated one", how, ratio)
	}
	return nil
}
