// Command srq is a server with one shared receive queue, one completion queue and a fixed
// number of buffers for any number of clients, each of which gets its messages
// back. Without a shared queue every client would need receives of its own, nearly
// all of which would wait for nothing.
//
// A buffer goes round: it is posted to the shared queue, some client's message
// arrives in it, it is sent back, and when that is done it is free. The queue
// tells when fewer receives are left than its low watermark, and is refilled with
// the free buffers then. If it is empty for a moment nothing is lost: the clients'
// adapters try again.
//
// In the folder of the repository, with a lab of two nodes:
//
//	make build && go build -o bin ./examples/...
//	bin/ndklab up examples/pair.ndklab.yaml
//	bin/ndklab exec pair/server -- bin/srq -listen 10.0.0.2:7174          # until Ctrl-C
//	bin/ndklab exec pair/client -- bin/srq -connect 10.0.0.2:7174 -clients 32 -messages 50
//	bin/ndklab down pair
//
// The second is for another terminal, as often as you like. The server prints
//
//	listening at 10.0.0.2:7174
//	10.0.0.1:49152: 50 messages
//	(and so on)
//	32 clients, 1600 messages, refilled 32 times
//
// and each client process
//
//	32 clients: 1600 messages answered
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
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/lease"
)

const (
	messageSize  = 16
	buffers      = 64 // of the server's
	lowWatermark = 16 // receives
)

func main() {
	var listen, connect netip.AddrPort
	flag.TextVar(&listen, "listen", listen, "serve clients at this `address:port` of the node's")
	flag.TextVar(&connect, "connect", connect, "be clients of the server at this `address:port`")
	clients := flag.Int("clients", 1, "how many clients to be")
	messages := flag.Int("messages", 10, "how many messages each client sends")
	flag.Parse()
	if listen.IsValid() == connect.IsValid() || flag.NArg() > 0 || *clients < 1 || *messages < 0 {
		fmt.Fprintln(os.Stderr, "usage: srq -listen ADDRESS:PORT | -connect ADDRESS:PORT [-clients N] [-messages N]")
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, listen, connect, *clients, *messages); err != nil {
		fmt.Fprintln(os.Stderr, "srq:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, connect netip.AddrPort, clients, messages int) error {
	device, err := lease.Open(ctx)
	if err != nil {
		return err
	}
	defer device.Close()
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		return fmt.Errorf("open adapter: %w", status)
	}
	defer adapter.Close()
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return err
	}
	defer pd.Close(nil, nil)
	if listen.IsValid() {
		return serve(ctx, adapter, pd, listen)
	}
	// The first client that fails ends the others.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if err := call(ctx, adapter, pd, connect, messages); err != nil {
				fail(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	fmt.Printf("%d clients: %d messages answered\n", clients, clients*messages)
	return nil
}

// A server answers what arrives.
type server struct {
	adapter *provider.Adapter
	pd      *provider.PD
	memory  *await.Memory // the buffers, which are known by their numbers
	cq      *await.CQ     // of all clients
	srq     *provider.SRQ
	free    chan int             // buffers that are neither posted nor being sent
	low     chan provider.Status // what the SRQ notifies of

	clients, messages, refills atomic.Int64
}

// A client is one as the server knows it.
type client struct {
	qp       *provider.QP
	messages atomic.Int64

	mu        sync.Mutex // guards what follows
	connected bool
	early     []answer // to messages that came before that
}

// An answer is what is in a buffer.
type answer struct{ buffer, length int }

func serve(interrupted context.Context, adapter *provider.Adapter, pd *provider.PD, address netip.AddrPort) error {
	ctx, fail := context.WithCancelCause(interrupted)
	defer fail(nil)
	// Of notifications there are one between two calls of Modify and one of failure.
	s := &server{adapter: adapter, pd: pd, free: make(chan int, buffers), low: make(chan provider.Status, 2)}
	var err error
	if s.memory, err = await.Register(ctx, pd, buffers*messageSize, provider.MRAllowLocalWrite); err != nil {
		return err
	}
	defer s.memory.Close(nil, nil)
	// A buffer has one completion at a time, so that there is room for all.
	if s.cq, err = await.NewCQ(adapter, buffers); err != nil {
		return fmt.Errorf("create CQ: %w", err)
	}
	defer s.cq.Close(nil, nil)
	s.srq, err = await.Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.SRQ, provider.Status) {
		notify := func(_ any, status provider.Status) { s.low <- status }
		return pd.CreateSRQ(buffers, 1, lowWatermark, notify, nil, nil, completion, context)
	})
	if err != nil {
		return err
	}
	defer s.srq.Close(nil, nil)
	for buffer := range buffers {
		s.free <- buffer
	}
	if err := s.post(ctx, buffers); err != nil {
		return err
	}
	listener, err := await.Listen(ctx, adapter, address)
	if err != nil {
		return fmt.Errorf("listen at %v, which must be a free port of an address of this node's: %w", address, err)
	}
	fmt.Println("listening at", address)

	var working sync.WaitGroup
	working.Go(func() { fail(s.refill(ctx)) })
	working.Go(func() { fail(s.answer(ctx)) })
	for {
		connection, err := listener.Next(ctx)
		if err != nil {
			break // it is over
		}
		working.Go(func() {
			if err := s.attend(ctx, connection); err != nil {
				fmt.Fprintln(os.Stderr, "srq:", err) // and the other clients go on
			}
		})
	}
	working.Wait()
	if err := listener.Close(context.Background()); err != nil {
		return err
	}
	fmt.Printf("%d clients, %d messages, refilled %d times\n", s.clients.Load(), s.messages.Load(), s.refills.Load())
	if interrupted.Err() != nil {
		return nil // as it is meant to end
	}
	return context.Cause(ctx)
}

// attend connects with a client and waits until it disconnects.
func (s *server) attend(ctx context.Context, connection *provider.Connector) error {
	address, _ := connection.PeerAddress()
	c := &client{}
	var err error
	c.qp, err = await.Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.QP, provider.Status) {
		return s.pd.CreateQPWithSRQ(s.cq.CQ, s.cq.CQ, s.srq, c, buffers, 1, 0, completion, context)
	})
	if err != nil {
		connection.Close(nil, nil) // refuses the client
		return err
	}
	defer c.qp.Close(nil, nil)
	ctx, end := context.WithCancel(ctx)
	defer end()
	// A message may be there before Accept completes, but until then there can be no
	// answer. If Accept fails, so do the answers.
	err = await.Accept(ctx, connection, c.qp, await.Options{Disconnected: end})
	s.connected(c)
	if err != nil {
		return fmt.Errorf("accept %v: %w", address, err)
	}
	<-ctx.Done()
	s.clients.Add(1)
	fmt.Printf("%v: %d messages\n", address, c.messages.Load())
	return await.Close(context.Background(), connection)
}

// post posts n buffers to the SRQ, and waits until they are free.
func (s *server) post(ctx context.Context, n int) error {
	for range n {
		select {
		case buffer := <-s.free:
			if status := s.srq.Receive(buffer, s.memory.SGL(buffer*messageSize, messageSize)); status != provider.StatusSuccess {
				return fmt.Errorf("post a receive to the SRQ: %w", status)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// refill refills the SRQ whenever it is low, and has it notify again.
func (s *server) refill(ctx context.Context) error {
	for {
		select {
		case status := <-s.low:
			if status != provider.StatusSuccess {
				return fmt.Errorf("SRQ: %w", status)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// Fewer than lowWatermark are posted, so there are so many others.
		if err := s.post(ctx, buffers-lowWatermark); err != nil {
			return err
		}
		s.refills.Add(1)
		err := await.Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
			return s.srq.Modify(0, lowWatermark, completion, context)
		})
		if err != nil {
			return fmt.Errorf("have the SRQ notify again: %w", err)
		}
	}
}

// answer takes all completions, of which the request's context is the buffer.
func (s *server) answer(ctx context.Context) error {
	var results [buffers]provider.ResultEx
	for {
		n, err := s.cq.Wait(ctx, results[:])
		if err != nil {
			return err
		}
		for _, r := range results[:n] {
			c, buffer := r.QPContext.(*client), r.RequestContext.(int)
			if r.Status == provider.StatusSuccess && r.Type == provider.OperationTypeReceive {
				c.messages.Add(1)
				s.messages.Add(1)
				s.send(c, answer{buffer, int(r.BytesTransferred)})
				continue
			}
			s.free <- buffer // sent, or its client is gone
		}
	}
}

// send sends an answer, as soon as its client is connected.
func (s *server) send(c *client, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected {
		c.early = append(c.early, a)
	} else if c.qp.Send(a.buffer, s.memory.SGL(a.buffer*messageSize, a.length), 0) != provider.StatusSuccess {
		s.free <- a.buffer // the client is gone
	}
}

// connected has a client get its answers from now on.
func (s *server) connected(c *client) {
	c.mu.Lock()
	early := c.early
	c.connected, c.early = true, nil
	c.mu.Unlock()
	for _, a := range early {
		s.send(c, a)
	}
}

var errDisconnected = errors.New("the server has ended the connection")

// call is one client.
func call(ctx context.Context, adapter *provider.Adapter, pd *provider.PD, server netip.AddrPort, messages int) error {
	qp, err := await.NewQP(ctx, adapter, pd, 2, 1)
	if err != nil {
		return err
	}
	defer qp.Close()
	memory, err := await.Register(ctx, pd, 2*messageSize, provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	defer memory.Close(nil, nil)
	ctx, end := context.WithCancelCause(ctx)
	connection, err := await.Dial(ctx, adapter, qp.QP, netip.Addr{}, server,
		await.Options{Disconnected: func() { end(errDisconnected) }})
	if err != nil {
		return fmt.Errorf("connect to %v, where the server must listen already: %w", server, err)
	}
	defer connection.Close(nil, nil)
	out, in := memory.Bytes[:messageSize], memory.Bytes[messageSize:]
	for n := range messages {
		binary.BigEndian.PutUint64(out, uint64(n))
		binary.BigEndian.PutUint64(out[8:], uint64(qp.Number())) // so that no two clients send the same
		if status := qp.Receive(nil, memory.SGL(messageSize, messageSize)); status != provider.StatusSuccess {
			return fmt.Errorf("post a receive: %w", status)
		}
		if _, err := qp.Done(ctx, qp.Send(nil, memory.SGL(0, messageSize), 0)); err != nil {
			return fmt.Errorf("send message %d: %w", n, err)
		}
		if _, err := qp.Received(ctx); err != nil {
			return fmt.Errorf("receive answer %d: %w", n, err)
		}
		if !bytes.Equal(in, out) {
			return fmt.Errorf("the answer to message %d is %x, want %x", n, in, out)
		}
	}
	return await.Disconnect(ctx, connection)
}
