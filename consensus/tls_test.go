package consensus

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"skein/catalog"
	"skein/internal/certfiles"
	"skein/internal/certfiles/certtest"
)

// testCerts are certificates of a test's cluster.
type testCerts struct{ source *certfiles.Source }

func (c testCerts) verify(leaf *x509.Certificate) error { _, err := c.Node(leaf); return err }
func (c testCerts) Server() *tls.Config                 { return c.source.Server(c.verify) }
func (c testCerts) Client() *tls.Config                 { return c.source.Client(c.verify) }

func (c testCerts) Node(leaf *x509.Certificate) (catalog.NodeID, error) {
	owner, err := certfiles.OwnerOf(leaf)
	if err == nil && (owner.Cluster != "test" || owner.Node == 0) {
		err = fmt.Errorf("the certificate is that of %v", owner)
	}
	return catalog.NodeID(owner.Node), err
}

// certified gives each node of a cluster the certificate of the node that named
// says.
func certified(t *testing.T, named func(catalog.NodeID) catalog.NodeID) func(*NodeConfig) {
	t.Helper()
	ca, err := certtest.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *NodeConfig) {
		cfg.Host.LogBytes, cfg.Host.LogEntries = 1<<20, 20
		as := named(cfg.NodeID)
		files, err := ca.Make(fmt.Sprint("node", cfg.NodeID), certfiles.Owner{Cluster: "test", Node: uint64(as)}.URI())
		if err != nil {
			t.Fatal(err)
		}
		source, err := certfiles.Open(files, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Host.Certificates = testCerts{source}
	}
}

// TestRaftOverMutualTLS replicates, catches a node up with a snapshot, and renews
// a certificate while the cluster runs.
func TestRaftOverMutualTLS(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, certified(t, func(id catalog.NodeID) catalog.NodeID { return id }))
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	c.stop(3)
	for key := range int64(60) {
		c.commit(1, table, table.Tablets[0].ID, key+1)
	}
	c.start(3)
	c.ready()
	c.expectRows(table.Tablets[0].ID, 60)
}

func TestWrongCertificateKeepsANodeOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, certified(t, func(id catalog.NodeID) catalog.NodeID {
		if id == 3 {
			return 2
		}
		return id
	}))
	c.start(1, 2, 3)
	for _, id := range []catalog.NodeID{1, 2} {
		if err := c.nodes[id].WaitReady(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	table := plainTable("t", 1)
	if _, err := c.nodes[1].Meta().CreateTable(testContext(t), CreateTable{RequestID: "t", Table: table}); err != nil {
		t.Fatal(err)
	}
	if v, err := c.nodes[3].Meta().Watch(testContext(t), 0, time.Second); err != nil || v != 0 {
		t.Fatalf("a node with another's certificate has version %d, %v", v, err)
	}
	if c.nodes[3].Ready() {
		t.Fatal("it is ready")
	}
}

func TestExpelledNodeMayNotConnect(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, certified(t, func(id catalog.NodeID) catalog.NodeID { return id }))
	c.start(1, 2)
	for _, n := range c.nodes {
		if err := n.WaitReady(testContext(t)); err != nil {
			t.Fatal(err)
		}
		n.Host().book.follow([]NodeInfo{{ID: 3, RaftAddress: c.members[3].RaftAddress, State: NodeRemoved}}, n.ID(), nil)
	}
	c.start(3)
	transport := tlsFactory{c.nodes[3].cfg.Host.Certificates, c.nodes[3].Host().book, testLogger()}.Create(
		nodeHostConfig(&c.nodes[3].Host().cfg, c.nodes[3].Host().book, nil, nil), nil, nil)
	conn, err := transport.GetConnection(testContext(t), c.members[1].RaftAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The refusal is an end of the connection.
	raw := conn.(*tlsConnection).conn
	if err := raw.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Read(make([]byte, 1)); err == nil || errors.Is(err, errTimeout(err)) {
		t.Fatalf("the connection of a removed node goes on: %v", err)
	}
}

// errTimeout is err where it is that of a passed deadline.
func errTimeout(err error) error {
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		return err
	}
	return errors.New("no timeout")
}
