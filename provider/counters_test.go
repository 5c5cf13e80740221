package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// connections are the counters of connections alone.
func connections(h *host) provider.Counters {
	c := h.device.Counters()
	return provider.Counters{Connect: c.Connect, Accept: c.Accept, ConnectFailure: c.ConnectFailure,
		ConnectionError: c.ConnectionError, ActiveConnection: c.ActiveConnection}
}

func (w *world) counted(t *testing.T, client, server provider.Counters) {
	t.Helper()
	w.settle()
	if diff := cmp.Diff([]provider.Counters{client, server}, []provider.Counters{connections(w.hosts[0]), connections(w.hosts[1])}); diff != "" {
		t.Fatalf("counters of client and server (-want +got):\n%s", diff)
	}
}

func TestConnectionCounters(t *testing.T) {
	type counters = provider.Counters
	for name, test := range map[string]func(w *world, client, server *host) (counters, counters){
		"NDK-CNT-01 NDK-CNT-02 NDK-CNT-06 established": func(w *world, client, server *host) (counters, counters) {
			w.connect()
			return counters{Connect: 1, ActiveConnection: 1}, counters{Accept: 1, ActiveConnection: 1}
		},
		"NDK-CNT-05 NDK-CNT-06 disconnected": func(w *world, client, server *host) (counters, counters) {
			w.connect()
			w.finish(client.disconnect())
			return counters{Connect: 1}, counters{Accept: 1}
		},
		"NDK-CNT-06 closed": func(w *world, client, server *host) (counters, counters) {
			w.connect()
			client.close(client.conn)
			return counters{Connect: 1}, counters{Accept: 1}
		},
		"NDK-CNT-06 two, of which one is closed twice over": func(w *world, client, server *host) (counters, counters) {
			w.connect()
			client2, server2 := *client, *server
			client2.qp, server2.qp, server2.port = client.newQP(), server.newQP(), 7001
			w.join(&client2, &server2)
			w.finish(client2.disconnect())
			w.finish(client2.close(client2.conn))
			w.finish(server2.disconnect())
			w.finish(server2.close(server2.conn))
			return counters{Connect: 2, ActiveConnection: 1}, counters{Accept: 2, ActiveConnection: 1}
		},
		"NDK-CNT-04 an error": func(w *world, client, server *host) (counters, counters) {
			w.connect()
			w.want(client.qp.Write(nil, client.at(0, 1), 0, 0, 0), success)
			client.results(1)
			return counters{Connect: 1, ConnectionError: 1}, counters{Accept: 1, ConnectionError: 1}
		},
		"NDK-CNT-04 an error upon whose completion the consumer disconnects": func(w *world, client, server *host) (counters, counters) {
			w.connect()
			w.want(client.qp.Write(nil, client.at(0, 1), 0, 0, 0), success)
			client.results(1)
			w.finish(client.disconnect())
			return counters{Connect: 1, ConnectionError: 1}, counters{Accept: 1, ConnectionError: 1}
		},
		"NDK-CNT-04 an error upon whose completion the consumer closes": func(w *world, client, server *host) (counters, counters) {
			w.connect()
			w.want(client.qp.Write(nil, client.at(0, 1), 0, 0, 0), success)
			client.results(1)
			client.close(client.conn)
			return counters{Connect: 1, ConnectionError: 1}, counters{Accept: 1, ConnectionError: 1}
		},
		"NDK-CNT-05 flushed and disconnected": func(w *world, client, server *host) (counters, counters) {
			w.connect()
			client.qp.Flush()
			w.finish(client.disconnect())
			return counters{Connect: 1}, counters{Accept: 1}
		},
		"NDK-CNT-03 rejected": func(w *world, client, server *host) (counters, counters) {
			server.listen(func(c *provider.Connector) { c.Reject(nil) })
			w.finish(client.dial(client.newConnector(), server))
			return counters{ConnectFailure: 1}, counters{ConnectFailure: 1}
		},
		"NDK-CNT-03 nobody there": func(w *world, client, server *host) (counters, counters) {
			w.finish(client.dialFrom(client.newConnector(), client.qp, client.ephemeral(), nowhere))
			return counters{ConnectFailure: 1}, counters{}
		},
		"NDK-CNT-03 rejected by the active side": func(w *world, client, server *host) (counters, counters) {
			server.listen(func(c *provider.Connector) { server.accept(c) })
			c := client.newConnector()
			w.finish(client.dial(c, server))
			c.Reject(nil)
			return counters{ConnectFailure: 1}, counters{ConnectFailure: 1}
		},
		"NDK-CNT-03 closed half-way": func(w *world, client, server *host) (counters, counters) {
			server.listen(func(c *provider.Connector) { server.accept(c) })
			c := client.newConnector()
			w.finish(client.dial(c, server))
			client.close(c)
			w.settle()
			server.close(server.conn)
			return counters{ConnectFailure: 1}, counters{ConnectFailure: 1}
		},
		"not even begun": func(w *world, client, server *host) (counters, counters) {
			client.close(client.newConnector())
			return counters{}, counters{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			client, server := test(w, w.hosts[0], w.hosts[1])
			w.counted(t, client, server)
		})
	}
}

// A wiretap counts what passes, as frames of Ethernet, by sender.
type wiretap struct{ octets, frames map[netip.Addr]uint64 }

func (w *world) tap() *wiretap {
	tap := &wiretap{octets: map[netip.Addr]uint64{}, frames: map[netip.Addr]uint64{}}
	var verifier roce.Verifier
	w.network.Tap(func(_ time.Duration, packet []byte) {
		var p roce.Received
		if verifier.DecodeIP(packet, &p) != nil {
			w.t.Error("a packet that cannot be decoded")
		}
		const ethernet = 14
		tap.octets[p.Flow.Remote] += ethernet + uint64(len(packet))
		tap.frames[p.Flow.Remote]++
	})
	return tap
}

// traffic are the counters of RDMA traffic alone.
func traffic(h *host) provider.Counters {
	c := h.device.Counters()
	return provider.Counters{RDMAInOctets: c.RDMAInOctets, RDMAOutOctets: c.RDMAOutOctets,
		RDMAInFrames: c.RDMAInFrames, RDMAOutFrames: c.RDMAOutFrames}
}

// TestTrafficCounters: the counters of traffic, against what a tap on the wire
// sees.
func TestTrafficCounters(t *testing.T) {
	for _, addresses := range [][2]netip.Addr{addresses, addresses6} {
		for _, operation := range []struct {
			name string
			post func(client, server *host) provider.Status
		}{
			{"a send", func(client, server *host) provider.Status {
				server.qp.Receive(nil, server.at(0, 9001))
				return client.qp.Send(nil, client.at(0, 9001), 0)
			}},
			{"an empty send", func(client, server *host) provider.Status {
				server.receive(1)
				return client.qp.Send(nil, nil, 0)
			}},
			{"a write", func(client, server *host) provider.Status {
				return client.qp.Write(nil, client.at(0, 4099), base, server.mr.RemoteToken(), 0)
			}},
			{"a read", func(client, server *host) provider.Status {
				return client.qp.Read(nil, client.at(0, 20002), base, server.mr.RemoteToken(), 0)
			}},
		} {
			t.Run(addresses[0].String()+" NDK-CNT-09 NDK-CNT-10 "+operation.name, func(t *testing.T) {
				w := newWorldOf(t, addresses, provider.DefaultAdapterInfo())
				client, server := w.connect()
				w.settle()
				tap := w.tap()
				for range 3 {
					w.want(operation.post(client, server), success)
				}
				client.results(3)
				w.settle()
				from, to := client.address, server.address
				if tap.frames[from] == 0 || tap.frames[to] == 0 {
					t.Fatalf("the tap has seen %v", tap.frames)
				}
				want := []provider.Counters{
					{RDMAOutOctets: tap.octets[from], RDMAOutFrames: tap.frames[from], RDMAInOctets: tap.octets[to], RDMAInFrames: tap.frames[to]},
					{RDMAOutOctets: tap.octets[to], RDMAOutFrames: tap.frames[to], RDMAInOctets: tap.octets[from], RDMAInFrames: tap.frames[from]},
				}
				if diff := cmp.Diff(want, []provider.Counters{traffic(client), traffic(server)}); diff != "" {
					t.Errorf("traffic of client and server (-want +got):\n%s", diff)
				}
				if n := client.device.TransportCounters()["retransmitted"]; n != 0 {
					t.Errorf("%d packets sent again", n)
				}
			})
		}
	}
	t.Run("NDK-CNT-13 nothing decreases but what is active", func(t *testing.T) {
		w := newWorld(t)
		before, samples := [2]map[string]uint64{}, 0
		sample := func() {
			samples++
			for i, h := range w.hosts {
				now := h.device.Counters().Map()
				for name, n := range now {
					if n < before[i][name] && name != "ActiveConnection" {
						t.Errorf("%s went from %d to %d", name, before[i][name], n)
					}
				}
				before[i] = now
			}
		}
		w.network.Tap(func(time.Duration, []byte) { sample() })
		client, server := w.hosts[0], w.hosts[1]
		for port := range uint16(3) {
			a, b := w.couple(client, server, 7000+port)
			w.want(a.qp.Write(nil, a.at(0, 9000), base, server.mr.RemoteToken(), 0), success)
			a.result(success)
			w.want(b.qp.Read(nil, b.at(0, 9000), base, 0, 0), success) // an error
			b.result(provider.StatusRemoteResources)
			w.settle()
			w.finish(a.close(a.conn))
			w.finish(a.close(a.qp)) // what it counted stays
			w.finish(client.dialFrom(client.newConnector(), client.newQP(), client.ephemeral(), netip.AddrPortFrom(server.address, 1)))
			sample()
		}
		cq, _ := client.newCQ(1)
		client.qp = client.newQPOn(cq, cq, nil)
		client.receive(2)
		client.qp.Flush() // the CQ overruns
		w.settle()
		sample()
		for name, n := range client.device.Counters().Map() {
			if n == 0 && name != "ActiveConnection" && name != "Accept" {
				t.Errorf("%s has counted nothing", name)
			}
		}
		if samples < 20 {
			t.Errorf("%d samples", samples)
		}
	})
	t.Run("NDK-CNT-11 what is not RDMA traffic", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		quiet := func(what string) {
			t.Helper()
			w.settle()
			if c, s := traffic(client), traffic(server); c != (provider.Counters{}) || s != (provider.Counters{}) {
				t.Fatalf("%s: counted %+v and %+v", what, c, s)
			}
		}
		tap := w.tap()
		w.connect()
		w.finish(client.disconnect())
		quiet("connecting and disconnecting")
		if tap.frames[client.address] < 3 || tap.frames[server.address] < 2 {
			t.Fatalf("the tap has seen %v", tap.frames)
		}
		stranger := w.network.Attach(mtu, netip.MustParseAddr("10.0.0.7"))
		flow := roce.Flow{Local: stranger.Addresses()[0], Remote: server.address, SourcePort: 0xC000}
		for _, h := range []roce.Header{
			{Opcode: roce.WriteOnly, DestQPN: 0xABCDE}, {Opcode: roce.WriteOnly, DestQPN: server.newQP().Number()},
			{Opcode: roce.UDSendOnly, DestQPN: 1, QKey: 0x80010000},
		} {
			h.PKey = roce.DefaultPKey
			if err := stranger.Send(flow, []roce.Packet{{Header: h}}); err != nil {
				t.Fatal(err)
			}
			quiet("a packet for nobody")
		}
	})
	t.Run("what a QP has counted outlives it", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		w.want(client.qp.Write(nil, nil, 0, 0, 0), success)
		client.result(success)
		w.settle()
		sent := client.device.TransportCounters()["packets_sent"]
		if out := client.device.Counters().RDMAOutFrames; sent == 0 || sent != out {
			t.Errorf("%d packets sent, want %d", sent, out)
		}
		w.finish(client.close(client.conn))
		w.finish(client.close(client.qp))
		if got := client.device.TransportCounters()["packets_sent"]; got != sent {
			t.Errorf("%d packets sent once the QP is closed, want %d", got, sent)
		}
	})
	t.Run("by name", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		c := client.device.Counters()
		if m := c.Map(); len(m) != 10 || m["Connect"] != 1 || m["ActiveConnection"] != 1 {
			t.Errorf("got %v", m)
		}
	})
}
