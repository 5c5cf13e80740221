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
	endpoint, err := await.Open(ctx, lease.Open)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	if listen.IsValid() {
		return serve(ctx, endpoint, listen)
	}
	// The first client that fails ends the others.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if err := call(ctx, endpoint, connect, messages); err != nil {
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
	endpoint *await.Endpoint
	memory   *await.Buffer // the buffers, which are known by their numbers
	cq       *await.CQ     // of all clients
	srq      *provider.SRQ
	free     chan int             // buffers that are neither posted nor being sent
	low      chan provider.Status // what the SRQ notifies of

	clients, messages, refills atomic.Int64
}

// A client is one as the server knows it.
type client struct {
	qp       *provider.QP
	accepted chan struct{} // is closed when the client can be sent to, or never will
	messages atomic.Int64
}

func serve(interrupted context.Context, endpoint *await.Endpoint, address netip.AddrPort) error {
	ctx, fail := context.WithCancelCause(interrupted)
	defer fail(nil)
	// Of notifications there are one between two calls of Modify and one of failure.
	s := &server{endpoint: endpoint, free: make(chan int, buffers), low: make(chan provider.Status, 2)}
	var err error
	if s.memory, err = endpoint.Register(make([]byte, buffers*messageSize), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	// A buffer has one completion at a time, so that there is room for all.
	if s.cq, err = await.NewCQ(endpoint.Adapter, buffers); err != nil {
		return fmt.Errorf("create CQ: %w", err)
	}
	defer s.cq.Close(nil, nil)
	s.srq, err = await.Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.SRQ, provider.Status) {
		notify := func(_ any, status provider.Status) { s.low <- status }
		return endpoint.PD.CreateSRQ(buffers, 1, lowWatermark, notify, nil, nil, completion, context)
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
	listener, err := endpoint.Listen(ctx, address)
	if err != nil {
		return err
	}
	fmt.Println("listening at", address)

	var working sync.WaitGroup
	working.Go(func() { fail(s.refill(ctx)) })
	working.Go(func() { fail(s.answer(ctx)) })
	for ctx.Err() == nil {
		// Accept would make a queue pair with receives of its own.
		if connection, err := listener.Next(ctx); err == nil {
			working.Go(func() { s.attend(ctx, connection) })
		}
	}
	working.Wait()
	fmt.Printf("%d clients, %d messages, refilled %d times\n", s.clients.Load(), s.messages.Load(), s.refills.Load())
	if interrupted.Err() != nil {
		return nil // as it is meant to end
	}
	return context.Cause(ctx)
}

// attend connects with a client and waits until it disconnects. A failure ends that
// client alone.
func (s *server) attend(ctx context.Context, connection *provider.Connector) {
	defer connection.Close(nil, nil) // refuses a client that is not accepted
	address, _ := connection.PeerAddress()
	c := &client{accepted: make(chan struct{})}
	var err error
	c.qp, err = await.Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.QP, provider.Status) {
		return s.endpoint.PD.CreateQPWithSRQ(s.cq.CQ, s.cq.CQ, s.srq, c, buffers, 1, 0, completion, context)
	})
	if err == nil {
		defer c.qp.Close(nil, nil)
		connected, end := context.WithCancel(ctx)
		defer end()
		err = await.Accept(ctx, connection, c.qp, await.Options{Disconnected: end})
		close(c.accepted)
		if err == nil {
			<-connected.Done()
			s.clients.Add(1)
			fmt.Printf("%v: %d messages\n", address, c.messages.Load())
			return
		}
	}
	fmt.Fprintf(os.Stderr, "srq: client %v: %v\n", address, err)
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
				// Accept is about to end, since the client is connected that sends.
				<-c.accepted
				c.messages.Add(1)
				s.messages.Add(1)
				answer := s.memory.SGL(buffer*messageSize, int(r.BytesTransferred))
				if c.qp.Send(buffer, answer, 0) == provider.StatusSuccess {
					continue
				}
			}
			s.free <- buffer // sent, or its client is gone
		}
	}
}

// call is one client.
func call(ctx context.Context, endpoint *await.Endpoint, server netip.AddrPort, messages int) error {
	memory, err := endpoint.Register(make([]byte, 2*messageSize), provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	connection, err := endpoint.Dial(ctx, server)
	if err != nil {
		return err
	}
	defer connection.Close()
	out, in := memory.Bytes[:messageSize], memory.Bytes[messageSize:]
	for n := range messages {
		binary.BigEndian.PutUint64(out, uint64(n))
		binary.BigEndian.PutUint64(out[8:], uint64(connection.QP.Number())) // so that no two clients send the same
		if _, err := connection.PostSend(ctx, memory.SGL(0, messageSize)); err != nil {
			return err
		}
		if _, err := connection.Receive(ctx, memory.SGL(messageSize, messageSize)); err != nil {
			return err
		}
		if !bytes.Equal(in, out) {
			return fmt.Errorf("the answer to message %d is %x, want %x", n, in, out)
		}
	}
	return nil
}
