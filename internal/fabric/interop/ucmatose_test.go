package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// ucmatose, of librdmacm, makes many connections at once. When all are up, the
// server sends its messages on each, the client receives and then answers them,
// and the server disconnects. These are its defaults.
const (
	ucmatoseMessages = 10
	ucmatoseSize     = 100
)

// Our end of ucmatose, in a node:
//
//	ucmatose-server ADDRESS:PORT CONNECTIONS     says "listening"
//	ucmatose-client ADDRESS:PORT CONNECTIONS
func init() {
	programs["ucmatose-server"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		return manyConnections(ctx, adapter, args, serveUcmatose)
	}
	programs["ucmatose-client"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		return manyConnections(ctx, adapter, args, callUcmatose)
	}
}

// A ucmatoseEnd is one end of one connection.
type ucmatoseEnd struct {
	qp       *await.QP
	messages *await.Memory // those to send, then those to receive
	over     chan struct{} // closed when the peer has ended the connection
	err      error
}

// manyConnections makes the ends and has serve or call use them.
func manyConnections(ctx context.Context, adapter *provider.Adapter, args []string,
	use func(context.Context, *provider.Adapter, netip.AddrPort, []*ucmatoseEnd) error) error {
	at, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return err
	}
	connections, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return err
	}
	defer pd.Close(nil, nil)
	ends := make([]*ucmatoseEnd, connections)
	for i := range ends {
		e := &ucmatoseEnd{over: make(chan struct{})}
		if e.qp, err = await.NewQP(ctx, adapter, pd, ucmatoseMessages, 1); err != nil {
			return err
		}
		defer e.qp.Close()
		if e.messages, err = await.Register(ctx, pd, 2*ucmatoseMessages*ucmatoseSize, provider.MRAllowLocalWrite); err != nil {
			return err
		}
		defer e.messages.Close(nil, nil)
		for n := range ucmatoseMessages {
			sgl := e.messages.SGL((ucmatoseMessages+n)*ucmatoseSize, ucmatoseSize)
			if status := e.qp.Receive(nil, sgl); status != provider.StatusSuccess {
				return fmt.Errorf("post a receive: %w", status)
			}
		}
		ends[i] = e
	}
	return use(ctx, adapter, at, ends)
}

// options are those of the connection.
func (e *ucmatoseEnd) options() await.Options {
	return await.Options{InboundReadLimit: 1, OutboundReadLimit: 1, Disconnected: sync.OnceFunc(func() { close(e.over) })}
}

// send posts all messages and waits until they have arrived.
func (e *ucmatoseEnd) send(ctx context.Context) error {
	for n := range ucmatoseMessages {
		if status := e.qp.Send(nil, e.messages.SGL(n*ucmatoseSize, ucmatoseSize), 0); status != provider.StatusSuccess {
			return fmt.Errorf("send: %w", status)
		}
	}
	for range ucmatoseMessages {
		if _, err := e.qp.Done(ctx, provider.StatusSuccess); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// receive waits for all messages of the peer.
func (e *ucmatoseEnd) receive(ctx context.Context) error {
	for n := range ucmatoseMessages {
		r, err := e.qp.Received(ctx)
		if err != nil {
			return fmt.Errorf("receive %d: %w", n, err)
		}
		if r.BytesTransferred != ucmatoseSize {
			return fmt.Errorf("message %d has %d bytes, want %d", n, r.BytesTransferred, ucmatoseSize)
		}
	}
	return nil
}

// together does something with all ends at once.
func together(ends []*ucmatoseEnd, do func(*ucmatoseEnd) error) error {
	var all sync.WaitGroup
	for _, e := range ends {
		all.Go(func() { e.err = do(e) })
	}
	all.Wait()
	var failures []error
	for i, e := range ends {
		if e.err != nil {
			failures = append(failures, fmt.Errorf("connection %d: %w", i, e.err))
		}
	}
	return errors.Join(failures...)
}

func serveUcmatose(ctx context.Context, adapter *provider.Adapter, at netip.AddrPort, ends []*ucmatoseEnd) error {
	listener, err := await.Listen(ctx, adapter, at)
	if err != nil {
		return err
	}
	defer listener.Close(ctx)
	fmt.Println("listening")
	connections := make(map[*ucmatoseEnd]*provider.Connector)
	for _, e := range ends {
		if connections[e], err = listener.Next(ctx); err != nil {
			return err
		}
		defer connections[e].Close(nil, nil)
		// Until it is established: rdma_cm of a slow machine may be waited for.
		if err := await.Accept(ctx, connections[e], e.qp.QP, e.options()); err != nil {
			return fmt.Errorf("accept: %w", err)
		}
	}
	for _, step := range []func(*ucmatoseEnd) error{
		func(e *ucmatoseEnd) error { return e.send(ctx) },
		func(e *ucmatoseEnd) error { return e.receive(ctx) },
		func(e *ucmatoseEnd) error { return await.Disconnect(ctx, connections[e]) },
	} {
		if err := together(ends, step); err != nil {
			return err
		}
	}
	return nil
}

func callUcmatose(ctx context.Context, adapter *provider.Adapter, server netip.AddrPort, ends []*ucmatoseEnd) error {
	return together(ends, func(e *ucmatoseEnd) error {
		connection, err := await.Dial(ctx, adapter, e.qp.QP, netip.Addr{}, server, e.options())
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer connection.Close(nil, nil)
		if err := e.receive(ctx); err != nil {
			return err
		}
		// The server disconnects when it has all messages. If its last acknowledgement was
		// lost, nobody repeats that, and the requests stay pending (NDK-DISC-03).
		sending, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			select {
			case <-e.over:
			case <-ctx.Done():
			}
			stop()
		}()
		sent := e.send(sending)
		if sent != nil && sending.Err() == nil {
			return sent
		}
		<-sending.Done()
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the server to disconnect: %w", errors.Join(ctx.Err(), sent))
		}
		return nil
	})
}

// ucmatose makes 100 connections in both directions, over both IP versions.
func (s *setting) ucmatose(t *testing.T) {
	const connections = 100
	for _, p := range s.pairs {
		t.Run("to the node, "+p.node.String(), func(t *testing.T) {
			at := netip.AddrPortFrom(p.node, s.nextPort())
			server := s.ours(t, fmt.Sprintf("ucmatose-server %v %d", at, connections))
			server.says(t, "listening")
			out := s.guest.run(t, fmt.Sprintf("ucmatose -s %v -p %d -c %d", at.Addr(), at.Port(), connections))
			checkUcmatose(t, out)
			if err := server.wait(); err != nil {
				t.Error(err)
			}
		})
		t.Run("to the guest, "+p.guest.String(), func(t *testing.T) {
			at := netip.AddrPortFrom(p.guest, s.nextPort())
			server := s.guest.start(fmt.Sprintf("ucmatose -b %v -p %d -c %d", at.Addr(), at.Port(), connections))
			s.guest.listens(t, at)
			if err := s.ours(t, fmt.Sprintf("ucmatose-client %v %d", at, connections)).wait(); err != nil {
				t.Error(err)
			}
			out, err := server()
			if err != nil {
				t.Fatal(err)
			}
			checkUcmatose(t, out)
		})
	}
}

// checkUcmatose makes sure that ucmatose itself is content, whose exit status says
// nothing of single connections.
func checkUcmatose(t *testing.T, out string) {
	t.Helper()
	for _, want := range []string{"data transfers complete", "return status 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("ucmatose says %q, want %q in it", out, want)
		}
	}
	if strings.Contains(out, "event:") || strings.Contains(out, "fail") {
		t.Errorf("ucmatose says %q", out)
	}
}
