package system

import (
	"cmp"
	"slices"
)

// queriesTable has a row per statement that runs on this gateway, the oldest
// first.
var queriesTable = define("queries", fillQueries, text("query_id"), moment("started"), text("statement"), text("user_name"))

func fillQueries(s *State, r *rows) {
	running := slices.SortedFunc(slices.Values(s.Queries), func(a, b Query) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	for _, q := range running {
		r.add(q.ID, q.Started, q.Text, q.User)
	}
}
