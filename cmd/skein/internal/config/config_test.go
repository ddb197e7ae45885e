package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func workerFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	WorkerFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skein.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const workerYAML = `
node_id: 2
data: /var/lib/skein
log_level: debug
grace: 3s
members:
  - {id: 1, raft: "a:1", flight: "a:2"}
  - {id: 2, raft: "b:1", flight: "b:2"}
`

func TestLaterSourcesWin(t *testing.T) {
	path := writeConfig(t, workerYAML)
	fs := workerFlags(t, "--config", path, "--cluster", "from-flag")
	environ := []string{"SKEIN_CLUSTER=from-env", "SKEIN_DATA=/env", "SKEIN_NODE_ID=1", "SKEIN_NOPE=1", "HOME=/root"}
	got, unknown, err := LoadWorker(fs, environ)
	if err != nil {
		t.Fatal(err)
	}
	want := Worker{
		Process: Process{Flight: "a:2", LogLevel: slog.LevelDebug, LogFormat: "text", Grace: 3 * time.Second, Memory: Memory{GCPercent: defaultGCPercent}},
		Cluster: "from-flag", NodeID: 1, Data: "/env",
		Members: []Member{{1, "a:1", "a:2"}, {2, "b:1", "b:2"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"SKEIN_NOPE"}, unknown); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironmentAlone(t *testing.T) {
	path := writeConfig(t, workerYAML)
	got, _, err := LoadWorker(workerFlags(t), []string{
		"SKEIN_CONFIG=" + path, "SKEIN_MEMBERS=7=h:1/h:2, 8=i:1/i:2", "SKEIN_NODE_ID=8", "SKEIN_FLIGHT=0.0.0.0:2",
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Member{{7, "h:1", "h:2"}, {8, "i:1", "i:2"}}, got.Members); diff != "" {
		t.Error(diff)
	}
	if got.Flight != "0.0.0.0:2" || got.NodeID != 8 {
		t.Errorf("flight %q, node %d", got.Flight, got.NodeID)
	}
}

func TestWorkerErrors(t *testing.T) {
	for _, tc := range []struct {
		name, yaml string
		args       []string
		environ    []string
		want       string
	}{
		{"unknown setting", "nodeid: 1\n", nil, nil, `unknown setting "nodeid"; did you mean "node_id"?`},
		{"far off setting", "colour_of_geese: 1\n", nil, nil, "the settings are flight, http"},
		{"not YAML", "a: [", nil, nil, "reading"},
		{"no node id", "data: /d\ninit_if_empty: true\n", nil, nil, "node_id is missing"},
		{"no founders", "data: /d\ninit_if_empty: true\nnode_id: 1\n", nil, nil, "members is empty"},
		{"no data", "node_id: 1\n", nil, nil, "data is empty"},
		{"half of TLS", workerYAML, []string{"--node-tls-ca", "ca.pem"}, nil, "must be given together"},
		{"TLS in the clear", workerYAML, []string{"--node-tls-ca", "a", "--node-tls-cert", "b", "--node-tls-key", "c", "--node-plaintext"}, nil, "contradicts"},
		{"address", workerYAML, []string{"--raft", "nowhere"}, nil, `"nowhere" is not host:port`},
		{"not a member", workerYAML, []string{"--node-id", "9"}, nil, "node_id 9 is not among the members"},
		{"duplicate member", workerYAML, []string{"--members", "1=a:1/b:1,1=c:1/d:1"}, nil, "not the only one"},
		{"member form", workerYAML, nil, []string{"SKEIN_MEMBERS=1=a:1"}, "id=raft-address/flight-address"},
		{"member id", workerYAML, nil, []string{"SKEIN_MEMBERS=x=a:1/b:1"}, "not a number"},
		{"member without port", workerYAML, nil, []string{"SKEIN_MEMBERS=1=a/b:1"}, `"a" is not host:port`},
		{"member with port 0", workerYAML, nil, []string{"SKEIN_MEMBERS=1=a:0/b:1"}, "needs a fixed port"},
		{"log level", workerYAML, []string{"--log-level", "loud"}, nil, `log level "loud"`},
		{"log format", workerYAML, []string{"--log-format", "xml"}, nil, "text or json"},
		{"grace", workerYAML, nil, []string{"SKEIN_GRACE=0s"}, "longer than zero"},
		{"port", workerYAML, []string{"--http", "x:99999"}, nil, "no port between"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"--config", writeConfig(t, tc.yaml)}, tc.args...)
			_, _, err := LoadWorker(workerFlags(t, args...), tc.environ)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

func TestGatewayAndDev(t *testing.T) {
	fs := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	GatewayFlags(fs)
	if _, _, err := LoadGateway(fs, nil); err == nil || !strings.Contains(err.Error(), "workers is empty") {
		t.Errorf("error is %v", err)
	}
	if _, _, err := LoadGateway(fs, []string{"SKEIN_WORKERS=a:1", "SKEIN_SLOW_STATEMENT=-1s"}); err == nil || !strings.Contains(err.Error(), "slow_statement") {
		t.Errorf("error is %v", err)
	}
	g, _, err := LoadGateway(fs, []string{"SKEIN_WORKERS=a:1,b:1", "SKEIN_SLOW_STATEMENT=250ms", "SKEIN_NODE_PLAINTEXT=true"})
	if err != nil || len(g.Workers) != 2 || g.Flight != DefaultFlight || g.SlowStatement != 250*time.Millisecond {
		t.Errorf("%+v, %v", g, err)
	}
	fs = pflag.NewFlagSet("dev", pflag.ContinueOnError)
	DevFlags(fs, "/data")
	d, _, err := LoadDev(fs, []string{"SKEIN_DEMO=true"})
	want := Dev{Process: Process{Flight: DefaultFlight, HTTP: DefaultHTTP, LogLevel: slog.LevelWarn, LogFormat: "text", Grace: DefaultGrace, Memory: Memory{GCPercent: defaultGCPercent}},
		Statements: Statements{SlowStatement: DefaultSlow}, Clients: Clients{Auth: AuthNone}, Data: "/data", Demo: true}
	if diff := cmp.Diff(want, d); err != nil || diff != "" {
		t.Error(diff, err)
	}
}

func TestDefaultDataDir(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/xdg")
	if got := DefaultDataDir(); got != "/xdg/skein/dev" {
		t.Error(got)
	}
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "/home/akka")
	if got := DefaultDataDir(); got != "/home/akka/.local/share/skein/dev" {
		t.Error(got)
	}
}

func TestPlaintextStaysOnTheMachine(t *testing.T) {
	for _, tc := range []struct {
		tls     NodeTLS
		address string
		ok      bool
	}{
		{NodeTLS{}, "127.0.0.1:1", true}, {NodeTLS{}, "[::1]:1", true}, {NodeTLS{}, "localhost:1", true}, {NodeTLS{}, "", true},
		{NodeTLS{}, "0.0.0.0:1", false}, {NodeTLS{}, ":1", false}, {NodeTLS{}, "worker-1:1", false}, {NodeTLS{}, "10.0.0.1:1", false},
		{NodeTLS{Plaintext: true}, "worker-1:1", true}, {NodeTLS{CA: "ca.pem"}, "worker-1:1", true},
	} {
		if err := tc.tls.CheckPlaintext("127.0.0.1:9", tc.address); (err == nil) != tc.ok {
			t.Errorf("%+v %q: %v", tc.tls, tc.address, err)
		}
	}
}

func TestWorkerOfAProvisionedDirectory(t *testing.T) {
	w, _, err := LoadWorker(workerFlags(t, "--data", "/d"), nil)
	if err != nil || w.NodeID != 0 || w.Flight != "" {
		t.Errorf("%+v, %v", w, err)
	}
	w, _, err = LoadWorker(workerFlags(t, "--data", "/d", "--raft", "h:1", "--flight", "0.0.0.0:2", "--advertise", "h:2", "--zone", "z"), nil)
	if self, listed := w.Self(); err != nil || listed || self.Raft != "h:1" || self.Flight != "h:2" || w.Zone != "z" {
		t.Errorf("%+v, %v", self, err)
	}
	w, _, err = LoadWorker(workerFlags(t, "--data", "/d", "--raft", "h:1", "--flight", "0.0.0.0:2"), nil)
	if self, _ := w.Self(); err != nil || self.Flight != "" {
		t.Errorf("%+v, %v", self, err)
	}
}

// Nobody beyond this machine is let in without TLS and a password, unless the
// settings say so.
func TestOpenGateways(t *testing.T) {
	secured := []string{"--tls-cert", "c", "--tls-key", "k", "--auth", "users"}
	for _, tc := range []struct {
		flight  string
		further []string
		refused string
	}{
		{"127.0.0.1:1", nil, ""}, {"localhost:1", nil, ""}, {"[::1]:1", nil, ""},
		{"0.0.0.0:1", nil, "insecure"}, {":1", nil, "insecure"}, {"[::]:1", nil, "insecure"}, {"10.0.0.1:1", nil, "insecure"}, {"gate:1", nil, "insecure"},
		{"0.0.0.0:1", secured[:4], "insecure"}, {"0.0.0.0:1", secured[4:], "insecure"}, {"0.0.0.0:1", secured, ""},
		{"0.0.0.0:1", []string{"--insecure"}, ""}, {"127.0.0.1:1", secured, ""}, {"127.0.0.1:1", secured[4:], ""},
		{"127.0.0.1:1", secured[:2], "together"}, {"127.0.0.1:1", []string{"--http-tls-cert", "c"}, "together"},
		{"127.0.0.1:1", []string{"--auth", "maybe"}, "auth"}, {"127.0.0.1:1", []string{"--token-life", "1s"}, "token_life"},
	} {
		args := append([]string{"--flight", tc.flight}, tc.further...)
		fs := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
		GatewayFlags(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		_, _, gatewayErr := LoadGateway(fs, []string{"SKEIN_WORKERS=127.0.0.1:2"})
		fs = pflag.NewFlagSet("dev", pflag.ContinueOnError)
		DevFlags(fs, "/data")
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		_, _, devErr := LoadDev(fs, nil)
		for _, err := range []error{gatewayErr, devErr} {
			if (err == nil) != (tc.refused == "") || (err != nil && !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("%v: %v, want an error with %q", args, err, tc.refused)
			}
		}
	}
}
