// Command window lends parts of one registered region, each for a while and with rights of
// its own. Registering is slow on real adapters, so a server registers all of its
// memory once, without any right for peers, and opens windows to it: binding one
// is a request like any other.
//
// The server binds a window to page 1, for reading, and sends its token; the client
// READs the page. Then the server invalidates the window, binds it to page 2, for
// writing, and sends the new token; the client WRITEs the page. At last the client
// writes one byte beyond the end of the window. That is refused, which ends the
// connection, and the server sees that page 3 is as it was.
//
// In the folder of the repository, with a lab of two nodes:
//
//	make build && go build -o bin ./examples/...
//	bin/ndklab up examples/pair.ndklab.yaml
//	bin/ndklab exec pair/server -- bin/window -listen 10.0.0.2:7174
//	bin/ndklab exec pair/client -- bin/window -connect 10.0.0.2:7174    # in another terminal
//	bin/ndklab down pair
//
// The server prints
//
//	listening at 10.0.0.2:7174
//	page 1 can be read under token 0x302
//	page 2 can be written under token 0x303
//	page 2 is written, and no other
//
// and the client
//
//	read page 1 under token 0x302
//	wrote page 2 under token 0x303
//	refused one byte further: write to 10.0.0.2:7174: STATUS_REMOTE_RESOURCES
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
	page      = provider.PageSize
	pages     = 4 // of the server's memory
	tokenSize = 4 // the message, in which the server sends a token
)

func main() {
	var listen, connect netip.AddrPort
	flag.TextVar(&listen, "listen", listen, "serve one client at this `address:port` of the node's")
	flag.TextVar(&connect, "connect", connect, "be the client of the server at this `address:port`")
	flag.Parse()
	if listen.IsValid() == connect.IsValid() || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: window -listen ADDRESS:PORT | -connect ADDRESS:PORT")
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, listen, connect); err != nil {
		fmt.Fprintln(os.Stderr, "window:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, connect netip.AddrPort) error {
	endpoint, err := await.Open(ctx, lease.Open)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	// The pages, and behind them the message. A window can only be written to if its region
	// can, locally.
	memory, err := endpoint.Register(make([]byte, pages*page+tokenSize), provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	if listen.IsValid() {
		return serve(ctx, endpoint, memory, listen)
	}
	return call(ctx, endpoint, memory, connect)
}

func serve(ctx context.Context, endpoint *await.Endpoint, memory *await.Buffer, address netip.AddrPort) error {
	copy(memory.Bytes, filled("abcd"))
	window, err := await.Create(ctx, endpoint.PD.CreateMW)
	if err != nil {
		return err
	}
	defer window.Close(nil, nil) // before the memory is closed, which it is bound to
	listener, err := endpoint.Listen(ctx, address)
	if err != nil {
		return err
	}
	fmt.Println("listening at", address)
	connection, err := listener.Accept(ctx)
	if err != nil {
		return err
	}

	if err := lend(ctx, connection, memory, window, 1, provider.OpAllowRemoteRead); err != nil {
		return err
	}
	fmt.Printf("page 1 can be read under token %#x\n", window.RemoteToken())
	// The client says with an empty message that it is done with the page.
	if _, err := connection.Receive(ctx, nil); err != nil {
		return err
	}
	_, err = connection.Do(ctx, func(qp *provider.QP, context any) provider.Status {
		return qp.Invalidate(context, window, 0)
	})
	if err != nil {
		return fmt.Errorf("invalidate: %w", err)
	}
	if err := lend(ctx, connection, memory, window, 2, provider.OpAllowRemoteWrite); err != nil {
		return err
	}
	fmt.Printf("page 2 can be written under token %#x\n", window.RemoteToken())
	if err := connection.Wait(ctx); err != nil { // the client does what it must not
		return err
	}
	if !bytes.Equal(memory.Bytes[:pages*page], filled("abXd")) {
		return errors.New("the client has not written page 2 and no other")
	}
	fmt.Println("page 2 is written, and no other")
	return nil
}

// lend binds the window to page n, and sends its token to the client. The window's addresses are
// those of the memory.
func lend(ctx context.Context, connection *await.Conn, memory *await.Buffer, window *provider.MW, n uint64, rights provider.OpFlags) error {
	_, err := connection.Do(ctx, func(qp *provider.QP, context any) provider.Status {
		return qp.Bind(context, memory.MR, window, n*page, page, rights)
	})
	if err != nil {
		return fmt.Errorf("bind to page %d: %w", n, err)
	}
	binary.BigEndian.PutUint32(memory.Bytes[pages*page:], window.RemoteToken())
	// The client's next action says that it has the token.
	_, err = connection.PostSend(ctx, memory.SGL(pages*page, tokenSize))
	return err
}

func call(ctx context.Context, endpoint *await.Endpoint, memory *await.Buffer, server netip.AddrPort) error {
	connection, err := endpoint.Dial(ctx, server)
	if err != nil {
		return err
	}
	token, err := borrow(ctx, connection, memory)
	if err != nil {
		return err
	}
	if err := connection.Read(ctx, memory.SGL(0, page), page, token); err != nil {
		return err
	}
	if !bytes.Equal(memory.Bytes[:page], filled("b")) {
		return errors.New("page 1 is not what it should be")
	}
	fmt.Printf("read page 1 under token %#x\n", token)
	if _, err := connection.PostSend(ctx, nil); err != nil {
		return err
	}

	if token, err = borrow(ctx, connection, memory); err != nil {
		return err
	}
	copy(memory.Bytes, filled("X"))
	if err := connection.Write(ctx, memory.SGL(0, page), 2*page, token); err != nil {
		return err
	}
	fmt.Printf("wrote page 2 under token %#x\n", token)
	// The server's adapter refuses, and then ends the connection. If the refusal is lost,
	// that is what we see.
	err = connection.Write(ctx, memory.SGL(0, 1), 3*page, token)
	if !errors.Is(err, provider.StatusRemoteResources) && !errors.Is(err, await.ErrDisconnected) {
		return fmt.Errorf("one byte beyond the window was not refused: %w", err)
	}
	fmt.Println("refused one byte further:", err)
	return nil
}

// borrow waits for a token of the server's.
func borrow(ctx context.Context, connection *await.Conn, memory *await.Buffer) (token uint32, err error) {
	_, err = connection.Receive(ctx, memory.SGL(pages*page, tokenSize))
	return binary.BigEndian.Uint32(memory.Bytes[pages*page:]), err
}

// filled returns a page of each of the letters.
func filled(letters string) (b []byte) {
	for _, letter := range []byte(letters) {
		b = append(b, bytes.Repeat([]byte{letter}, page)...)
	}
	return b
}
