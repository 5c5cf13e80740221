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
	"bytes"
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

func run(ctx context.Context, listen, connect netip.AddrPort, rounds uint64) error {
	endpoint, err := await.Open(ctx, lease.Open)
	if err != nil {
		return err
	}
	defer endpoint.Close() // and whatever is made on it
	// The server's data is to be lent, the client's to write from and read to.
	data, err := endpoint.Register(make([]byte, size), provider.MRAllowRemoteRead|provider.MRAllowRemoteWrite)
	if err != nil {
		return err
	}
	messages, err := endpoint.Register(make([]byte, 2*messageSize), provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	if !listen.IsValid() {
		connection, err := endpoint.Dial(ctx, connect)
		if err != nil {
			return err
		}
		return (&peer{connection, messages, data}).call(ctx, rounds)
	}
	listener, err := endpoint.Listen(ctx, listen)
	if err != nil {
		return err
	}
	fmt.Println("listening at", listen)
	connection, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	return (&peer{connection, messages, data}).serve(ctx)
}

// A peer is one end of the connection.
type peer struct {
	*await.Conn
	messages *await.Buffer // one to send, then one to receive
	data     *await.Buffer
}

func (p *peer) serve(ctx context.Context) error {
	// Memory that is registered by itself has addresses that begin at 0.
	token := p.data.RemoteToken()
	fmt.Printf("connected with %v: lent %d bytes at %#x under token %#x\n", p.RemoteAddr(), size, 0, token)
	if err := p.send(ctx, 0, uint64(token)); err != nil {
		return err
	}
	for round, rounds := uint64(0), uint64(1); round < rounds; {
		var err error
		if round, rounds, err = p.receive(ctx); err != nil {
			return err
		}
		if !bytes.Equal(p.data.Bytes, pattern(round, 0)) {
			return fmt.Errorf("round %d: the client has written something else", round)
		}
		copy(p.data.Bytes, pattern(round, 0xFF))
		if err := p.send(ctx, round, rounds); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if round == rounds {
			fmt.Printf("received %d bytes in each of %d rounds, all as expected\n", size, rounds)
		}
	}
	return p.Wait(ctx) // the client reads once more, and then disconnects
}

func (p *peer) call(ctx context.Context, rounds uint64) error {
	address, token, err := p.receive(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("connected with %v: borrowed %d bytes at %#x under token %#x\n", p.RemoteAddr(), size, address, token)
	for round := uint64(1); round <= rounds; round++ {
		if err := p.exchange(ctx, address, uint32(token), round, rounds); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	fmt.Printf("wrote %d bytes and read them back, inverted, in each of %d rounds\n", size, rounds)
	return nil
}

// exchange is one round of the client's.
func (p *peer) exchange(ctx context.Context, address uint64, token uint32, round, rounds uint64) error {
	copy(p.data.Bytes, pattern(round, 0))
	if err := p.Write(ctx, p.data.SGL(0, size), address, token); err != nil {
		return err
	}
	if err := p.send(ctx, round, rounds); err != nil {
		return err
	}
	if _, _, err := p.receive(ctx); err != nil {
		return err
	}
	if err := p.Read(ctx, p.data.SGL(0, size), address, token); err != nil {
		return err
	}
	if !bytes.Equal(p.data.Bytes, pattern(round, 0xFF)) {
		return errors.New("the server has made something else of it")
	}
	return nil
}

// pattern returns the bytes that a round writes, with the bits of flip inverted in each byte.
func pattern(round uint64, flip byte) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = (byte(round) + byte(i) + byte(i>>8)) ^ flip
	}
	return data
}

// send sends a message, and does not wait: what the peer does next says that it has arrived, and
// if it disconnects then, its acknowledgement may never come.
func (p *peer) send(ctx context.Context, a, b uint64) error {
	binary.BigEndian.PutUint64(p.messages.Bytes, a)
	binary.BigEndian.PutUint64(p.messages.Bytes[8:], b)
	_, err := p.PostSend(ctx, p.messages.SGL(0, messageSize))
	return err
}

func (p *peer) receive(ctx context.Context) (a, b uint64, err error) {
	if _, err := p.Receive(ctx, p.messages.SGL(messageSize, messageSize)); err != nil {
		return 0, 0, err
	}
	in := p.messages.Bytes[messageSize:]
	return binary.BigEndian.Uint64(in), binary.BigEndian.Uint64(in[8:]), nil
}
