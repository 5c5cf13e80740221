package provider_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// unmanaged returns what a host needs to know of its end of a connection. The PSNs
// wrap soon.
func (h *host) unmanaged(to *host) provider.UnmanagedConnection {
	psn := func(of *host) uint32 { return 0xFFFFFE - of.qp.Number()&1 }
	return provider.UnmanagedConnection{
		Local: h.address, Remote: to.address, RemoteQPN: to.qp.Number(),
		SendPSN: psn(to), ReceivePSN: psn(h), MTU: 1024,
		AckTimeout: 14, RetryCount: 7, RNRRetryCount: 7, InboundReadLimit: 1, OutboundReadLimit: 1,
	}
}

// enter establishes the host's end of a connection.
func (h *host) enter(u provider.UnmanagedConnection) *events {
	h.world.t.Helper()
	e, a := &events{}, &async{}
	h.conn = h.newConnector()
	a.returned = h.conn.ConnectUnmanaged(h.qp, u, e.onEx, e, a.done, a)
	h.world.want(h.world.finish(a), success)
	return e
}

// joinUnmanaged joins two hosts' QPs without connection management.
func (w *world) joinUnmanaged(a, b *host) (aEvents, bEvents *events) {
	w.t.Helper()
	return a.enter(a.unmanaged(b)), b.enter(b.unmanaged(a))
}

// converse sends, writes and reads n times each way.
func (w *world) converse(n int) {
	w.t.Helper()
	for i := range n {
		for _, way := range [][2]*host{{w.hosts[0], w.hosts[1]}, {w.hosts[1], w.hosts[0]}} {
			from, to := way[0], way[1]
			from.fill(i % 4)
			w.want(to.qp.Receive(nil, to.at(0, 9000)), success)
			w.want(from.qp.Send(nil, from.at(20000, 9000), provider.OpSilentSuccess), success)
			w.want(from.qp.Write(nil, from.at(30000, 9000), base+9000, to.mr.RemoteToken(), provider.OpSilentSuccess), success)
			w.want(from.qp.Read(nil, from.at(50000, 9000), base+9000, to.mr.RemoteToken(), 0), success)
			from.result(success)
			if r := to.result(success); r.BytesTransferred != 9000 {
				w.t.Fatalf("%d bytes arrived", r.BytesTransferred)
			}
			for where, pair := range map[string][2][]byte{
				"sent":    {from.memory[20000:29000], to.memory[:9000]},
				"written": {from.memory[30000:39000], to.memory[9000:18000]},
				"read":    {from.memory[50000:59000], to.memory[9000:18000]},
			} {
				if !slices.Equal(pair[0], pair[1]) {
					w.t.Fatalf("round %d: other bytes were %s", i, where)
				}
			}
		}
	}
}

// TestUnmanaged: such a connection carries what any other does, and is listed and
// counted as one of Connect's.
func TestUnmanaged(t *testing.T) {
	for name, at := range map[string][2]netip.Addr{"IPv4": addresses, "IPv6": addresses6} {
		for _, pend := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, pend %v", name, pend), func(t *testing.T) {
				w := newWorldWith(t, at, func(c *provider.Config) { c.Pend = pend })
				a, b := w.hosts[0], w.hosts[1]
				w.joinUnmanaged(a, b)
				w.converse(3)
				w.counted(t, provider.Counters{Connect: 1, ActiveConnection: 1}, provider.Counters{Connect: 1, ActiveConnection: 1})
				local, remote := netip.AddrPortFrom(at[0], 0), netip.AddrPortFrom(at[1], 0)
				want := []provider.ConnectionEntry{{
					Local: local, Remote: remote, State: "established", QPN: a.qp.Number(), RemoteQPN: b.qp.Number(),
				}}
				if got := a.device.Connections(); !slices.Equal(got, want) {
					t.Errorf("listed as %+v, want %+v", got, want)
				}
				same(t, a.connections(), 64, entry{Local: local, Remote: remote})
				if got, status := a.conn.LocalAddress(); got != local || status != success {
					t.Errorf("from %v, %v", got, status)
				}
				if got, status := a.conn.PeerAddress(); got != remote || status != success {
					t.Errorf("to %v, %v", got, status)
				}
				var in, out, length uint32
				w.want(a.conn.GetConnectionData(&in, &out, nil, &length), success)
				if in != 1 || out != 1 || length != 0 {
					t.Errorf("read limits %d and %d, %d bytes of data", in, out, length)
				}
				// It has been made already.
				w.want(a.conn.ConnectUnmanaged(a.newQP(), a.unmanaged(b), nil, nil, nil, nil), provider.StatusInvalidDeviceState)
				w.want(a.conn.Reject(nil), provider.StatusInvalidDeviceState)
				w.want(a.complete(), provider.StatusConnectionInvalid)
				w.want(a.dial(a.conn, b).returned, provider.StatusInvalidDeviceState)
			})
		}
	}
}

// TestUnmanagedUnderLoss: nothing is lost, and nobody gives up.
func TestUnmanagedUnderLoss(t *testing.T) {
	w := newWorld(t)
	a, b := w.joinUnmanaged(w.hosts[0], w.hosts[1])
	w.path.Loss, w.path.Reorder = 0.03, 0.03
	w.converse(20)
	a.told(t, 0)
	b.told(t, 0)
}

// TestUnmanagedParameters: those that make no sense are refused, and then the
// connector and the QP are as they were.
func TestUnmanagedParameters(t *testing.T) {
	w := newWorld(t)
	a, b := w.hosts[0], w.hosts[1]
	a.conn = a.newConnector()
	for name, test := range map[string]struct {
		change func(*provider.UnmanagedConnection)
		want   provider.Status
	}{
		"no local address":     {func(u *provider.UnmanagedConnection) { u.Local = netip.Addr{} }, provider.StatusInvalidParameter},
		"no remote address":    {func(u *provider.UnmanagedConnection) { u.Remote = netip.Addr{} }, provider.StatusInvalidParameter},
		"two families":         {func(u *provider.UnmanagedConnection) { u.Remote = addresses6[1] }, provider.StatusInvalidParameter},
		"another's address":    {func(u *provider.UnmanagedConnection) { u.Local = b.address }, provider.StatusInvalidAddress},
		"QPN 0":                {func(u *provider.UnmanagedConnection) { u.RemoteQPN = 0 }, provider.StatusInvalidParameter},
		"QPN 1":                {func(u *provider.UnmanagedConnection) { u.RemoteQPN = 1 }, provider.StatusInvalidParameter},
		"QPN of multicast":     {func(u *provider.UnmanagedConnection) { u.RemoteQPN = 0xFFFFFF }, provider.StatusInvalidParameter},
		"QPN too large":        {func(u *provider.UnmanagedConnection) { u.RemoteQPN = 1 << 24 }, provider.StatusInvalidParameter},
		"PSN to send":          {func(u *provider.UnmanagedConnection) { u.SendPSN = 1 << 24 }, provider.StatusInvalidParameter},
		"PSN to receive":       {func(u *provider.UnmanagedConnection) { u.ReceivePSN = 1 << 24 }, provider.StatusInvalidParameter},
		"MTU 0":                {func(u *provider.UnmanagedConnection) { u.MTU = 0 }, provider.StatusInvalidParameter},
		"MTU 1000":             {func(u *provider.UnmanagedConnection) { u.MTU = 1000 }, provider.StatusInvalidParameter},
		"MTU 8192":             {func(u *provider.UnmanagedConnection) { u.MTU = 8192 }, provider.StatusInvalidParameter},
		"timeout":              {func(u *provider.UnmanagedConnection) { u.AckTimeout = 32 }, provider.StatusInvalidParameter},
		"retry count":          {func(u *provider.UnmanagedConnection) { u.RetryCount = 8 }, provider.StatusInvalidParameter},
		"RNR retry count":      {func(u *provider.UnmanagedConnection) { u.RNRRetryCount = 8 }, provider.StatusInvalidParameter},
		"a network not routed": {func(u *provider.UnmanagedConnection) { u.Remote = netip.MustParseAddr("10.9.0.1") }, provider.StatusNetworkUnreachable},
	} {
		w.network.Route(netip.MustParsePrefix("10.9.0.0/16"), provider.StatusNetworkUnreachable)
		u := a.unmanaged(b)
		test.change(&u)
		if got := a.conn.ConnectUnmanaged(a.qp, u, nil, nil, nil, nil); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	w.counted(t, provider.Counters{ConnectFailure: 1}, provider.Counters{}) // what is not routed
	u := a.unmanaged(b)
	w.want(a.conn.ConnectUnmanaged(nil, u, nil, nil, nil, nil), provider.StatusInvalidParameter)
	w.want(a.conn.ConnectUnmanaged(b.qp, u, nil, nil, nil, nil), provider.StatusInvalidParameter)
	w.want(a.conn.ConnectUnmanaged(a.qp, u, nil, nil, nil, nil), success)
	w.want(a.newConnector().ConnectUnmanaged(a.qp, u, nil, nil, nil, nil), provider.StatusConnectionActive)
	b.enter(b.unmanaged(a))
	w.converse(1)
	closed := a.newConnector()
	w.finish(a.close(closed))
	w.want(closed.ConnectUnmanaged(a.newQP(), u, nil, nil, nil, nil), provider.StatusInvalidDeviceState)
}

// TestUnmanagedMTU: what is configured bounds it, and below that the ends choose.
func TestUnmanagedMTU(t *testing.T) {
	for _, mtu := range []int{256, 2048, 4096} {
		w := newWorldWith(t, addresses, func(c *provider.Config) { c.Configuration.NetworkDirectRoCEFrameSize = 2048 })
		a, b := w.hosts[0], w.hosts[1]
		ua, ub := a.unmanaged(b), b.unmanaged(a)
		ua.MTU, ub.MTU = mtu, mtu
		if mtu > 2048 {
			w.want(a.newConnector().ConnectUnmanaged(a.qp, ua, nil, nil, nil, nil), provider.StatusImplementationLimit)
			continue
		}
		a.enter(ua)
		b.enter(ub)
		largest := 0
		w.network.Tap(func(_ time.Duration, packet []byte) { largest = max(largest, len(packet)) })
		w.converse(1)
		const headers = 20 + 8 + 12 + 16 + 4 // of a WRITE First
		if largest != mtu+headers {
			t.Errorf("MTU %d: packets of up to %d bytes", mtu, largest)
		}
	}
}

// TestUnmanagedAfterRefusal: a connector that a peer has refused may connect so,
// too. The private data of the peer's refusal is no longer told.
func TestUnmanagedAfterRefusal(t *testing.T) {
	w := newWorld(t)
	a, b := w.hosts[0], w.hosts[1]
	b.listen(func(c *provider.Connector) { w.want(c.Reject([]byte("no")), success) })
	a.conn = a.newConnector()
	w.want(w.finish(a.dial(a.conn, b)), provider.StatusConnectionRefused)
	w.want(a.conn.ConnectUnmanaged(a.qp, a.unmanaged(b), nil, nil, nil, nil), success)
	var length uint32
	if w.want(a.conn.GetConnectionData(nil, nil, nil, &length), success); length != 0 {
		t.Errorf("%d bytes of private data", length)
	}
	b.enter(b.unmanaged(a))
	w.converse(1)
}

// TestUnmanagedPeerIsAbsent: the consumer is told within the retry limit.
func TestUnmanagedPeerIsAbsent(t *testing.T) {
	w := newWorld(t)
	a, b := w.hosts[0], w.hosts[1]
	e := a.enter(a.unmanaged(b)) // and b never does
	a.receive(1)
	begin := w.clock.Now()
	w.want(a.qp.Send(nil, nil, 0), success)
	a.result(timedOut)
	const limit = 8 * 4096 * time.Nanosecond << 14
	if took := w.clock.Now() - begin; took < limit/2 || took > limit+limit/8 {
		t.Errorf("it took %v, want about %v", took, limit)
	}
	a.result(provider.StatusCancelled) // the receive
	w.settle()
	e.told(t, 0, provider.DisconnectReasonTimeout)
	w.counted(t, provider.Counters{Connect: 1, ConnectionError: 1}, provider.Counters{})
	if len(a.device.Connections()) > 0 {
		t.Error("it is still listed")
	}
	w.want(w.finish(a.disconnect()), success)
	if lost := b.device.TransportCounters()["misdirected"]; lost == 0 {
		t.Error("the requests did not arrive")
	}
}

// TestUnmanagedRNR: the limits of a connection are those that were given.
func TestUnmanagedRNR(t *testing.T) {
	w := newWorld(t)
	a, b := w.hosts[0], w.hosts[1]
	u := a.unmanaged(b)
	u.RNRRetryCount = 1
	e := a.enter(u)
	b.enter(b.unmanaged(a))
	w.want(a.qp.Send(nil, nil, 0), success)
	a.result(provider.StatusIOTimeout)
	w.settle()
	e.told(t, 0, provider.DisconnectReasonTimeout)
}

// TestUnmanagedEnds: nobody is told of the end.
func TestUnmanagedEnds(t *testing.T) {
	for name, end := range map[string]func(w *world, a *host){
		"Disconnect": func(w *world, a *host) {
			d := a.disconnect()
			d.then = func() { a.cancelled() } // ndkpi.md T55
			w.want(w.finish(d), success)
			w.want(w.finish(a.disconnect()), success) // there is nothing left to do
		},
		"Close": func(w *world, a *host) {
			w.want(w.finish(a.close(a.conn)), success)
			a.cancelled()
		},
		"Disconnect and Close": func(w *world, a *host) {
			d := a.disconnect()
			w.want(w.finish(a.close(a.conn)), success)
			w.want(w.finish(d), success)
			a.cancelled()
		},
		"Flush": func(w *world, a *host) {
			a.qp.Flush()
			a.cancelled()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.hosts[0], w.hosts[1]
			u := a.unmanaged(b)
			u.AckTimeout = 0 // for ever
			ea := a.enter(u)
			eb := b.enter(b.unmanaged(a))
			a.pending()
			w.settle()
			frames := a.device.Counters().RDMAOutFrames
			end(w, a)
			w.settle()
			if sent := a.device.Counters().RDMAOutFrames - frames; sent > 0 {
				t.Errorf("%d frames were sent", sent)
			}
			ea.told(t, 0)
			eb.told(t, 0)
			if name != "Flush" && a.device.Counters().ActiveConnection != 0 {
				t.Error("it is counted as active")
			}
			w.want(b.qp.Send(nil, nil, 0), success)
			b.result(timedOut)
			w.settle()
			eb.told(t, 0, provider.DisconnectReasonTimeout)
			w.clock.Run(time.Minute)
			if n := b.device.IDs(); n != 0 {
				t.Errorf("%d connection IDs are in use", n)
			}
		})
	}
}

// TestUnmanagedWhileDisabled: as with all connections, an instance that is open
// works until it is closed.
func TestUnmanagedWhileDisabled(t *testing.T) {
	w := newWorld(t)
	w.joinUnmanaged(w.hosts[0], w.hosts[1])
	w.want(w.hosts[0].set(0), success)
	w.converse(1)
	a, b := *w.hosts[0], *w.hosts[1]
	a.qp, b.qp = a.newQP(), b.newQP()
	w.joinUnmanaged(&a, &b)
}

// TestUnmanagedDeviceFails: the connection ends with the device.
func TestUnmanagedDeviceFails(t *testing.T) {
	w := newWorld(t)
	a, _ := w.joinUnmanaged(w.hosts[0], w.hosts[1])
	h := w.hosts[0]
	h.receive(1)
	h.device.Fail()
	w.settle()
	a.told(t, 0, provider.DisconnectReasonError)
	w.want(h.newConnector().ConnectUnmanaged(h.qp, h.unmanaged(w.hosts[1]), nil, nil, nil, nil), provider.StatusConnectionActive)
}

// TestUnmanagedLoopback: a device may be its own peer, and so may a queue pair; but
// only if it can loop connections back.
func TestUnmanagedLoopback(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		info := provider.DefaultAdapterInfo()
		if !allowed {
			info.AdapterFlags &^= provider.AdapterLoopbackConnections
		}
		w := newWorldOf(t, addresses, info)
		h := w.hosts[0]
		u := h.unmanaged(h)
		if !allowed {
			w.want(h.newConnector().ConnectUnmanaged(h.qp, u, nil, nil, nil, nil), provider.StatusHostUnreachable)
			continue
		}
		e := h.enter(u)
		w.want(h.qp.Receive("receive", h.at(0, 5000)), success)
		w.want(h.qp.Send("send", h.at(10000, 5000), 0), success)
		for _, r := range h.results(2) {
			w.want(r.Status, success)
		}
		if !slices.Equal(h.memory[:5000], h.memory[10000:15000]) {
			t.Error("other bytes arrived")
		}
		e.told(t, 0)
	}
}

// TestUnmanagedReads: the READs in progress are limited as with all connections.
func TestUnmanagedReads(t *testing.T) {
	w := newWorldWith(t, addresses, func(c *provider.Config) { c.Info.MaxInboundReadLimit, c.Info.MaxOutboundReadLimit = 4, 2 })
	a, b := w.hosts[0], w.hosts[1]
	u := a.unmanaged(b)
	u.InboundReadLimit, u.OutboundReadLimit = 16, 16
	a.enter(u)
	var in, out, length uint32
	w.want(a.conn.GetConnectionData(&in, &out, nil, &length), success)
	if in != 4 || out != 2 {
		t.Errorf("limits %d and %d", in, out)
	}
	if usage := a.device.Usage(); usage.InboundReads != 4 || usage.OutboundReads != 2 {
		t.Errorf("in use: %+v", usage)
	}
	w.finish(a.close(a.conn))
	if usage := a.device.Usage(); usage.InboundReads != 0 || usage.OutboundReads != 0 {
		t.Errorf("in use after the end: %+v", usage)
	}
}

// TestUnmanagedOfProcess: a process's connection is on record with the owner of the
// device, who has nobody to tell when the process dies.
func TestUnmanagedOfProcess(t *testing.T) {
	w := newSharedWorld(t, provider.DefaultCapabilities(), addresses)
	p, peer := w.start(1), w.hosts[1]
	p.enter(p.unmanaged(peer))
	peerEvents := peer.enter(peer.unmanaged(p.host))
	w.exchange(p.host, peer)
	if len(p.records) != 1 {
		t.Fatalf("on record: %v", p.records)
	}
	for _, r := range p.records {
		if !r.Unmanaged || r.QPN != p.qp.Number() || r.PeerQPN != peer.qp.Number() {
			t.Errorf("on record: %+v", r)
		}
	}
	frames := w.hosts[0].device.Counters().RDMAOutFrames
	free := false
	w.kill(p, func() { free = true })
	w.clock.Run(time.Millisecond)
	if sent := w.hosts[0].device.Counters().RDMAOutFrames - frames; !free || sent > 0 {
		t.Errorf("free %v, and %d frames were sent", free, sent)
	}
	w.want(peer.qp.Send(nil, nil, 0), success)
	peer.result(timedOut)
	w.settle()
	peerEvents.told(t, 0, provider.DisconnectReasonTimeout)
}

// TestUnmanagedAmongOthers: connections of both kinds come and go on one pair of
// devices and nothing is left of any; which is the world's end to find out.
func TestUnmanagedAmongOthers(t *testing.T) {
	w := newWorld(t)
	a, b := w.hosts[0], w.hosts[1]
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 20 {
		a.qp, b.qp, b.port = a.newQP(), b.newQP(), uint16(7000+i)
		if r.IntN(2) == 0 {
			w.joinUnmanaged(a, b)
		} else {
			w.join(a, b)
		}
		w.converse(1)
		switch r.IntN(3) {
		case 0:
			w.finish(a.disconnect())
		case 1:
			w.finish(b.close(b.conn))
		}
	}
}
