// Command fastregister is the pattern of SMB Direct: a client that has a server write and
// read blocks, and lends it, for the time of one request, just the pages that the
// request is about.
//
// The client maps its buffer once (BuildLAM). For each request it has a fast-register
// region stand for other pages of it (FastRegister), and sends the new token in
// the request, at once: the token is valid when the request arrives. The server
// READs the block from the client, or WRITEs it there, and answers with
// SendAndInvalidate. So the token has ended when the answer arrives, and the
// client need not ask for that and wait.
//
// In the folder of the repository, with a lab of two nodes:
//
//	make build && go build -o bin ./examples/...
//	bin/ndklab up examples/pair.ndklab.yaml
//	bin/ndklab exec pair/server -- bin/fastregister -listen 10.0.0.2:7174
//	bin/ndklab exec pair/client -- bin/fastregister -connect 10.0.0.2:7174    # in another terminal
//	bin/ndklab down pair
//
// The server prints
//
//	listening at 10.0.0.2:7174
//	wrote 8 blocks and read 8
//
// and the client
//
//	block 0: sent from pages 0-3 under token 0x301, received into pages 4-7 under token 0x302
//	block 1: sent from pages 4-7 under token 0x303, received into pages 8-11 under token 0x304
//	(and so on)
//	wrote 8 blocks of 16384 bytes and read them back
//
// With -stale the client makes a last request with a token that has ended. The
// server's access is refused, which ends the connection, as both then report.
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
	blockPages = 4
	blockSize  = blockPages * provider.PageSize
	blocks     = 8 // of the server's, and of the client's buffer
)

// A request is the message that the client sends. The answer is an empty message.
type request struct {
	Operation operation
	Block     uint32 // of the server's
	Token     uint32 // for a block of memory at address 0
}

type operation uint32

const (
	writeBlock operation = iota // the server reads the client's memory
	readBlock                   // the server writes to it
)

const requestSize = 12

func main() {
	var listen, connect netip.AddrPort
	flag.TextVar(&listen, "listen", listen, "serve one client at this `address:port` of the node's")
	flag.TextVar(&connect, "connect", connect, "be the client of the server at this `address:port`")
	stale := flag.Bool("stale", false, "as the client, end with a token that is not valid any more")
	flag.Parse()
	if listen.IsValid() == connect.IsValid() || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: fastregister -listen ADDRESS:PORT | -connect ADDRESS:PORT [-stale]")
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, listen, connect, *stale); err != nil {
		fmt.Fprintln(os.Stderr, "fastregister:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, connect netip.AddrPort, stale bool) error {
	endpoint, err := await.Open(ctx, lease.Open)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	message, err := endpoint.Register(make([]byte, requestSize), provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	if listen.IsValid() {
		return serve(ctx, endpoint, message, listen)
	}
	return call(ctx, endpoint, message, connect, stale)
}

func serve(ctx context.Context, endpoint *await.Endpoint, message *await.Buffer, address netip.AddrPort) error {
	// The server's memory is for itself: no peer has a right to it.
	store, err := endpoint.Register(make([]byte, blocks*blockSize), provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	listener, err := endpoint.Listen(ctx, address)
	if err != nil {
		return err
	}
	fmt.Println("listening at", address)
	connection, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	done := map[operation]int{}
	for {
		_, err := connection.Receive(ctx, message.SGL(0, requestSize))
		if errors.Is(err, await.ErrDisconnected) {
			break // the client has all that it wants
		}
		if err != nil {
			return err
		}
		var r request
		_, _ = binary.Decode(message.Bytes, binary.BigEndian, &r) // it is as long as the message
		if r.Block >= blocks {
			return fmt.Errorf("the client asks for block %d of %d", r.Block, blocks)
		}
		access := connection.Write
		if r.Operation == writeBlock {
			access = connection.Read
		}
		if err := access(ctx, store.SGL(int(r.Block)*blockSize, blockSize), 0, r.Token); err != nil {
			return fmt.Errorf("access the client's memory under token %#x: %w", r.Token, err)
		}
		done[r.Operation]++
		// The answer is empty. The next request will say that it has arrived.
		_, err = connection.Post(ctx, func(qp *provider.QP, context any) provider.Status {
			return qp.SendAndInvalidate(context, nil, 0, r.Token)
		})
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	fmt.Printf("wrote %d blocks and read %d\n", done[writeBlock], done[readBlock])
	return nil
}

// A client sends the requests.
type client struct {
	*await.Conn
	message *await.Buffer
	buffer  []byte
	lam     provider.LAM // the pages of buffer
	mr      *provider.MR // stands for some of them
}

func call(ctx context.Context, endpoint *await.Endpoint, message *await.Buffer, server netip.AddrPort, stale bool) error {
	c := &client{message: message, buffer: make([]byte, blocks*blockSize)}
	// As all MDLs this one begins at a virtual address, 0, which is that of a page.
	// So is the place of its first byte in the first page, fbo.
	var fbo uint32
	lamSize := uint32(16 + 8*blocks*blockPages) // of a LAM: a header, and 8 bytes for each page
	err := await.Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
		return endpoint.Adapter.BuildLAM(&provider.MDL{Bytes: c.buffer}, uint64(len(c.buffer)), completion, context, &c.lam, &lamSize, &fbo)
	})
	if err != nil {
		return fmt.Errorf("map the buffer: %w", err)
	}
	defer endpoint.Adapter.ReleaseLAM(&c.lam)
	c.mr, err = await.Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.MR, provider.Status) {
		return endpoint.PD.CreateMR(true, completion, context)
	})
	if err != nil {
		return err
	}
	defer c.mr.Close(nil, nil)
	err = await.Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
		return c.mr.InitializeFastRegister(blockPages, true, completion, context)
	})
	if err != nil {
		return fmt.Errorf("initialize a region of %d pages: %w", blockPages, err)
	}

	if c.Conn, err = endpoint.Dial(ctx, server); err != nil {
		return err
	}
	var token uint32
	for block := range blocks {
		// From one part of the buffer to the next one, of which the last is the first.
		from, to := block, (block+1)%blocks
		out, in := c.part(from), c.part(to)
		for i := range out {
			out[i] = byte(block*31 + i + i>>8)
		}
		clear(in)
		if token, err = c.ask(ctx, writeBlock, block, from); err != nil {
			return fmt.Errorf("write block %d: %w", block, err)
		}
		fmt.Printf("block %d: sent from pages %s under token %#x, ", block, pages(from), token)
		if token, err = c.ask(ctx, readBlock, block, to); err != nil {
			return fmt.Errorf("read block %d: %w", block, err)
		}
		fmt.Printf("received into pages %s under token %#x\n", pages(to), token)
		if !bytes.Equal(in, out) {
			return fmt.Errorf("block %d is not what it was", block)
		}
	}
	if !stale {
		fmt.Printf("wrote %d blocks of %d bytes and read them back\n", blocks, blockSize)
		return nil
	}
	if err := c.request(ctx, request{writeBlock, 0, token}); err != nil {
		return err
	}
	if err := c.Wait(ctx); err != nil {
		return err
	}
	return fmt.Errorf("token %#x has ended: %w", token, c.Err()) // upon the server's access
}

func (c *client) part(i int) []byte { return c.buffer[i*blockSize : (i+1)*blockSize] }

func pages(part int) string { return fmt.Sprintf("%d-%d", part*blockPages, (part+1)*blockPages-1) }

// ask lends a part of the buffer to the server for one request, and returns the
// token, which has ended.
func (c *client) ask(ctx context.Context, o operation, block, part int) (token uint32, err error) {
	rights := provider.OpAllowRemoteRead
	if o == readBlock {
		rights = provider.OpAllowRemoteWrite
	}
	_, err = c.Post(ctx, func(qp *provider.QP, context any) provider.Status {
		return qp.FastRegister(context, c.mr, c.lam.Pages[part*blockPages:(part+1)*blockPages], 0, blockSize, 0, rights)
	})
	if err != nil {
		return 0, fmt.Errorf("fast-register pages %s: %w", pages(part), err)
	}
	token = c.mr.RemoteToken()
	posted, err := c.PostReceive(ctx, nil)
	if err != nil {
		return 0, err
	}
	if err := c.request(ctx, request{o, uint32(block), token}); err != nil {
		return 0, err
	}
	answer, err := posted.Wait(ctx)
	if err != nil {
		return 0, err
	}
	// A client that trusts its server less than this one would post an Invalidate
	// instead of giving up.
	if answer.Type != provider.OperationTypeReceiveAndInvalidate || answer.TypeSpecificCompletionOutput != uint64(token) {
		return 0, fmt.Errorf("the server has not invalidated token %#x", token)
	}
	return token, nil
}

// request sends a request. The answer will say that it has arrived.
func (c *client) request(ctx context.Context, r request) error {
	_, _ = binary.Encode(c.message.Bytes, binary.BigEndian, r) // there is room for it
	_, err := c.PostSend(ctx, c.message.SGL(0, requestSize))
	return err
}
