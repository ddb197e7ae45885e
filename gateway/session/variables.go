package session

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"skein/catalog"
	"skein/exec"
	"skein/sqlstate"
)

// Bounds of values.
const (
	maxApplication = 256 // bytes
	maxSearchPath  = 64  // schemas
	minQueryMemory = 1 << 20
)

// variable is what can be set or shown.
type variable struct {
	name string
	doc  string
	list bool // it takes several values
	// set checks and takes values; nil for what cannot be changed.
	set  func(*Settings, []string) error
	copy func(to, from *Settings)
	show func(*Settings) string
}

// aliases are other names of settings, in lower case. The map is never written to.
var aliases = map[string]string{"time zone": "timezone", "work_mem": "skein.query_memory"}

// variables are all settings by name. The list is never written to.
var variables = []variable{
	{
		name: "application_name", doc: "name of the client's program",
		set: func(s *Settings, v []string) error {
			if len(v[0]) > maxApplication || !utf8.ValidString(v[0]) {
				return invalidValue("application_name", v[0]).WithHint("it has at most %d bytes of UTF-8", maxApplication)
			}
			s.Application = v[0]
			return nil
		},
		copy: func(to, from *Settings) { to.Application = from.Application },
		show: func(s *Settings) string { return s.Application },
	},
	fixed("client_encoding", "encoding of texts", "UTF8", "utf-8", "unicode"),
	{
		name: "search_path", doc: "schemas where names without one are looked for", list: true,
		set:  setSearchPath,
		copy: func(to, from *Settings) { to.SearchPath = from.SearchPath },
		show: func(s *Settings) string {
			names := make([]string, len(s.SearchPath))
			for i, n := range s.SearchPath {
				names[i] = catalog.QuoteIdent(n)
			}
			return strings.Join(names, ", ")
		},
	},
	readOnly("server_encoding", "encoding of texts in the store", func(*Settings) string { return "UTF8" }),
	readOnly("server_version", "version of the gateway", func(s *Settings) string { return s.ServerVersion }),
	{
		name: "skein.direct_endpoints", doc: "whether results may come from the workers themselves",
		set: func(s *Settings, v []string) (err error) {
			s.Direct, err = boolean("skein.direct_endpoints", v[0])
			return err
		},
		copy: func(to, from *Settings) { to.Direct = from.Direct },
		show: func(s *Settings) string { return onOff(s.Direct) },
	},
	{
		name: "skein.query_memory", doc: "memory that the operators of one query may hold on each node, 0 for what the nodes allow",
		set:  setQueryMemory,
		copy: func(to, from *Settings) { to.QueryMemory = from.QueryMemory },
		show: func(s *Settings) string { return spellUnits(s.QueryMemory, memoryUnits) },
	},
	fixed("standard_conforming_strings", "whether backslashes in '...' are literal", "on", "true", "yes", "1"),
	{
		name: "statement_timeout", doc: "statements that run longer are ended, 0 for never",
		set:  setTimeout,
		copy: func(to, from *Settings) { to.Timeout = from.Timeout },
		show: func(s *Settings) string { return spellUnits(int64(s.Timeout), timeUnits) },
	},
	{
		name: "TimeZone", doc: "time zone of timestamps with time zone as text and of their fields",
		set:  setZone,
		copy: func(to, from *Settings) { to.Zone = from.Zone },
		show: func(s *Settings) string { return s.Zone },
	},
}

func readOnly(name, doc string, show func(*Settings) string) variable {
	return variable{name: name, doc: doc, show: show}
}

// fixed is a setting that clients of other servers make, with the one value that
// is true here and its other spellings.
func fixed(name, doc, value string, spellings ...string) variable {
	return variable{
		name: name, doc: doc,
		set: func(_ *Settings, v []string) error {
			for _, s := range append(spellings, value) {
				if strings.EqualFold(v[0], s) {
					return nil
				}
			}
			return invalidValue(name, v[0]).WithHint("it is always %s", value)
		},
		copy: func(_, _ *Settings) {},
		show: func(*Settings) string { return value },
	}
}

func invalidValue(name, value string) *sqlstate.Error {
	return sqlstate.New(sqlstate.InvalidParameter, "invalid value for parameter %q: %.200q", name, value)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func boolean(name, text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "on", "true", "yes", "1", "t", "y":
		return true, nil
	case "off", "false", "no", "0", "f", "n":
		return false, nil
	}
	return false, invalidValue(name, text).WithHint("it is on or off")
}

// setSearchPath takes a list of names.
func setSearchPath(s *Settings, values []string) error {
	if len(values) > maxSearchPath {
		return invalidValue("search_path", strings.Join(values, ", ")).WithHint("it has at most %d schemas", maxSearchPath)
	}
	path := make([]string, 0, len(values))
	for _, name := range values {
		if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return invalidValue("search_path", name)
		}
		if name != "" { // '' is how an empty path is written
			path = append(path, name)
		}
	}
	s.SearchPath = path
	return nil
}

// setZone takes the name of a time zone or a number of hours east of UTC.
func setZone(s *Settings, values []string) error {
	name := strings.TrimSpace(values[0])
	if hours, err := strconv.ParseFloat(name, 64); err == nil {
		if math.Abs(hours) >= 16 || math.IsNaN(hours) {
			return invalidValue("TimeZone", values[0]).WithHint("an offset is less than 16 hours")
		}
		name = exec.ZoneOfOffset(int64(math.Round(hours * 3600)))
	}
	zone, err := exec.CheckZone(name)
	if err != nil {
		return invalidValue("TimeZone", values[0]).WithHint("use a name such as Europe/Berlin, or hours east of UTC")
	}
	s.Zone = zone
	return nil
}

func setTimeout(s *Settings, values []string) error {
	n, ok := readUnits(values[0], int64(time.Millisecond), timeUnits)
	if !ok || n > math.MaxInt32*int64(time.Millisecond) {
		return invalidValue("statement_timeout", values[0]).WithHint("use milliseconds or a text such as '30s'; units are us, ms, s, min, h and d; 0 is never")
	}
	s.Timeout = time.Duration(n)
	return nil
}

func setQueryMemory(s *Settings, values []string) error {
	n, ok := readUnits(values[0], 1<<10, memoryUnits)
	if !ok || (n != 0 && n < minQueryMemory) {
		return invalidValue("skein.query_memory", values[0]).WithHint("use kilobytes or a text such as '256MB', at least 1MB; units are B, kB, MB, GB and TB; 0 is what the nodes allow")
	}
	s.QueryMemory = n
	return nil
}

// unit is a unit of a setting, as a number of the smallest one.
type unit struct {
	name string
	size int64
}

// The units from the largest on. The lists are never written to.
var (
	timeUnits = []unit{
		{"d", int64(24 * time.Hour)}, {"h", int64(time.Hour)}, {"min", int64(time.Minute)}, {"s", int64(time.Second)},
		{"ms", int64(time.Millisecond)}, {"us", int64(time.Microsecond)},
	}
	memoryUnits = []unit{{"TB", 1 << 40}, {"GB", 1 << 30}, {"MB", 1 << 20}, {"kB", 1 << 10}, {"B", 1}}
)

// readUnits reads a number that is not negative, with a unit or in the bare one.
func readUnits(text string, bare int64, units []unit) (int64, bool) {
	text = strings.TrimSpace(text)
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	size := bare
	if name := strings.TrimSpace(text[len(digits):]); name != "" {
		size = 0
		for _, u := range units {
			if u.name == name {
				size = u.size
			}
		}
	}
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || size == 0 || x < 0 || x*float64(size) >= math.MaxInt64 || math.IsNaN(x) {
		return 0, false
	}
	return int64(math.Round(x * float64(size))), true
}

// spellUnits writes a number in the largest unit that it is a multiple of.
func spellUnits(n int64, units []unit) string {
	if n == 0 {
		return "0"
	}
	for _, u := range units {
		if n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
