package labtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// pairOf is two hosts, a and b.
func pairOf(settings ...Setting) *Builder {
	return Topology().Seed(42).Hosts("a", "b").Link("a", "b", append(settings, Set("overrun", "allow"))...)
}

// An end is one end of a conversation.
type end struct {
	pd       *provider.PD
	qp       *await.QP
	messages *await.Memory // one to send, then one to receive
}

const messageSize = 4096

func newEnd(ctx context.Context, a *provider.Adapter) (*end, error) {
	e := new(end)
	var err error
	if e.pd, err = await.Create(ctx, a.CreatePD); err != nil {
		return nil, err
	}
	if e.qp, err = await.NewQP(ctx, a, e.pd, 4, 1); err != nil {
		return nil, err
	}
	if e.messages, err = await.Register(ctx, e.pd, 2*messageSize, provider.MRAllowLocalWrite); err != nil {
		return nil, err
	}
	if status := e.qp.Receive(nil, e.messages.SGL(messageSize, messageSize)); status != provider.StatusSuccess {
		return nil, status
	}
	return e, nil
}

// exchange sends a message that is filled with one byte, and wants one that is filled with another.
func (e *end) exchange(ctx context.Context, fill, want byte) error {
	copy(e.messages.Bytes, bytes.Repeat([]byte{fill}, messageSize))
	if _, err := e.qp.Done(ctx, e.qp.Send(nil, e.messages.SGL(0, messageSize), 0)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if _, err := e.qp.Received(ctx); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if got := e.messages.Bytes[messageSize:]; !bytes.Equal(got, bytes.Repeat([]byte{want}, messageSize)) {
		return fmt.Errorf("got a message of %q, want %q", got[:8], want)
	}
	return nil
}

func (e *end) close() {
	e.messages.Close(nil, nil)
	e.qp.Close()
	e.pd.Close(nil, nil)
}

// serve answers one client at an address, which is told to at.
func serve(ctx context.Context, a *provider.Adapter, address netip.Addr, at chan<- netip.AddrPort) error {
	e, err := newEnd(ctx, a)
	if err != nil {
		return err
	}
	defer e.close()
	l, err := await.Listen(ctx, a, netip.AddrPortFrom(address, 0))
	if err != nil {
		return err
	}
	defer l.Close(ctx)
	where, err := l.Address()
	if err != nil {
		return err
	}
	at <- where
	c, err := l.Next(ctx)
	if err != nil {
		return err
	}
	defer await.Close(ctx, c)
	if err := await.Accept(ctx, c, e.qp.QP, await.Options{}); err != nil {
		return err
	}
	return e.exchange(ctx, 's', 'c')
}

// call is the client of a server.
func call(ctx context.Context, a *provider.Adapter, from netip.Addr, to netip.AddrPort) error {
	e, err := newEnd(ctx, a)
	if err != nil {
		return err
	}
	defer e.close()
	c, err := await.Dial(ctx, a, e.qp.QP, from, to, await.Options{})
	if err != nil {
		return err
	}
	defer await.Close(ctx, c)
	return e.exchange(ctx, 'c', 's')
}

// converse has nodes of a lab exchange messages.
func converse(ctx context.Context, client, server *Node) error {
	at, served := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		served <- server.Do(ctx, func(ctx context.Context, a *provider.Adapter) error {
			return serve(ctx, a, server.Address(), at)
		})
	}()
	select {
	case to := <-at:
		err := client.Do(ctx, func(ctx context.Context, a *provider.Adapter) error {
			return call(ctx, a, client.Address(), to)
		})
		return errors.Join(err, <-served)
	case err := <-served:
		return err
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Functions of the test are the two ends of a conversation between nodes.
func TestConversation(t *testing.T) {
	t.Parallel()
	l := Up(t, pairOf(Delay(time.Millisecond)))
	if err := converse(bounded(t), l.Node("a"), l.Node("b")); err != nil {
		t.Fatal(err)
	}
	for node, counter := range map[string]string{"a": "Connect", "b": "Accept"} {
		if got := l.Node(node).Counters()[counter]; got != 1 {
			t.Errorf("node %s counts %s %d times, want once", node, counter, got)
		}
	}
	if got := l.Node("a").Counters()["packets_sent"]; got == 0 {
		t.Error("node a has sent no packets")
	}
	if got := l.Link("a:eth0").Report().Directions[0].Packets; got == 0 {
		t.Error("the link has carried no packets")
	}
}

// Objects that a test leaves open on an adapter end with the test; the peer learns it.
func TestLeftOpen(t *testing.T) {
	t.Parallel()
	l := Up(t, pairOf())
	ctx := bounded(t)
	a, b := l.Node("a"), l.Node("b")
	server := b.Adapter()
	e, err := newEnd(ctx, server)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := await.Listen(ctx, server, netip.AddrPortFrom(b.Address(), 7471))
	if err != nil {
		t.Fatal(err)
	}
	gone, accepted := make(chan struct{}), make(chan error, 1)
	go func() {
		c, err := listener.Next(ctx)
		if err == nil {
			err = await.Accept(ctx, c, e.qp.QP, await.Options{Disconnected: func() { close(gone) }})
		}
		accepted <- err
	}()
	t.Run("client", func(t *testing.T) {
		client := l.In(t).Node("a").Adapter()
		e, err := newEnd(ctx, client)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := await.Dial(ctx, client, e.qp.QP, a.Address(), netip.AddrPortFrom(b.Address(), 7471), await.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
	})
	select {
	case <-gone:
	case <-ctx.Done():
		t.Error("the server does not learn that the client's test is over")
	}
}

// A node that goes down fails its adapter; after a start there is another one.
func TestAdapterOfNodeThatFails(t *testing.T) {
	t.Parallel()
	l := Up(t, pairOf())
	a := l.Node("a")
	cq, err := await.NewCQ(a.Adapter(), 1)
	if err != nil {
		t.Fatal(err)
	}
	watch := l.Watch()
	a.Kill()
	if e := watch.Next(event.NodeDown); e.Node != "a" {
		t.Errorf("event %+v, want that of node a", e)
	}
	if _, err := cq.One(bounded(t)); !errors.Is(err, provider.StatusInternalError) {
		t.Errorf("a completion queue of a node that is down: %v", err)
	}
	if err := a.Do(bounded(t), func(context.Context, *provider.Adapter) error { return nil }); err == nil {
		t.Error("the adapter of a node that is down was opened")
	}
	a.Start()
	if err := converse(bounded(t), a, l.Node("b")); err != nil {
		t.Error(err)
	}
}
