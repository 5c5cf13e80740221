// Package mirror copies memory to another machine by RDMA. It is an example of a module of
// its own whose tests are in mirror_test.go, each with a lab.
//
// Serve lends memory to who connects, and Copy writes there. When the connection breaks,
// Copy connects again and begins again, since the memory may be another's then.
package mirror

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

const (
	chunk       = 64 << 10 // bytes of a WRITE, at most
	messageSize = 8

	retryInterval = 10 * time.Millisecond // from a connection that has failed to the next
)

// A peer is one end of a connection.
type peer struct {
	*await.Conn
	messages *await.Buffer // one to send, then one to receive
}

// send sends a number, and does not wait: what the peer does next says that it has arrived.
func (p *peer) send(ctx context.Context, n uint64) error {
	binary.BigEndian.PutUint64(p.messages.Bytes, n)
	_, err := p.PostSend(ctx, p.messages.SGL(0, messageSize))
	return err
}

// receive waits for the next number of the peer's.
func (p *peer) receive(ctx context.Context) (uint64, error) {
	_, err := p.Receive(ctx, p.messages.SGL(messageSize, messageSize))
	return binary.BigEndian.Uint64(p.messages.Bytes[messageSize:]), err
}

// Serve has a replica of size bytes at an address of the adapter's, and returns its memory
// when a client has copied all that it wanted to.
func Serve(ctx context.Context, adapter *provider.Adapter, at netip.AddrPort, size int) ([]byte, error) {
	endpoint, err := await.NewEndpoint(ctx, adapter)
	if err != nil {
		return nil, err
	}
	defer endpoint.Close()
	memory, err := endpoint.Register(make([]byte, size), provider.MRAllowRemoteWrite)
	if err != nil {
		return nil, err
	}
	messages, err := endpoint.Register(make([]byte, 2*messageSize), provider.MRAllowLocalWrite)
	if err != nil {
		return nil, err
	}
	listener, err := endpoint.Listen(ctx, at)
	if err != nil {
		return nil, err
	}
	for {
		connection, err := listener.Accept(ctx)
		if err != nil {
			return nil, err
		}
		err = (&peer{connection, messages}).serve(ctx, memory)
		connection.Close()
		switch {
		case err == nil:
			return memory.Bytes, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		// The client is gone, and may come back.
	}
}

// serve serves one client until that is done.
func (p *peer) serve(ctx context.Context, memory *await.Buffer) error {
	if err := p.send(ctx, uint64(memory.RemoteToken())); err != nil {
		return err
	}
	size, err := p.receive(ctx) // when all is written
	if err != nil {
		return err
	}
	if err := p.send(ctx, size); err != nil {
		return err
	}
	return p.Wait(ctx) // the client hears that, and goes
}

// Copy copies data to the replica at an address, from an address of the adapter's. It
// connects as often as it takes, and says how often that was.
func Copy(ctx context.Context, adapter *provider.Adapter, from netip.Addr, to netip.AddrPort, data []byte) (connections int, err error) {
	endpoint, err := await.NewEndpoint(ctx, adapter)
	if err != nil {
		return 0, err
	}
	defer endpoint.Close()
	endpoint.Local = from
	source, err := endpoint.Register(data, provider.MRAllowLocalRead)
	if err != nil {
		return 0, err
	}
	messages, err := endpoint.Register(make([]byte, 2*messageSize), provider.MRAllowLocalWrite)
	if err != nil {
		return 0, err
	}
	for {
		connections++
		err := copyOnce(ctx, endpoint, messages, source, to)
		if err == nil {
			return connections, nil
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return connections, err
		}
	}
}

// copyOnce copies over one connection.
func copyOnce(ctx context.Context, endpoint *await.Endpoint, messages, source *await.Buffer, to netip.AddrPort) error {
	connection, err := endpoint.Dial(ctx, to)
	if err != nil {
		return err
	}
	defer connection.Close()
	p := &peer{connection, messages}
	token, err := p.receive(ctx)
	if err != nil {
		return err
	}
	for at := 0; at < len(source.Bytes); at += chunk {
		n := min(chunk, len(source.Bytes)-at)
		if err := p.Write(ctx, source.SGL(at, n), uint64(at), uint32(token)); err != nil {
			return err
		}
	}
	if err := p.send(ctx, uint64(len(source.Bytes))); err != nil {
		return err
	}
	_, err = p.receive(ctx)
	return err
}
