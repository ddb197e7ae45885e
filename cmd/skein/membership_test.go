package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skein/cmd/skein/internal/client"
	"skein/internal/certfiles"
	"skein/internal/certfiles/certtest"
)

// grownCluster is a cluster whose workers are provisioned one by one.
type grownCluster struct {
	t       *testing.T
	dirs    map[int]string
	raft    map[int]string
	flight  map[int]string
	workers map[int]*process
	node    func(id int) []string // further settings of a worker
	tools   []string              // of tools and gateways
}

func newGrownCluster(t *testing.T) *grownCluster {
	return &grownCluster{
		t: t, dirs: map[int]string{}, raft: map[int]string{}, flight: map[int]string{}, workers: map[int]*process{},
		node: func(int) []string { return nil },
	}
}

// place gives a node a directory and addresses.
func (c *grownCluster) place(id int) {
	ports := freePorts(c.t, 2)
	c.raft[id], c.flight[id] = ports[0], ports[1]
	if c.dirs[id] == "" {
		c.dirs[id] = filepath.Join(c.t.TempDir(), "data")
	}
}

// admin runs skein admin and returns what it printed.
func (c *grownCluster) admin(args ...string) string {
	c.t.Helper()
	out, stderr, code := command(c.t, "", append([]string{"admin"}, args...)...)
	if code != 0 {
		c.t.Fatalf("skein admin %v: %s", args, stderr)
	}
	return strings.TrimSpace(out)
}

// found provisions the founders.
func (c *grownCluster) found(ids ...int) {
	c.t.Helper()
	var members []string
	for _, id := range ids {
		c.place(id)
		members = append(members, fmt.Sprintf("%d=%s/%s", id, c.raft[id], c.flight[id]))
	}
	for _, id := range ids {
		c.admin("cluster", "init", "--cluster", "grown", "--data", c.dirs[id], "--node-id", fmt.Sprint(id), "--members", strings.Join(members, ","))
	}
}

func (c *grownCluster) token(from int) string {
	c.t.Helper()
	return c.admin(append([]string{"cluster", "token", "--worker", c.flight[from]}, c.tools...)...)
}

func (c *grownCluster) joining(id int, token string) []string {
	return append([]string{"cluster", "join", "--token", token, "--data", c.dirs[id], "--raft", c.raft[id], "--flight", c.flight[id],
		"--zone", fmt.Sprint("zone-", id)}, c.node(id)...)
}

// start starts a worker, which finds everything else in its directory.
func (c *grownCluster) start(ids ...int) {
	for _, id := range ids {
		c.workers[id] = start(c.t, append([]string{"worker", "--data", c.dirs[id], "--log-level", "warn"}, c.node(id)...)...)
	}
}

// gateway starts a gateway that knows one worker.
func (c *grownCluster) gateway(knows int) *client.Client {
	address := freePorts(c.t, 1)[0]
	start(c.t, append([]string{"gateway", "--workers", c.flight[knows], "--flight", address, "--http", "", "--log-level", "warn"}, c.tools...)...)
	return dial(c.t, address)
}

// until waits for the rows of a query.
func until(t *testing.T, c *client.Client, text string, want ...string) {
	t.Helper()
	var last []string
	eventually(t, text, func(ctx context.Context) error {
		got, err := query(ctx, c, text)
		if err != nil {
			return fmt.Errorf("%w; rows before were %v, want %v", err, last, want)
		}
		if last = got; !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// TestClusterIsFoundedJoinedAndMoves founds a cluster of three, joins a fourth
// worker, and starts workers at other addresses.
func TestClusterIsFoundedJoinedAndMoves(t *testing.T) {
	t.Parallel()
	c := newGrownCluster(t)
	c.place(1)
	_, stderr, code := command(t, "", "worker", "--data", c.dirs[1], "--http", "")
	if code != 1 || !strings.Contains(stderr, "admin cluster init") {
		t.Fatalf("a directory that was not provisioned: code %d, %s", code, stderr)
	}
	c.found(1, 2, 3)
	c.start(1, 2, 3)
	conn := c.gateway(2)
	states := "SELECT node_id, state, zone FROM skein.nodes ORDER BY node_id"
	until(t, conn, states, "1,active,", "2,active,", "3,active,")

	c.place(4)
	token := c.token(1)
	if _, stderr, code := command(t, "", append([]string{"admin"}, c.joining(4, token[:len(token)-3]+"AAA")...)...); code != 1 || !strings.Contains(stderr, "28000") && !strings.Contains(stderr, "token") {
		t.Fatalf("a forged token: code %d, %s", code, stderr)
	}
	c.admin(c.joining(4, token)...)
	until(t, conn, states, "1,active,", "2,active,", "3,active,", "4,joining,zone-4")
	other := c.dirs[4]
	c.dirs[4] = filepath.Join(t.TempDir(), "other")
	if _, stderr, code := command(t, "", append([]string{"admin"}, c.joining(4, token+"A")...)...); code != 1 || !strings.Contains(stderr, "token") {
		t.Fatalf("a used token: code %d, %s", code, stderr)
	}
	c.dirs[4] = other
	c.start(4)
	until(t, conn, states, "1,active,", "2,active,", "3,active,", "4,active,zone-4")
	mustExec(t, conn, "CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (tablets = 4, replicas = 1)")
	mustExec(t, conn, "INSERT INTO t VALUES (1), (2), (3), (4), (5), (6), (7), (8)")
	until(t, conn, "SELECT count(*) FROM (SELECT DISTINCT node_id FROM skein.replicas)", "4")
	until(t, conn, "SELECT count(*) FROM t", "8")

	// A founder and the new worker come back at other addresses.
	for _, id := range []int{3, 4} {
		c.workers[id].stop()
		c.place(id)
		c.workers[id] = start(t, "worker", "--data", c.dirs[id], "--raft", c.raft[id], "--flight", c.flight[id], "--log-level", "warn")
		until(t, conn, fmt.Sprintf("SELECT flight_address, raft_address FROM skein.nodes WHERE reachable AND node_id = %d", id),
			c.flight[id]+","+c.raft[id])
	}
	until(t, conn, "SELECT count(*) FROM t", "8")
	until(t, conn, "SELECT count(*) FROM skein.nodes WHERE reachable AND last_seen IS NOT NULL AND version IS NOT NULL AND meta_lag IS NOT NULL", "4")
	until(t, conn, "SELECT meta_role, count(*) FROM skein.nodes GROUP BY meta_role ORDER BY meta_role", "follower,1", "leader,1", "voter,2")
}

func TestSettingsOfTheCluster(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	conn := dial(t, server.flight)
	until(t, conn, "SELECT value, is_set FROM skein.settings WHERE name = 'meta_voters'", "3,false")
	mustExec(t, conn, "CALL skein.set_setting('meta_voters', '5')")
	if got, err := query(testContext(t), conn, "SELECT value, is_set FROM skein.settings WHERE name = 'meta_voters'"); err != nil || !slices.Equal(got, []string{"5,true"}) {
		t.Fatalf("%v, %v", got, err)
	}
	for statement, want := range map[string]string{
		"CALL skein.set_setting('meta_voters', '4')": "22023", "CALL skein.set_setting('my_password', 'x')": "22023",
		"CALL skein.set_setting('nope', 'x')": "42704", "CALL skein.set_setting(NULL, 'x')": "22023", "CALL skein.set_setting('x')": "42883",
	} {
		if _, err := conn.Exec(testContext(t), statement); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", statement, err, want)
		}
	}
	admin := func(args ...string) string {
		out, stderr, code := command(t, "", append([]string{"admin", "settings"}, args...)...)
		if code != 0 {
			t.Fatalf("%v: %s", args, stderr)
		}
		return out
	}
	until(t, conn, "SELECT node_id, state, reachable FROM skein.nodes", "1,active,true")
	admin("set", "meta_voters", "1", "--addr", server.flight)
	if out := admin("--addr", server.flight, "--format", "csv"); !strings.Contains(out, "meta_voters,1,3,") {
		t.Error(out)
	}
	admin("set", "meta_voters", "--reset", "--addr", server.flight)
	until(t, conn, "SELECT value, is_set FROM skein.settings WHERE name = 'meta_voters'", "3,false")
	if out, stderr, code := command(t, "", "admin", "cluster", "status", "--addr", server.flight, "--format", "csv"); code != 0 || !strings.Contains(out, "1,active,true") {
		t.Errorf("%s%s", out, stderr)
	}
}

// TestReadsGoOnWithoutMetaQuorum kills two of three founders: a fourth worker's
// table is read on.
func TestReadsGoOnWithoutMetaQuorum(t *testing.T) {
	t.Parallel()
	c := newGrownCluster(t)
	c.found(1, 2, 3)
	c.start(1, 2, 3)
	conn := c.gateway(1)
	until(t, conn, "SELECT count(*) FROM skein.nodes WHERE reachable", "3")
	c.place(4)
	c.admin(c.joining(4, c.token(2))...)
	c.start(4)
	until(t, conn, "SELECT count(*) FROM skein.nodes WHERE state = 'active'", "4")
	// One tablet of a table is on each node.
	mustExec(t, conn, "CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (tablets = 4, replicas = 1)")
	var rows []string
	for id := range 64 {
		rows = append(rows, fmt.Sprintf("(%d)", id))
	}
	mustExec(t, conn, "INSERT INTO t VALUES "+strings.Join(rows, ", "))
	alive := -1
	for id := range 64 {
		found, err := query(testContext(t), conn, "SELECT tablet_id FROM skein.replicas WHERE node_id = 4")
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		plan, err := query(testContext(t), conn, fmt.Sprintf("EXPLAIN SELECT id FROM t WHERE id = %d", id))
		if err == nil && strings.Contains(strings.Join(plan, "\n"), c.flight[4]) {
			alive = id
			break
		}
	}
	if alive < 0 {
		t.Fatal("no row is on node 4 as plans show it")
	}
	c.workers[1].kill()
	c.workers[2].kill()
	c.workers[3].kill()
	slowest := time.Duration(0)
	for range 20 {
		began := time.Now()
		got, err := query(testContext(t), conn, fmt.Sprintf("SELECT id FROM t WHERE id = %d", alive))
		if err != nil || !slices.Equal(got, []string{fmt.Sprint(alive)}) {
			t.Fatalf("%v, %v", got, err)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest read without a quorum of the meta group took %v", slowest)
	if slowest > 5*time.Second {
		t.Error("that is too long")
	}
	ctx, cancel := context.WithTimeout(testContext(t), 3*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "CREATE TABLE u (id BIGINT PRIMARY KEY)"); err == nil {
		t.Fatal("a table was created without a quorum of the meta group")
	}
}

// TestLostDirectoryIsRefused empties a founder's directory: it must not come back
// as if it had forgotten nothing.
func TestLostDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.awaitWorkers()
	conn := dial(t, c.flight)
	until(t, conn, "SELECT count(*) FROM skein.nodes WHERE reachable", "3")
	c.workers[1].stop()
	if err := os.RemoveAll(c.data[1]); err != nil {
		t.Fatal(err)
	}
	args := []string{"worker", "--cluster", "test", "--node-id", "2", "--data", c.data[1], "--members", strings.Join(c.members, ","), "--init-if-empty"}
	if _, stderr, code := command(t, "", args...); code != 1 || !strings.Contains(stderr, "the cluster knows this node") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if err := os.Mkdir(c.data[1], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.data[1], "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := command(t, "", args...); code != 1 || !strings.Contains(stderr, "does not belong to this node") {
		t.Errorf("code %d, %s", code, stderr)
	}
	args[6] = c.data[0] // another node's
	if _, stderr, code := command(t, "", args...); code != 1 || !strings.Contains(stderr, "node 1 of cluster") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

// TestClusterOverMutualTLS runs workers and a gateway with certificates, renews
// them, and shows that a worker with another's certificate stays out.
func TestClusterOverMutualTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, err := certtest.NewCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := func(name string, owner certfiles.Owner) []string {
		f, err := ca.Make(name, owner.URI())
		if err != nil {
			t.Fatal(err)
		}
		return []string{"--node-tls-ca", f.CA, "--node-tls-cert", f.Cert, "--node-tls-key", f.Key}
	}
	c := newGrownCluster(t)
	settings := map[int][]string{}
	for id := 1; id <= 4; id++ {
		settings[id] = files(fmt.Sprint("node-", id), certfiles.Owner{Cluster: "grown", Node: uint64(id)})
	}
	c.node = func(id int) []string { return settings[id] }
	c.tools = files("gateway", certfiles.Owner{Cluster: "grown"})
	c.found(1, 2, 3)
	c.start(1, 2, 3)
	conn := c.gateway(1)
	mustBeThree := "SELECT count(*) FROM skein.nodes WHERE reachable"
	until(t, conn, mustBeThree, "3")
	mustExec(t, conn, "CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (tablets = 3, replicas = 3)")
	mustExec(t, conn, "INSERT INTO t VALUES (1), (2), (3)")
	until(t, conn, "SELECT count(*) FROM t a JOIN t b ON a.id = b.id + 1", "2")

	if _, _, code := command(t, "", "admin", "cluster", "token", "--worker", c.flight[1]); code != 1 {
		t.Error("a worker has answered a tool without a certificate")
	}
	stranger, err := certtest.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f, err := stranger.Make("gateway", certfiles.Owner{Cluster: "grown"}.URI())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, code := command(t, "", "admin", "cluster", "token", "--worker", c.flight[1],
		"--node-tls-ca", filepath.Join(dir, "ca.pem"), "--node-tls-cert", f.Cert, "--node-tls-key", f.Key); code != 1 {
		t.Error("a worker has answered a tool with a certificate of another authority")
	}
	// A worker does not start with another's certificate.
	own := settings[3]
	c.workers[3].stop()
	settings[3] = settings[2]
	if _, stderr, code := command(t, "", append([]string{"worker", "--data", c.dirs[3]}, settings[3]...)...); code != 1 || !strings.Contains(stderr, "certificate of node 2") {
		t.Errorf("code %d, %s", code, stderr)
	}
	settings[3] = own
	// Certificates are renewed under running processes: new connections use them.
	for id := 1; id <= 3; id++ {
		files(fmt.Sprint("node-", id), certfiles.Owner{Cluster: "grown", Node: uint64(id)})
	}
	c.start(3)
	until(t, conn, mustBeThree, "3")
	c.place(4)
	c.admin(append(c.joining(4, c.token(1)), "--node-id", "4")...)
	c.start(4)
	until(t, conn, mustBeThree, "4")
	until(t, conn, "SELECT count(*) FROM t", "3")
}
