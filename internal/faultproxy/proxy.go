package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Kind is what happens to a message.
type Kind string

// The kinds. For the first request, Duplicate repeats the whole call, whose second
// answer is thrown away.
const (
	Drop      Kind = "drop"
	Delay     Kind = "delay"     // by Fault.For
	Truncate  Kind = "truncate"  // to half of its bytes
	Duplicate Kind = "duplicate" // directly behind the first
	Reset     Kind = "reset"     // the call fails in its place
	Finish    Kind = "finish"    // requests or answers end well in its place, without trailers
)

// Place is where in a call something happens.
type Place string

// The places.
const (
	Request  Place = "request"
	Response Place = "response"
	End      Place = "end" // of the responses: status and trailers
)

// Fault is what a proxy does once.
type Fault struct {
	Kind    Kind
	Place   Place
	Message int // of the requests or responses, from 0
	For     time.Duration
	// Match chooses the call by its method, such as DoGet, and its first request.
	Match func(method string, request []byte) bool
}

// Proxy passes every call to one backend. It is safe for concurrent use.
type Proxy struct {
	server  *grpc.Server
	backend *grpc.ClientConn
	tasks   sync.WaitGroup

	mu    sync.Mutex
	fault *Fault
	fired int
}

// New serves on a listener, of which it takes possession, for the backend at an
// address that options tell how to dial. The caller closes it.
func New(l net.Listener, address string, options ...grpc.DialOption) (*Proxy, error) {
	const unbounded = 1 << 30
	backend, err := grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(unbounded), grpc.MaxCallSendMsgSize(unbounded)),
	}, options...)...)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p := &Proxy{backend: backend}
	p.server = grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(p.handle),
		grpc.MaxRecvMsgSize(unbounded), grpc.MaxSendMsgSize(unbounded))
	p.tasks.Go(func() { _ = p.server.Serve(l) })
	return p, nil
}

// Close ends all calls and waits for them.
func (p *Proxy) Close() error {
	p.server.Stop()
	err := p.backend.Close()
	p.tasks.Wait()
	return err
}

// Arm makes the next matching call fail as described; nil makes none fail.
func (p *Proxy) Arm(f *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Fired is how many faults have happened.
func (p *Proxy) Fired() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// claim takes the fault if it is meant for a call.
func (p *Proxy) claim(method string, request []byte) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if f == nil || f.Match != nil && !f.Match(method, request) {
		return nil
	}
	p.fault = nil
	return f
}

func (p *Proxy) happened() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fired++
}

// call is one call under way.
type call struct {
	proxy  *Proxy
	method string
	fault  *Fault
	front  grpc.ServerStream
	back   grpc.ClientStream
}

func (p *Proxy) handle(_ any, front grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(front)
	ctx, cancel := context.WithCancelCause(front.Context())
	defer cancel(nil)
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	first := &frame{}
	if err := front.RecvMsg(first); err != nil {
		return err
	}
	c := &call{proxy: p, method: method, fault: p.claim(path.Base(method), first.data), front: front}
	var err error
	if c.back, err = c.open(ctx); err != nil {
		return err
	}
	if err := c.request(ctx, first); err != nil {
		return err
	}
	p.tasks.Go(func() { c.requests(ctx, cancel) })
	err = c.responses(ctx)
	if errors.Is(context.Cause(ctx), errReset) {
		return broken()
	}
	return err
}

func (c *call) open(ctx context.Context) (grpc.ClientStream, error) {
	return c.proxy.backend.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, c.method)
}

// spoiled is the fault if it is meant for a place and message of the call.
func (c *call) spoiled(place Place, message int) *Fault {
	if c.fault == nil || c.fault.Place != place || place != End && c.fault.Message != message {
		return nil
	}
	c.proxy.happened()
	return c.fault
}

func (c *call) request(ctx context.Context, first *frame) error {
	f := c.spoiled(Request, 0)
	if f == nil {
		return c.back.SendMsg(first)
	}
	switch f.Kind {
	case Drop:
		<-ctx.Done() // the backend never hears of the call
		return status.FromContextError(ctx.Err()).Err()
	case Delay:
		hold(ctx, f.For)
	case Truncate:
		first.cut()
	case Duplicate:
		again, err := c.open(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(c.back.SendMsg(first), again.SendMsg(first), again.CloseSend()); err != nil {
			return err
		}
		c.proxy.tasks.Go(func() {
			for again.RecvMsg(&frame{}) == nil {
			}
		})
		return nil
	case Reset, Finish:
		return broken()
	}
	return c.back.SendMsg(first)
}

// requests passes the requests after the first on. What comes of them the answer
// says.
func (c *call) requests(ctx context.Context, cancel context.CancelCauseFunc) {
	for n := 1; ; n++ {
		m := &frame{}
		if err := c.front.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				_ = c.back.CloseSend()
			}
			return
		}
		f := c.spoiled(Request, n)
		if f == nil {
			f = &Fault{}
		}
		switch f.Kind {
		case Drop:
			continue
		case Delay:
			hold(ctx, f.For)
		case Truncate:
			m.cut()
		case Duplicate:
			if c.back.SendMsg(m) != nil {
				return
			}
		case Reset:
			cancel(errReset)
			return
		case Finish:
			_ = c.back.CloseSend()
			return
		}
		if c.back.SendMsg(m) != nil {
			return
		}
	}
}

// responses passes what the backend answers on.
func (c *call) responses(ctx context.Context) error {
	for n := 0; ; n++ {
		m := &frame{}
		err := c.back.RecvMsg(m)
		if err != nil {
			return c.end(ctx, err)
		}
		f := c.spoiled(Response, n)
		if f == nil {
			f = &Fault{}
		}
		switch f.Kind {
		case Drop:
			continue
		case Delay:
			hold(ctx, f.For)
		case Truncate:
			m.cut()
		case Duplicate:
			if err := c.front.SendMsg(m); err != nil {
				return err
			}
		case Reset:
			return broken()
		case Finish:
			return nil
		}
		if err := c.front.SendMsg(m); err != nil {
			return err
		}
	}
}

func (c *call) end(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if f := c.spoiled(End, 0); f != nil {
		switch f.Kind {
		case Delay:
			hold(ctx, f.For)
		case Reset:
			return broken()
		case Drop, Finish, Truncate:
			return err
		}
	}
	c.front.SetTrailer(c.back.Trailer())
	return err
}

// errReset is why a call ends whose requests were broken off.
var errReset = errors.New("the requests were broken off")

func broken() error { return status.Error(codes.Unavailable, "the connection was broken off") }

// hold waits, as a slow network makes its users wait.
func hold(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// frame is a message that nobody looks into.
type frame struct{ data []byte }

func (f *frame) cut() { f.data = f.data[:len(f.data)/2] }

// bytesCodec leaves messages as they are. It goes by the name of the codec
// whose messages they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*frame).data)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*frame).data = data.Materialize()
	return nil
}
