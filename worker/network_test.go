package worker_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
)

// network is what workers and their clients talk over.
type network interface {
	listen(*testing.T) net.Listener
	dial() []grpc.DialOption
}

// overNetworks runs a test over memory, which depends on nothing around it, and
// over the network that processes use.
func overNetworks(t *testing.T, test func(*testing.T, network)) {
	t.Run("memory", func(t *testing.T) { test(t, &memory{}) })
	t.Run("tcp", func(t *testing.T) { test(t, tcp{}) })
}

// tcp is the loopback interface.
type tcp struct{}

func (tcp) listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (tcp) dial() []grpc.DialOption { return nil }

// memory is pipes within the process.
type memory struct {
	mu        sync.Mutex
	listeners []*bufconn.Listener
}

// pipes is a listener with an address of its own.
type pipes struct {
	*bufconn.Listener
	address memoryAddress
}

type memoryAddress string

func (memoryAddress) Network() string  { return "memory" }
func (a memoryAddress) String() string { return string(a) }

func (p pipes) Addr() net.Addr { return p.address }

func (m *memory) listen(*testing.T) net.Listener {
	const pipeBytes = 64 << 10
	m.mu.Lock()
	defer m.mu.Unlock()
	l := bufconn.Listen(pipeBytes)
	m.listeners = append(m.listeners, l)
	return pipes{l, memoryAddress(fmt.Sprintf("memory:%d", len(m.listeners)-1))}
}

func (m *memory) dial() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		var i int
		if _, err := fmt.Sscanf(address, "memory:%d", &i); err != nil {
			return nil, fmt.Errorf("%q is no address in memory: %w", address, err)
		}
		m.mu.Lock()
		l := m.listeners[i]
		m.mu.Unlock()
		return l.DialContext(ctx)
	})}
}
