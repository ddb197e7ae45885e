package system

import (
	"fmt"
	"strings"
	"time"
)

// jobsTable has a row per job that runs, and per one of the newest that are
// over. The table's name is NULL once it is dropped.
var jobsTable = define("jobs", fillJobs,
	number("job_id"), text("kind"), text("table_schema"), text("table_name"), text("tablets"), text("state"), text("phase"),
	number("owner_node"), moment("created"), moment("updated"), text("note"), text("error"))

func fillJobs(s *State, r *rows) {
	for _, j := range s.Meta.Jobs {
		var schema, name, owner any
		if t, ok := s.Meta.Table(j.Table); ok {
			schema, name = t.Schema, t.Name
		}
		if j.Owner != 0 {
			owner = j.Owner
		}
		ids := make([]string, len(j.Tablets))
		for i, id := range j.Tablets {
			ids[i] = fmt.Sprint(uint64(id))
		}
		r.add(j.ID, string(j.Kind), schema, name, strings.Join(ids, ", "), string(j.State), j.Phase,
			owner, time.UnixMilli(j.CreatedUnixMS), time.UnixMilli(j.UpdatedUnixMS), orNull(j.Note), orNull(j.Error))
	}
}
