package demo

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"strings"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/render"
	"skein/cmd/skein/internal/source"
)

//go:generate go run generate.go

//go:embed geese.csv fixes.csv
var files embed.FS

// tables in the order they are loaded: fixes last, since its presence says that
// the demo is complete.
var tables = []struct{ name, ddl string }{
	{"geese", `CREATE TABLE IF NOT EXISTS geese (
  tag     VARCHAR(8) PRIMARY KEY,
  name    TEXT NOT NULL,
  species TEXT NOT NULL,
  ringed  DATE NOT NULL,
  mass_g  INTEGER
)`},
	{"fixes", `CREATE TABLE IF NOT EXISTS fixes (
  tag        VARCHAR(8) NOT NULL,
  at         TIMESTAMP NOT NULL,
  lat        DOUBLE PRECISION NOT NULL,
  lon        DOUBLE PRECISION NOT NULL,
  altitude_m INTEGER,
  speed_kmh  DECIMAL(5,1) NOT NULL,
  PRIMARY KEY (tag, at)
)`},
}

// Query is what the demo shows.
const Query = `SELECT g.species, count(*) AS fixes, max(f.lat) AS northernmost, avg(f.speed_kmh) AS mean_kmh
FROM fixes AS f JOIN geese AS g ON g.tag = f.tag
WHERE f.speed_kmh > 20
GROUP BY g.species
ORDER BY northernmost DESC`

// Load creates and fills the sample tables that are missing or empty.
func Load(ctx context.Context, c *client.Client) error {
	for _, table := range tables {
		if _, err := c.Exec(ctx, table.ddl); err != nil {
			return fmt.Errorf("creating sample table %s: %w", table.name, err)
		}
		filled, err := hasRows(ctx, c, table.name)
		if err != nil {
			return fmt.Errorf("looking into sample table %s: %w", table.name, err)
		}
		if filled {
			continue
		}
		if err := fill(ctx, c, table.name); err != nil {
			return fmt.Errorf("loading sample table %s: %w", table.name, err)
		}
	}
	return nil
}

func hasRows(ctx context.Context, c *client.Client, table string) (bool, error) {
	r, err := c.Run(ctx, "SELECT tag FROM "+table+" LIMIT 1")
	if err != nil {
		return false, err
	}
	defer r.Close()
	for {
		batch, err := r.Next()
		if batch == nil || err != nil {
			return false, err
		}
		if batch.NumRows() > 0 {
			return true, nil
		}
	}
}

func fill(ctx context.Context, c *client.Client, name string) error {
	table := client.Table{Name: name}
	schema, found, err := c.TableSchema(ctx, table)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("table %s is not listed", name)
	}
	content, err := files.ReadFile(name + ".csv")
	if err != nil {
		return err
	}
	rows, err := source.NewCSV(bytes.NewReader(content), source.Options{Schema: schema})
	if err != nil {
		return err
	}
	defer rows.Release()
	_, err = c.Ingest(ctx, table, client.Append, rows)
	return err
}

// Show prints the query and its result.
func Show(ctx context.Context, c *client.Client, w io.Writer) error {
	r, err := c.Run(ctx, Query)
	if err != nil {
		return fmt.Errorf("running the sample query: %w", err)
	}
	defer r.Close()
	if _, err := fmt.Fprintf(w, "\n  %s;\n\n", strings.ReplaceAll(Query, "\n", "\n  ")); err != nil {
		return err
	}
	_, err = render.Write(w, render.Table, r.Schema(), r.Next)
	return err
}
