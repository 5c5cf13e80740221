package await_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// TestMemory has two queue pairs of package await send, write and read registered
// memory.
func TestMemory(t *testing.T) {
	for name, pend := range map[string]bool{"calls finish inline": false, "calls pend": true} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			ends := newEnds(t, pend)
			var qps [2]*await.QP
			var memories [2]*await.Memory
			for i, e := range ends {
				var err error
				qps[i], err = await.NewQP(ctx, e.adapter, e.pd, 2, 1)
				must(t, err)
				memories[i], err = await.Register(ctx, e.pd, 8, provider.MRAllowRemoteWrite|provider.MRAllowRemoteRead)
				must(t, err)
			}
			client, server := ends[0], ends[1]
			if s := qps[1].Receive("receive", memories[1].SGL(0, 2)); s != provider.StatusSuccess {
				t.Fatal(s)
			}
			c, s := connect(t, client, qps[0].QP, server, qps[1].QP)
			copy(memories[0].Bytes, "abcdefgh")
			// The peer learns by the message that what was written before is there.
			_, err := qps[0].Done(ctx, qps[0].Write(nil, memories[0].SGL(4, 4), 4, memories[1].RemoteToken(), 0))
			must(t, err)
			_, err = qps[0].Done(ctx, qps[0].Send(nil, memories[0].SGL(1, 2), 0))
			must(t, err)
			r, err := qps[1].Received(ctx)
			must(t, err)
			if r.RequestContext != "receive" || r.BytesTransferred != 2 {
				t.Errorf("received %+v", r)
			}
			if got, want := memories[1].Bytes, []byte("bc\x00\x00efgh"); !bytes.Equal(got, want) {
				t.Errorf("the peer has %q, want %q", got, want)
			}
			_, err = qps[0].Done(ctx, qps[0].Read(nil, memories[0].SGL(0, 1), 7, memories[1].RemoteToken(), 0))
			must(t, err)
			if memories[0].Bytes[0] != 'h' {
				t.Errorf("read %q", memories[0].Bytes[0])
			}
			// Done does not wait for a request that cannot be posted.
			if _, err := qps[0].Done(ctx, qps[0].Send(nil, make([]provider.SGE, 2), 0)); !errors.Is(err, provider.StatusDataOverrun) {
				t.Errorf("a send of too many pieces: %v", err)
			}
			for _, c := range []*provider.Connector{c, s} {
				must(t, await.Close(ctx, c))
			}
			for i, e := range ends {
				qps[i].Close()
				memories[i].Close(nil, nil)
				e.end()
			}
		})
	}
}

// connect connects two queue pairs.
func connect(t *testing.T, client *end, from *provider.QP, server *end, to *provider.QP) (c, s *provider.Connector) {
	t.Helper()
	ctx := t.Context()
	l, err := await.Listen(ctx, server.adapter, netip.AddrPortFrom(server.address, 0))
	must(t, err)
	address, err := l.Address()
	must(t, err)
	accepted := make(chan error)
	go func() {
		var err error
		if s, err = l.Next(ctx); err == nil {
			err = await.Accept(ctx, s, to, await.Options{InboundReadLimit: 1})
		}
		accepted <- err
	}()
	c, err = await.Dial(ctx, client.adapter, from, client.address, address, await.Options{OutboundReadLimit: 1})
	must(t, err)
	must(t, <-accepted)
	closing, cancel := context.WithCancel(ctx)
	cancel() // as s is to be closed first
	if err := l.Close(closing); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	return c, s
}

// TestCompletionsFirst: what completed before a context ended is not lost, and
// only then its cause comes.
func TestCompletionsFirst(t *testing.T) {
	ends := newEnds(t, false)
	e := ends[0]
	over := errors.New("over")
	for range 20 { // of two things that are ready, select takes any
		ctx, end := context.WithCancelCause(t.Context())
		ending := waitedFor{ctx, func() {
			if s := e.qp.Receive(nil, nil); s != provider.StatusSuccess {
				t.Fatal(s)
			}
			e.qp.Flush()
			end(over)
		}}
		if _, err := e.cq.One(ending); err != provider.StatusCancelled {
			t.Fatalf("got %v before the completion", err)
		}
		if _, err := e.cq.One(ctx); err != over {
			t.Fatalf("got %v, want the cause", err)
		}
	}
	for _, e := range ends {
		e.end()
	}
}

// waitedFor is a context that has something done as soon as somebody waits for
// its end.
type waitedFor struct {
	context.Context
	do func()
}

func (c waitedFor) Done() <-chan struct{} {
	c.do()
	return c.Context.Done()
}

// TestCreateFails: the error names what was not made; what comes too late is
// closed, or the adapter could not be.
func TestCreateFails(t *testing.T) {
	ends := newEnds(t, true)
	e := ends[0]
	_, err := await.Create(t.Context(), func(completion provider.CreateCompletion, context any) (*provider.SRQ, provider.Status) {
		return e.pd.CreateSRQ(0, 1, 0, nil, nil, nil, completion, context)
	})
	if !errors.Is(err, provider.StatusInvalidParameter) || err.Error() != "create SRQ: "+provider.StatusInvalidParameter.Error() {
		t.Error(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		pd, err := await.Create(over, e.adapter.CreatePD)
		if err == nil {
			must(t, await.Close(t.Context(), pd))
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for _, e := range ends {
		e.end()
	}
}

func TestLocalAddress(t *testing.T) {
	for _, remote := range []string{"127.3.2.1", "::1"} {
		local, err := await.LocalAddress(netip.MustParseAddr(remote))
		if err != nil {
			t.Error(err)
		}
		if !local.IsLoopback() || local.Is6() != (remote == "::1") {
			t.Errorf("to %s from %v", remote, local)
		}
	}
}
