package await_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net/netip"
	"os"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/lease"
	"github.com/ndklab/ndklab/provider/udp"
)

// loopback starts a device of this process alone, on an address of 127.0.0.0/8. A program in
// a node of a lab has lease.Open instead.
func loopback(context.Context) (*provider.Miniport, error) {
	carrier, err := udp.Open(udp.Config{Addresses: []netip.Addr{local}})
	if err != nil {
		return nil, err
	}
	return provider.NewMiniport(provider.Config{
		Carrier: carrier, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(rand.Uint64(), 0)),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(),
	})
}

// local is an address that other processes' tests do not use.
var local = netip.AddrFrom4([4]byte{127, 99, byte(os.Getpid() >> 8), byte(os.Getpid())})

// A server lends memory, and a client writes there.
func Example() {
	ctx := context.Background()
	endpoint, err := await.Open(ctx, loopback)
	if err != nil {
		log.Fatal(err)
	}
	defer endpoint.Close()
	endpoint.Local = local

	// The server's side.
	lent, err := endpoint.Register(make([]byte, 5), provider.MRAllowRemoteWrite)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := endpoint.Listen(ctx, netip.AddrPortFrom(local, 0))
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		connection, err := listener.Accept(ctx)
		if err == nil {
			// An empty message says that everything is written.
			_, err = connection.Receive(ctx, nil)
		}
		served <- err
	}()

	// The client's.
	connection, err := endpoint.Dial(ctx, listener.Addr())
	if err != nil {
		log.Fatal(err)
	}
	source, err := endpoint.Register([]byte("hello"), provider.MRAllowLocalRead)
	if err != nil {
		log.Fatal(err)
	}
	if err := connection.Write(ctx, source.SGL(0, 5), 0, lent.RemoteToken()); err != nil {
		log.Fatal(err)
	}
	if err := connection.Send(ctx, nil); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", lent.Bytes)
	// Output: hello
}

// The adapter of the node that the program runs in, as `ndklab exec LAB/NODE -- PROGRAM` starts it.
func ExampleOpen() {
	endpoint, err := await.Open(context.Background(), lease.Open)
	if err != nil {
		log.Fatal(err)
	}
	defer endpoint.Close()
	fmt.Println(endpoint.Adapter.Info().MaxTransferLength)
}

// A server of many clients.
func ExampleListener_Accept() {
	serve := func(ctx context.Context, listener *await.Listener, serveOne func(*await.Conn)) error {
		defer listener.Close()
		for {
			connection, err := listener.Accept(ctx)
			if err != nil {
				return err
			}
			go func() {
				defer connection.Close()
				serveOne(connection)
			}()
		}
	}
	_ = serve
}

// A request and its answer. The receive is posted first, so that the answer never waits for it.
func ExampleConn_PostReceive() {
	call := func(ctx context.Context, connection *await.Conn, request, answer *await.Buffer) (int, error) {
		posted, err := connection.PostReceive(ctx, answer.SGL(0, len(answer.Bytes)))
		if err != nil {
			return 0, err
		}
		if err := connection.Send(ctx, request.SGL(0, len(request.Bytes))); err != nil {
			return 0, err
		}
		result, err := posted.Wait(ctx)
		return int(result.BytesTransferred), err
	}
	_ = call
}

// A request of NDKPI for which Conn has no method: a memory window lends a part of a Buffer.
func ExampleConn_Do() {
	lend := func(ctx context.Context, connection *await.Conn, b *await.Buffer, window *provider.MW) (token uint32, err error) {
		_, err = connection.Do(ctx, func(qp *provider.QP, context any) provider.Status {
			return qp.Bind(context, b.MR, window, 0, 4096, provider.OpAllowRemoteRead)
		})
		return window.RemoteToken(), err
	}
	_ = lend
}

// A peer that has no right to what it asks for.
func ExampleConn_Write() {
	write := func(ctx context.Context, connection *await.Conn, b *await.Buffer, token uint32) {
		err := connection.Write(ctx, b.SGL(0, 1), 0, token)
		switch {
		case errors.Is(err, provider.StatusRemoteResources):
			fmt.Println("the token is not valid, or not for this")
		case errors.Is(err, await.ErrDisconnected):
			fmt.Println("the peer has gone")
		}
	}
	_ = write
}
