package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"skein/catalog"
	"skein/cmd/skein/internal/config"
	"skein/internal/certfiles"
)

// nodeTLS is mutual TLS between the nodes of one cluster. It implements
// consensus.Certificates.
type nodeTLS struct {
	source  *certfiles.Source
	cluster string
}

// openNodeTLS reads the files of the settings; nil is for plaintext. The cluster is
// that of the own certificate, which must be the node's, 0 for a gateway.
func openNodeTLS(c config.NodeTLS, node uint64, logger *slog.Logger) (*nodeTLS, error) {
	if !c.On() {
		return nil, nil
	}
	source, err := certfiles.Open(certfiles.Files{CA: c.CA, Cert: c.Cert, Key: c.Key}, logger)
	if err != nil {
		return nil, err
	}
	owner, err := certfiles.OwnerOf(source.Leaf())
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.Cert, err)
	}
	if owner.Node != node {
		return nil, fmt.Errorf("%s is the certificate of %s, this is %s", c.Cert, owner, certfiles.Owner{Cluster: owner.Cluster, Node: node})
	}
	return &nodeTLS{source, owner.Cluster}, nil
}

// owner is who a certificate of this cluster was made for.
func (t *nodeTLS) owner(leaf *x509.Certificate) (certfiles.Owner, error) {
	owner, err := certfiles.OwnerOf(leaf)
	if err == nil && owner.Cluster != t.cluster {
		err = fmt.Errorf("the certificate is that of %s, this is cluster %q", owner, t.cluster)
	}
	return owner, err
}

// Node is the worker that a certificate of this cluster was made for.
func (t *nodeTLS) Node(leaf *x509.Certificate) (catalog.NodeID, error) {
	owner, err := t.owner(leaf)
	if err == nil && owner.Node == 0 {
		err = fmt.Errorf("the certificate is that of %s, a worker's is needed", owner)
	}
	return catalog.NodeID(owner.Node), err
}

func (t *nodeTLS) isNode(leaf *x509.Certificate) error {
	_, err := t.Node(leaf)
	return err
}

// Server is for a listener that only workers may connect to.
func (t *nodeTLS) Server() *tls.Config { return t.source.Server(t.isNode) }

// Client is for connections to workers.
func (t *nodeTLS) Client() *tls.Config { return t.source.Client(t.isNode) }

// serverOptions are for a worker's Flight service, which workers that were not
// removed and gateways may connect to.
func (t *nodeTLS) serverOptions(removed func(catalog.NodeID) bool) []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(t.source.Server(func(leaf *x509.Certificate) error {
		owner, err := t.owner(leaf)
		if err == nil && owner.Node != 0 && removed(catalog.NodeID(owner.Node)) {
			err = fmt.Errorf("%s was removed", owner)
		}
		return err
	})))}
}

// dialOptions are for connections to workers. nodeAt tells which one is to be at an
// address, 0 where that is not known.
func (t *nodeTLS) dialOptions(nodeAt func(address string) catalog.NodeID) []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(&nodeCredentials{t, nodeAt})}
}

// nodeCredentials check that the worker at an address is the one that should be.
type nodeCredentials struct {
	tls    *nodeTLS
	nodeAt func(string) catalog.NodeID
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *nodeCredentials) ClientHandshake(ctx context.Context, address string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.tls.source.Client(func(leaf *x509.Certificate) error {
		node, err := c.tls.Node(leaf)
		if want := c.nodeAt(address); err == nil && want != 0 && node != want {
			err = fmt.Errorf("node %d answers at %s, where node %d should be", node, address, want)
		}
		return err
	})).ClientHandshake(ctx, address, conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *nodeCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("these credentials are a client's")
}

// Info implements credentials.TransportCredentials.
func (c *nodeCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (c *nodeCredentials) Clone() credentials.TransportCredentials {
	return &nodeCredentials{c.tls, c.nodeAt}
}

// OverrideServerName implements credentials.TransportCredentials. Nodes are known
// by their certificates' URIs, not by names.
func (c *nodeCredentials) OverrideServerName(string) error { return nil }
