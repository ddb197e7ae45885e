package consensus

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skein/sqlstate"
)

// MetaSetSetting sets one of the cluster's settings: SetSetting -> TableReply.
const MetaSetSetting = "set_setting"

// SetSetting gives a setting of the whole cluster a value, or its default back.
type SetSetting struct {
	RequestID string `json:"request_id"`
	Name      string `json:"name"`
	Value     string `json:"value,omitempty"`
	Reset     bool   `json:"reset,omitempty"` // to the default; Value is ignored
}

// Setting describes a setting of the whole cluster, which all nodes follow while
// they run. Settings of one process are its configuration.
type Setting struct {
	Name        string
	Default     string
	Description string
	// check returns the value as it is stored.
	check func(value string) (string, error)
}

// Names of settings that this package reads.
const (
	SettingMetaVoters = "meta_voters"
	// Described where they are listed.
	SettingRebalance      = "rebalance"
	SettingRebalanceMoves = "rebalance_moves"
	SettingRepairAfter    = "repair_after"
)

// clusterSettings are all settings, by name.
var clusterSettings = append([]Setting{
	{SettingMetaVoters, "3", "how many nodes vote in the meta group, if there are so many", oneOf("1", "3", "5")},
	{SettingRebalance, "true", "whether replicas and leaderships move to even out what nodes carry", boolValue},
	{SettingRebalanceMoves, "4", "how many replicas the cluster moves by itself at once", intValue(1, 64)},
	{SettingRepairAfter, "5m0s", "how long a node must be gone before its replicas are made anew on others", durationValue(leastRepairAfter, 30*24*time.Hour)},
}, reshapeSettings...)

// Settings lists the settings that there are, by name.
func Settings() []Setting {
	list := slices.Clone(clusterSettings)
	slices.SortFunc(list, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func settingNamed(name string) (Setting, bool) {
	for _, s := range clusterSettings {
		if s.Name == name {
			return s, true
		}
	}
	return Setting{}, false
}

func oneOf(values ...string) func(string) (string, error) {
	return func(v string) (string, error) {
		if !slices.Contains(values, v) {
			return "", fmt.Errorf("it takes one of %s", strings.Join(values, ", "))
		}
		return v, nil
	}
}

// boolValue, intValue and durationValue check the values of settings of their
// types; bounds are inclusive.
func boolValue(v string) (string, error) {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return "", fmt.Errorf("it takes true or false")
	}
	return strconv.FormatBool(b), nil
}

func intValue(least, most int64) func(string) (string, error) {
	return func(v string) (string, error) {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return "", fmt.Errorf("it takes a whole number from %d to %d", least, most)
		}
		return strconv.FormatInt(n, 10), nil
	}
}

func durationValue(least, most time.Duration) func(string) (string, error) {
	return func(v string) (string, error) {
		d, err := time.ParseDuration(v)
		if err != nil || d < least || d > most {
			return "", fmt.Errorf("it takes a time from %v to %v, such as 90s", least, most)
		}
		return d.String(), nil
	}
}

// secretWords mark names of what must not become metadata: every gateway has the
// settings, every user may list them, and backups hold them.
var secretWords = []string{"secret", "password", "passwd", "passphrase", "token", "credential", "private", "api_key", "apikey"}

// refusesSecret is an error for a name that looks like that of a secret.
func refusesSecret(name string) *sqlstate.Error {
	lower := strings.ToLower(name)
	for _, word := range secretWords {
		if strings.Contains(lower, word) {
			return sqlstate.New(sqlstate.InvalidParameter, "setting %q would hold a secret, which the metadata is no place for", name).
				WithHint("Give it to the processes that need it, in their environment or in a file.")
		}
	}
	return nil
}

// SetSetting changes a setting. SQLSTATE 42704 says that there is none of the
// name, 22023 that the value is none or that the name is that of a secret.
func (m *Meta) SetSetting(ctx context.Context, r SetSetting) (TableReply, error) {
	return m.command(ctx, MetaSetSetting, r)
}

func (s *metaState) setSetting(r *SetSetting) metaAnswer {
	if err := refusesSecret(r.Name); err != nil {
		return rejected(err)
	}
	setting, ok := settingNamed(r.Name)
	if !ok {
		names := make([]string, 0, len(clusterSettings))
		for _, known := range Settings() {
			names = append(names, known.Name)
		}
		return rejected(sqlstate.New(sqlstate.UndefinedObject, "there is no setting %q", r.Name).
			WithHint("There is %s.", strings.Join(names, ", ")))
	}
	value := ""
	if !r.Reset {
		checked, err := setting.check(r.Value)
		if err != nil {
			return rejected(sqlstate.New(sqlstate.InvalidParameter, "setting %s cannot be %q: %w", r.Name, r.Value, err))
		}
		value = checked
	}
	if s.settings[r.Name] == value {
		return s.accepted(nil)
	}
	// A new map: snapshots share the old one.
	next := make(map[string]string, len(s.settings)+1)
	for name, v := range s.settings {
		next[name] = v
	}
	if next[r.Name] = value; value == "" {
		delete(next, r.Name)
	}
	s.settings = next
	s.counters.Version++
	s.write(recordSettings, 0, s.settings)
	return s.accepted(nil)
}

// Setting is the value of a setting: the one that was set, else the default, ""
// for a name that there is not.
func (s *MetaSnapshot) Setting(name string) string {
	if v, ok := s.Settings[name]; ok {
		return v
	}
	known, _ := settingNamed(name)
	return known.Default
}

// SettingInt, SettingBool and SettingDuration are values of settings of those
// types.
func (s *MetaSnapshot) SettingInt(name string) int64 {
	n, _ := strconv.ParseInt(s.Setting(name), 10, 64) // checked when it was set
	return n
}

// SettingBool is described at SettingInt.
func (s *MetaSnapshot) SettingBool(name string) bool { return s.Setting(name) == "true" }

// SettingDuration is described at SettingInt.
func (s *MetaSnapshot) SettingDuration(name string) time.Duration {
	d, _ := time.ParseDuration(s.Setting(name)) // checked when it was set
	return d
}
