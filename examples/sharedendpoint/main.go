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
//	a second connection: dial 10.0.0.2:7174: there is such a connection already: STATUS_ADDRESS_ALREADY_EXISTS
package main

import (
	"context"
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
	endpoint, err := await.Open(ctx, lease.Open)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	if listen.IsValid() {
		return serve(ctx, endpoint, listen, ports)
	}
	return call(ctx, endpoint, connect, ports)
}

func serve(ctx context.Context, endpoint *await.Endpoint, first netip.AddrPort, ports int) error {
	var listeners []*await.Listener
	for port := range ports {
		listener, err := endpoint.Listen(ctx, next(first, port))
		if err != nil {
			return err
		}
		listeners = append(listeners, listener)
	}
	fmt.Printf("listening at %v and the next %d ports\n", first, ports-1)
	var connections []*await.Conn
	for _, listener := range listeners {
		connection, err := listener.Accept(ctx)
		if err != nil {
			return err
		}
		client := connection.RemoteAddr().String()
		fmt.Printf("%v is connected with %s\n", listener.Addr(), client)
		message, err := endpoint.Register([]byte(client), provider.MRAllowLocalRead)
		if err != nil {
			return err
		}
		// The client disconnects when it has all messages, and does not acknowledge the last, perhaps.
		if _, err := connection.PostSend(ctx, message.SGL(0, len(client))); err != nil {
			return err
		}
		connections = append(connections, connection)
	}
	for _, connection := range connections {
		if err := connection.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func call(ctx context.Context, endpoint *await.Endpoint, first netip.AddrPort, ports int) error {
	local, err := await.LocalAddress(first.Addr())
	if err != nil {
		return err
	}
	shared, err := await.Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.SharedEndpoint, provider.Status) {
		return endpoint.Adapter.CreateSharedEndpoint(netip.AddrPortFrom(local, 0), completion, context)
	})
	if err != nil {
		return err
	}
	defer shared.Close(nil, nil)
	fmt.Println("connecting from", shared.LocalAddress())
	message, err := endpoint.Register(make([]byte, messageSize), provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	for port := range ports {
		server := next(first, port)
		connection, err := endpoint.DialShared(ctx, shared, server)
		if err != nil {
			return err
		}
		n, err := connection.Receive(ctx, message.SGL(0, messageSize))
		if err != nil {
			return err
		}
		seen := string(message.Bytes[:n])
		fmt.Printf("%v sees %s\n", server, seen)
		if seen != shared.LocalAddress().String() {
			return fmt.Errorf("%v is connected with another address than the shared endpoint's", server)
		}
	}
	_, err = endpoint.DialShared(ctx, shared, first)
	if !errors.Is(err, provider.StatusAddressAlreadyExists) {
		return fmt.Errorf("a second connection to %v ended with %w, want %v", first, err, provider.StatusAddressAlreadyExists)
	}
	fmt.Println("a second connection:", err)
	return nil
}

// next returns the address whose port is n higher.
func next(a netip.AddrPort, n int) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr(), a.Port()+uint16(n))
}
