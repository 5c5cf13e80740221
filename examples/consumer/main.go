// Command consumer is the first program to read: two processes connect, and exchange data
// in the four ways of RDMA. The server lends its memory to the client by sending
// its address and token. Then, in every round, the client
//
//   - WRITEs a pattern into that memory, which the server's program does not notice,
//   - SENDs a message, which completes a receive of the server's. Requests take
//     effect in order, so the pattern is all there now, and the server compares
//     it byte for byte, inverts every byte and SENDs an answer,
//   - READs the memory, and compares what the server has made of it.
//
// In the folder of the repository, with a lab of two nodes:
//
//	make build && go build -o bin ./examples/...
//	bin/ndklab up examples/pair.ndklab.yaml
//	bin/ndklab exec pair/server -- bin/consumer -listen 10.0.0.2:7174
//	bin/ndklab exec pair/client -- bin/consumer -connect 10.0.0.2:7174    # in another terminal
//	bin/ndklab down pair
//
// The server prints
//
//	listening at 10.0.0.2:7174
//	connected with 10.0.0.1:49152: lent 65536 bytes at 0x0 under token 0x1d2c00
//	received 65536 bytes in each of 1 rounds, all as expected
//
// and the client
//
//	connected with 10.0.0.2:7174: borrowed 65536 bytes at 0x0 under token 0x1d2c00
//	wrote 65536 bytes and read them back, inverted, in each of 1 rounds
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/lease"
)

const (
	size        = 64 << 10 // bytes of memory that the server lends
	messageSize = 16       // bytes of a message: two numbers of 64 bits
)

func main() {
	var listen, connect netip.AddrPort
	flag.TextVar(&listen, "listen", listen, "serve one client at this `address:port` of the node's")
	flag.TextVar(&connect, "connect", connect, "be the client of the server at this `address:port`")
	rounds := flag.Uint64("rounds", 1, "as the client, how often to write and read")
	flag.Parse()
	if listen.IsValid() == connect.IsValid() || flag.NArg() > 0 || *rounds == 0 {
		fmt.Fprintln(os.Stderr, "usage: consumer -listen ADDRESS:PORT | -connect ADDRESS:PORT [-rounds N]")
		flag.PrintDefaults()
		os.Exit(2)
	}
	// Ctrl-C ends ctx, and with it whatever is being waited for.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, listen, connect, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

// run opens the node's adapter and makes what both ends need: a protection
// domain, a queue pair in it, and memory that the queue pair may use. Every object
// is closed before the one that it was made on.
func run(ctx context.Context, listen, connect netip.AddrPort, rounds uint64) error {
	device, err := lease.Open(ctx)
	if err != nil {
		return err
	}
	defer device.Close()
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		return fmt.Errorf("open adapter: %w", status)
	}
	defer adapter.Close() // waits until what was made on it is closed
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return err
	}
	defer pd.Close(nil, nil)
	qp, err := await.NewQP(ctx, adapter, pd, 4, 1)
	if err != nil {
		return err
	}
	defer qp.Close()
	messages, err := await.Register(ctx, pd, 2*messageSize, provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	defer messages.Close(nil, nil)
	// The server's is to be lent, the client's to write from and read to.
	data, err := await.Register(ctx, pd, size, provider.MRAllowRemoteRead|provider.MRAllowRemoteWrite)
	if err != nil {
		return err
	}
	defer data.Close(nil, nil)

	// The peer may send as soon as it is connected, so the receive comes first.
	p := &peer{qp, messages, data}
	if err := p.expect(); err != nil {
		return err
	}
	// When the peer ends the connection, or dies, there is nothing to wait for.
	ctx, end := context.WithCancelCause(ctx)
	options := await.Options{
		InboundReadLimit: 1, OutboundReadLimit: 1, // how many READs there may be at a time
		Disconnected: func() { end(errDisconnected) },
	}
	if listen.IsValid() {
		return p.serve(ctx, adapter, listen, options)
	}
	return p.call(ctx, adapter, connect, options, rounds)
}

var errDisconnected = errors.New("the peer has ended the connection")

// A peer is one end of the connection.
type peer struct {
	qp       *await.QP
	messages *await.Memory // one to send, then one to receive
	data     *await.Memory
}

func (p *peer) serve(ctx context.Context, adapter *provider.Adapter, address netip.AddrPort, options await.Options) error {
	listener, err := await.Listen(ctx, adapter, address)
	if err != nil {
		return fmt.Errorf("listen at %v, which must be a free port of an address of this node's: %w", address, err)
	}
	defer listener.Close(ctx)
	fmt.Println("listening at", address)
	connection, err := listener.Next(ctx)
	if err != nil {
		return err
	}
	if err := await.Accept(ctx, connection, p.qp.QP, options); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer connection.Close(nil, nil)
	client, _ := connection.PeerAddress()

	// Memory that is registered by itself has addresses that begin at 0.
	token := p.data.RemoteToken()
	fmt.Printf("connected with %v: lent %d bytes at %#x under token %#x\n", client, size, 0, token)
	if err := p.send(0, uint64(token)); err != nil {
		return fmt.Errorf("send the token: %w", err)
	}
	for last := false; !last; {
		round, rounds, err := p.receive(ctx)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		for i := range p.data.Bytes {
			if got, want := p.data.Bytes[i], pattern(round, i); got != want {
				return fmt.Errorf("round %d: byte %d is %#x, want %#x", round, i, got, want)
			}
			p.data.Bytes[i] ^= 0xFF
		}
		if err := p.send(round, rounds); err != nil {
			return fmt.Errorf("round %d: answer: %w", round, err)
		}
		if last = round == rounds; last {
			fmt.Printf("received %d bytes in each of %d rounds, all as expected\n", size, rounds)
		}
	}
	// The client reads once more, and then disconnects.
	<-ctx.Done()
	if err := context.Cause(ctx); err != errDisconnected {
		return err
	}
	return nil
}

func (p *peer) call(ctx context.Context, adapter *provider.Adapter, server netip.AddrPort, options await.Options, rounds uint64) error {
	connection, err := await.Dial(ctx, adapter, p.qp.QP, netip.Addr{}, server, options)
	if err != nil {
		return fmt.Errorf("connect to %v, where the server must listen already: %w", server, err)
	}
	defer connection.Close(nil, nil)
	address, token, err := p.receive(ctx)
	if err != nil {
		return fmt.Errorf("receive the token: %w", err)
	}
	fmt.Printf("connected with %v: borrowed %d bytes at %#x under token %#x\n", server, size, address, token)

	all := p.data.SGL(0, size)
	for round := uint64(1); round <= rounds; round++ {
		for i := range p.data.Bytes {
			p.data.Bytes[i] = pattern(round, i)
		}
		if _, err := p.qp.Done(ctx, p.qp.Write(nil, all, address, uint32(token), 0)); err != nil {
			return fmt.Errorf("round %d: write: %w", round, err)
		}
		if err := p.send(round, rounds); err != nil {
			return fmt.Errorf("round %d: send: %w", round, err)
		}
		if _, _, err := p.receive(ctx); err != nil {
			return fmt.Errorf("round %d: receive the answer: %w", round, err)
		}
		if _, err := p.qp.Done(ctx, p.qp.Read(nil, all, address, uint32(token), 0)); err != nil {
			return fmt.Errorf("round %d: read: %w", round, err)
		}
		for i, got := range p.data.Bytes {
			if want := ^pattern(round, i); got != want {
				return fmt.Errorf("round %d: byte %d is %#x, want %#x", round, i, got, want)
			}
		}
	}
	fmt.Printf("wrote %d bytes and read them back, inverted, in each of %d rounds\n", size, rounds)
	return await.Disconnect(ctx, connection)
}

// pattern is what a round writes to byte i.
func pattern(round uint64, i int) byte { return byte(round) + byte(i) + byte(i>>8) }

// send sends a message, and does not wait: what the peer does next says that it
// has arrived, and if it disconnects then, its acknowledgement may never come. So
// only a failure is to complete.
func (p *peer) send(a, b uint64) error {
	binary.BigEndian.PutUint64(p.messages.Bytes, a)
	binary.BigEndian.PutUint64(p.messages.Bytes[8:], b)
	if status := p.qp.Send(nil, p.messages.SGL(0, messageSize), provider.OpSilentSuccess); status != provider.StatusSuccess {
		return status
	}
	return nil
}

// expect posts the receive of the next message.
func (p *peer) expect() error {
	if status := p.qp.Receive(nil, p.messages.SGL(messageSize, messageSize)); status != provider.StatusSuccess {
		return fmt.Errorf("post a receive: %w", status)
	}
	return nil
}

// receive waits for a message, and expects the next.
func (p *peer) receive(ctx context.Context) (a, b uint64, err error) {
	if _, err := p.qp.Received(ctx); err != nil {
		return 0, 0, err
	}
	a = binary.BigEndian.Uint64(p.messages.Bytes[messageSize:])
	b = binary.BigEndian.Uint64(p.messages.Bytes[messageSize+8:])
	return a, b, p.expect()
}
