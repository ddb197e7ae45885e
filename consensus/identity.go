package consensus

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/uuid"

	"skein/catalog"
)

const (
	identityFile = "skein-node.json"
	// identityFormat is what this release writes. It reads the first one, too, in
	// which an identity is the cluster's name and the node's id.
	identityFormat    = 2
	identityFormatOne = 1
	// startedFile says that the node has run here, so that store and log must be.
	startedFile = "skein-started"
)

// Identity says whose data a directory holds. It is written once, before
// anything else, and never changes.
type Identity struct {
	Cluster string `json:"cluster"`
	// ClusterID tells clusters of one name apart.
	ClusterID string         `json:"cluster_id,omitempty"`
	Node      catalog.NodeID `json:"node"`
	// Incarnation is made up with the directory: one that is made anew for the same
	// node, without its data, has another.
	Incarnation string `json:"incarnation,omitempty"`
	// Joined is set where the node came to a cluster that was there.
	Joined bool `json:"joined,omitempty"`
	// Nodes are the cluster's founders or, where the node joined, the nodes it had
	// then, this one included, by id. Addresses may have changed since.
	Nodes []IdentityNode `json:"nodes,omitempty"`
}

// IdentityNode is a node as it was when the directory was provisioned.
type IdentityNode struct {
	ID            catalog.NodeID `json:"id"`
	RaftAddress   string         `json:"raft"`
	FlightAddress string         `json:"flight"`
	Zone          string         `json:"zone,omitempty"`
}

// identityJSON is the file: the format's version, the identity and a CRC-32C,
// in hexadecimal, of the identity's own JSON.
type identityJSON struct {
	Format   int             `json:"format"`
	Identity json.RawMessage `json:"identity"`
	Checksum string          `json:"checksum"`
}

// Founder is the identity of one of the nodes that a cluster begins with. All of
// them must be given the same name, id and members. Without an id, a single
// founder gets a random one, and several one that is made from name and members,
// for they cannot ask each other yet.
func Founder(cluster, clusterID string, node catalog.NodeID, members map[catalog.NodeID]Peer) (Identity, error) {
	if _, ok := members[node]; !ok || node == 0 || cluster == "" {
		return Identity{}, fmt.Errorf("node %d is not among the %d members of cluster %q", node, len(members), cluster)
	}
	if err := checkMembers(members); err != nil {
		return Identity{}, err
	}
	id := Identity{Cluster: cluster, ClusterID: clusterID, Node: node, Incarnation: uuid.NewString()}
	text := cluster
	for _, member := range slices.Sorted(maps.Keys(members)) {
		peer := members[member]
		id.Nodes = append(id.Nodes, IdentityNode{ID: member, RaftAddress: peer.RaftAddress, FlightAddress: peer.FlightAddress})
		text += fmt.Sprintf("\n%d=%s/%s", member, peer.RaftAddress, peer.FlightAddress)
	}
	switch {
	case clusterID != "":
	case len(members) == 1:
		id.ClusterID = uuid.NewString()
	default:
		id.ClusterID = uuid.NewSHA1(uuid.NameSpaceOID, []byte("skein:"+text)).String()
	}
	return id, nil
}

func checkMembers(members map[catalog.NodeID]Peer) error {
	owners := make(map[string]catalog.NodeID, len(members))
	for _, id := range slices.Sorted(maps.Keys(members)) {
		address := members[id].RaftAddress
		if other, ok := owners[address]; ok {
			return fmt.Errorf("nodes %d and %d both have the Raft address %s", other, id, address)
		}
		owners[address] = id
	}
	return nil
}

// Provision makes an empty directory, which need not exist, that of a node.
// Doing so again for the same node of the same cluster changes nothing; every
// other directory is refused with ErrForeignDirectory.
func Provision(dir string, id Identity) (err error) {
	if id.Cluster == "" || id.Node == 0 {
		return fmt.Errorf("provisioning %s: an identity needs a cluster and a node", dir)
	}
	lock, err := lockDirectory(dir, id.holder())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	got, err := ReadIdentity(dir)
	switch {
	case errors.Is(err, ErrNotProvisioned):
		return writeIdentity(dir, id)
	case err != nil:
		return err
	case !got.same(id):
		return fmt.Errorf("%w: %s belongs to %s, this is %s", ErrForeignDirectory, dir, got.String(), id.String())
	}
	return nil
}

// ReadIdentity reads whose directory it is. ErrNotProvisioned says that it is
// empty or missing, ErrForeignDirectory that something else is there, or an
// identity that is damaged or of a later release.
func ReadIdentity(dir string) (Identity, error) {
	id, err := readIdentity(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if err := checkEmpty(dir); err != nil {
		return Identity{}, err
	}
	return Identity{}, fmt.Errorf("%w: %s is empty", ErrNotProvisioned, dir)
}

func (id Identity) same(other Identity) bool {
	return id.Cluster == other.Cluster && id.ClusterID == other.ClusterID && id.Node == other.Node && id.Joined == other.Joined
}

// String names the node.
func (id Identity) String() string { return fmt.Sprintf("node %d of cluster %q", id.Node, id.Cluster) }

func (id Identity) holder() string { return "Skein " + id.String() }

// space is what separates the cluster's names and messages from those of others.
func (id Identity) space() string {
	if id.ClusterID == "" {
		return id.Cluster
	}
	return id.Cluster + "/" + id.ClusterID
}

// Own is the entry of the node itself.
func (id Identity) Own() IdentityNode {
	for _, n := range id.Nodes {
		if n.ID == id.Node {
			return n
		}
	}
	return IdentityNode{ID: id.Node}
}

// peers are the nodes of the identity with their addresses.
func (id Identity) peers() map[catalog.NodeID]Peer {
	peers := make(map[catalog.NodeID]Peer, len(id.Nodes))
	for _, n := range id.Nodes {
		peers[n.ID] = Peer{RaftAddress: n.RaftAddress, FlightAddress: n.FlightAddress}
	}
	return peers
}

// checkStarted refuses a directory whose node has run but whose parts are gone: it
// would have forgotten what it acknowledged and whom it voted for.
func checkStarted(dir string, parts ...string) error {
	_, err := os.Stat(filepath.Join(dir, startedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading data directory: %w", err)
	}
	for _, part := range parts {
		if _, err := os.Stat(filepath.Join(dir, part)); err != nil {
			return fmt.Errorf("%w: a node has run in %s, but its %s is not there: %w", ErrForeignDirectory, dir, part, err)
		}
	}
	return nil
}

// noteStarted notes, when a node's parts are there but before it takes part in
// anything, that it has run.
func noteStarted(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, startedFile)); err == nil {
		return nil
	}
	if err := writeFileDurably(dir, startedFile, []byte("1\n")); err != nil {
		return fmt.Errorf("noting the node's first start: %w", err)
	}
	return nil
}

func readIdentity(dir string) (Identity, error) {
	path := filepath.Join(dir, identityFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return Identity{}, fmt.Errorf("reading node identity: %w", err)
	}
	var file identityJSON
	if err := decodeStrict(data, &file); err != nil {
		return Identity{}, fmt.Errorf("%w: identity file %s is damaged: %v", ErrForeignDirectory, path, err)
	}
	if file.Format != identityFormat && file.Format != identityFormatOne {
		return Identity{}, fmt.Errorf("%w: identity file %s has format %d, this release reads up to %d", ErrForeignDirectory, path, file.Format, identityFormat)
	}
	var id Identity
	if err := decodeStrict(file.Identity, &id); err != nil {
		return Identity{}, fmt.Errorf("%w: identity file %s is damaged: %v", ErrForeignDirectory, path, err)
	}
	canonical, err := json.Marshal(id)
	if err != nil {
		return Identity{}, fmt.Errorf("encoding node identity: %w", err)
	}
	if file.Checksum != checksumText(canonical) {
		return Identity{}, fmt.Errorf("%w: identity file %s does not match its checksum", ErrForeignDirectory, path)
	}
	if file.Format == identityFormat && (id.Cluster == "" || id.Node == 0 || len(id.Nodes) == 0) {
		return Identity{}, fmt.Errorf("%w: identity file %s names no node", ErrForeignDirectory, path)
	}
	return id, nil
}

func writeIdentity(dir string, id Identity) error {
	canonical, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encoding node identity: %w", err)
	}
	data, err := json.MarshalIndent(identityJSON{identityFormat, canonical, checksumText(canonical)}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding node identity: %w", err)
	}
	if err := writeFileDurably(dir, identityFile, append(data, '\n')); err != nil {
		return fmt.Errorf("writing node identity: %w", err)
	}
	return nil
}

func checksumText(data []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(data, castagnoli))
}

// checkEmpty refuses a directory that holds someone else's files. What a fresh
// file system or an interrupted first start leaves behind is fine.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading data directory: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case lockFile, "lost+found", identityFile + ".tmp":
		default:
			return fmt.Errorf("%w: %s has no %s but holds %q", ErrForeignDirectory, dir, identityFile, e.Name())
		}
	}
	return nil
}

// writeFileDurably replaces a file so that after a crash it has either the old
// or the new content.
func writeFileDurably(dir, name string, data []byte) (err error) {
	temporary := filepath.Join(dir, name+".tmp")
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
