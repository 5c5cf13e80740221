package await_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// TestWaitTogether: of several that wait for a request each gets one, also if
// all the requests arrive at once.
func TestWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := await.NewListener()
		sent := []*provider.Connector{new(provider.Connector), new(provider.Connector), new(provider.Connector)}
		got := make(chan *provider.Connector, len(sent))
		for range sent {
			go func() {
				c, err := l.Next(t.Context())
				must(t, err)
				got <- c
			}()
		}
		synctest.Wait()
		l.ArriveTogether(sent...)
		var all []*provider.Connector
		for range sent {
			all = append(all, <-got)
		}
		for _, c := range sent {
			if !slices.Contains(all, c) {
				t.Error("a request is lost")
			}
		}
	})
}

// TestCloseRefuses: what nobody has taken when a listener is closed, and what
// arrives just then, is closed. Its adapter would not come to its end otherwise.
func TestCloseRefuses(t *testing.T) {
	ends := newEnds(t, false)
	e := ends[0]
	l, err := await.Listen(t.Context(), e.adapter, netip.AddrPortFrom(e.address, 0))
	must(t, err)
	l.Arrive(created(e.adapter.CreateConnector(nil, nil)))
	must(t, l.Close(t.Context()))
	l.Arrive(created(e.adapter.CreateConnector(nil, nil)))
	if _, err := l.Next(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that is closed has a request: %v", err)
	}
	for _, e := range ends {
		e.end()
	}
}

// TestCloseWakes: all who wait for a request learn that the listener is closed.
func TestCloseWakes(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		l, err := await.Listen(t.Context(), server.Adapter, service)
		must(t, err)
		ended := make(chan error)
		for range 3 {
			go func() {
				_, err := l.Next(t.Context())
				ended <- err
			}()
		}
		synctest.Wait()
		must(t, l.Close(t.Context()))
		for range 3 {
			if err := <-ended; err != net.ErrClosed {
				t.Error(err)
			}
		}
	})
}

// A reluctant object takes its time to close.
type reluctant struct {
	provider.Object
	closed bool
}

func (r *reluctant) Close(completion provider.CloseCompletion, context any) provider.Status {
	go func() {
		r.closed = true
		completion(context)
	}()
	return provider.StatusPending
}

// TestClose: Close returns when the object is closed, not before.
func TestClose(t *testing.T) {
	r := &reluctant{}
	must(t, await.Close(t.Context(), r))
	if !r.closed {
		t.Error("not closed yet")
	}
}
