package main

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"

	"skein/cmd/skein/internal/client"
)

// fleet is a cluster of three workers and some gateways, whose processes come and
// go at the same addresses while clients work.
type fleet struct {
	t          *testing.T
	program    string // the binary of its processes
	workerArgs [][]string
	gateArgs   [][]string
	workers    []*process
	gateways   []*process
	flights    []string // Flight addresses of the gateways
	healths    []string // HTTP addresses, of the workers and then of the gateways
}

const fleetWorkers = 3

// nodePorts are the addresses that a worker listens on, and where others reach it.
type nodePorts struct {
	raft, flight           string
	raftListen, flightHere string // "" where they are the same
}

// startFleet starts three workers and gateways with further settings.
func startFleet(t *testing.T, gateways int, settings ...string) *fleet {
	t.Helper()
	ports := freePorts(t, 2*fleetWorkers)
	nodes := make([]nodePorts, fleetWorkers)
	for i := range nodes {
		nodes[i] = nodePorts{raft: ports[2*i], flight: ports[2*i+1]}
	}
	f := planFleet(t, nodes, gateways, settings...)
	f.startAll()
	return f
}

// planFleet describes a fleet without starting it.
func planFleet(t *testing.T, nodes []nodePorts, gateways int, settings ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, program: binary, workers: make([]*process, len(nodes)), gateways: make([]*process, gateways)}
	var members, flights []string
	for i, n := range nodes {
		members = append(members, fmt.Sprintf("%d=%s/%s", i+1, n.raft, n.flight))
		flights = append(flights, n.flight)
	}
	ports := freePorts(t, len(nodes)+2*gateways)
	f.healths = ports[:len(nodes)+gateways]
	f.flights = ports[len(nodes)+gateways:]
	for i, n := range nodes {
		args := []string{"worker", "--cluster", "test", "--node-id", fmt.Sprint(i + 1), "--data", t.TempDir(),
			"--members", strings.Join(members, ","), "--http", f.healths[i], "--init-if-empty", "--log-level", "warn"}
		if n.flightHere != "" {
			args = append(args, "--flight", n.flightHere)
		}
		if n.raftListen != "" {
			args = append(args, "--raft-listen", n.raftListen)
		}
		f.workerArgs = append(f.workerArgs, append(args, settings...))
	}
	for i := range gateways {
		f.gateArgs = append(f.gateArgs, append([]string{"gateway", "--workers", strings.Join(flights, ","), "--flight", f.flights[i],
			"--http", f.healths[len(nodes)+i], "--log-level", "warn"}, settings...))
	}
	return f
}

func (f *fleet) startAll() {
	for i := range f.workers {
		f.startWorker(i)
	}
	for i := range f.gateways {
		f.startGateway(i)
	}
}

func (f *fleet) startWorker(i int) { f.workers[i] = startProgram(f.t, f.program, f.workerArgs[i]...) }

func (f *fleet) startGateway(i int) { f.gateways[i] = startProgram(f.t, f.program, f.gateArgs[i]...) }

// awaitWorker waits until a worker is ready, awaitGateway until a gateway is.
func (f *fleet) awaitWorker(i int)  { f.awaitReady(f.healths[i]) }
func (f *fleet) awaitGateway(i int) { f.awaitReady(f.healths[len(f.workers)+i]) }

func (f *fleet) awaitReady(address string) {
	f.t.Helper()
	eventually(f.t, "readiness of "+address, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	})
}

// awaitAll waits until every process is ready.
func (f *fleet) awaitAll() {
	f.t.Helper()
	for _, address := range f.healths {
		f.awaitReady(address)
	}
}

// stopAll ends all processes gracefully, the gateways first.
func (f *fleet) stopAll() {
	f.t.Helper()
	for _, p := range slices.Concat(f.gateways, f.workers) {
		p.stop()
	}
}

// anyGateway is a client that has several gateways to go to: when the one it uses
// is away it repeats the statement at the next one, as a client library with a
// list of addresses does. It belongs to one goroutine.
type anyGateway struct {
	clients []*client.Client
	at      int
	moves   int // how often it went to another gateway
}

func (f *fleet) dialAny(first int) *anyGateway {
	g := &anyGateway{at: first % len(f.flights)}
	for _, address := range f.flights {
		g.clients = append(g.clients, dial(f.t, address))
	}
	return g
}

// sqlState finds the SQLSTATE in an error's text.
var sqlState = regexp.MustCompile(`SQLSTATE ([0-9A-Z]{5})`)

// stateOf is the SQLSTATE of an error, "" for one that no server has sent.
func stateOf(err error) string {
	if m := sqlState.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

// do runs a statement that may be run twice, at another gateway if the first one is
// away: nobody answers, or it says that it is stopping.
func (g *anyGateway) do(ctx context.Context, f func(context.Context, *client.Client) error) error {
	pause := &backoff.ExponentialBackOff{InitialInterval: time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: time.Second}
	pause.Reset()
	for end := time.Now().Add(gatewayPatience); ; {
		err := f(ctx, g.clients[g.at])
		if err == nil || stateOf(err) != "" || ctx.Err() != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("no gateway answers: %w", err)
		}
		g.at = (g.at + 1) % len(g.clients)
		g.moves++
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// gatewayPatience is for how long a client looks for a gateway that answers: its
// connections wait a little, too, before they try a gateway again that was away.
const gatewayPatience = 10 * time.Second
