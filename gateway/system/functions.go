package system

import (
	"strings"

	"skein/exec"
)

// functionsTable has a row per function and operator of SQL.
var functionsTable = define("functions", fillFunctions,
	text("function_name"), text("signatures"), text("aliases"), text("description"))

func fillFunctions(_ *State, r *rows) {
	for _, d := range exec.FunctionDocs() {
		var aliases any
		if len(d.Aliases) > 0 {
			aliases = strings.Join(d.Aliases, ", ")
		}
		r.add(d.Name, strings.Join(d.Signatures, "; "), aliases, d.Doc)
	}
}
