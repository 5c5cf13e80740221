// Package mirror copies memory to another machine by RDMA. It is an example of a module of
// its own whose tests are in mirror_test.go, each with a lab.
//
// Serve lends memory to who connects, and Copy writes there. When the connection breaks,
// Copy connects again and begins again, since the memory may be another's then.
package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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

// A peer is one end of a connection: a queue pair, and memory for a message to send and
// one to receive.
type peer struct {
	qp       *await.QP
	messages *await.Memory
}

func newPeer(ctx context.Context, adapter *provider.Adapter, pd *provider.PD) (*peer, error) {
	qp, err := await.NewQP(ctx, adapter, pd, 4, 1)
	if err != nil {
		return nil, err
	}
	messages, err := await.Register(ctx, pd, 2*messageSize, provider.MRAllowLocalWrite)
	if err != nil {
		qp.Close()
		return nil, err
	}
	p := &peer{qp, messages}
	if err := p.expect(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// expect posts the receive of the next message.
func (p *peer) expect() error {
	if status := p.qp.Receive(nil, p.messages.SGL(messageSize, messageSize)); status != provider.StatusSuccess {
		return status
	}
	return nil
}

func (p *peer) close() {
	p.qp.Close()
	p.messages.Close(nil, nil)
}

// send sends a number, and does not wait: what the peer does next says that it has arrived.
func (p *peer) send(n uint64) error {
	binary.BigEndian.PutUint64(p.messages.Bytes, n)
	if status := p.qp.Send(nil, p.messages.SGL(0, messageSize), provider.OpSilentSuccess); status != provider.StatusSuccess {
		return status
	}
	return nil
}

// receive waits for the next number of the peer's.
func (p *peer) receive(ctx context.Context) (uint64, error) {
	if _, err := p.qp.Received(ctx); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(p.messages.Bytes[messageSize:]), p.expect()
}

// Serve has a replica of size bytes at an address of the adapter's, and returns its memory
// when a client has copied all that it wanted to.
func Serve(ctx context.Context, adapter *provider.Adapter, at netip.AddrPort, size int) ([]byte, error) {
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return nil, err
	}
	defer pd.Close(nil, nil)
	memory, err := await.Register(ctx, pd, size, provider.MRAllowRemoteWrite)
	if err != nil {
		return nil, err
	}
	defer memory.Close(nil, nil)
	listener, err := await.Listen(ctx, adapter, at)
	if err != nil {
		return nil, fmt.Errorf("listen at %v: %w", at, err)
	}
	defer listener.Close(ctx)
	for {
		err := serveOne(ctx, adapter, pd, listener, memory)
		switch {
		case err == nil:
			return memory.Bytes, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		// The client is gone, and may come back.
	}
}

// serveOne serves the next client until that is done.
func serveOne(ctx context.Context, adapter *provider.Adapter, pd *provider.PD, listener *await.RequestListener, memory *await.Memory) error {
	p, err := newPeer(ctx, adapter, pd)
	if err != nil {
		return err
	}
	defer p.close()
	connection, err := listener.Next(ctx)
	if err != nil {
		return err
	}
	defer connection.Close(nil, nil)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	options := await.Options{Disconnected: func() { end(errors.New("the client has gone")) }}
	if err := await.Accept(ctx, connection, p.qp.QP, options); err != nil {
		return err
	}
	if err := p.send(uint64(memory.RemoteToken())); err != nil {
		return err
	}
	size, err := p.receive(ctx) // when all is written
	if err != nil {
		return err
	}
	if err := p.send(size); err != nil {
		return err
	}
	<-ctx.Done() // the client has heard that, and goes
	return nil
}

// Copy copies data to the replica at an address, from an address of the adapter's. It
// connects as often as it takes, and says how often that was.
func Copy(ctx context.Context, adapter *provider.Adapter, from netip.Addr, to netip.AddrPort, data []byte) (connections int, err error) {
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return 0, err
	}
	defer pd.Close(nil, nil)
	source, err := await.Register(ctx, pd, len(data), provider.MRAllowLocalWrite)
	if err != nil {
		return 0, err
	}
	defer source.Close(nil, nil)
	copy(source.Bytes, data)
	for {
		connections++
		err := copyOnce(ctx, adapter, pd, from, to, source)
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
func copyOnce(ctx context.Context, adapter *provider.Adapter, pd *provider.PD, from netip.Addr, to netip.AddrPort, source *await.Memory) error {
	p, err := newPeer(ctx, adapter, pd)
	if err != nil {
		return err
	}
	defer p.close()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	options := await.Options{Disconnected: func() { end(errors.New("the replica has gone")) }}
	connection, err := await.Dial(ctx, adapter, p.qp.QP, from, to, options)
	if err != nil {
		return err
	}
	defer connection.Close(nil, nil)
	token, err := p.receive(ctx)
	if err != nil {
		return err
	}
	for at := 0; at < len(source.Bytes); at += chunk {
		n := min(chunk, len(source.Bytes)-at)
		if _, err := p.qp.Done(ctx, p.qp.Write(nil, source.SGL(at, n), uint64(at), uint32(token), 0)); err != nil {
			return err
		}
	}
	if err := p.send(uint64(len(source.Bytes))); err != nil {
		return err
	}
	if _, err := p.receive(ctx); err != nil {
		return err
	}
	return await.Disconnect(ctx, connection)
}
