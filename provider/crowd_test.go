package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// TestThousands connects 2,000 queue pairs at once with one listener, with every
// twentieth packet lost, sends a message over each, and disconnects them all: half
// from one side, half from both at once. Nothing may be left of them.
func TestThousands(t *testing.T) {
	const size = 2000
	w := newWorld(t)
	w.path.Delay, w.path.Loss = time.Millisecond, 0.05
	client, server := w.hosts[0], w.hosts[1]
	for _, h := range w.hosts {
		h.cq, h.notes = h.newCQ(4 * size)
	}
	newQP := func(h *host) *provider.QP {
		return track(h, must(h.pd.CreateQP(h.cq, h.cq, nil, 1, 1, 1, 1, 0, nil, nil)))
	}

	// An end is one side's part of a connection. The clients are in the order of their
	// numbers, the servers in the order in which their connections come.
	type end struct {
		conn *provider.Connector
		qp   *provider.QP
		call *async
	}
	var clients, servers []*end
	disconnected := 0
	onDisconnect := func(any) { disconnected++ }
	server.listen(func(c *provider.Connector) {
		e := &end{c, newQP(server), &async{}}
		servers = append(servers, e)
		w.want(e.qp.Receive(nil, nil), success)
		e.call.returned = c.Accept(e.qp, 0, 0, nil, onDisconnect, nil, e.call.done, e.call)
	})
	allOver := func(what string, ends []*end) {
		t.Helper()
		w.wait(what, func() bool {
			for _, e := range ends {
				if !e.call.over() {
					return false
				}
			}
			return true
		})
		for _, e := range ends {
			w.want(w.finish(e.call), success)
		}
	}
	for range size {
		e := &end{client.newConnector(), newQP(client), &async{}}
		clients = append(clients, e)
		complete := func() {
			if e.call.status == success {
				w.want(e.conn.CompleteConnect(onDisconnect, nil, nil, nil), success)
			}
		}
		e.call.then = complete
		e.call.returned = e.conn.Connect(e.qp, client.ephemeral(), server.service(), 0, 0, nil, e.call.done, e.call)
	}
	allOver("connects", clients)
	allOver("accepts", servers)
	if len(servers) != size {
		t.Fatalf("%d requests for %d connections", len(servers), size)
	}
	for _, h := range w.hosts {
		if c := h.device.Counters(); c.ActiveConnection != size || c.ConnectFailure != 0 {
			t.Fatalf("%+v", c)
		}
	}

	for _, e := range clients {
		w.want(e.qp.Send(nil, nil, 0), success)
	}
	buffer := make([]provider.Result, 256)
	for _, h := range w.hosts {
		completed := 0
		w.wait("completions", func() bool {
			for n := h.cq.Results(buffer); n > 0; n = h.cq.Results(buffer) {
				for _, r := range buffer[:n] {
					w.want(r.Status, success)
				}
				completed += n
			}
			return completed == size
		})
	}

	// Ports say which server's end is which client's.
	byPort := map[netip.AddrPort]*end{}
	for _, e := range servers {
		peer, _ := e.conn.PeerAddress()
		byPort[peer] = e
	}
	disconnect := func(e *end) {
		e.call = &async{}
		e.call.returned = e.conn.Disconnect(e.call.done, e.call)
	}
	both := 0
	for i, e := range clients {
		disconnect(e)
		if i%2 == 0 {
			local, _ := e.conn.LocalAddress()
			disconnect(byPort[local])
			both++
		}
	}
	allOver("clients' disconnects", clients)
	allOver("servers' disconnects", servers)
	w.settle() // the last disconnect events, and timewaits
	if want := size - both; disconnected != want {
		t.Errorf("%d disconnect events, want %d", disconnected, want)
	}
	w.clock.Run(10 * time.Second)
	for _, h := range w.hosts {
		if c := h.device.Counters(); c.ActiveConnection != 0 || c.ConnectionError != 0 {
			t.Errorf("%+v", c)
		}
		if ids, numbers := h.device.IDs(), h.device.HeldQPNs(); ids != 0 || numbers != 0 {
			t.Errorf("%d IDs and %d queue pair numbers are left", ids, numbers)
		}
	}
}
