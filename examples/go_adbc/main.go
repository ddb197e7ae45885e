// Command go_adbc loads birds.csv into Skein and queries it, with the ADBC
// driver.
//
//	go run ./examples/go_adbc grpc://127.0.0.1:8815 examples/birds.csv
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/csv"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

var birds = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "species", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "ringed", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
	{Name: "mass_kg", Type: &arrow.Decimal128Type{Precision: 6, Scale: 2}, Nullable: true},
}, nil)

func main() {
	log.SetFlags(0)
	uri, path := "grpc://127.0.0.1:8815", "examples/birds.csv"
	if len(os.Args) > 1 {
		uri = os.Args[1]
	}
	if len(os.Args) > 2 {
		path = os.Args[2]
	}
	if err := run(context.Background(), uri, path); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, uri, path string) (err error) {
	db, err := flightsql.NewDriver(memory.DefaultAllocator).NewDatabase(map[string]string{adbc.OptionKeyURI: uri})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	connection, err := db.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	for _, sql := range []string{
		"DROP TABLE IF EXISTS birds_go",
		"CREATE TABLE birds_go (id BIGINT PRIMARY KEY, name TEXT, species TEXT, ringed DATE, mass_kg DECIMAL(6,2))",
	} {
		if err := execute(ctx, connection, sql); err != nil {
			return err
		}
	}
	if err := load(ctx, connection, path); err != nil {
		return err
	}
	return query(ctx, connection, "SELECT species, count(*), max(mass_kg) FROM birds_go GROUP BY species ORDER BY species")
}

func execute(ctx context.Context, connection adbc.Connection, sql string) (err error) {
	statement, err := connection.NewStatement()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	if err := statement.SetSqlQuery(sql); err != nil {
		return err
	}
	_, err = statement.ExecuteUpdate(ctx)
	return err
}

func load(ctx context.Context, connection adbc.Connection, path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	rows := csv.NewReader(file, birds, csv.WithHeader(true), csv.WithChunk(1024), csv.WithNullReader(true, ""))
	defer rows.Release()
	statement, err := connection.NewStatement()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	if err := statement.SetOption(adbc.OptionKeyIngestTargetTable, "birds_go"); err != nil {
		return err
	}
	if err := statement.SetOption(adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeAppend); err != nil {
		return err
	}
	if err := statement.BindStream(ctx, rows); err != nil {
		return err
	}
	n, err := statement.ExecuteUpdate(ctx)
	fmt.Fprintln(os.Stderr, n, "rows loaded")
	return err
}

func query(ctx context.Context, connection adbc.Connection, sql string) (err error) {
	statement, err := connection.NewStatement()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	if err := statement.SetSqlQuery(sql); err != nil {
		return err
	}
	rows, _, err := statement.ExecuteQuery(ctx)
	if err != nil {
		return err
	}
	defer rows.Release()
	for rows.Next() {
		batch := rows.RecordBatch()
		species := batch.Column(0).(*array.String)
		count := batch.Column(1).(*array.Int64)
		heaviest := batch.Column(2).(*array.Decimal128)
		scale := heaviest.DataType().(*arrow.Decimal128Type).Scale
		for i := range int(batch.NumRows()) {
			fmt.Println(species.Value(i), count.Value(i), heaviest.Value(i).ToString(scale))
		}
	}
	return rows.Err()
}
