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
//	refused one byte further: STATUS_REMOTE_RESOURCES
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

var errDisconnected = errors.New("the peer has ended the connection")

// A peer is what both ends have.
type peer struct {
	adapter *provider.Adapter
	pd      *provider.PD
	qp      *await.QP
	message *await.Memory
	memory  *await.Memory
	options await.Options
}

func run(ctx context.Context, listen, connect netip.AddrPort) error {
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
	qp, err := await.NewQP(ctx, adapter, pd, 4, 1)
	if err != nil {
		return err
	}
	defer qp.Close()
	message, err := await.Register(ctx, pd, tokenSize, provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	defer message.Close(nil, nil)
	// A window can only be written to if its region can, locally.
	memory, err := await.Register(ctx, pd, pages*page, provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	defer memory.Close(nil, nil)

	ctx, end := context.WithCancelCause(ctx)
	p := &peer{adapter, pd, qp, message, memory, await.Options{
		InboundReadLimit: 1, OutboundReadLimit: 1,
		Disconnected: func() { end(errDisconnected) },
	}}
	if listen.IsValid() {
		return p.serve(ctx, listen)
	}
	return p.call(ctx, connect)
}

func (p *peer) serve(ctx context.Context, address netip.AddrPort) error {
	for i := range p.memory.Bytes {
		p.memory.Bytes[i] = content(i)
	}
	window, err := await.Create(ctx, p.pd.CreateMW)
	if err != nil {
		return err
	}
	defer window.Close(nil, nil)
	listener, err := await.Listen(ctx, p.adapter, address)
	if err != nil {
		return fmt.Errorf("listen at %v, which must be a free port of an address of this node's: %w", address, err)
	}
	defer listener.Close(ctx)
	fmt.Println("listening at", address)
	connection, err := listener.Next(ctx)
	if err != nil {
		return err
	}
	// The client says with an empty message that it is done with the page.
	if status := p.qp.Receive(nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("post a receive: %w", status)
	}
	if err := await.Accept(ctx, connection, p.qp.QP, p.options); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer connection.Close(nil, nil)

	if err := p.lend(ctx, window, 1, provider.OpAllowRemoteRead); err != nil {
		return err
	}
	fmt.Printf("page 1 can be read under token %#x\n", window.RemoteToken())
	if _, err := p.qp.Received(ctx); err != nil {
		return fmt.Errorf("wait for the client to read: %w", err)
	}
	if _, err := p.qp.Done(ctx, p.qp.Invalidate(nil, window, 0)); err != nil {
		return fmt.Errorf("invalidate: %w", err)
	}
	if err := p.lend(ctx, window, 2, provider.OpAllowRemoteWrite); err != nil {
		return err
	}
	fmt.Printf("page 2 can be written under token %#x\n", window.RemoteToken())

	<-ctx.Done() // the client does what it must not
	if err := context.Cause(ctx); err != errDisconnected {
		return err
	}
	for i, got := range p.memory.Bytes {
		want := content(i)
		if i/page == 2 {
			want = ^want
		}
		if got != want {
			return fmt.Errorf("byte %d of page %d is %#x, want %#x", i%page, i/page, got, want)
		}
	}
	fmt.Println("page 2 is written, and no other")
	return nil
}

// lend binds the window to page n and sends its token to the client. The window's
// addresses are those of the region. What the client does next says that the token
// has arrived, so only a failure to send it is to complete.
func (p *peer) lend(ctx context.Context, window *provider.MW, n uint64, rights provider.OpFlags) error {
	if _, err := p.qp.Done(ctx, p.qp.Bind(nil, p.memory.MR, window, n*page, page, rights)); err != nil {
		return fmt.Errorf("bind to page %d: %w", n, err)
	}
	binary.BigEndian.PutUint32(p.message.Bytes, window.RemoteToken())
	if status := p.qp.Send(nil, p.message.SGL(0, tokenSize), provider.OpSilentSuccess); status != provider.StatusSuccess {
		return fmt.Errorf("send the token: %w", status)
	}
	return nil
}

func (p *peer) call(ctx context.Context, server netip.AddrPort) error {
	if status := p.qp.Receive(nil, p.message.SGL(0, tokenSize)); status != provider.StatusSuccess {
		return fmt.Errorf("post a receive: %w", status)
	}
	connection, err := await.Dial(ctx, p.adapter, p.qp.QP, netip.Addr{}, server, p.options)
	if err != nil {
		return fmt.Errorf("connect to %v, where the server must listen already: %w", server, err)
	}
	defer connection.Close(nil, nil)

	token, err := p.borrow(ctx)
	if err != nil {
		return err
	}
	if _, err := p.qp.Done(ctx, p.qp.Read(nil, p.memory.SGL(page, page), page, token, 0)); err != nil {
		return fmt.Errorf("read page 1: %w", err)
	}
	want := make([]byte, 2*page)
	for i := range page {
		want[i], want[page+i] = content(page+i), ^content(2*page+i)
	}
	if !bytes.Equal(p.memory.Bytes[page:2*page], want[:page]) {
		return errors.New("page 1 is not what it should be")
	}
	fmt.Printf("read page 1 under token %#x\n", token)
	if status := p.qp.Receive(nil, p.message.SGL(0, tokenSize)); status != provider.StatusSuccess {
		return fmt.Errorf("post a receive: %w", status)
	}
	if _, err := p.qp.Done(ctx, p.qp.Send(nil, nil, 0)); err != nil {
		return fmt.Errorf("say that page 1 is read: %w", err)
	}

	if token, err = p.borrow(ctx); err != nil {
		return err
	}
	copy(p.memory.Bytes[2*page:], want[page:])
	if _, err := p.qp.Done(ctx, p.qp.Write(nil, p.memory.SGL(2*page, page), 2*page, token, 0)); err != nil {
		return fmt.Errorf("write page 2: %w", err)
	}
	fmt.Printf("wrote page 2 under token %#x\n", token)
	_, err = p.qp.Done(ctx, p.qp.Write(nil, p.memory.SGL(0, 1), 3*page, token, 0))
	// The server's adapter refuses, and then ends the connection. If the refusal is
	// lost, that is what we see.
	if !errors.Is(err, provider.StatusRemoteResources) && !errors.Is(err, errDisconnected) {
		return fmt.Errorf("one byte beyond the window was not refused: %w", err)
	}
	fmt.Println("refused one byte further:", err)
	return nil
}

// borrow waits for the token that the server sends.
func (p *peer) borrow(ctx context.Context) (token uint32, err error) {
	if _, err := p.qp.Received(ctx); err != nil {
		return 0, fmt.Errorf("receive a token: %w", err)
	}
	return binary.BigEndian.Uint32(p.message.Bytes), nil
}

// content is what byte i of the server's memory is.
func content(i int) byte { return byte(i) + byte(i>>8) + 1 }
