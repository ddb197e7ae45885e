package gateway

import (
	"context"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
)

// creating holds the names of tables that ingests of this gateway which create
// a missing table and append to an existing one are making. Of several that
// start at once the first creates and the others append, instead of failing
// when they come to publish a table of their own.
type creating struct {
	mu    sync.Mutex
	names map[tableKey]chan struct{} // closed when the name is free again
}

type tableKey struct{ schema, name string }

func newCreating() *creating { return &creating{names: make(map[tableKey]chan struct{})} }

// claim waits until no other ingest is creating a table of that name, and keeps
// the name until release is called; calling it again does nothing. Ingests in
// other modes neither wait nor keep anything.
func (c *creating) claim(ctx context.Context, key tableKey, options *flightsql.TableDefinitionOptions) (release func(), err error) {
	exists, missing, err := ingestModes(options)
	if err != nil {
		return nil, err
	}
	if exists != flightsql.TableDefinitionOptionsTableExistsOptionAppend ||
		missing != flightsql.TableDefinitionOptionsTableNotExistOptionCreate {
		return func() {}, nil
	}
	for {
		c.mu.Lock()
		busy, taken := c.names[key]
		if !taken {
			free := make(chan struct{})
			c.names[key] = free
			c.mu.Unlock()
			return sync.OnceFunc(func() {
				c.mu.Lock()
				delete(c.names, key)
				c.mu.Unlock()
				close(free)
			}), nil
		}
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, causeOf(ctx, ctx.Err())
		}
	}
}
