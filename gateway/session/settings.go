package session

import (
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"

	"skein/catalog"
	"skein/sqlstate"
)

// Settings are the values of a session's settings. They are changed by copying:
// what is shared is never modified.
type Settings struct {
	Application string
	// SearchPath are the schemas where names without one are looked for, as given;
	// UserSchema may be among them.
	SearchPath []string
	// Zone is the time zone, as exec.CheckZone takes it.
	Zone string
	// Timeout ends statements that run longer; 0 is no limit.
	Timeout time.Duration
	// QueryMemory bounds the bytes that one query's operators hold on each node; 0
	// leaves it to the node. What a node allows at most, it does not exceed.
	QueryMemory int64
	// Direct lets results come from the workers themselves.
	Direct bool
	// ServerVersion is what SHOW tells.
	ServerVersion string
}

// UserSchema stands in a search path for the schema that is named like the user.
const UserSchema = "$user"

// NewSettings are the settings of a session in which nothing was set.
func NewSettings(version string, timeout time.Duration) Settings {
	return Settings{SearchPath: []string{catalog.DefaultSchema}, Zone: "UTC", Timeout: timeout, ServerVersion: version}
}

// Setting is one setting as SHOW ALL tells of it.
type Setting struct {
	Name, Value, Doc string
}

// Set gives a setting a value, or several if it is a list. Errors are 42704 for a
// name that is not known, 22023 for a value that is not possible and 55P02 for
// what cannot be changed.
func (s *Settings) Set(name string, values ...string) error {
	v, err := find(name)
	if err != nil {
		return err
	}
	if v.set == nil {
		return sqlstate.New(sqlstate.CannotChangeSetting, "setting %q cannot be changed", v.name)
	}
	if len(values) != 1 && !v.list {
		return sqlstate.New(sqlstate.InvalidParameter, "SET %s takes only one value", v.name)
	}
	return v.set(s, values)
}

// Reset gives a setting, or all of them with an empty name, its value among
// defaults.
func (s *Settings) Reset(name string, defaults *Settings) error {
	if name == "" {
		*s = *defaults
		return nil
	}
	v, err := find(name)
	if err == nil && v.set == nil {
		err = sqlstate.New(sqlstate.CannotChangeSetting, "setting %q cannot be changed", v.name)
	}
	if err == nil {
		v.copy(s, defaults)
	}
	return err
}

// Show is the value of a setting, with its name as it is spelled.
func (s *Settings) Show(name string) (Setting, error) {
	v, err := find(name)
	if err != nil {
		return Setting{}, err
	}
	return Setting{v.name, v.show(s), v.doc}, nil
}

// All lists the settings by name.
func (s *Settings) All() []Setting {
	out := make([]Setting, len(variables))
	for i, v := range variables {
		out[i] = Setting{v.name, v.show(s), v.doc}
	}
	return out
}

func find(name string) (*variable, error) {
	if other, ok := aliases[strings.ToLower(name)]; ok {
		name = other
	}
	at := slices.IndexFunc(variables, func(v variable) bool { return strings.EqualFold(v.name, name) })
	if at >= 0 {
		return &variables[at], nil
	}
	err := sqlstate.New(sqlstate.UndefinedObject, "unrecognized configuration parameter %q", name)
	best, distance := "", len(name)/2+1
	for _, v := range variables {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(v.name)); d < distance {
			best, distance = v.name, d
		}
	}
	if best != "" {
		return nil, err.WithHint("perhaps you meant %q; SHOW ALL lists the settings", best)
	}
	return nil, err.WithHint("SHOW ALL lists the settings")
}
