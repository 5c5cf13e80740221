package await_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// TestOpenFails: what was opened is closed again, and the error says what could not be.
func TestOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		broken := errors.New("broken")
		_, err := await.Open(t.Context(), func(context.Context) (*provider.Miniport, error) { return nil, broken })
		if err != broken {
			t.Error(err)
		}
		over, cancel := context.WithCancelCause(t.Context())
		cancel(broken)
		if _, err := await.Open(over, w.device(clientAddress)); err != broken {
			t.Error(err)
		}
		disabled := func(ctx context.Context) (*provider.Miniport, error) {
			config := w.config(clientAddress)
			config.Configuration = &provider.Configuration{NetworkDirectTechnology: provider.RoCEv2}
			return provider.NewMiniport(config)
		}
		if _, err := await.Open(t.Context(), disabled); !errors.Is(err, provider.StatusAdapterNotReady) {
			t.Error(err)
		}
		// The context ends while the protection domain is made.
		w.pend = true
		late := func(context.Context) (*provider.Miniport, error) { return w.device(clientAddress)(t.Context()) }
		for range 20 { // of two things that are ready, select takes any
			if e, err := await.Open(over, late); err == nil {
				must(t, e.Close())
			} else if !errors.Is(err, broken) {
				t.Error(err)
			}
		}
		if len(w.plugs) > 0 {
			t.Error("a device is left open")
		}
	})
}

// TestNewEndpoint: an adapter that the caller has opened stays open, with nothing on it.
func TestNewEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		device, err := newWire(t).device(clientAddress)(t.Context())
		must(t, err)
		adapter := created(device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion}))
		e, err := await.NewEndpoint(t.Context(), adapter)
		must(t, err)
		_, err = e.Register(make([]byte, 1), 0)
		must(t, err)
		_, err = e.Listen(t.Context(), netip.AddrPortFrom(clientAddress, 0))
		must(t, err)
		must(t, e.Close())
		if got, want := device.Usage(), (provider.Usage{Instances: 1}); got != want {
			t.Errorf("in use: %+v", got)
		}
		adapter.Close()
		device.Close()
		if _, err := await.NewEndpoint(t.Context(), adapter); !errors.Is(err, provider.StatusInvalidDeviceState) {
			t.Errorf("on a closed adapter: %v", err)
		}
	})
}

// TestCloseOrder: everything may be closed in any order and twice, also by the Endpoint alone.
func TestCloseOrder(t *testing.T) {
	type closer interface{ Close() error }
	for name, order := range map[string]func(l *await.Listener, accepted, dialed *await.Conn, b *await.Buffer) []closer{
		"by the endpoint": func(*await.Listener, *await.Conn, *await.Conn, *await.Buffer) []closer { return nil },
		"as made": func(l *await.Listener, accepted, dialed *await.Conn, b *await.Buffer) []closer {
			return []closer{b, l, dialed, accepted}
		},
		"last made first": func(l *await.Listener, accepted, dialed *await.Conn, b *await.Buffer) []closer {
			return []closer{accepted, dialed, l, b}
		},
		"twice": func(l *await.Listener, accepted, dialed *await.Conn, b *await.Buffer) []closer {
			return []closer{l, l, dialed, dialed, b, b, accepted, accepted}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
				b, err := server.Register(make([]byte, 8), provider.MRAllowRemoteWrite)
				must(t, err)
				l, dialed, accepted := connectEndpoints(t, client, server)
				_, err = accepted.PostReceive(t.Context(), b.SGL(0, 8))
				must(t, err)
				for _, c := range order(l, accepted, dialed, b) {
					must(t, c.Close())
				}
				must(t, server.Close())
				must(t, server.Close())
				if _, err := server.Register(make([]byte, 8), 0); !errors.Is(err, net.ErrClosed) {
					t.Errorf("memory of a closed endpoint: %v", err)
				}
				if _, err := server.Listen(t.Context(), service); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a listener of a closed endpoint: %v", err)
				}
				if _, err := server.Dial(t.Context(), service); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a connection of a closed endpoint: %v", err)
				}
				if _, err := l.Accept(t.Context()); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a closed listener: %v", err)
				}
			})
		})
	}
}

// connectEndpoints has the server listen, and connects.
func connectEndpoints(t *testing.T, client, server *await.Endpoint) (l *await.Listener, dialed, accepted *await.Conn) {
	t.Helper()
	l, err := server.Listen(t.Context(), service)
	must(t, err)
	done := make(chan error)
	go func() {
		var err error
		accepted, err = l.Accept(t.Context())
		done <- err
	}()
	dialed, err = client.Dial(t.Context(), service)
	must(t, err)
	must(t, <-done)
	return l, dialed, accepted
}

// TestEndpointClosed: whoever waits for a connection learns that the endpoint is closed.
func TestEndpointClosed(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		l, err := server.Listen(t.Context(), service)
		must(t, err)
		w.setCut(true)
		ended := make(chan error)
		go func() {
			_, err := client.Dial(t.Context(), service)
			ended <- err
		}()
		for range 2 {
			go func() {
				_, err := l.Accept(t.Context())
				ended <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		must(t, client.Close())
		must(t, server.Close())
		for range 3 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		if waited := time.Since(began); waited > time.Second { // for the peer, in vain
			t.Errorf("it took %v", waited)
		}
	})
}

// TestRegisterWhileClosing: what is made just when the endpoint is closed is closed, too, or Close
// would wait for it.
func TestRegisterWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.pend = true
		for range 20 { // whether it is closed before or afterwards, is a race
			e := w.endpoint(clientAddress)
			ended := make(chan error)
			for range 8 {
				go func() {
					_, err := e.Register(make([]byte, 8), 0)
					ended <- err
				}()
			}
			must(t, e.Close())
			for range 8 {
				if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			}
		}
	})
}

// TestAddresses: an address that does not do is named, and what is wrong with it.
func TestAddresses(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		ctx := t.Context()
		l, err := server.Listen(ctx, service)
		must(t, err)
		_, inUse := server.Listen(ctx, service)
		_, foreign := server.Listen(ctx, netip.AddrPortFrom(clientAddress, 1))
		_, refused := client.Dial(ctx, netip.AddrPortFrom(serverAddress, 1))
		_, noRoute := client.Dial(ctx, netip.AddrPortFrom(unreachable, 1))
		_, nobody := client.Dial(ctx, netip.MustParseAddrPort("10.0.0.3:1"))
		_, nothing := client.Dial(ctx, netip.AddrPort{})
		client.Local = serverAddress
		_, local := client.Dial(ctx, service)
		for _, c := range []struct {
			err    error
			status provider.Status
			text   string
		}{
			{inUse, provider.StatusSharingViolation, "listen at 10.0.0.2:7174: the address is in use: "},
			{foreign, provider.StatusInvalidAddress, "listen at 10.0.0.1:1: the adapter does not have the local address: "},
			{refused, provider.StatusConnectionRefused, "dial 10.0.0.2:1: nobody listens there, or the peer refuses: "},
			{noRoute, provider.StatusNetworkUnreachable, "dial 192.0.2.1:1: there is no route: "},
			{nobody, provider.StatusIOTimeout, "dial 10.0.0.3:1: the peer does not answer: "},
			{nothing, provider.StatusInvalidParameter, "dial invalid AddrPort: "},
			{local, provider.StatusInvalidAddress, "dial 10.0.0.2:7174: the adapter does not have the local address: "},
		} {
			if !errors.Is(c.err, c.status) || !strings.HasPrefix(c.err.Error(), c.text) {
				t.Errorf("got %v, want %s%v", c.err, c.text, c.status)
			}
		}
		if n := w.usage(client); n != (provider.Usage{Instances: 1, Pds: 1}) {
			t.Errorf("of what failed, this is left: %+v", n)
		}
		// The address is free when the listener is closed.
		must(t, l.Close())
		_, err = server.Listen(ctx, service)
		must(t, err)
	})
}

// TestDepth: a connection has what the adapter allows, and what it does not is said.
func TestDepth(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		client.Depth = 40000
		_, err := client.Dial(t.Context(), service)
		if want := "dial 10.0.0.2:7174: the adapter allows a Depth of up to 32768, not 40000"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		client.Depth, client.Pieces = 0, 31
		if _, err := client.Dial(t.Context(), service); !errors.Is(err, provider.StatusInvalidParameter) {
			t.Errorf("31 pieces: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		small, err := await.Open(t.Context(), func(context.Context) (*provider.Miniport, error) {
			config := w.config(clientAddress)
			config.Info.MaxReceiveQueueDepth = 2
			return provider.NewMiniport(config)
		})
		must(t, err)
		small.Local = clientAddress
		server := w.endpoint(serverAddress)
		_, dialed, _ := connectEndpoints(t, small, server)
		for range 2 {
			_, err = dialed.PostReceive(t.Context(), nil)
			must(t, err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := dialed.PostReceive(over, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a third of two receives: %v", err)
		}
		must(t, small.Close())
		must(t, server.Close())
	})
}

// TestRegister: memory is the adapter's until the Buffer is closed, not longer.
func TestRegister(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		ctx := t.Context()
		_, err := client.Register(nil, 0)
		if want := "register 0 bytes: STATUS_INVALID_PARAMETER"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		lent := make([]byte, 8)
		b, err := server.Register(lent, provider.MRAllowRemoteWrite)
		must(t, err)
		source, err := client.Register([]byte("abcdefgh"), 0)
		must(t, err)
		_, dialed, _ := connectEndpoints(t, client, server)
		token := b.RemoteToken()
		must(t, dialed.Write(ctx, source.SGL(0, 4), 2, token))
		if string(lent) != "\x00\x00abcd\x00\x00" {
			t.Errorf("written: %q", lent)
		}
		must(t, b.Close())
		if err := dialed.Write(ctx, source.SGL(0, 8), 0, token); !errors.Is(err, provider.StatusRemoteResources) {
			t.Errorf("a write to memory that is not registered any more: %v", err)
		}
		if string(lent) != "\x00\x00abcd\x00\x00" {
			t.Errorf("written: %q", lent)
		}
	})
}
