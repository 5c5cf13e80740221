package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// TestTrafficCounters: NDK-CNT-09 NDK-CNT-10 NDK-CNT-11, against what a tap on
// the wire sees.
func TestTrafficCounters(t *testing.T) {
	for _, addresses := range [][2]netip.Addr{addresses, addresses6} {
		t.Run(addresses[0].String(), func(t *testing.T) {
			w := newWorldOf(t, addresses, provider.DefaultAdapterInfo())
			client, server := w.connect()
			if c := client.device.Counters(); c.RDMAInFrames+c.RDMAOutFrames > 0 {
				t.Fatalf("connecting was counted as RDMA traffic: %+v", c)
			}
			var octets, frames uint64
			w.network.Tap(func(_ time.Duration, packet []byte) {
				octets += 14 + uint64(len(packet))
				frames++
			})
			w.want(server.qp.Receive(nil, server.at(0, 9001)), success)
			w.want(client.qp.Send(nil, client.at(0, 9001), 0), success)
			w.want(client.qp.Write(nil, client.at(0, 4099), base, server.mr.RemoteToken(), 0), success)
			w.want(client.qp.Read(nil, client.at(0, 20002), base, server.mr.RemoteToken(), 0), success)
			client.results(3)
			w.settle()
			c, s := client.device.Counters(), server.device.Counters()
			if c.RDMAOutOctets+s.RDMAOutOctets != octets || c.RDMAOutFrames+s.RDMAOutFrames != frames {
				t.Errorf("%d octets in %d frames, want %d in %d",
					c.RDMAOutOctets+s.RDMAOutOctets, c.RDMAOutFrames+s.RDMAOutFrames, octets, frames)
			}
			if c.RDMAOutOctets != s.RDMAInOctets || s.RDMAOutOctets != c.RDMAInOctets ||
				c.RDMAOutFrames != s.RDMAInFrames || s.RDMAOutFrames != c.RDMAInFrames {
				t.Errorf("client %+v, server %+v", c, s)
			}
			if len(c.Map()) != 10 || c.Map()["RDMAOutOctets"] != c.RDMAOutOctets {
				t.Errorf("got %v", c.Map())
			}
			// What a QP has counted outlives it.
			sent := client.device.TransportCounters()["packets_sent"]
			if sent == 0 || sent != c.RDMAOutFrames {
				t.Errorf("%d packets sent, want %d", sent, c.RDMAOutFrames)
			}
			w.finish(client.close(client.conn))
			w.finish(client.close(client.qp))
			if got := client.device.TransportCounters()["packets_sent"]; got != sent {
				t.Errorf("%d packets sent once the QP is closed, want %d", got, sent)
			}
		})
	}
}
