// Command sharedendpoint makes several connections from one local address and port, each
// to another destination. A client that has many servers takes one port so, and
// its firewall has one rule.
//
// The server listens at several ports in a row, and sends each client the address
// that it sees it come from. The client makes one shared endpoint, connects from
// it to all of these ports, and checks that each saw the same. A second connection
// to one of them is refused by the client's adapter, since nothing would tell it
// from the first.
//
// In the folder of the repository, with a lab of two nodes:
//
//	make build && go build -o bin ./examples/...
//	bin/ndklab up examples/pair.ndklab.yaml
//	bin/ndklab exec pair/server -- bin/sharedendpoint -listen 10.0.0.2:7174
//	bin/ndklab exec pair/client -- bin/sharedendpoint -connect 10.0.0.2:7174    # in another terminal
//	bin/ndklab down pair
//
// The server prints
//
//	listening at 10.0.0.2:7174 and the next 2 ports
//	10.0.0.2:7174 is connected with 10.0.0.1:49152
//	10.0.0.2:7175 is connected with 10.0.0.1:49152
//	10.0.0.2:7176 is connected with 10.0.0.1:49152
//
// and the client
//
//	connecting from 10.0.0.1:49152
//	10.0.0.2:7174 sees 10.0.0.1:49152
//	10.0.0.2:7175 sees 10.0.0.1:49152
//	10.0.0.2:7176 sees 10.0.0.1:49152
//	a second connection to 10.0.0.2:7174: STATUS_ADDRESS_ALREADY_EXISTS
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/lease"
)

const messageSize = 64 // at most; an address as text

func main() {
	var listen, connect netip.AddrPort
	flag.TextVar(&listen, "listen", listen, "serve one client at this `address:port` of the node's, and at the next ports")
	flag.TextVar(&connect, "connect", connect, "be the client of the server at this `address:port`, and at the next ports")
	ports := flag.Int("ports", 3, "how many ports")
	flag.Parse()
	if listen.IsValid() == connect.IsValid() || flag.NArg() > 0 || *ports < 1 || int(max(listen.Port(), connect.Port()))+*ports > 1<<16 {
		fmt.Fprintln(os.Stderr, "usage: sharedendpoint -listen ADDRESS:PORT | -connect ADDRESS:PORT [-ports N]")
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, listen, connect, *ports); err != nil {
		fmt.Fprintln(os.Stderr, "sharedendpoint:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, connect netip.AddrPort, ports int) error {
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
	p := &process{adapter, pd}
	if listen.IsValid() {
		return p.serve(ctx, listen, ports)
	}
	return p.call(ctx, connect, ports)
}

type process struct {
	adapter *provider.Adapter
	pd      *provider.PD
}

var errDisconnected = errors.New("the peer has ended the connection")

// An end is one connection's, with memory for one message.
type end struct {
	*await.QP
	message *await.Memory
}

func (p *process) newEnd(ctx context.Context) (*end, error) {
	qp, err := await.NewQP(ctx, p.adapter, p.pd, 1, 1)
	if err != nil {
		return nil, err
	}
	message, err := await.Register(ctx, p.pd, messageSize, provider.MRAllowLocalWrite)
	if err != nil {
		qp.Close()
		return nil, err
	}
	return &end{qp, message}, nil
}

func (e *end) close() {
	e.Close()
	e.message.Close(nil, nil)
}

func (p *process) serve(ctx context.Context, first netip.AddrPort, ports int) error {
	var listeners []*await.RequestListener
	for address := first; len(listeners) < ports; address = next(address) {
		l, err := await.Listen(ctx, p.adapter, address)
		if err != nil {
			return fmt.Errorf("listen at %v, which must be a free port of an address of this node's: %w", address, err)
		}
		defer l.Close(ctx)
		listeners = append(listeners, l)
	}
	fmt.Printf("listening at %v and the next %d ports\n", first, ports-1)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() {
			if err := p.greet(ctx, l); err != nil {
				fail(err)
			}
		})
	}
	serving.Wait()
	return context.Cause(ctx)
}

// greet tells one client where it comes from, and waits until it disconnects.
func (p *process) greet(ctx context.Context, l *await.RequestListener) error {
	connection, err := l.Next(ctx)
	if err != nil {
		return err
	}
	e, err := p.newEnd(ctx)
	if err != nil {
		connection.Close(nil, nil)
		return err
	}
	defer e.close()
	connected, disconnect := context.WithCancelCause(ctx)
	options := await.Options{Disconnected: func() { disconnect(errDisconnected) }}
	if err := await.Accept(ctx, connection, e.QP.QP, options); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer connection.Close(nil, nil)
	local, _ := connection.LocalAddress()
	client, _ := connection.PeerAddress()
	fmt.Printf("%v is connected with %v\n", local, client)
	length := copy(e.message.Bytes, client.String())
	// The client disconnects when it has the message, whose acknowledgement may never
	// come then: only a failure is to complete.
	if status := e.Send(nil, e.message.SGL(0, length), provider.OpSilentSuccess); status != provider.StatusSuccess {
		return fmt.Errorf("send to %v: %w", client, status)
	}
	<-connected.Done()
	if err := context.Cause(connected); err != errDisconnected {
		return err
	}
	return nil
}

func (p *process) call(ctx context.Context, first netip.AddrPort, ports int) error {
	local, err := await.LocalAddress(first.Addr())
	if err != nil {
		return err
	}
	shared, err := await.Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.SharedEndpoint, provider.Status) {
		return p.adapter.CreateSharedEndpoint(netip.AddrPortFrom(local, 0), completion, context)
	})
	if err != nil {
		return err
	}
	defer shared.Close(nil, nil)
	fmt.Println("connecting from", shared.LocalAddress())

	connected, disconnect := context.WithCancelCause(ctx)
	disconnected := func(any) { disconnect(errDisconnected) }
	server := first
	for range ports {
		e, err := p.newEnd(ctx)
		if err != nil {
			return err
		}
		defer e.close()
		if status := e.Receive(nil, e.message.SGL(0, messageSize)); status != provider.StatusSuccess {
			return fmt.Errorf("post a receive: %w", status)
		}
		connection, err := p.connect(connected, shared, e, server, disconnected)
		if err != nil {
			return fmt.Errorf("connect to %v, where the server must listen already: %w", server, err)
		}
		defer connection.Close(nil, nil)
		r, err := e.Received(connected)
		if err != nil {
			return fmt.Errorf("receive from %v: %w", server, err)
		}
		seen := string(e.message.Bytes[:r.BytesTransferred])
		fmt.Printf("%v sees %s\n", server, seen)
		if seen != shared.LocalAddress().String() {
			return fmt.Errorf("%v is connected with another address than the shared endpoint's", server)
		}
		server = next(server)
	}

	e, err := p.newEnd(ctx)
	if err != nil {
		return err
	}
	defer e.close()
	again, err := p.connect(connected, shared, e, first, disconnected)
	if err == nil {
		again.Close(nil, nil)
	}
	if !errors.Is(err, provider.StatusAddressAlreadyExists) {
		return fmt.Errorf("a second connection to %v ended with %w, want %v", first, err, provider.StatusAddressAlreadyExists)
	}
	fmt.Printf("a second connection to %v: %v\n", first, err)
	return nil
}

// connect is what await.Dial does, from a shared endpoint.
func (p *process) connect(ctx context.Context, shared *provider.SharedEndpoint, e *end, server netip.AddrPort,
	disconnected provider.DisconnectEvent) (*provider.Connector, error) {
	connector, err := await.Create(ctx, p.adapter.CreateConnector)
	if err != nil {
		return nil, err
	}
	err = await.Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
		return connector.ConnectWithSharedEndpoint(e.QP.QP, shared, server, 0, 0, nil, completion, context)
	})
	if err == nil {
		err = await.Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
			return connector.CompleteConnect(disconnected, nil, completion, context)
		})
	}
	if err != nil {
		connector.Close(nil, nil)
		return nil, err
	}
	return connector, nil
}

func next(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), a.Port()+1) }
