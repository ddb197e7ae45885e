//go:build !cgo

package parse

import (
	"errors"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	wasmquery "github.com/wasilibs/go-pgquery"
	"github.com/wasilibs/go-pgquery/parser"
)

// parseTree runs the grammar over text. A text that the grammar refuses yields
// the message and its 1-based character position, 0 if unknown.
func parseTree(text string) (tree *pgquery.ParseResult, message string, position int, err error) {
	tree, err = wasmquery.Parse(text)
	var grammar *parser.Error
	if errors.As(err, &grammar) {
		return nil, grammar.Message, grammar.Cursorpos, nil
	}
	return tree, "", 0, err
}
