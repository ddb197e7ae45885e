package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// root is the repository's root as seen from this package.
const root = "../../../.."

func gatewayFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	GatewayFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

// checkTopology checks that three workers and a gateway fit together.
func checkTopology(t *testing.T, workers []Worker, gateway Gateway) {
	t.Helper()
	if len(workers) != 3 {
		t.Fatalf("%d workers, want 3", len(workers))
	}
	var addresses []string
	for i, w := range workers {
		if diff := cmp.Diff(workers[0].Members, w.Members); diff != "" {
			t.Errorf("worker %d sees other members: %s", i+1, diff)
		}
		if w.Cluster != workers[0].Cluster || w.NodeID != uint64(i+1) {
			t.Errorf("worker %d is node %d of %q", i+1, w.NodeID, w.Cluster)
		}
		self, _ := w.Self()
		addresses = append(addresses, self.Flight)
	}
	if diff := cmp.Diff(addresses, gateway.Workers); diff != "" {
		t.Errorf("the gateway's workers are not the cluster's: %s", diff)
	}
}

func TestExampleCluster(t *testing.T) {
	dir := filepath.Join(root, "examples", "cluster")
	var workers []Worker
	ports := map[string]string{}
	claim := func(owner, address string) {
		if other, taken := ports[address]; taken {
			t.Errorf("%s and %s both listen on %s", owner, other, address)
		}
		ports[address] = owner
	}
	for i := 1; i <= 3; i++ {
		w, _, err := LoadWorker(workerFlags(t, "--config", filepath.Join(dir, fmt.Sprintf("worker-%d.yaml", i))), nil)
		if err != nil {
			t.Fatal(err)
		}
		self, _ := w.Self()
		for _, address := range []string{w.Flight, w.HTTP, self.Raft} {
			claim(w.Data, address)
		}
		workers = append(workers, w)
	}
	g, _, err := LoadGateway(gatewayFlags(t, "--config", filepath.Join(dir, "gateway.yaml")), nil)
	if err != nil {
		t.Fatal(err)
	}
	claim("gateway", g.Flight)
	claim("gateway", g.HTTP)
	checkTopology(t, workers, g)
}

type composeFile struct {
	Services map[string]struct {
		Image       string            `yaml:"image"`
		Hostname    string            `yaml:"hostname"`
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Ports       []string          `yaml:"ports"`
		Volumes     []string          `yaml:"volumes"`
	} `yaml:"services"`
	Volumes map[string]any `yaml:"volumes"`
}

// TestComposeFile holds docker-compose.yml to the topology without needing an
// engine to run it.
func TestComposeFile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composeFile
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	var workers []Worker
	var gateways []Gateway
	for _, name := range []string{"worker-1", "worker-2", "worker-3", "gateway-1", "gateway-2"} {
		service, ok := c.Services[name]
		if !ok {
			t.Fatalf("service %s is missing", name)
		}
		var environ []string
		for k, v := range service.Environment {
			environ = append(environ, k+"="+v)
		}
		var unknown []string
		var listens string
		if strings.HasPrefix(name, "gateway-") {
			var gateway Gateway
			gateway, unknown, err = LoadGateway(gatewayFlags(t), environ)
			listens = gateway.Flight
			gateways = append(gateways, gateway)
		} else {
			var w Worker
			w, unknown, err = LoadWorker(workerFlags(t), environ)
			listens = w.Flight
			workers = append(workers, w)
			if service.Hostname != name {
				t.Errorf("service %s has host name %q: a container made anew must keep the name its Raft log is under", name, service.Hostname)
			}
			checkComposeWorker(t, name, w, service.Volumes, c.Volumes)
		}
		if err != nil || len(unknown) > 0 {
			t.Fatalf("service %s: %v, unknown variables %v", name, err, unknown)
		}
		if host, _, _ := net.SplitHostPort(listens); host != "0.0.0.0" {
			t.Errorf("service %s listens on %s, out of reach for other containers", name, listens)
		}
		if role, _, _ := strings.Cut(name, "-"); !slices.Equal(service.Command, []string{role}) {
			t.Errorf("service %s runs %v", name, service.Command)
		}
		for _, port := range service.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("service %s publishes %s beyond this machine", name, port)
			}
		}
	}
	if len(c.Services) != 6 { // Prometheus, too
		t.Errorf("%d services, want 6", len(c.Services))
	}
	for _, gateway := range gateways {
		checkTopology(t, workers, gateway)
	}
}

func checkComposeWorker(t *testing.T, service string, w Worker, mounts []string, volumes map[string]any) {
	t.Helper()
	self, _ := w.Self()
	for _, address := range []string{self.Raft, self.Flight} {
		if host, _, _ := net.SplitHostPort(address); host != service {
			t.Errorf("%s is told to others as %s", service, address)
		}
	}
	for _, mount := range mounts {
		volume, path, _ := strings.Cut(mount, ":")
		if _, declared := volumes[volume]; declared && path == w.Data {
			return
		}
	}
	t.Errorf("%s keeps %s on no declared volume: %v", service, w.Data, mounts)
}
