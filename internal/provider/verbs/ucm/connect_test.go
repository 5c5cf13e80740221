package ucm

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// connected makes a connection between two new ids.
func (w *world) connected(listener uint32, to string) (client, server uint32) {
	w.t.Helper()
	c, s := w.client, w.server
	client = c.create(spaceTCP)
	c.resolve(client, to)
	c.do(cmdConnect, 0, connect{ID: client, Param: params(c.qpn, "hello")})
	server, _ = s.request(listener)
	s.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(s.qpn, "welcome")})
	c.expect(client, eventConnectResponse)
	c.do(cmdAccept, 0, accept{ID: client})
	s.expect(server, eventEstablished)
	c.qpn, s.qpn = c.qpn+1, s.qpn+1
	return client, server
}

// disconnect ends a connection from the client's side.
func (w *world) disconnect(client, server uint32) {
	w.t.Helper()
	w.client.do(cmdDisconnect, 0, disconnect{client})
	w.server.expect(server, eventDisconnected)
	w.server.do(cmdDisconnect, 0, disconnect{server})
	w.client.expect(client, eventDisconnected)
}

// TestConversation has two programs connect, look at all they are told, and part.
func TestConversation(t *testing.T) {
	for name, address := range map[string]string{"IPv4": "10.0.0.2:7471", "IPv6": "[fd00::2]:7471"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			c, s := w.client, w.server
			listening := s.create(spaceTCP)
			s.listen(listening, address, 8)

			client := c.create(spaceTCP)
			c.resolve(client, address)
			if a := c.attributes(client, qpInit); a.Mask != 0x39 || a.Access != 0 || a.Port != 1 || a.State != qpInit {
				t.Errorf("before the connection %+v", a)
			}
			offer := connect{ID: client, Param: params(0x123, "hello")}
			c.do(cmdConnect, 0, struct {
				connect
				ece
			}{offer, ece{0x1234, 7}})
			if a := c.attributes(client, qpInit); a.Access != accessRemoteWrite|accessRemoteRead|accessRemoteAtomic {
				t.Errorf("access %#x", a.Access)
			}
			c.fails(syscall.EINVAL, cmdInitQPAttr, 144, initQPAttr{Response: base, ID: client, QPState: qpRTR})

			server, e := s.request(listening)
			p := param(e)
			if p.QPN != 0x123 || p.ResponderResources != 3 || p.InitiatorDepth != 5 || p.RetryCount != 7 || p.RNRRetryCount != 6 ||
				heard(p) != "hello" || p.PrivateDataLength != mad.ConsumerPrivateData || e.ECE != (ece{0x1234, 7}) {
				t.Errorf("request %+v, ECE %v", p, e.ECE)
			}
			rtr, rts := s.attributes(server, qpRTR), s.attributes(server, qpRTS)
			if rtr.Mask != 0x129181 || rtr.DestQPN != 0x123 || rtr.PathMTU != 5 || rtr.MaxDestReadAtomic != 3 || rtr.MinRNRTimer != 24 ||
				rts.Mask != 0x12e01 || rts.MaxReadAtomic != 5 || rts.RetryCount != 7 || rts.RNRRetryCount != 6 || rts.Timeout != 17 {
				t.Errorf("the server's RTR %+v, RTS %+v", rtr, rts)
			}
			reply := params(0x456, "welcome")
			reply.ResponderResources, reply.InitiatorDepth, reply.RNRRetryCount = 2, 4, 5
			s.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: reply})
			if a := s.attributes(server, qpRTR); a.MaxDestReadAtomic != 2 {
				t.Errorf("the server answers %d READs at once, not as many as it has accepted with", a.MaxDestReadAtomic)
			}

			e = c.expect(client, eventConnectResponse)
			p = param(e)
			if p.QPN != 0x456 || p.ResponderResources != 4 || p.InitiatorDepth != 2 || p.RNRRetryCount != 5 ||
				heard(p) != "welcome" || p.PrivateDataLength != mad.REPPrivateData {
				t.Errorf("reply %+v", p)
			}
			cr, cs := c.attributes(client, qpRTR), c.attributes(client, qpRTS)
			if cr.DestQPN != 0x456 || cr.MaxDestReadAtomic != 4 || cs.MaxReadAtomic != 2 || cs.RetryCount != 7 || cs.RNRRetryCount != 5 || cs.Timeout != 17 {
				t.Errorf("the client's RTR %+v, RTS %+v", cr, cs)
			}
			if cr.RQPSN != rts.SQPSN || cs.SQPSN != rtr.RQPSN {
				t.Errorf("PSNs: %#x is sent to %#x, and %#x to %#x", rts.SQPSN, cr.RQPSN, cs.SQPSN, rtr.RQPSN)
			}
			if cr.AH.DGID == rtr.AH.DGID || cr.AH.Global != 1 || cr.AH.HopLimit != 64 || cr.AH.Port != 1 {
				t.Errorf("address handles %+v and %+v", cr.AH, rtr.AH)
			}
			c.do(cmdAccept, 0, accept{ID: client})
			s.expect(server, eventEstablished)
			w.disconnect(client, server)
			c.fails(syscall.EINVAL, cmdInitQPAttr, 144, initQPAttr{Response: base, ID: client, QPState: qpRTR})
			c.expect(client, eventTimewaitExit)
			s.expect(server, eventTimewaitExit)
			c.quiet()
			s.quiet()
			c.destroy(client, 5)
			s.destroy(server, 3)
			s.destroy(listening, 1)
			w.end()
		})
	}
}

// TestLoss has programs connect and part over a bad path, from either side.
func TestLoss(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			w.path.Loss, w.path.Duplicate, w.path.Reorder = 0.25, 0.25, 0.25
			listening := w.server.create(spaceTCP)
			w.server.listen(listening, "0.0.0.0:7471", 0)
			for range 4 {
				client, server := w.connected(listening, "10.0.0.2:7471")
				w.disconnect(client, server)
				w.client.expect(client, eventTimewaitExit)
				w.server.expect(server, eventTimewaitExit)
			}
			w.end()
		})
	}
}

// TestReject has the listening side refuse, and the connecting side a reply.
func TestReject(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening := s.create(spaceTCP)
	s.listen(listening, "10.0.0.2:7471", 0)

	for reason, want := range map[uint8]mad.Reason{0: mad.ReasonConsumer, 28: mad.ReasonConsumer, 35: mad.ReasonVendorOption} {
		client := c.create(spaceTCP)
		c.resolve(client, "10.0.0.2:7471")
		c.do(cmdConnect, 0, connect{ID: client, Param: params(1, "")})
		server, _ := s.request(listening)
		no := reject{ID: server, Reason: reason}
		no.PrivateData, no.PrivateDataLength = said("no")
		s.do(cmdReject, 0, no)
		e := c.expect(client, eventRejected)
		if p := param(e); mad.Reason(e.Status) != want || heard(p) != "no" || p.PrivateDataLength != mad.REJPrivateData {
			t.Errorf("rejected for %v: %q", mad.Reason(e.Status), heard(p))
		}
		s.fails(syscall.EINVAL, cmdReject, 0, no)
		s.fails(syscall.EINVAL, cmdAccept, 0, accept{ID: server, Param: params(2, "")})
		c.fails(syscall.EINVAL, cmdConnect, 0, connect{ID: client, Param: params(1, "")})
		c.destroy(client, 3)
		s.destroy(server, 0)
	}
	s.fails(syscall.EINVAL, cmdReject, 0, reject{ID: listening, Reason: 27})

	client := c.create(spaceTCP)
	c.resolve(client, "10.0.0.2:7471")
	c.do(cmdConnect, 0, connect{ID: client, Param: params(1, "")})
	server, _ := s.request(listening)
	s.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(2, "")})
	c.expect(client, eventConnectResponse)
	c.do(cmdReject, 0, reject{ID: client})
	if e := s.expect(server, eventRejected); e.Status != uint32(mad.ReasonConsumer) {
		t.Errorf("status %d", e.Status)
	}

	nobody := c.create(spaceTCP)
	c.resolve(nobody, "10.0.0.2:7472")
	c.do(cmdConnect, 0, connect{ID: nobody, Param: params(1, "")})
	if e := c.expect(nobody, eventRejected); e.Status != uint32(mad.ReasonInvalidServiceID) {
		t.Errorf("status %d where nobody listens", e.Status)
	}
	w.end()
}

// TestUnreachable has a peer never answer, on either side.
func TestUnreachable(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening, client := w.connecting()
	server, _ := s.request(listening)
	w.path.Down = true
	s.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(2, "")})
	for _, e := range []eventResponse{s.expect(server, eventUnreachable), c.expect(client, eventUnreachable)} {
		if e.Status != failure(syscall.ETIMEDOUT) {
			t.Errorf("status %d", int32(e.Status))
		}
	}
	w.end()
}

// TestNotify establishes a connection by traffic.
func TestNotify(t *testing.T) {
	for name, notice := range map[string]func(s *program, server uint32){
		"the program's word": func(s *program, server uint32) {
			s.fails(syscall.EINVAL, cmdNotify, 0, notify{server, 5})
			s.do(cmdNotify, 0, notify{server, communicationEstablished})
		},
		"the device's": func(s *program, _ uint32) {
			s.service.NoteTraffic(s.qpn + 1)
			s.service.NoteTraffic(s.qpn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			c, s := w.client, w.server
			listening, client := w.connecting()
			server, _ := s.request(listening)
			s.fails(syscall.EINVAL, cmdNotify, 0, notify{server, communicationEstablished})
			s.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(s.qpn, "")})
			c.expect(client, eventConnectResponse)
			notice(s, server)
			s.expect(server, eventEstablished)
			s.fails(syscall.EISCONN, cmdNotify, 0, notify{server, communicationEstablished})
			w.end()
		})
	}
}

// TestEndedBeforeEstablished has the connecting side part when its last word of connecting was lost.
func TestEndedBeforeEstablished(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening, client := w.connecting()
	server, _ := s.request(listening)
	s.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(s.qpn, "")})
	c.expect(client, eventConnectResponse)
	w.path.Loss = 1
	c.do(cmdAccept, 0, accept{ID: client, UID: uint64(client) + 1000})
	w.path.Loss = 0
	c.do(cmdDisconnect, 0, disconnect{ID: client})
	s.expect(server, eventDisconnected)
	c.expect(client, eventDisconnected)
	w.end()
}

// TestDestroy ends a connection at every step of its life, from either side: the other one is told.
func TestDestroy(t *testing.T) {
	steps := []string{"asked", "requested", "accepted", "replied", "established"}
	for last, name := range steps {
		for _, who := range []string{"client", "server"} {
			t.Run(name+" "+who, func(t *testing.T) {
				w := newWorld(t, 1)
				c, s := w.client, w.server
				listening, client := w.connecting()
				server := uint32(0)
				if last >= 1 {
					server, _ = s.request(listening)
				}
				if last >= 2 {
					s.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(2, "")})
				}
				if last >= 3 {
					c.expect(client, eventConnectResponse)
				}
				if last >= 4 {
					c.do(cmdAccept, 0, accept{ID: client})
					s.expect(server, eventEstablished)
				}
				if who == "client" {
					c.kernel.Close()
					if last >= 2 {
						want := uint32(eventRejected)
						if last == 4 {
							want = eventDisconnected
						}
						s.expect(server, want)
					}
				} else {
					s.kernel.Close()
					want := uint32(eventRejected)
					if last == 4 {
						want = eventDisconnected
					}
					if last == 2 {
						c.expect(client, eventConnectResponse)
					}
					c.expect(client, want)
				}
				w.end()
			})
		}
	}
}

// TestCounted has the device count connections as it does NDKPI's.
func TestCounted(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening := s.create(spaceTCP)
	s.listen(listening, "10.0.0.2:7471", 8)
	want := func(connect, accept, failures, active uint64) {
		t.Helper()
		a, b := c.device.Counters(), s.device.Counters()
		if a.Connect != connect || b.Accept != accept || a.ConnectFailure != failures || a.ActiveConnection != active || b.ActiveConnection != active {
			t.Errorf("client %+v, server %+v", a, b)
		}
	}
	client, server := w.connected(listening, "10.0.0.2:7471")
	want(1, 1, 0, 1)
	w.disconnect(client, server)
	want(1, 1, 0, 0)
	refused := c.create(spaceTCP)
	c.resolve(refused, "10.0.0.2:7472") // where nobody listens
	c.do(cmdConnect, 0, connect{ID: refused, Param: params(1, "")})
	c.expect(refused, eventRejected)
	want(1, 1, 1, 0)
}
