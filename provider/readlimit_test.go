package provider_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// limits checks a connector's effective read limits, asked for together and one
// by one.
func (w *world) limits(t *testing.T, when string, c *provider.Connector, in, out uint32) {
	t.Helper()
	var gotIn, gotOut, length uint32
	w.want(c.GetConnectionData(&gotIn, &gotOut, nil, &length), success)
	if gotIn != in || gotOut != out {
		t.Errorf("%s: limits %d in, %d out, want %d and %d", when, gotIn, gotOut, in, out)
	}
}

// readers counts the READs in progress on the wire, by the address that reads:
// those asked for whose last response is not yet sent. READs that are split are
// counted as they were posted, if all have one length and lie at multiples of it
// from base.
type readers struct {
	verifier roce.Verifier
	now, max map[netip.Addr]int

	length             int // of each READ posted; 0: not to be counted as posted
	begun, bytes, most map[netip.Addr]int
}

// watchReads has readers count.
func (w *world) watchReads() *readers {
	r := &readers{now: map[netip.Addr]int{}, max: map[netip.Addr]int{},
		begun: map[netip.Addr]int{}, bytes: map[netip.Addr]int{}, most: map[netip.Addr]int{}}
	w.network.Tap(func(_ time.Duration, packet []byte) {
		var p roce.Received
		if r.verifier.DecodeIP(packet, &p) != nil {
			w.t.Error("a packet that cannot be decoded")
		}
		switch {
		case p.Header.Opcode == roce.ReadRequest:
			r.now[p.Flow.Remote]++
			r.max[p.Flow.Remote] = max(r.max[p.Flow.Remote], r.now[p.Flow.Remote])
			if r.length > 0 && (p.Header.VA-base)%uint64(r.length) == 0 {
				r.begun[p.Flow.Remote]++
				r.most[p.Flow.Remote] = max(r.most[p.Flow.Remote], r.begun[p.Flow.Remote]-r.bytes[p.Flow.Remote]/r.length)
			}
		case p.Header.Opcode.IsReadResponse():
			r.bytes[p.Flow.Local] += len(p.Payload)
			if p.Header.Opcode.Ends() {
				r.now[p.Flow.Local]--
			}
		}
	})
	return r
}

func TestReadLimits(t *testing.T) {
	const huge = 1 << 31
	normal, uneven := provider.DefaultAdapterInfo(), provider.DefaultAdapterInfo()
	uneven.MaxInboundReadLimit, uneven.MaxOutboundReadLimit = 5, 7
	for _, c := range []struct {
		name                          string
		info                          provider.AdapterInfo // of both
		clientIn, clientOut           uint32
		serverIn, serverOut           uint32
		in, out                       uint32 // the client's effective limits
		provisionalIn, provisionalOut uint32 // the server's before Accept
	}{
		{"NDK-RL-01 capped to the adapter's", uneven, huge, huge, huge, huge, 5, 5, 5, 5},
		{"NDK-RL-01 capped to the adapter's inbound limit", uneven, 16, 0, 0, 16, 5, 0, 0, 5},
		{"NDK-RL-01 capped to the adapter's outbound limit", uneven, 0, 16, 16, 0, 0, 5, 5, 0},
		{"NDK-RL-02 a peer that reads less", normal, 10, 10, 16, 3, 3, 10, 10, 10},
		{"NDK-RL-03 a peer that answers less", normal, 10, 10, 4, 16, 10, 4, 10, 10},
		{"each its own way", normal, 1, 2, 3, 4, 1, 2, 2, 1},
		{"none", normal, 0, 0, 16, 16, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOf(t, addresses, c.info)
			client, server := w.hosts[0], w.hosts[1]
			reads := w.watchReads()
			var accepted, connected async
			server.listen(func(conn *provider.Connector) {
				server.conn = conn
				t.Run("NDK-RL-05 the passive side before Accept", func(t *testing.T) {
					w.limits(t, "before", conn, c.provisionalIn, c.provisionalOut)
				})
				w.want(conn.Accept(server.qp, c.serverIn, c.serverOut, nil, nil, nil, accepted.done, &accepted), provider.StatusPending)
			})
			conn := client.newConnector()
			connected.returned = conn.Connect(client.qp, client.ephemeral(), server.service(), c.clientIn, c.clientOut, nil, connected.done, &connected)
			w.want(w.finish(&connected), success)
			t.Run("NDK-RL-06 the active side after Connect", func(t *testing.T) {
				w.limits(t, "after", conn, c.in, c.out)
			})
			w.want(conn.CompleteConnect(nil, nil, nil, nil), success)
			w.settle()
			t.Run("NDK-RL-04 NDK-RL-12 both sides, connected", func(t *testing.T) {
				w.limits(t, "client", conn, c.in, c.out)
				w.limits(t, "server", server.conn, c.out, c.in)
			})
			t.Run("NDK-RL-08 one of them alone", func(t *testing.T) {
				b := make([]byte, 196)
				var in, out uint32
				length := uint32(len(b))
				w.want(conn.GetConnectionData(&in, nil, b, &length), success)
				if in != c.in || length != 196 {
					t.Errorf("%d in, %d bytes", in, length)
				}
				w.want(conn.GetConnectionData(nil, &out, b, &length), success)
				if out != c.out || length != 196 {
					t.Errorf("%d out, %d bytes", out, length)
				}
			})
			for _, from := range []*host{client, server} {
				limit, to := c.out, server
				if from == server {
					limit, to = c.in, client
				}
				if limit == 0 {
					t.Run("NDK-RL-13 no reads allowed", func(t *testing.T) {
						w.want(from.qp.Read(nil, from.at(0, 10000), base, to.mr.RemoteToken(), 0), provider.StatusInvalidDeviceState)
						w.silent(from.cq)
					})
					continue
				}
				t.Run("NDK-RL-07 more reads than allowed at once", func(t *testing.T) {
					for _, length := range []int{0, 100, 8 << 10} {
						const posted = 40
						reads.max[from.address] = 0
						for range posted {
							w.want(from.qp.Read(nil, from.at(0, length), base, to.mr.RemoteToken(), 0), success)
						}
						for _, r := range from.results(posted) {
							w.want(r.Status, success)
						}
						w.silent(from.cq)
						if got := reads.max[from.address]; got != int(limit) || reads.now[from.address] != 0 {
							t.Errorf("%d reads of %d bytes at once, want %d", got, length, limit)
						}
					}
				})
			}
		})
	}
}

// TestSplitReads: a READ that is split into several on the wire is one of those in progress.
func TestSplitReads(t *testing.T) {
	for _, limit := range []uint32{1, 2} {
		t.Run(fmt.Sprintf("NDK-RL-07 more split reads than the %d allowed at once", limit), func(t *testing.T) {
			w := newWorldWith(t, addresses, func(c *provider.Config) {
				c.Info.MaxOutboundReadLimit = limit
				c.Configuration.NetworkDirectRoCEFrameSize = 256 // of which a request asks for few
			})
			reads := w.watchReads()
			client, server := w.connect()
			const posted, length = 10, 100 << 10
			reads.length = length
			for i := range posted {
				w.want(client.qp.Read(nil, client.at(0, length), base+uint64(i*length), server.mr.RemoteToken(), 0), success)
			}
			for _, r := range client.results(posted) {
				w.want(r.Status, success)
			}
			if got := reads.most[client.address]; got != int(limit) || reads.begun[client.address] != posted {
				t.Errorf("%d of %d reads at once, want %d of %d", got, reads.begun[client.address], limit, posted)
			}
			if reads.max[client.address] <= int(limit) {
				t.Error("no read was split")
			}
		})
	}
}

// couple joins new QPs of two hosts and returns their connectors.
func (w *world) couple(client, server *host, port uint16) (a, b *host) {
	w.t.Helper()
	x, y := *client, *server
	x.qp, y.qp, y.port = x.newQP(), y.newQP(), port
	w.join(&x, &y)
	return &x, &y
}

// TestDeviceReadLimits: what all connections of a device may have in progress.
func TestDeviceReadLimits(t *testing.T) {
	// limited makes a world whose second device has limits, with two instances
	// open.
	limited := func(t *testing.T, in, out uint32) (w *world, client, first, second *host) {
		t.Helper()
		w = newWorldWith(t, addresses, func(cfg *provider.Config) {
			if cfg.Carrier.Addresses()[0] == addresses[1] {
				cfg.Capabilities.MaxInboundReadLimit, cfg.Capabilities.MaxOutboundReadLimit = in, out
			}
		})
		return w, w.hosts[0], w.hosts[1], w.another(w.hosts[1])
	}
	t.Run("NDK-CAP-02 0 is no limit but that of each connection", func(t *testing.T) {
		w, client, first, second := limited(t, 0, 0)
		for i := range uint16(20) {
			server := []*host{first, second}[i%2]
			a, b := w.couple(client, server, 7000+i)
			w.limits(t, "client", a.conn, 16, 16)
			w.limits(t, "server", b.conn, 16, 16)
		}
	})
	t.Run("what was never taken is not given back", func(t *testing.T) {
		w, client, first, _ := limited(t, 40, 40)
		reject := true
		first.listen(func(c *provider.Connector) {
			if reject {
				w.want(c.Reject(nil), success)
			} else {
				first.close(c)
			}
		})
		for range 2 {
			w.want(w.finish(client.dial(client.newConnector(), first)), refused)
			if u := first.device.Usage(); u.InboundReads != 0 || u.OutboundReads != 0 {
				t.Errorf("in use: %+v", u)
			}
			reject = false
		}
	})
	t.Run("NDK-CAP-02 shared by the instances, as far as it goes", func(t *testing.T) {
		w, client, first, second := limited(t, 40, 20)
		a1, b1 := w.couple(client, first, 7000)
		w.limits(t, "the first", b1.conn, 16, 16)
		w.limits(t, "its client", a1.conn, 16, 16)
		a2, b2 := w.couple(client, second, 7001)
		w.limits(t, "the second, of the other instance", b2.conn, 16, 4)
		w.limits(t, "its client", a2.conn, 4, 16)
		_, b3 := w.couple(client, second, 7002)
		w.limits(t, "the third", b3.conn, 8, 0)
		a4, b4 := w.couple(client, first, 7003)
		w.limits(t, "the fourth", b4.conn, 0, 0)
		w.want(a4.qp.Read(nil, a4.at(0, 1), base, b4.mr.RemoteToken(), 0), provider.StatusInvalidDeviceState)
		w.want(b4.qp.Read(nil, b4.at(0, 1), base, a4.mr.RemoteToken(), 0), provider.StatusInvalidDeviceState)
		w.want(a2.qp.Read(nil, a2.at(0, 1), base, b2.mr.RemoteToken(), 0), success)
		a2.result(success)

		// Each way in which a connection ends gives back what it had, once.
		w.finish(a1.disconnect())
		w.settle()
		w.limits(t, "the first, which still tells what it had", b1.conn, 16, 16)
		w.finish(b3.close(b3.conn))
		_, b5 := w.couple(client, second, 7004)
		w.limits(t, "the fifth", b5.conn, 16, 16)
		w.finish(b1.disconnect())
		w.finish(b1.close(b1.conn))
		w.want(b5.qp.Write(nil, b5.at(0, 1), 0, 0, 0), success) // an error
		b5.result(provider.StatusRemoteResources)
		w.settle()
		_, b6 := w.couple(client, first, 7005)
		w.limits(t, "the sixth", b6.conn, 16, 16)
		_, b7 := w.couple(client, first, 7006)
		w.limits(t, "the seventh", b7.conn, 8, 0)
	})
	t.Run("NDK-CAP-02 what is not agreed on or not established is given back", func(t *testing.T) {
		w, client, server, _ := limited(t, 16, 16)
		// The limited device is the active side here.
		dial := func(to netip.AddrPort, want provider.Status) *host {
			t.Helper()
			h := *server
			h.qp, h.conn = h.newQP(), h.newConnector()
			w.want(w.finish(h.dialFrom(h.conn, h.qp, h.ephemeral(), to)), want)
			return &h
		}
		dial(nowhere, timedOut)
		dial(client.service(), refused)
		peer := *client
		client.listen(func(c *provider.Connector) {
			peer.qp = peer.newQP()
			a := &async{}
			w.want(c.Accept(peer.qp, 3, 5, nil, nil, nil, a.done, a), provider.StatusPending)
		})
		rejected := dial(client.service(), success)
		w.limits(t, "to be rejected", rejected.conn, 5, 3)
		w.want(rejected.conn.Reject(nil), success)
		w.limits(t, "the first", dial(client.service(), success).conn, 5, 3)
		w.limits(t, "the second", dial(client.service(), success).conn, 5, 3)
		third := dial(client.service(), success)
		w.limits(t, "the third", third.conn, 5, 3)
		fourth := dial(client.service(), success)
		w.limits(t, "the fourth", fourth.conn, 1, 3)
		w.finish(third.close(third.conn))
		w.limits(t, "the fifth", dial(client.service(), success).conn, 5, 3)
	})
}
