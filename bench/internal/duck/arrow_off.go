//go:build !duckdb_arrow

package duck

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// InsertArrow needs the build tag duckdb_arrow.
func (*DB) InsertArrow(context.Context, array.RecordReader, string) error {
	return errors.New("this benchmark was built without the tag duckdb_arrow")
}
