package consensus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"skein/catalog"
)

// Certificates are those that nodes know each other by. They may be replaced
// while connections are made.
type Certificates interface {
	// Server is for a listener that only nodes of the cluster may connect to, Client
	// for connections to nodes.
	Server() *tls.Config
	Client() *tls.Config
	// Node is the node that a certificate was made for.
	Node(*x509.Certificate) (catalog.NodeID, error)
}

// tlsTransport carries Raft traffic over mutual TLS, in place of the library's
// transport, which reads the listener's certificate once and asks nobody who he
// is. A connection belongs to the node whose certificate was shown: it must be the
// one that listens at the address by the book, and messages must come from it.
//
// A connection carries frames in one direction:
//
//	kind, 1 byte | length, 4 bytes big-endian | a MessageBatch or Chunk
type tlsTransport struct {
	address  string
	certs    Certificates
	book     *addressBook
	log      *slog.Logger
	messages raftio.MessageHandler
	chunks   raftio.ChunkHandler

	listener net.Listener
	serving  sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]struct{} // accepted ones
	closed   bool
}

// Kinds of frames.
const (
	frameBatch = 1
	frameChunk = 2
)

const (
	frameHeader = 1 + 4
	// maxFrame is far above the largest batch that the library sends.
	maxFrame = 512 << 20
	// framePart is written or read within partTime.
	framePart     = 256 << 10
	partTime      = 5 * time.Second
	handshakeTime = 10 * time.Second
)

// tlsFactory makes the transport for the library.
type tlsFactory struct {
	certs Certificates
	book  *addressBook
	log   *slog.Logger
}

// Create implements config.TransportFactory.
func (f tlsFactory) Create(c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	return &tlsTransport{
		address: c.GetListenAddress(), certs: f.certs, book: f.book, log: f.log,
		messages: messages, chunks: chunks, open: map[net.Conn]struct{}{},
	}
}

// Validate implements config.TransportFactory.
func (f tlsFactory) Validate(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil
}

// Name implements raftio.ITransport.
func (t *tlsTransport) Name() string { return "skein-tls" }

// Start implements raftio.ITransport.
func (t *tlsTransport) Start() error {
	l, err := net.Listen("tcp", t.address)
	if err != nil {
		return fmt.Errorf("listening for Raft: %w", err)
	}
	t.listener = l
	server := t.certs.Server()
	t.serving.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.log.Error("accepting Raft connections", "error", err)
				}
				return
			}
			if conn := tls.Server(raw, server); t.track(conn) {
				t.serving.Go(func() { t.serve(conn) })
			}
		}
	})
	return nil
}

// track keeps an accepted connection for Close, unless that has begun.
func (t *tlsTransport) track(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = conn.Close() // nobody has spoken yet
		return false
	}
	t.open[conn] = struct{}{}
	return true
}

func (t *tlsTransport) untrack(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, conn)
	_ = conn.Close() // its reader is done
}

// Close implements raftio.ITransport. It waits for the readers.
func (t *tlsTransport) Close() error {
	t.mu.Lock()
	t.closed = true
	var errs []error
	if t.listener != nil {
		errs = append(errs, t.listener.Close())
	}
	for conn := range t.open {
		_ = conn.(*tls.Conn).NetConn().Close() // at once, whatever its peer does
	}
	t.mu.Unlock()
	t.serving.Wait()
	return errors.Join(errs...)
}

// serve reads a connection's frames until it ends or sends what it should not.
func (t *tlsTransport) serve(conn *tls.Conn) {
	defer t.untrack(conn)
	node, err := t.shake(context.Background(), conn)
	if err != nil {
		t.log.Warn("refused a Raft connection", "from", conn.RemoteAddr().String(), "error", err)
		return
	}
	if t.book.isExpelled(node) {
		t.log.Warn("refused a Raft connection of a removed node", "from", conn.RemoteAddr().String(), "peer", uint64(node))
		return
	}
	if err := t.receive(conn, t.book.target(node)); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		t.log.Info("a Raft connection has ended", "peer", uint64(node), "error", err)
	}
}

// shake makes the handshake within handshakeTime and returns the peer.
func (t *tlsTransport) shake(ctx context.Context, conn *tls.Conn) (catalog.NodeID, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return 0, err
	}
	return t.certs.Node(conn.ConnectionState().PeerCertificates[0])
}

// receive hands on what comes from the node with a membership name, until the
// connection ends, and returns why it did.
func (t *tlsTransport) receive(conn net.Conn, from string) error {
	var buffer []byte
	for {
		kind, payload, err := readFrame(conn, &buffer)
		if err != nil {
			return err
		}
		switch kind {
		case frameBatch:
			batch := raftpb.MessageBatch{}
			if err := batch.Unmarshal(payload); err != nil {
				return fmt.Errorf("decoding a batch of messages: %w", err)
			}
			if batch.SourceAddress != from {
				return fmt.Errorf("it sends messages of %s, and its certificate is that of %s", batch.SourceAddress, from)
			}
			t.messages(batch)
		case frameChunk:
			chunk := raftpb.Chunk{}
			if err := chunk.Unmarshal(payload); err != nil {
				return fmt.Errorf("decoding a part of a snapshot: %w", err)
			}
			if !t.chunks(chunk) {
				return errors.New("a part of a snapshot was refused")
			}
		default:
			return fmt.Errorf("it sends a frame of kind %d", kind)
		}
	}
}

// readFrame reads one frame; its payload is good until the next call.
func readFrame(conn net.Conn, buffer *[]byte) (kind byte, payload []byte, err error) {
	var header [frameHeader]byte
	if err := conn.SetReadDeadline(time.Time{}); err != nil { // there may be nothing to say
		return 0, nil, err
	}
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(header[1:]))
	if size > maxFrame {
		return 0, nil, fmt.Errorf("it announces a frame of %d bytes", size)
	}
	if cap(*buffer) < size || cap(*buffer) > 16*framePart && size < framePart {
		*buffer = make([]byte, max(size, framePart))
	}
	payload = (*buffer)[:size]
	for at := 0; at < size; at += framePart {
		if err := conn.SetReadDeadline(time.Now().Add(partTime)); err != nil {
			return 0, nil, err
		}
		if _, err := io.ReadFull(conn, payload[at:min(at+framePart, size)]); err != nil {
			return 0, nil, err
		}
	}
	return header[0], payload, nil
}

// dial connects to the node that listens at an address.
func (t *tlsTransport) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, t.certs.Client())
	node, err := t.shake(ctx, conn)
	if at := t.book.nodesAt(address); err == nil && !slices.Contains(at, node) {
		err = fmt.Errorf("node %d answers at %s, where nodes %v should be", node, address, at)
	}
	if err != nil {
		t.log.Warn("no Raft connection was made", "to", address, "error", err)
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// GetConnection implements raftio.ITransport.
func (t *tlsTransport) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	conn, err := t.dial(ctx, target)
	if err != nil {
		return nil, err
	}
	return &tlsConnection{conn: conn}, nil
}

// GetSnapshotConnection implements raftio.ITransport.
func (t *tlsTransport) GetSnapshotConnection(ctx context.Context, target string) (raftio.ISnapshotConnection, error) {
	conn, err := t.dial(ctx, target)
	if err != nil {
		return nil, err
	}
	return &tlsConnection{conn: conn}, nil
}

// tlsConnection is the sending end. It is used by one goroutine.
type tlsConnection struct {
	conn   net.Conn
	buffer []byte
}

// Close implements raftio.IConnection and raftio.ISnapshotConnection. What was
// written still arrives.
func (c *tlsConnection) Close() { _ = c.conn.Close() }

// SendMessageBatch implements raftio.IConnection.
func (c *tlsConnection) SendMessageBatch(batch raftpb.MessageBatch) error {
	return c.send(frameBatch, batch.SizeUpperLimit(), func(to []byte) (int, error) { return batch.MarshalTo(to) })
}

// SendChunk implements raftio.ISnapshotConnection.
func (c *tlsConnection) SendChunk(chunk raftpb.Chunk) error {
	return c.send(frameChunk, chunk.Size(), func(to []byte) (int, error) { return chunk.MarshalTo(to) })
}

func (c *tlsConnection) send(kind byte, most int, marshal func([]byte) (int, error)) error {
	if most > maxFrame {
		return fmt.Errorf("a Raft message of %d bytes cannot be sent", most)
	}
	if need := frameHeader + most; cap(c.buffer) < need || cap(c.buffer) > 16*framePart && need < framePart {
		c.buffer = make([]byte, max(need, framePart))
	}
	frame := c.buffer[:frameHeader+most]
	size, err := marshal(frame[frameHeader:])
	if err != nil {
		return fmt.Errorf("encoding a Raft message: %w", err)
	}
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(size))
	for part := range slices.Chunk(frame[:frameHeader+size], framePart) {
		if err := c.conn.SetWriteDeadline(time.Now().Add(partTime)); err != nil {
			return err
		}
		if _, err := c.conn.Write(part); err != nil {
			return err
		}
	}
	return nil
}
