package config

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

const envPrefix = "SKEIN_"

// clientVariables are read by commands that are clients, of whose settings a process
// that serves has none.
var clientVariables = []string{"addr", "user", "password", "new_password", "join_token"}

// FileFlag is the flag, and with SKEIN_ the variable, that names the YAML file.
const FileFlag = "config"

// Flags adds the flags of a process's common settings with its defaults.
func Flags(fs *pflag.FlagSet, flight, http, logLevel string) {
	fs.String("flight", flight, "address of the Flight service, host:port")
	fs.String("http", http, "address of /healthz, /readyz and /metrics, host:port; empty for none")
	fs.String("http-tls-cert", "", "PEM file with the certificate of the HTTP address, empty for plaintext")
	fs.String("http-tls-key", "", "PEM file with its key")
	fs.String("log-level", logLevel, "debug, info, warn or error")
	fs.String("log-format", DefaultLogFormat, "text or json")
	fs.Duration("grace", DefaultGrace, "longest time that a graceful stop may take")
	memoryFlags(fs)
}

// DevFlags adds the settings of `skein dev`.
func DevFlags(fs *pflag.FlagSet, data string) {
	Flags(fs, DefaultFlight, DefaultHTTP, DefaultDevLogLevel)
	fs.String("data", data, "data directory, or "+InMemory+" for one that is removed at exit")
	cacheFlags(fs)
	statementFlags(fs)
	clientFlags(fs)
	fs.Bool("demo", false, "load the sample tables and show a query")
}

func clientFlags(fs *pflag.FlagSet) {
	fs.String("tls-cert", "", "PEM file with the certificate that clients see; turns on TLS")
	fs.String("tls-key", "", "PEM file with its key")
	fs.String("auth", AuthNone, "who is let in: "+AuthNone+" asks nobody, "+AuthUsers+" wants a user and password of the cluster")
	fs.Duration("token-life", 0, "how long a login is good for, 0 for 8h")
	fs.Bool("insecure", false, "let clients beyond this machine in without TLS or without asking who they are")
}

func statementFlags(fs *pflag.FlagSet) {
	fs.Duration("slow-statement", DefaultSlow, "log statements that take this long as slow, 0 for never")
	fs.Duration("statement-timeout", 0, "end statements that run longer, 0 for never")
	fs.Duration("direct-ticket-life", 0, "how long the tickets of direct endpoints are good, 0 for 1m")
	fs.Duration("fragment-lease", 0, "how long workers keep fragments that nobody pulls, as when the gateway dies, 0 for 5m")
	fs.Duration("session-idle", 0, "end clients' sessions that are not used for this long, 0 for 1h")
	fs.Int("max-sessions", 0, "sessions of clients at a time, 0 for 10000")
	fs.Int("max-fragments", 0, "fragments of all queries at a time, 0 for 1024")
	fs.String("max-bytes", "0", "estimated bytes of all queries at a time, 0 for 16GiB")
	fs.Int("max-query-fragments", 0, "fragments of one query, 0 for max-fragments")
	fs.String("max-query-bytes", "0", "estimated bytes of one query, 0 for any number")
	fs.Int("admission-queue", 0, "queries that may wait for others to end, 0 for 256")
	fs.Duration("admission-wait", 0, "longest time that a query may wait for others to end, 0 for 30s")
}

func secretFlag(fs *pflag.FlagSet) {
	fs.String("cluster-secret", "", "secret that workers and gateways know each other by, better set as SKEIN_CLUSTER_SECRET")
}

// NodeTLSFlags adds the settings of the traffic between nodes.
func NodeTLSFlags(fs *pflag.FlagSet) {
	fs.String("node-tls-ca", "", "PEM file with the CA of the nodes' certificates; turns on mutual TLS between nodes")
	fs.String("node-tls-cert", "", "PEM file with this node's certificate")
	fs.String("node-tls-key", "", "PEM file with its key")
	fs.Bool("node-plaintext", false, "let nodes talk in the clear beyond this machine")
}

// SecretFlag adds the setting of the cluster's secret.
func SecretFlag(fs *pflag.FlagSet) { secretFlag(fs) }

// GatewayFlags adds the settings of `skein gateway`.
func GatewayFlags(fs *pflag.FlagSet) {
	fs.String(FileFlag, "", "YAML file with settings")
	Flags(fs, DefaultFlight, DefaultHTTP, DefaultNodeLogLevel)
	statementFlags(fs)
	clientFlags(fs)
	secretFlag(fs)
	NodeTLSFlags(fs)
	fs.StringSlice("workers", nil, "Flight addresses of the workers")
}

// WorkerFlags adds the settings of `skein worker`.
func WorkerFlags(fs *pflag.FlagSet) {
	fs.String(FileFlag, "", "YAML file with settings")
	Flags(fs, "", "", DefaultNodeLogLevel)
	fs.String("cluster", "", "name that all workers of the cluster share, empty for that of the data directory")
	fs.Uint64("node-id", 0, "number of this worker, unique in the cluster, 0 for that of the data directory")
	fs.String("data", "", "data directory")
	cacheFlags(fs)
	secretFlag(fs)
	NodeTLSFlags(fs)
	fs.StringSlice("members", nil, "workers as id=raft-address/flight-address; with init-if-empty all founders")
	fs.String("raft", "", "address of Raft traffic as others reach it, host:port; empty for that of members or the data directory")
	fs.String("advertise", "", "address of the Flight service as others reach it; empty likewise")
	fs.String("zone", "", "where this worker is, for example a data centre; replicas are spread over zones")
	fs.Bool("init-if-empty", false, "found the cluster of members if the data directory is empty")
}

// LoadDev reads the settings of `skein dev`; environ is as os.Environ has it.
// The string slice names variables that look like settings but are none.
func LoadDev(fs *pflag.FlagSet, environ []string) (Dev, []string, error) {
	var c Dev
	unknown, err := load(fs, environ, &c)
	if err == nil {
		err = c.validate()
	}
	return c, unknown, err
}

// LoadGateway reads the settings of `skein gateway`, like LoadDev.
func LoadGateway(fs *pflag.FlagSet, environ []string) (Gateway, []string, error) {
	var c Gateway
	unknown, err := load(fs, environ, &c)
	if err == nil {
		err = c.validate()
	}
	return c, unknown, err
}

// LoadWorker reads the settings of `skein worker`, like LoadDev.
func LoadWorker(fs *pflag.FlagSet, environ []string) (Worker, []string, error) {
	var c Worker
	unknown, err := load(fs, environ, &c)
	if err == nil {
		err = c.validate()
	}
	return c, unknown, err
}

// LoadNodeTools reads the settings of an operator's tool that talks to workers.
func LoadNodeTools(fs *pflag.FlagSet, environ []string) (NodeTools, error) {
	var c NodeTools
	_, err := load(fs, environ, &c)
	if err == nil {
		err = c.Secret.validate()
	}
	if err == nil {
		err = c.NodeTLS.validate()
	}
	return c, err
}

func load(fs *pflag.FlagSet, environ []string, out any) (unknown []string, err error) {
	known := settingsOf(reflect.TypeOf(out).Elem())
	k := koanf.New(".")
	path := configPath(fs, environ)
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		for key := range k.Raw() {
			if !slices.Contains(known, key) {
				return nil, fmt.Errorf("%s: unknown setting %q%s", path, key, suggestion(key, known))
			}
		}
	}
	variables := env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			key := strings.ToLower(strings.TrimPrefix(name, envPrefix))
			if slices.Contains(known, key) {
				return key, value
			}
			if key != FileFlag && !slices.Contains(clientVariables, key) {
				unknown = append(unknown, name)
			}
			return "", nil
		},
	})
	if err := k.Load(variables, nil); err != nil {
		return nil, fmt.Errorf("reading the environment: %w", err)
	}
	flags := posflag.ProviderWithFlag(fs, ".", k, func(f *pflag.Flag) (string, any) {
		key := strings.ReplaceAll(f.Name, "-", "_")
		if !slices.Contains(known, key) {
			return "", nil
		}
		return key, posflag.FlagVal(fs, f)
	})
	if err := k.Load(flags, nil); err != nil {
		return nil, fmt.Errorf("reading the flags: %w", err)
	}
	if err := decode(k, out); err != nil {
		if path != "" {
			return nil, fmt.Errorf("%s, environment and flags: %w", path, err)
		}
		return nil, fmt.Errorf("environment and flags: %w", err)
	}
	slices.Sort(unknown)
	return unknown, nil
}

func decode(k *koanf.Koanf, out any) error {
	return k.UnmarshalWithConf("", out, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{
			Result:           out,
			TagName:          "koanf",
			WeaklyTypedInput: true,
			DecodeHook: mapstructure.ComposeDecodeHookFunc(
				mapstructure.StringToTimeDurationHookFunc(),
				listHook,
				textHook,
			),
		},
	})
}

// listHook splits the lists that variables carry at their commas.
func listHook(from, to reflect.Type, data any) (any, error) {
	if from.Kind() != reflect.String || to.Kind() != reflect.Slice {
		return data, nil
	}
	var parts []string
	for part := range strings.SplitSeq(data.(string), ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// textHook reads the settings that have a text form of their own.
func textHook(from, to reflect.Type, data any) (any, error) {
	if from.Kind() != reflect.String {
		return data, nil
	}
	switch to {
	case reflect.TypeFor[Member]():
		return ParseMember(data.(string))
	case reflect.TypeFor[Size]():
		var size Size
		return size, size.UnmarshalText([]byte(data.(string)))
	case reflect.TypeFor[slog.Level]():
		var level slog.Level
		if err := level.UnmarshalText([]byte(data.(string))); err != nil {
			return nil, fmt.Errorf("log level %q is not debug, info, warn or error", data)
		}
		return level, nil
	}
	return data, nil
}

func configPath(fs *pflag.FlagSet, environ []string) string {
	f := fs.Lookup(FileFlag)
	if f == nil {
		return ""
	}
	if f.Changed {
		return f.Value.String()
	}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); name == envPrefix+"CONFIG" {
			return value
		}
	}
	return f.Value.String()
}

// settingsOf lists the setting names of a configuration struct.
func settingsOf(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		tag := t.Field(i).Tag.Get("koanf")
		if tag == ",squash" {
			names = append(names, settingsOf(t.Field(i).Type)...)
			continue
		}
		names = append(names, tag)
	}
	return names
}

func suggestion(key string, known []string) string {
	best, distance := "", 4
	for _, name := range known {
		if d := levenshtein.ComputeDistance(strings.ToLower(key), name); d < distance {
			best, distance = name, d
		}
	}
	if best == "" {
		return "; the settings are " + strings.Join(known, ", ")
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// DefaultDataDir is where `skein dev` keeps its data unless told otherwise:
// below $XDG_DATA_HOME, or ~/.local/share where that is not set.
func DefaultDataDir() string {
	base := os.Getenv("XDG_DATA_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return InMemory
		}
		base = home + "/.local/share"
	}
	return base + "/skein/dev"
}

// NewLogger writes a process's log to w with the settings' level and format.
func (p *Process) NewLogger(w *os.File) *slog.Logger {
	options := &slog.HandlerOptions{Level: p.LogLevel, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			return slog.Float64(a.Key+"_seconds", a.Value.Duration().Round(time.Microsecond).Seconds())
		}
		return a
	}}
	if p.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
