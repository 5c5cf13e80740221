package provider_test

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ndklab/ndklab/provider"
)

// query is an OID's answer, in a buffer of just the size needed.
func (h *host) query(oid provider.OID) []byte {
	h.world.t.Helper()
	needed, status := h.device.QueryOID(oid, nil)
	h.world.want(status, provider.StatusBufferTooShort)
	short := make([]byte, needed-1)
	n, status := h.device.QueryOID(oid, short)
	if n != needed || status != provider.StatusBufferTooShort || !allZero(short) {
		h.world.t.Errorf("a buffer that is one byte short: %d, %v", n, status)
	}
	buffer := make([]byte, needed+7)
	n, status = h.device.QueryOID(oid, buffer)
	h.world.want(status, success)
	if n != needed || !allZero(buffer[n:]) {
		h.world.t.Errorf("%d bytes written, %d needed", n, needed)
	}
	return buffer[:n]
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// A list is the answer to a list OID, decoded as a driver would.
type list struct {
	Type, Revision uint8
	Size           uint16
	Flags, Count   uint32
	Mapped         uint8
	Entries        []entry
}

// An entry is of either list.
type entry struct {
	Local, Remote           netip.AddrPort
	UserModeOwner, Listener uint8
	OwnerPID                uint32
}

func sockaddr(b []byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.LittleEndian.Uint16(b) {
	case 2:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), port)
	case 23:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:])), port)
	}
	return netip.AddrPort{}
}

func decode(b []byte, entrySize int, decodeEntry func([]byte) entry) list {
	l := list{b[0], b[1], binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:]),
		binary.LittleEndian.Uint32(b[8:]), b[12], nil}
	for b = b[16:]; len(b) >= entrySize; b = b[entrySize:] {
		l.Entries = append(l.Entries, decodeEntry(b))
	}
	return l
}

func (h *host) connections() list {
	h.world.t.Helper()
	return decode(h.query(provider.OIDNDKConnections), 64, func(b []byte) entry {
		return entry{Local: sockaddr(b), Remote: sockaddr(b[28:]), UserModeOwner: b[56], OwnerPID: binary.LittleEndian.Uint32(b[60:])}
	})
}

func (h *host) localEndpoints() list {
	h.world.t.Helper()
	return decode(h.query(provider.OIDNDKLocalEndpoints), 36, func(b []byte) entry {
		return entry{Local: sockaddr(b), UserModeOwner: b[28], Listener: b[29], OwnerPID: binary.LittleEndian.Uint32(b[32:])}
	})
}

// same fails the test unless a list has these entries.
func same(t *testing.T, got list, entrySize uint16, entries ...entry) {
	t.Helper()
	want := list{Type: 0x80, Revision: 1, Size: 16 + entrySize*uint16(len(entries)), Count: uint32(len(entries)), Entries: entries}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Fatalf("the list (-want +got):\n%s", diff)
	}
}

func TestStatistics(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	w.want(client.qp.Write(nil, client.at(0, 9000), base, server.mr.RemoteToken(), 0), success)
	client.result(success)
	// Of everything something: an overrun CQ, a refused attempt.
	cq, _ := client.newCQ(1)
	qp := client.newQPOn(cq, cq, nil)
	for range 2 {
		w.want(qp.Receive(nil, nil), success)
	}
	qp.Flush()
	refused := client.dialFrom(client.newConnector(), client.newQP(), client.ephemeral(), netip.AddrPortFrom(server.address, 9))
	w.want(w.finish(refused), provider.StatusConnectionRefused)
	w.settle()
	t.Run("NDK-OID-01 NDK-CNT-07 NDK-CNT-12 the counter set", func(t *testing.T) {
		for _, h := range w.hosts {
			b := h.query(provider.OIDNDKStatistics)
			if len(b) != 248 || b[0] != 0x80 || b[1] != 1 || binary.LittleEndian.Uint16(b[2:]) != 248 || !allZero(b[4:8]) {
				t.Fatalf("%d bytes, beginning with % x", len(b), b[:8])
			}
			if mask := h.device.Attributes().Capabilities.MissingCounterMask; mask != 0 {
				t.Errorf("missing counters %#x", mask)
			}
			c := h.device.Counters()
			want := map[int]uint64{0: c.Connect, 1: c.Accept, 2: c.ConnectFailure, 3: c.ConnectionError, 4: c.ActiveConnection,
				25: c.CQError, 26: c.RDMAInOctets, 27: c.RDMAOutOctets, 28: c.RDMAInFrames, 29: c.RDMAOutFrames}
			for i := range 30 {
				if got := binary.LittleEndian.Uint64(b[8+8*i:]); got != want[i] {
					t.Errorf("counter %d is %d, want %d", i, got, want[i])
				}
			}
		}
		c, s := client.device.Counters(), server.device.Counters()
		if c.Connect != 1 || c.ConnectFailure != 1 || s.Accept != 1 || c.CQError != 1 || c.ActiveConnection != 1 ||
			c.RDMAInFrames == 0 || c.RDMAOutFrames <= c.RDMAInFrames || c.RDMAOutOctets <= c.RDMAInOctets {
			t.Errorf("client %+v, server %+v", c, s)
		}
	})
	t.Run("NDK-OID-02 concurrently", func(t *testing.T) {
		var all sync.WaitGroup
		statuses := make([]provider.Status, 8)
		for i := range statuses {
			all.Go(func() {
				buffer := make([]byte, 1024)
				for range 50 {
					for _, oid := range []provider.OID{provider.OIDNDKStatistics, provider.OIDNDKConnections, provider.OIDNDKLocalEndpoints} {
						if _, status := client.device.QueryOID(oid, buffer); status != success {
							statuses[i] = status
						}
					}
					if status := client.set(1); status != success {
						statuses[i] = status
					}
				}
			})
		}
		all.Wait()
		for _, status := range statuses {
			w.want(status, success)
		}
	})
}

func TestConnectionsOID(t *testing.T) {
	for _, c := range []struct {
		family    string
		addresses [2]netip.Addr
	}{{"IPv4", addresses}, {"IPv6", addresses6}} {
		t.Run(c.family+" NDK-OID-03 NDK-OID-04 NDK-OID-05 NDK-OID-06 NDK-OID-07 NDK-OID-09", func(t *testing.T) {
			w := newWorldOf(t, c.addresses, provider.DefaultAdapterInfo())
			client, server := w.hosts[0], w.hosts[1]
			same(t, client.connections(), 64)
			w.connect()
			client2, server2 := *client, *server
			client2.qp, server2.qp, server2.port = client.newQP(), server.newQP(), 7001
			w.join(&client2, &server2)
			ends := func(c *provider.Connector) entry {
				local, status := c.LocalAddress()
				w.want(status, success)
				remote, status := c.PeerAddress()
				w.want(status, success)
				return entry{Local: local, Remote: remote}
			}
			first, second := ends(client.conn), ends(client2.conn)
			if first.Remote != server.service() || second.Remote != server2.service() {
				t.Fatalf("connected to %v and %v", first.Remote, second.Remote)
			}
			in := []entry{first, second}
			if second.Local.Compare(first.Local) < 0 {
				in = []entry{second, first}
			}
			same(t, client.connections(), 64, in...)
			same(t, server.connections(), 64, ends(server.conn), ends(server2.conn))
			if (ends(server.conn) != entry{Local: first.Remote, Remote: first.Local}) {
				t.Fatalf("ends of one connection: %v and %v", first, ends(server.conn))
			}
			// One that is being made is none yet.
			delivered := 0
			server2.port = 7002
			server2.listen(func(*provider.Connector) { delivered++ })
			client2.qp = client.newQP()
			client2.dial(client2.newConnector(), &server2)
			w.settle()
			if delivered != 1 {
				t.Fatal("not delivered")
			}
			same(t, client.connections(), 64, in...)

			w.finish(client.disconnect())
			w.settle()
			same(t, client.connections(), 64, second)
			same(t, server.connections(), 64, ends(server2.conn))
		})
	}
	t.Run("NDK-OID-04 a connection that broke", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		w.want(client.qp.Write(nil, client.at(0, 1), 0, 0, 0), success) // an error at both ends
		client.result(provider.StatusRemoteResources)
		w.wait("both events", func() bool { return client.disconnected+server.disconnected == 2 })
		same(t, client.connections(), 64)
		same(t, server.connections(), 64)
	})
	t.Run("NDK-OID-09 more entries than the header can say", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		const n = 1024 // 16+64n is 65552
		for i := range n {
			if i == n-1 {
				if got := client.connections(); got.Size != 16+64*(n-1) {
					t.Fatalf("size %d", got.Size)
				}
			}
			w.couple(client, server, 7000+uint16(i))
		}
		for _, h := range w.hosts {
			if got := h.connections(); got.Size != 65535 || got.Count != n || len(got.Entries) != n {
				t.Fatalf("size %d, count %d, %d entries", got.Size, got.Count, len(got.Entries))
			}
		}
	})
	t.Run("what else a connection is listed with", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		states := func(client, server string) {
			t.Helper()
			w.clock.Run(0)
			for i, want := range []string{client, server} {
				got := ""
				for _, e := range w.hosts[i].device.Connections() {
					got += e.State
				}
				if got != want {
					t.Errorf("host %d lists %q, want %q", i, got, want)
				}
			}
		}
		states("", "")
		var delivered *provider.Connector
		server.listen(func(c *provider.Connector) { delivered = c })
		client.conn = client.newConnector()
		connect := client.dial(client.conn, server)
		states("connecting", "")
		w.settle()
		states("connecting", "requested")
		accept := server.accept(delivered)
		states("connecting", "accepting")
		w.want(w.finish(connect), success)
		states("replied", "accepting")
		w.want(client.complete(), success)
		w.want(w.finish(accept), success)
		states("established", "established")
		c, s := client.device.Connections()[0], server.device.Connections()[0]
		if c.QPN != client.qp.Number() || c.RemoteQPN != server.qp.Number() || s.QPN != c.RemoteQPN || s.RemoteQPN != c.QPN {
			t.Errorf("got %+v and %+v", c, s)
		}
		w.path.Down = true
		disconnect := client.disconnect()
		states("disconnecting", "established")
		w.path.Down = false
		w.want(w.finish(disconnect), success)
		w.settle()
		states("", "")
	})
}

func TestLocalEndpointsOID(t *testing.T) {
	for _, c := range []struct {
		family    string
		addresses [2]netip.Addr
	}{{"IPv4", addresses}, {"IPv6", addresses6}} {
		t.Run(c.family+" NDK-OID-05 NDK-OID-08 NDK-OID-09 NDK-OID-11", func(t *testing.T) {
			w := newWorldOf(t, c.addresses, provider.DefaultAdapterInfo())
			client, server := w.connect()
			same(t, client.localEndpoints(), 36)
			listener := func(port uint16) entry {
				return entry{Local: netip.AddrPortFrom(server.address, port), Listener: 1}
			}
			same(t, server.localEndpoints(), 36, listener(7000))
			second := *server
			second.port = 6999
			second.listen(func(*provider.Connector) {})
			same(t, server.localEndpoints(), 36, listener(6999), listener(7000))
			shared := track(server, must(server.CreateSharedEndpoint(netip.AddrPortFrom(server.address, 7005), nil, nil)))
			sharedEntry := entry{Local: shared.LocalAddress()}
			same(t, server.localEndpoints(), 36, listener(6999), listener(7000), sharedEntry)
			// A connection from there is not listed by itself.
			client2, server2 := *client, *server
			client2.qp, client2.port, server2.qp = client.newQP(), 7002, server.newQP()
			client2.listen(func(*provider.Connector) {})
			c := server.newConnector()
			a := &async{}
			w.want(c.ConnectWithSharedEndpoint(server2.qp, shared, client2.service(), 1, 1, nil, a.done, a), provider.StatusPending)
			same(t, server.localEndpoints(), 36, listener(6999), listener(7000), sharedEntry)
			server.close(c)
			w.settle()
			w.want(server.close(shared).returned, success)
			same(t, server.localEndpoints(), 36, listener(6999), listener(7000))
			// The one that has a connection is closed: its endpoint stays, and listens no
			// more.
			w.want(server.close(server.listener).returned, provider.StatusPending)
			same(t, server.localEndpoints(), 36, listener(6999))
		})
	}
	t.Run("NDK-OID-09 more entries than the header can say", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		const n = 1820 // 16+36n is 65536
		for i := range n {
			if i == n-1 {
				if got := h.localEndpoints(); got.Size != 16+36*(n-1) {
					t.Fatalf("size %d", got.Size)
				}
			}
			l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
			w.want(l.Listen(h.ephemeral(), nil, nil), success)
		}
		got := h.localEndpoints()
		if got.Size != 65535 || got.Count != n || len(got.Entries) != n {
			t.Fatalf("size %d, count %d, %d entries", got.Size, got.Count, len(got.Entries))
		}
	})
}

func TestOIDs(t *testing.T) {
	t.Run("unknown", func(t *testing.T) {
		w := newWorld(t)
		m := w.hosts[0].device
		for _, oid := range []provider.OID{0, 0xFC040200, 0xFC040205, provider.OIDNDKSetState} {
			n, status := m.QueryOID(oid, make([]byte, 1000))
			if n != 0 || status != provider.StatusNotSupported {
				t.Errorf("query of %#x: %d, %v", oid, n, status)
			}
		}
		for _, oid := range []provider.OID{0, provider.OIDNDKStatistics, provider.OIDNDKConnections, provider.OIDNDKLocalEndpoints} {
			w.want(m.SetOID(oid, []byte{1}), provider.StatusNotSupported)
		}
	})
	t.Run("NDK-OID-12 NDK-OID-13 OID_NDK_SET_STATE", func(t *testing.T) {
		w := newWorld(t)
		w.connect()
		h := w.hosts[0]
		events := h.listenToEvents()
		for _, b := range [][]byte{nil, {}, {0, 0}, {0, 0, 0, 0}} {
			w.want(h.device.SetOID(provider.OIDNDKSetState, b), provider.StatusInvalidLength)
		}
		w.settle()
		events.heard(t)
		for _, b := range []byte{0, 1, 0, 1} { // with instances open, that is with work pending
			w.want(h.set(b), success)
		}
		h.device.Fail()
		w.want(h.set(1), provider.StatusAdapterNotReady)
		h.device.Recover()
		h.leave()
		w.settle()
		w.comeBack(0)
	})
	t.Run("NDK-OID-10 a buffer that is too short", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		for oid, size := range map[provider.OID]uint32{provider.OIDNDKStatistics: 248, provider.OIDNDKConnections: 16 + 64, provider.OIDNDKLocalEndpoints: 16 + 36} {
			buffer := make([]byte, size-1)
			n, status := server.device.QueryOID(oid, buffer)
			if n != size || status != provider.StatusBufferTooShort || !allZero(buffer) {
				t.Errorf("%#x: %d, %v", oid, n, status)
			}
		}
		if n, status := server.device.QueryOID(provider.OIDNDKStatistics, make([]byte, 248)); n != 248 || status != success {
			t.Errorf("just long enough: %d, %v", n, status)
		}
		if n, status := client.device.QueryOID(provider.OIDNDKLocalEndpoints, nil); n != 16 || status != provider.StatusBufferTooShort {
			t.Errorf("an empty list: %d, %v", n, status)
		}
	})
}
