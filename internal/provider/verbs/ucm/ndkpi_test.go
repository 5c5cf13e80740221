package ucm

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// An ndkpi is a program of the other object model, on a device.
type ndkpi struct {
	t       *testing.T
	adapter *provider.Adapter
	pd      *provider.PD
	cq      *provider.CQ
}

func newNDKPI(t *testing.T, device *provider.Miniport) *ndkpi {
	n := &ndkpi{t: t}
	var status provider.Status
	n.adapter, status = device.OpenAdapter(provider.OpenParameters{Version: provider.Version{Major: 2}})
	n.want(status)
	n.pd, status = n.adapter.CreatePD(nil, nil)
	n.want(status)
	n.cq, status = n.adapter.CreateCQ(64, func(any, provider.Status) {}, nil, nil, nil, nil)
	n.want(status)
	return n
}

func (n *ndkpi) want(status provider.Status) {
	n.t.Helper()
	if status != provider.StatusSuccess && status != provider.StatusPending {
		n.t.Fatal(status)
	}
}

func (n *ndkpi) qp() *provider.QP {
	n.t.Helper()
	qp, status := n.pd.CreateQP(n.cq, n.cq, nil, 8, 8, 1, 1, 0, nil, nil)
	n.want(status)
	return qp
}

// TestFromNDKPI has an NDKPI program connect to a verbs program.
func TestFromNDKPI(t *testing.T) {
	w := newWorld(t, 1)
	s := w.server
	listening := s.create(spaceTCP)
	s.listen(listening, "10.0.0.2:7471", 0)
	n := newNDKPI(t, w.client.device)
	c, status := n.adapter.CreateConnector(nil, nil)
	n.want(status)
	var result provider.Status = provider.StatusPending
	n.want(c.Connect(n.qp(), netip.AddrPortFrom(clientAddress, 0), netip.MustParseAddrPort("10.0.0.2:7471"), 4, 6, []byte("hello"),
		func(_ any, s provider.Status) { result = s }, nil))
	server, e := s.request(listening)
	if p := param(e); heard(p) != "hello" || p.ResponderResources != 6 || p.InitiatorDepth != 4 || e.ECE == (ece{}) {
		t.Errorf("request %+v, ECE %v", p, e.ECE)
	}
	answer := accept{ID: server, UID: uint64(server) + 1000, Param: params(0x77, "welcome")}
	s.do(cmdAccept, 0, struct {
		accept
		ece
	}{answer, ece{Vendor: e.ECE.Vendor}})
	if !w.clock.RunUntil(func() bool { return result != provider.StatusPending }, 1e9) || result != provider.StatusSuccess {
		t.Fatalf("connect: %v", result)
	}
	gone := false
	n.want(c.CompleteConnect(func(any) { gone = true }, nil, nil, nil))
	s.expect(server, eventEstablished)
	s.do(cmdDisconnect, 0, disconnect{server})
	s.expect(server, eventDisconnected)
	if !gone {
		t.Error("the NDKPI program was not told of the end")
	}
}

// TestToNDKPI has a verbs program connect to an NDKPI program.
func TestToNDKPI(t *testing.T) {
	w := newWorld(t, 1)
	c := w.client
	n := newNDKPI(t, w.server.device)
	var accepted *provider.Connector
	l, status := n.adapter.CreateListener(func(_ any, c *provider.Connector) { accepted = c }, nil, nil, nil)
	n.want(status)
	n.want(l.Listen(netip.MustParseAddrPort("10.0.0.2:7471"), nil, nil))
	client := c.create(spaceTCP)
	c.resolve(client, "10.0.0.2:7471")
	c.do(cmdConnect, 0, connect{ID: client, Param: params(0x77, "hello")})
	if !w.clock.RunUntil(func() bool { return accepted != nil }, 1e9) {
		t.Fatal("no request")
	}
	up := false
	n.want(accepted.Accept(n.qp(), 2, 3, []byte("welcome"), nil, nil, func(_ any, s provider.Status) { up = s == provider.StatusSuccess }, nil))
	e := c.expect(client, eventConnectResponse)
	if p := param(e); heard(p) != "welcome" || p.ResponderResources != 3 || p.InitiatorDepth != 2 {
		t.Errorf("reply %+v", p)
	}
	c.do(cmdAccept, 0, accept{ID: client})
	if !w.clock.RunUntil(func() bool { return up }, 1e9) {
		t.Fatal("the NDKPI program was not told of the connection")
	}
	n.want(accepted.Disconnect(func(any, provider.Status) {}, nil))
	c.expect(client, eventDisconnected)
}

// TestLoopback has a program connect to its own address.
func TestLoopback(t *testing.T) {
	w := newWorld(t, 1)
	c := w.client
	listening := c.create(spaceTCP)
	c.listen(listening, "0.0.0.0:7471", 0)
	client := c.create(spaceTCP)
	c.resolve(client, "10.0.0.1:7471")
	c.do(cmdConnect, 0, connect{ID: client, Param: params(1, "hello")})
	server, _ := c.request(listening)
	c.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(2, "")})
	c.expect(client, eventConnectResponse)
	c.do(cmdAccept, 0, accept{ID: client})
	c.expect(server, eventEstablished)
	c.do(cmdDisconnect, 0, disconnect{client})
	c.expect(server, eventDisconnected)
	c.expect(client, eventDisconnected)
	w.end()
}
