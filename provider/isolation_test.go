package provider_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// Objects are isolated: what happens to one leaves the others alone.

func TestFlushOfOneOfTwo(t *testing.T) {
	t.Run("NDK-FLUSH-04 two queue pairs on one CQ", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		other, otherServer := w.couple(client, server, 7001) // on the same CQs
		w.path.Down = true                                   // so that everything is pending
		for _, h := range []*host{client, other} {
			h.receive(2)
			w.want(h.qp.Write(h.qp, nil, base, server.mr.RemoteToken(), 0), success)
			w.want(h.qp.Read(h.qp, h.at(0, 9), base, server.mr.RemoteToken(), 0), success)
		}
		client.qp.Flush()
		client.cancelledAll(4)
		w.silent(client.cq)
		w.path.Down = false
		for _, r := range other.results(2) {
			if r.Status != success || r.RequestContext != other.qp {
				t.Errorf("got %+v", r)
			}
		}
		for range 2 {
			w.want(otherServer.qp.Send(nil, nil, provider.OpSilentSuccess), success)
			if r := other.result(success); r.Type != provider.OperationTypeReceive {
				t.Errorf("got %+v", r)
			}
		}
	})
}

// cancelledAll takes n completions, all flushed.
func (h *host) cancelledAll(n int) {
	h.world.t.Helper()
	for _, r := range h.results(n) {
		h.world.want(r.Status, provider.StatusCancelled)
	}
}

// TestPortSpaces: ND's ports are not those of sockets.
func TestPortSpaces(t *testing.T) {
	t.Run("NDK-EP-14 ND and TCP", func(t *testing.T) {
		local := netip.MustParseAddr("127.0.0.1")
		w := newWorldOf(t, [2]netip.Addr{local, netip.MustParseAddr("127.0.0.2")}, provider.DefaultAdapterInfo())
		h := w.hosts[0]
		socket := func(port uint16) uint16 {
			t.Helper()
			l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, port)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return l.Addr().(*net.TCPAddr).AddrPort().Port()
		}
		taken := netip.AddrPortFrom(local, socket(0))
		l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
		w.want(l.Listen(taken, nil, nil), success)
		w.finish(h.close(l))
		h.close(h.share(taken))
		c, qp := h.newConnector(), h.newQP()
		a := h.dialFrom(c, qp, taken, w.hosts[1].service())
		w.want(w.finish(a), refused) // for want of a listener

		// And a socket has the port that ND has chosen. (One that some other socket
		// on this machine has would say nothing: the next one does.)
		for range 100 {
			s := h.share(h.ephemeral())
			l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(s.LocalAddress()))
			if err != nil {
				continue
			}
			l.Close()
			return
		}
		t.Error("no socket can have a port that ND has")
	})
}
