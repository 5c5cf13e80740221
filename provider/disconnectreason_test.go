package provider_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// events note the disconnect events of one end, plain or with reasons.
type events struct {
	plain   int
	reasons []uint32
}

func (e *events) onPlain(context any) {
	if context != e {
		panic("wrong context")
	}
	e.plain++
}

func (e *events) onEx(context any, reason uint32) {
	if context != e {
		panic("wrong context")
	}
	e.reasons = append(e.reasons, reason)
}

// joinEx joins the two hosts' QPs by plain functions or by Ex ones at each end.
func (w *world) joinEx(clientEx, serverEx bool) (client, server *events) {
	w.t.Helper()
	client, server = &events{}, &events{}
	c, s := w.hosts[0], w.hosts[1]
	accepted, connected := &async{}, &async{}
	s.listen(func(conn *provider.Connector) {
		s.conn = conn
		if serverEx {
			accepted.returned = conn.AcceptEx(s.qp, 16, 16, nil, server.onEx, server, accepted.done, accepted)
		} else {
			accepted.returned = conn.Accept(s.qp, 16, 16, nil, server.onPlain, server, accepted.done, accepted)
		}
	})
	c.conn = c.newConnector()
	w.want(w.finish(c.dial(c.conn, s)), success)
	if clientEx {
		connected.returned = c.conn.CompleteConnectEx(client.onEx, client, connected.done, connected)
	} else {
		connected.returned = c.conn.CompleteConnect(client.onPlain, client, connected.done, connected)
	}
	w.want(w.finish(connected), success)
	w.want(w.finish(accepted), success)
	return client, server
}

// told checks what an end was told.
func (e *events) told(t *testing.T, plain int, reasons ...uint32) {
	t.Helper()
	if e.plain != plain || !slices.Equal(e.reasons, reasons) {
		t.Errorf("%d plain events and %v, want %d and %v", e.plain, e.reasons, plain, reasons)
	}
}

func TestExForms(t *testing.T) {
	for _, clientEx := range []bool{false, true} {
		for _, serverEx := range []bool{false, true} {
			for _, by := range []int{0, 1} {
				t.Run(fmt.Sprintf("NDK-CONN-30 NDK-DISC-09 client Ex %v, server Ex %v, host %d disconnects", clientEx, serverEx, by), func(t *testing.T) {
					w := newWorld(t)
					client, server := w.joinEx(clientEx, serverEx)
					w.sendTo(w.hosts[0], w.hosts[1], 0)
					w.hosts[1].result(success)
					w.sendTo(w.hosts[1], w.hosts[0], 0)
					w.hosts[0].result(success)
					w.want(w.finish(w.hosts[by].disconnect()), success)
					w.settle()
					this, ex, other := server, serverEx, client
					if by == 1 {
						this, ex, other = client, clientEx, server
					}
					other.told(t, 0)
					if ex {
						this.told(t, 0, provider.DisconnectReasonPeer)
					} else {
						this.told(t, 1)
					}
				})
			}
		}
	}
	t.Run("NDK-CONN-31 no event at either end", func(t *testing.T) {
		for _, by := range []int{0, 1} {
			w := newWorld(t)
			c, s := w.hosts[0], w.hosts[1]
			accepted := &async{}
			s.listen(func(conn *provider.Connector) {
				s.conn = conn
				accepted.returned = conn.AcceptEx(s.qp, 1, 1, nil, nil, s, accepted.done, accepted)
			})
			c.conn = c.newConnector()
			w.want(w.finish(c.dial(c.conn, s)), success)
			w.want(c.conn.CompleteConnectEx(nil, c, nil, nil), success)
			w.want(w.finish(accepted), success)
			w.want(w.finish(w.hosts[by].disconnect()), success)
			w.disconnects(0, 0)
			w.want(w.hosts[1-by].qp.Send(nil, nil, 0), provider.StatusConnectionInvalid) // it has noticed
		}
	})
}

func TestDisconnectReasons(t *testing.T) {
	for name, test := range map[string]func(w *world, client, server *host) (atClient, atServer []uint32){
		"NDK-DISC-09 closed": func(w *world, client, server *host) ([]uint32, []uint32) {
			w.finish(server.close(server.conn))
			return []uint32{provider.DisconnectReasonPeer}, nil
		},
		"NDK-DISC-09 an error": func(w *world, client, server *host) ([]uint32, []uint32) {
			w.want(client.qp.Write(nil, client.at(0, 1), 0, 0, 0), success)
			client.result(provider.StatusRemoteResources)
			return []uint32{provider.DisconnectReasonError}, []uint32{provider.DisconnectReasonError}
		},
		"NDK-DISC-09 a CQ overruns": func(w *world, client, server *host) ([]uint32, []uint32) {
			w.overrun(client, server)
			return []uint32{provider.DisconnectReasonPeer}, []uint32{provider.DisconnectReasonError}
		},
		"NDK-DISC-09 silence": func(w *world, client, server *host) ([]uint32, []uint32) {
			w.path.Down = true
			client.receive(1)
			w.want(client.qp.Write(nil, nil, 0, 0, 0), success)
			client.results(2)
			w.settle()
			w.path.Down = false
			w.clock.Run(10 * time.Second)
			return []uint32{provider.DisconnectReasonTimeout}, []uint32{provider.DisconnectReasonPeer}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.joinEx(true, true)
			c, s := test(w, w.hosts[0], w.hosts[1])
			w.settle()
			client.told(t, 0, c...)
			server.told(t, 0, s...)
		})
	}
	t.Run("NDK-DISC-09 the peer has forgotten the connection", func(t *testing.T) {
		w := newWorld(t)
		c, s := w.hosts[0], w.hosts[1]
		s.listen(func(conn *provider.Connector) { s.accept(conn) })
		c.conn = c.newConnector()
		w.want(w.finish(c.dial(c.conn, s)), success)
		next := w.openAt(s.address, provider.DefaultAdapterInfo()) // takes the server's place
		e := &events{}
		w.want(c.conn.CompleteConnectEx(e.onEx, e, nil, nil), success)
		w.settle()
		e.told(t, 0, provider.DisconnectReasonForgotten)
		next.BeginClose(func() {})
	})
}
