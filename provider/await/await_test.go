package await_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
)

func TestMain(m *testing.M) { leak.Main(m) }

// An end is an adapter with what a consumer needs to exchange messages.
type end struct {
	t       *testing.T
	device  *provider.Miniport
	adapter *provider.Adapter
	address netip.Addr
	pd      *provider.PD
	cq      *await.CQ
	qp      *provider.QP
	open    []provider.Object
}

// newEnds makes two ends in real time; pend has their calls finish by callback.
func newEnds(t *testing.T, pend bool) (ends [2]*end) {
	t.Helper()
	for i := range ends {
		// On loopback, at addresses that another process's tests do not use.
		pid := os.Getpid()
		e := &end{t: t, address: netip.AddrFrom4([4]byte{127, byte(100 + i), byte(pid >> 8), byte(pid)})}
		carrier, err := udp.Open(udp.Config{Addresses: []netip.Addr{e.address}})
		must(t, err)
		device, err := provider.NewMiniport(provider.Config{
			Carrier: carrier, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(uint64(i), 2)),
			Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(), Pend: pend,
		})
		must(t, err)
		e.device = device
		e.adapter = created(device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion}))
		e.pd = created(e.adapter.CreatePD(nil, nil))
		e.cq, err = await.NewCQ(e.adapter, 2)
		must(t, err)
		e.qp = created(e.pd.CreateQP(e.cq.CQ, e.cq.CQ, nil, 8, 8, 1, 1, 64, nil, nil))
		e.open = []provider.Object{e.pd, e.cq.CQ, e.qp}
		ends[i] = e
	}
	return ends
}

// end closes everything, antecedents first.
func (e *end) end() {
	closed := make(chan error)
	for _, o := range e.open {
		go func() { closed <- await.Close(e.t.Context(), o) }()
	}
	for range e.open {
		must(e.t, <-closed)
	}
	e.adapter.Close()
	e.device.Close()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func created[T any](object T, status provider.Status) T {
	if status != provider.StatusSuccess {
		panic(status)
	}
	return object
}

func TestConversation(t *testing.T) {
	for name, pend := range map[string]bool{"calls finish inline": false, "calls pend": true} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			disconnected := make(chan bool)
			ends, l, c, serverSide := converse(t, pend, await.Options{Disconnected: func() { close(disconnected) }})
			must(t, await.Disconnect(ctx, c))
			<-disconnected
			conclude(t, ends, l, c, serverSide)
		})
	}
	t.Run("the end that does not want to know is disconnected", func(t *testing.T) {
		ends, l, c, serverSide := converse(t, false, await.Options{})
		must(t, await.Disconnect(t.Context(), serverSide))
		conclude(t, ends, l, c, serverSide)
	})
}

// converse connects two ends and sends a message.
func converse(t *testing.T, pend bool, o await.Options) (ends [2]*end, l *await.RequestListener, c, serverSide *provider.Connector) {
	t.Helper()
	ctx := t.Context()
	ends = newEnds(t, pend)
	client, server := ends[0], ends[1]
	l, err := await.Listen(ctx, server.adapter, netip.AddrPortFrom(server.address, 0))
	must(t, err)
	address, err := l.Address()
	must(t, err)
	accepted := make(chan error)
	go func() {
		c, err := l.Next(ctx)
		if err == nil {
			serverSide = c
			err = await.Accept(ctx, c, server.qp, o)
		}
		accepted <- err
	}()
	c, err = await.Dial(ctx, client.adapter, client.qp, client.address, address, await.Options{})
	must(t, err)
	must(t, <-accepted)
	if s := server.qp.Receive("receive", nil); s != provider.StatusSuccess {
		t.Fatal(s)
	}
	if s := client.qp.Send("send", nil, 0); s != provider.StatusSuccess {
		t.Fatal(s)
	}
	for e, want := range map[*end]string{client: "send", server: "receive"} {
		r, err := e.cq.One(ctx)
		must(t, err)
		if r.RequestContext != want {
			t.Errorf("%v completed, want %v", r.RequestContext, want)
		}
	}
	return ends, l, c, serverSide
}

// conclude closes everything.
func conclude(t *testing.T, ends [2]*end, l *await.RequestListener, connectors ...*provider.Connector) {
	t.Helper()
	for _, c := range connectors {
		must(t, await.Close(t.Context(), c))
	}
	must(t, l.Close(t.Context()))
	for _, e := range ends {
		e.end()
	}
}

func TestFailures(t *testing.T) {
	ends := newEnds(t, false)
	client, server := ends[0], ends[1]
	ctx := t.Context()
	over, cancel := context.WithCancel(ctx)
	cancel()

	_, err := await.Dial(ctx, client.adapter, client.qp, client.address, netip.AddrPortFrom(server.address, 9), await.Options{})
	if !errors.Is(err, provider.StatusConnectionRefused) {
		t.Errorf("nobody listens: %v", err)
	}
	_, err = await.Listen(ctx, server.adapter, netip.AddrPortFrom(client.address, 9))
	if !errors.Is(err, provider.StatusInvalidAddress) {
		t.Errorf("another's address: %v", err)
	}
	if _, err := client.cq.Wait(over, make([]provider.ResultEx, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("no completion: %v", err)
	}
	if n, err := client.cq.Wait(over, nil); n != 0 || err != nil {
		t.Errorf("%d completions where none were asked for, %v", n, err)
	}

	l, err := await.Listen(ctx, server.adapter, netip.AddrPortFrom(server.address, 9))
	must(t, err)
	if _, err := l.Next(over); !errors.Is(err, context.Canceled) {
		t.Errorf("no request: %v", err)
	}
	// A consent that is given up ends the connection. The peer does not answer it, or it might
	// be given before anybody looks whether it was given up.
	dialing := created(client.adapter.CreateConnector(nil, nil))
	dialed := make(chan error)
	go func() {
		dialed <- await.Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
			return dialing.Connect(client.qp, netip.AddrPortFrom(client.address, 0), netip.AddrPortFrom(server.address, 9),
				0, 0, nil, completion, context)
		})
	}()
	c, err := l.Next(ctx)
	must(t, err)
	if err := await.Accept(over, c, server.qp, await.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a peer that has yet to answer: %v", err)
	}
	<-dialed // whether the peer's consent or its end is first, is a race
	must(t, await.Close(ctx, dialing))
	must(t, l.Close(ctx))
	for _, e := range ends {
		e.end()
	}
}

// TestFailedQueue has a queue of two entries overrun while nobody waits: Wait
// tells after the completions that are there, not before.
func TestFailedQueue(t *testing.T) {
	ends := newEnds(t, false)
	e := ends[0]
	for range 3 {
		if s := e.qp.Receive(nil, nil); s != provider.StatusSuccess {
			t.Fatal(s)
		}
	}
	e.qp.Flush()
	for range 2 {
		if _, err := e.cq.One(t.Context()); err != provider.StatusCancelled {
			t.Errorf("got %v", err)
		}
	}
	if _, err := e.cq.One(t.Context()); err != provider.StatusBufferOverflow {
		t.Errorf("got %v", err)
	}
	for _, e := range ends {
		e.end()
	}
}
