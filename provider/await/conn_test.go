package await_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// buffer registers memory of a test.
func buffer(t *testing.T, e *await.Endpoint, content string) *await.Buffer {
	t.Helper()
	b, err := e.Register([]byte(content), provider.MRAllowRemoteWrite|provider.MRAllowRemoteRead)
	must(t, err)
	return b
}

// TestConn has two ends use all methods, on devices whose calls finish inline or pend.
func TestConn(t *testing.T) {
	for name, pend := range map[string]bool{"calls finish inline": false, "calls pend": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				w := newWire(t)
				w.pend = pend
				client, server := w.endpoint(clientAddress), w.endpoint(serverAddress)
				ours, theirs := buffer(t, client, "abcdefgh"), buffer(t, server, "........")
				_, dialed, accepted := connectEndpoints(t, client, server)
				if dialed.RemoteAddr() != service || accepted.LocalAddr() != service || accepted.RemoteAddr() != dialed.LocalAddr() {
					t.Errorf("%v with %v, and %v with %v", dialed.LocalAddr(), dialed.RemoteAddr(), accepted.LocalAddr(), accepted.RemoteAddr())
				}
				posted, err := accepted.PostReceive(ctx, theirs.SGL(0, 2))
				must(t, err)
				// The peer learns by the message that what was written before is there.
				must(t, dialed.Write(ctx, ours.SGL(4, 4), 4, theirs.RemoteToken()))
				must(t, dialed.Send(ctx, ours.SGL(1, 2)))
				r, err := posted.Wait(ctx)
				must(t, err)
				if got := string(theirs.Bytes); r.BytesTransferred != 2 || got != "bc..efgh" {
					t.Errorf("received %d bytes: %q", r.BytesTransferred, got)
				}
				must(t, dialed.Read(ctx, ours.SGL(0, 1), 7, theirs.RemoteToken()))
				if ours.Bytes[0] != 'h' {
					t.Errorf("read %q", ours.Bytes[0])
				}
				_, err = accepted.PostSend(ctx, theirs.SGL(4, 3))
				must(t, err)
				if n, err := dialed.Receive(ctx, ours.SGL(0, 8)); n != 3 || err != nil || string(ours.Bytes[:3]) != "efg" {
					t.Errorf("received %d bytes, %q, %v", n, ours.Bytes, err)
				}
				// A request that cannot be posted does no harm to the connection.
				if err := dialed.Send(ctx, make([]provider.SGE, 2)); !errors.Is(err, provider.StatusDataOverrun) {
					t.Errorf("a send of too many pieces: %v", err)
				}
				if dialed.Err() != nil {
					t.Error(dialed.Err())
				}
				must(t, dialed.Close())
				<-accepted.Done()
				if err := accepted.Err(); err != await.ErrDisconnected {
					t.Error(err)
				}
				must(t, client.Close())
				must(t, server.Close())
			})
		})
	}
}

// TestManyAtOnce: goroutines share a connection, also more of them than it can have
// requests posted.
func TestManyAtOnce(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		ctx := t.Context()
		const many = 100
		ours, theirs := buffer(t, client, strings.Repeat("a", many)), buffer(t, server, strings.Repeat(".", many))
		inbox := buffer(t, server, strings.Repeat(".", many))
		_, dialed, accepted := connectEndpoints(t, client, server)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				if err := dialed.Write(ctx, ours.SGL(i, 1), uint64(i), theirs.RemoteToken()); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := dialed.Send(ctx, ours.SGL(i, 1)); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if n, err := accepted.Receive(ctx, inbox.SGL(i, 1)); n != 1 || err != nil {
					t.Error(n, err)
				}
			})
		}
		all.Wait()
		for _, b := range []*await.Buffer{theirs, inbox} {
			if got := string(b.Bytes); got != strings.Repeat("a", many) {
				t.Errorf("got %q", got)
			}
		}
	})
}

// TestMessagesFirst: what the peer has sent before it disconnects is received, and only then the
// end of the connection.
func TestMessagesFirst(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		ctx := t.Context()
		ours, theirs := buffer(t, client, "abcd"), buffer(t, server, "........")
		_, dialed, accepted := connectEndpoints(t, client, server)
		var receives []*await.Posted
		for i := range 6 {
			p, err := accepted.PostReceive(ctx, theirs.SGL(i, 1))
			must(t, err)
			receives = append(receives, p)
		}
		for i := range 4 {
			must(t, dialed.Send(ctx, ours.SGL(i, 1)))
		}
		must(t, dialed.Close())
		<-accepted.Done()
		for i, p := range receives {
			switch _, err := p.Wait(ctx); {
			case i < 4:
				must(t, err)
			case !errors.Is(err, await.ErrDisconnected):
				t.Error(err)
			}
		}
		must(t, accepted.Wait(ctx))
		if got := string(theirs.Bytes); got != "abcd...." {
			t.Errorf("received %q", got)
		}
		for _, err := range everyCall(ctx, accepted, theirs, 0) {
			if !errors.Is(err, await.ErrDisconnected) || !strings.Contains(err.Error(), dialed.LocalAddr().String()) {
				t.Errorf("afterwards: %v", err)
			}
		}
	})
}

// everyCall calls everything that posts, and returns what comes of it.
func everyCall(ctx context.Context, c *await.Conn, b *await.Buffer, token uint32) []error {
	_, received := c.Receive(ctx, b.SGL(0, 1))
	return []error{
		received, c.Send(ctx, b.SGL(0, 1)), c.Read(ctx, b.SGL(0, 1), 0, token), c.Write(ctx, b.SGL(0, 1), 0, token),
	}
}

// TestGivenUp: a call whose context ends returns its cause at once, with its memory the
// caller's again, and the connection has ended; a request whose Wait is given up goes on.
func TestGivenUp(t *testing.T) {
	for i, name := range []string{"receive from", "send to", "read from", "write to"} {
		t.Run(name, func(t *testing.T) {
			onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
				ours, theirs := buffer(t, client, "abcdefgh"), buffer(t, server, "........")
				_, dialed, accepted := connectEndpoints(t, client, server)
				w.setCut(true)
				enough := errors.New("enough")
				ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, enough)
				defer cancel()
				began := time.Now()
				err := func() error {
					switch i {
					case 0:
						_, err := dialed.Receive(ctx, ours.SGL(0, 8))
						return err
					case 1:
						return dialed.Send(ctx, ours.SGL(0, 8))
					case 2:
						return dialed.Read(ctx, ours.SGL(0, 8), 0, theirs.RemoteToken())
					}
					return dialed.Write(ctx, ours.SGL(0, 8), 0, theirs.RemoteToken())
				}()
				if want := name + " 10.0.0.2:7174: enough"; !errors.Is(err, enough) || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
				if waited := time.Since(began); waited != 10*time.Millisecond {
					t.Errorf("it took %v", waited)
				}
				if dialed.Err() != enough {
					t.Errorf("the connection has ended for %v", dialed.Err())
				}
				for _, err := range everyCall(t.Context(), dialed, ours, 0) {
					if !errors.Is(err, enough) {
						t.Errorf("afterwards: %v", err)
					}
				}
				w.setCut(false)
				<-accepted.Done() // the peer is told
			})
		})
	}
	t.Run("a Wait", func(t *testing.T) {
		onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
			ours, theirs := buffer(t, client, "abcdefgh"), buffer(t, server, "........")
			_, dialed, accepted := connectEndpoints(t, client, server)
			p, err := accepted.PostReceive(t.Context(), theirs.SGL(0, 8))
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			must(t, dialed.Send(t.Context(), ours.SGL(0, 8)))
			r, err := p.Wait(ctx) // a completion that is there comes first
			must(t, err)
			if r.BytesTransferred != 8 || string(theirs.Bytes) != "abcdefgh" {
				t.Errorf("received %d bytes: %q", r.BytesTransferred, theirs.Bytes)
			}
		})
	})
	t.Run("a Dial", func(t *testing.T) {
		onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
			w.setCut(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if _, err := client.Dial(ctx, service); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if waited := time.Since(began); waited != time.Second {
				t.Errorf("it took %v", waited)
			}
			if n := w.usage(client); n != (provider.Usage{Instances: 1, Pds: 1}) {
				t.Errorf("this is left: %+v", n)
			}
		})
	})
	t.Run("an Accept", func(t *testing.T) {
		onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
			l, err := server.Listen(t.Context(), service)
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("nobody comes: %v", err)
			}
			// A client whose consent never comes.
			c, qp, _ := w.undecided(client)
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a client that does not complete the connection: %v", err)
			}
			must(t, await.Close(t.Context(), c))
			must(t, await.Close(t.Context(), qp.QP))
			qp.Close()
			if n := w.usage(server); n != (provider.Usage{Instances: 1, Pds: 1}) {
				t.Errorf("this is left: %+v", n)
			}
		})
	})
}

// undecided has a client ask for a connection, and leaves undecided whether it wants it. replied
// is told when the server has accepted.
func (w *wire) undecided(client *await.Endpoint) (c *provider.Connector, qp *await.QP, replied chan provider.Status) {
	w.t.Helper()
	qp, err := await.NewQP(w.t.Context(), client.Adapter, client.PD, 1, 1)
	must(w.t, err)
	c, replied = created(client.Adapter.CreateConnector(nil, nil)), make(chan provider.Status, 1)
	s := c.Connect(qp.QP, netip.AddrPortFrom(clientAddress, 0), service, 0, 0, nil, func(_ any, s provider.Status) { replied <- s }, nil)
	if s != provider.StatusPending {
		w.t.Fatal(s)
	}
	return c, qp, replied
}

// TestAcceptPassesOver: a client that gives up is not Accept's caller's business.
func TestAcceptPassesOver(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		l, err := server.Listen(t.Context(), service)
		must(t, err)
		accepted := make(chan *await.Conn)
		go func() {
			c, err := l.Accept(t.Context())
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		c, qp, replied := w.undecided(client)
		if s := <-replied; s != provider.StatusSuccess {
			t.Error(s)
		}
		must(t, await.Close(t.Context(), c))
		qp.Close()
		dialed, err := client.Dial(t.Context(), service)
		must(t, err)
		if c := <-accepted; c.RemoteAddr() != dialed.LocalAddr() {
			t.Errorf("connected with %v, not with %v", c.RemoteAddr(), dialed.LocalAddr())
		}
	})
}

// TestConcurrentAccept: each of those who accept gets one of the clients.
func TestConcurrentAccept(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		const many = 8
		l, err := server.Listen(t.Context(), service)
		must(t, err)
		dialed, accepted := make(chan netip.AddrPort, many), make(chan netip.AddrPort, many)
		for range many {
			go func() {
				if c, err := l.Accept(t.Context()); err != nil {
					t.Error(err)
				} else {
					accepted <- c.RemoteAddr()
				}
			}()
			go func() {
				if c, err := client.Dial(t.Context(), service); err != nil {
					t.Error(err)
				} else {
					dialed <- c.LocalAddr()
				}
			}()
		}
		var clients, served []netip.AddrPort
		for range many {
			clients, served = append(clients, <-dialed), append(served, <-accepted)
		}
		slices.SortFunc(clients, netip.AddrPort.Compare)
		slices.SortFunc(served, netip.AddrPort.Compare)
		if !slices.Equal(clients, served) || len(slices.Compact(clients)) != many {
			t.Errorf("clients %v, served %v", clients, served)
		}
	})
}

// TestPeerDies: a peer that no longer answers ends what waits for it.
func TestPeerDies(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		ours := buffer(t, client, "abcdefgh")
		_, dialed, _ := connectEndpoints(t, client, server)
		waiting := make(chan error)
		go func() {
			_, err := dialed.Receive(t.Context(), ours.SGL(0, 4))
			waiting <- err
		}()
		synctest.Wait()
		w.setCut(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := dialed.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || dialed.Err() != nil {
			t.Error(err)
		}
		if err := dialed.Send(t.Context(), ours.SGL(4, 4)); !errors.Is(err, provider.StatusIOTimeout) {
			t.Error(err)
		}
		for _, err := range append(everyCall(t.Context(), dialed, ours, 0), <-waiting, dialed.Err(), dialed.Wait(t.Context())) {
			if !errors.Is(err, await.ErrDisconnected) || !errors.Is(err, provider.StatusIOTimeout) {
				t.Error(err)
			}
		}
	})
}

// TestRequestFails: a request that the peer refuses says so, and is the end for both.
func TestRequestFails(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		ours, theirs := buffer(t, client, "abcdefgh"), buffer(t, server, "........")
		_, dialed, accepted := connectEndpoints(t, client, server)
		err := dialed.Write(t.Context(), ours.SGL(0, 4), 6, theirs.RemoteToken())
		if want := "write to 10.0.0.2:7174: STATUS_REMOTE_RESOURCES"; !errors.Is(err, provider.StatusRemoteResources) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		for _, err := range everyCall(t.Context(), dialed, ours, 0) {
			if !errors.Is(err, await.ErrDisconnected) || !errors.Is(err, provider.StatusRemoteResources) {
				t.Errorf("afterwards: %v", err)
			}
		}
		_, err = accepted.Receive(t.Context(), theirs.SGL(0, 8))
		if !errors.Is(err, await.ErrDisconnected) {
			t.Errorf("the other end: %v", err)
		}
		if got := string(theirs.Bytes); got != "........" {
			t.Errorf("written: %q", got)
		}
	})
	t.Run("that nobody waits for", func(t *testing.T) {
		onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
			ours := buffer(t, client, "abcdefgh")
			_, dialed, _ := connectEndpoints(t, client, server)
			if s := dialed.QP.Write(nil, ours.SGL(0, 4), 0, 1, provider.OpSilentSuccess); s != provider.StatusSuccess {
				t.Fatal(s)
			}
			<-dialed.Done()
			if err := dialed.Err(); !errors.Is(err, provider.StatusRemoteResources) {
				t.Error(err)
			}
		})
	})
}

// TestConnClosed: what waits on a connection learns that it is closed.
func TestConnClosed(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		ours := buffer(t, client, "abcdefgh")
		_, dialed, _ := connectEndpoints(t, client, server)
		waiting := make(chan error)
		for range 20 { // of which 16 can be posted
			go func() {
				_, err := dialed.Receive(t.Context(), ours.SGL(0, 4))
				waiting <- err
			}()
		}
		synctest.Wait()
		must(t, dialed.Close())
		for range 20 {
			if err := <-waiting; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		for _, err := range everyCall(t.Context(), dialed, ours, 0) {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("afterwards: %v", err)
			}
		}
	})
}

// TestDeviceFails: with the device fail its connections, and closing what is left does not hang.
func TestDeviceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		var device *provider.Miniport
		client, err := await.Open(t.Context(), func(ctx context.Context) (_ *provider.Miniport, err error) {
			device, err = w.device(clientAddress)(ctx)
			return device, err
		})
		must(t, err)
		client.Local = clientAddress
		server := w.endpoint(serverAddress)
		ours := buffer(t, client, "abcdefgh")
		_, dialed, accepted := connectEndpoints(t, client, server)
		waiting := make(chan error)
		go func() {
			_, err := dialed.Receive(t.Context(), ours.SGL(0, 4))
			waiting <- err
		}()
		synctest.Wait()
		device.Fail()
		for _, err := range append(everyCall(t.Context(), dialed, ours, 0), <-waiting) {
			if !errors.Is(err, await.ErrDisconnected) {
				t.Error(err)
			}
		}
		must(t, client.Close())
		<-accepted.Done()
		must(t, server.Close())
	})
}

// TestDialShared: connections from one port lead to different peers.
func TestDialShared(t *testing.T) {
	onWire(t, func(t *testing.T, w *wire, client, server *await.Endpoint) {
		ctx := t.Context()
		shared := created(client.Adapter.CreateSharedEndpoint(netip.AddrPortFrom(clientAddress, 0), nil, nil))
		for port := range uint16(2) {
			at := netip.AddrPortFrom(serverAddress, 7174+port)
			l, err := server.Listen(ctx, at)
			must(t, err)
			accepted := make(chan *await.Conn)
			go func() {
				c, err := l.Accept(ctx)
				if err != nil {
					t.Error(err)
				}
				accepted <- c
			}()
			c, err := client.DialShared(ctx, shared, at)
			must(t, err)
			if from := (<-accepted).RemoteAddr(); from != shared.LocalAddress() || c.LocalAddr() != from {
				t.Errorf("connected from %v, not from %v", from, shared.LocalAddress())
			}
		}
		_, err := client.DialShared(ctx, shared, service)
		if want := "dial 10.0.0.2:7174: there is such a connection already: STATUS_ADDRESS_ALREADY_EXISTS"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		closed := make(chan error)
		go func() { closed <- await.Close(ctx, shared) }() // which waits for the connections
		must(t, client.Close())
		must(t, <-closed)
	})
}

// usage returns what is in use of the device of an endpoint.
func (w *wire) usage(e *await.Endpoint) provider.Usage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.devices[e.Local].Usage()
}
