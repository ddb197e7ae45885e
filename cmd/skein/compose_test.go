package main

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"skein/cmd/skein/internal/config"
)

// composeFile is what is checked of the containers' description.
type composeFile struct {
	Services map[string]struct {
		Hostname    string
		Command     []string
		Environment map[string]string
		Healthcheck struct{ Test []string }
		Ports       []string
		Volumes     []string
		DependsOn   []string `yaml:"depends_on"`
	}
	Volumes map[string]any
}

func readYAML(t *testing.T, path string, out any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, out)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestComposeFileFits checks, without containers, that settings, ports, names and
// scrape targets of the compose file agree with each other and with the program.
func TestComposeFileFits(t *testing.T) {
	var compose composeFile
	readYAML(t, "../../docker-compose.yml", &compose)
	var scrapes struct {
		Configs []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "../../examples/cluster/prometheus.yml", &scrapes)
	var targets, want []string
	for _, c := range scrapes.Configs {
		for _, s := range c.Static {
			targets = append(targets, s.Targets...)
		}
	}
	roles := map[string]int{}
	for name, s := range compose.Services {
		for _, needed := range s.DependsOn {
			if _, ok := compose.Services[needed]; !ok {
				t.Errorf("%s depends on %s, which is no service", name, needed)
			}
		}
		for _, v := range s.Volumes {
			if source, _, _ := strings.Cut(v, ":"); strings.HasPrefix(source, ".") {
				if _, err := os.Stat("../../" + source); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if _, ok := compose.Volumes[source]; !ok {
				t.Errorf("%s uses volume %s, which is not declared", name, source)
			}
		}
		if len(s.Command) == 0 {
			continue // not Skein's
		}
		roles[s.Command[0]]++
		want = append(want, checkService(t, compose, name))
	}
	slices.Sort(targets)
	slices.Sort(want)
	if !slices.Equal(targets, want) {
		t.Errorf("Prometheus scrapes %v, and metrics are at %v", targets, want)
	}
	if roles["worker"] != 3 || roles["gateway"] != 2 || len(roles) != 2 {
		t.Errorf("services by role: %v", roles)
	}
}

// checkService checks one worker or gateway and returns where its metrics are.
func checkService(t *testing.T, compose composeFile, name string) string {
	t.Helper()
	s := compose.Services[name]
	var environ []string
	for k, v := range s.Environment {
		environ = append(environ, k+"="+v)
	}
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	var process config.Process
	var unknown []string
	var err error
	switch s.Command[0] {
	case "worker":
		config.WorkerFlags(fs)
		var w config.Worker
		w, unknown, err = config.LoadWorker(fs, environ)
		process = w.Process
		if self, _ := w.Self(); self.Raft != s.Hostname+":31501" || self.Flight != s.Hostname+":31401" || s.Hostname != name {
			t.Errorf("%s with host name %s is reached at %+v", name, s.Hostname, self)
		}
	case "gateway":
		config.GatewayFlags(fs)
		var g config.Gateway
		g, unknown, err = config.LoadGateway(fs, environ)
		process = g.Process
		for _, address := range g.Workers {
			host, port, _ := net.SplitHostPort(address)
			worker, ok := compose.Services[host]
			if _, listens, _ := net.SplitHostPort(worker.Environment["SKEIN_FLIGHT"]); !ok || listens != port {
				t.Errorf("%s has worker %s, where none listens", name, address)
			}
		}
	default:
		t.Fatalf("%s runs skein %v", name, s.Command)
	}
	if err != nil || len(unknown) > 0 {
		t.Errorf("the settings of %s: unknown %v, error %v", name, unknown, err)
	}
	_, flight, _ := net.SplitHostPort(process.Flight)
	_, http, _ := net.SplitHostPort(process.HTTP)
	for _, p := range s.Ports {
		if inner := p[strings.LastIndex(p, ":")+1:]; inner != flight && inner != http {
			t.Errorf("%s publishes port %s, and listens on %s and %s", name, inner, flight, http)
		}
	}
	if check := []string{"CMD", "/skein", "health", "--http", "127.0.0.1:" + http}; !slices.Equal(s.Healthcheck.Test, check) {
		t.Errorf("the health check of %s is %v instead of %v", name, s.Healthcheck.Test, check)
	}
	return name + ":" + http
}
