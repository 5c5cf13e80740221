package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
)

// TestRefusals: what a Connect completes with for each of a REJ's reasons (roce.md
// 10.5, 15.2), and that the connector and its queue pair can be used again.
func TestRefusals(t *testing.T) {
	want := func(r mad.Reason) provider.Status {
		switch r {
		case 4:
			return timedOut
		case 12, 13, 14, 15, 16, 17, 32:
			return provider.StatusHostUnreachable
		}
		return refused
	}
	for r := mad.Reason(0); r <= 36; r++ {
		t.Run(r.String(), func(t *testing.T) {
			w, gates := newGatedWorld(t)
			client, server := w.hosts[0], w.hosts[1]
			gates[0].change = func(p *roce.Received) {
				var rej mad.REJ
				if rej.Decode(p.Payload) == nil {
					rej.Reason = r
					p.Payload = rej.Append(nil)
				}
			}
			server.listen(func(c *provider.Connector) {
				w.want(c.Reject([]byte("no")), success)
				server.close(c)
			})
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), want(r))
			length := uint32(0)
			got := client.conn.GetConnectionData(nil, nil, nil, &length)
			if r == mad.ReasonConsumer { // T10
				w.want(got, success)
				if length != mad.REJPrivateData {
					t.Errorf("%d bytes from the peer", length)
				}
			} else {
				w.want(got, provider.StatusConnectionInvalid)
			}

			gates[0].change = nil
			w.finish(server.close(server.listener))
			var accepted *async
			server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(client.complete(), success)
			w.want(w.finish(accepted), success)
		})
	}
}

// TestSmallerMTU: a peer that names an MTU below ours gets it, one that names none,
// the same or a larger one has refused.
func TestSmallerMTU(t *testing.T) {
	for _, c := range []struct {
		named []uint8 // in the refusals, as long as they last; 0 is none
		want  provider.Status
		asked []uint8
	}{
		{[]uint8{3}, success, []uint8{5, 3}},
		{[]uint8{3, 1}, success, []uint8{5, 3, 1}},
		{[]uint8{5}, refused, []uint8{5}},
		{[]uint8{6}, refused, []uint8{5}},
		{[]uint8{0}, refused, []uint8{5}},
		{[]uint8{2, 2}, refused, []uint8{5, 2}},
	} {
		w, gates := newGatedWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		var asked []uint8
		gates[1].change = func(p *roce.Received) {
			var q mad.REQ
			if q.Decode(p.Payload) != nil {
				return
			}
			asked = append(asked, q.MTU)
			q.MTU = min(q.MTU, 5)
			if len(asked) <= len(c.named) {
				q.MTU = 7 // draws the refusal
			}
			p.Payload = q.Append(nil)
		}
		gates[0].change = func(p *roce.Received) {
			var rej mad.REJ
			if rej.Decode(p.Payload) == nil && rej.Reason == mad.ReasonInvalidMTU {
				rej.ARILength, rej.ARI[0] = 1, c.named[len(asked)-1]
				if rej.ARI[0] == 0 {
					rej.ARILength = 0
				}
				p.Payload = rej.Append(nil)
			}
		}
		var accepted *async
		server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
		client.conn = client.newConnector()
		w.want(w.finish(client.dial(client.conn, server)), c.want)
		if string(asked) != string(c.asked) {
			t.Errorf("refused with %v: asked for %v, want %v", c.named, asked, c.asked)
		}
		gates[0].change, gates[1].change = nil, nil
		if c.want == success {
			w.want(client.complete(), success)
			w.want(w.finish(accepted), success)
		}
	}
}

// TestConnectArguments: whatever addresses and data Connect is called with, it
// answers with a status. The connection manager, which takes only two addresses of
// one family and 56 bytes, never hears of others.
func TestConnectArguments(t *testing.T) {
	var ends []netip.AddrPort
	for _, a := range []string{
		"10.0.0.1", "10.0.0.2", "0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255",
		"fd00::1", "::", "::1", "ff02::1", "fe80::1", "fe80::1%1", "::ffff:10.0.0.1", "::ffff:10.0.0.2",
	} {
		ends = append(ends, netip.AddrPortFrom(netip.MustParseAddr(a), 7000), netip.AddrPortFrom(netip.MustParseAddr(a), 0))
	}
	ends = append(ends, netip.AddrPort{}, netip.AddrPortFrom(netip.Addr{}, 7000))
	w := newEmptyWorld(t)
	for i, own := range [][]netip.Addr{
		{addresses[0], addresses6[0], netip.MustParseAddr("fe80::1%1")}, {addresses[1]},
	} {
		w.hosts[i] = w.equip(w.openOn(w.network.Attach(mtu, own...), provider.DefaultAdapterInfo()), own[0])
	}
	h := w.hosts[0]
	pending := 0
	for _, source := range ends {
		for _, destination := range ends {
			for _, length := range []int{0, 56, 57, 300} {
				qp, c := h.newQP(), h.newConnector()
				a := &async{}
				a.returned = c.Connect(qp, source, destination, 1, 1, make([]byte, length), a.done, a)
				switch a.returned {
				case provider.StatusPending:
					pending++
					if length > 56 || !destination.IsValid() || source.Addr().Is4() != destination.Addr().Is4() {
						t.Errorf("from %v to %v with %d bytes: pending", source, destination, length)
					}
				case provider.StatusInvalidBufferSize:
					if length <= 56 {
						t.Errorf("from %v to %v with %d bytes: %v", source, destination, length, a.returned)
					}
				case provider.StatusInvalidParameter, provider.StatusInvalidAddress, provider.StatusSharingViolation:
				default:
					t.Errorf("from %v to %v with %d bytes: %v", source, destination, length, a.returned)
				}
				h.close(c)
				w.finish(h.close(qp))
			}
		}
	}
	if pending < 100 {
		t.Errorf("only %d requests are on their way", pending)
	}
}

// TestQPNInTimewait: the number of a queue pair that is gone is not given out again
// while packets of its connection may be under way, for an ACK timeout of 2^17 *
// 4.096 us (roce.md 11); and no number is kept for ever.
func TestQPNInTimewait(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	numbers := [2]uint32{client.qp.Number(), server.qp.Number()}
	w.want(client.close(client.conn).returned, provider.StatusSuccess)
	w.clock.Run(time.Millisecond)
	w.want(server.close(server.conn).returned, provider.StatusSuccess)
	for _, h := range w.hosts {
		w.finish(h.close(h.qp))
	}
	givenOut := func(i int) bool {
		h := w.hosts[i]
		h.device.SetNextQPN(numbers[i])
		qp := h.newQP()
		defer func() { w.finish(h.close(qp)) }()
		return qp.Number() == numbers[i]
	}
	for i := range w.hosts {
		if givenOut(i) {
			t.Errorf("host %d: the number is given out at once", i)
		}
	}
	w.clock.Run(535 * time.Millisecond)
	for i := range w.hosts {
		if givenOut(i) {
			t.Errorf("host %d: the number is given out in timewait", i)
		}
	}
	w.clock.Run(2 * time.Millisecond)
	for i, h := range w.hosts {
		if !givenOut(i) {
			t.Errorf("host %d: the number is not given out after timewait", i)
		}
		if n := h.device.HeldQPNs(); n != 0 {
			t.Errorf("host %d: %d numbers are kept", i, n)
		}
	}
}

// TestReasons: what the peer is told where nobody is asked. A paused listener and a
// failed device are none (NDK-LSN-06); a full backlog is in TestListener.
func TestReasons(t *testing.T) {
	for name, prepare := range map[string]func(server *host){
		"nobody listens": func(*host) {},
		"paused": func(server *host) {
			server.listen(nil)
			server.listener.ControlConnectEvents(true)
		},
		"closed": func(server *host) {
			server.listen(nil)
			server.world.finish(server.close(server.listener))
		},
		"failed": func(server *host) {
			server.listen(nil)
			server.device.Fail()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, gates := newGatedWorld(t)
			client, server := w.hosts[0], w.hosts[1]
			prepare(server)
			var reasons []mad.Reason
			gates[0].change = func(p *roce.Received) {
				var rej mad.REJ
				if rej.Decode(p.Payload) == nil {
					reasons = append(reasons, rej.Reason)
				}
			}
			w.want(w.finish(client.dial(client.newConnector(), server)), refused)
			if len(reasons) != 1 || reasons[0] != mad.ReasonInvalidServiceID {
				t.Errorf("refused for %v", reasons)
			}
		})
	}
}
