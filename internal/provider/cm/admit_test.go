package cm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// TestAdmission changes one thing in a good REQ and looks at the refusal.
func TestAdmission(t *testing.T) {
	v6 := netip.MustParseAddr("fd00::1")
	for _, tt := range []struct {
		name   string
		change func(q *mad.REQ, active, passive *host)
		want   mad.Reason // 0: not refused
		ari    []byte
	}{
		{"nothing", func(q *mad.REQ, _, _ *host) {}, 0, nil},
		{"no consumer data", func(q *mad.REQ, _, _ *host) { clear(q.PrivateData[mad.IPHeaderSize:]) }, 0, nil},
		{"LIDs 0", func(q *mad.REQ, _, _ *host) { q.Primary.LocalLID, q.Primary.RemoteLID = 0, 0 }, 0, nil},
		{"packet rate", func(q *mad.REQ, _, _ *host) { q.Primary.PacketRate = 3 }, 0, nil},
		{"P_Key", func(q *mad.REQ, _, _ *host) { q.PKey = 0x7FFF }, 0, nil},
		{"unreliable connection", func(q *mad.REQ, _, _ *host) { q.TransportType = 1 }, mad.ReasonInvalidTransport, nil},
		{"XRC", func(q *mad.REQ, _, _ *host) { q.ExtendedTransport = 1 }, mad.ReasonInvalidTransport, nil},
		{"other port", func(q *mad.REQ, _, _ *host) { q.ServiceID++ }, mad.ReasonInvalidServiceID, nil},
		{"UDP port space", func(q *mad.REQ, _, _ *host) { q.ServiceID = 0x01110000 + port }, mad.ReasonInvalidServiceID, nil},
		{"nobody listens", func(_ *mad.REQ, _, passive *host) { passive.listening = false }, mad.ReasonInvalidServiceID, nil},
		{"to another GID", func(q *mad.REQ, _, _ *host) { q.Primary.RemoteGID = netip.MustParseAddr("10.0.0.3") }, mad.ReasonInvalidGID,
			[]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2}},
		{"from another GID", func(q *mad.REQ, _, _ *host) { q.Primary.LocalGID = netip.MustParseAddr("10.0.0.3") }, mad.ReasonInvalidGID,
			[]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2}},
		{"IP header version", func(q *mad.REQ, _, _ *host) { q.PrivateData[0] = 0x10 }, mad.ReasonConsumer, nil},
		{"IP version", func(q *mad.REQ, _, _ *host) { q.PrivateData[1] = 0x50 }, mad.ReasonConsumer, nil},
		{"IPv6 header", func(q *mad.REQ, _, _ *host) {
			mad.IPHeader{Source: netip.AddrPortFrom(v6, 1), Destination: v6}.Put(q.PrivateData[:])
		}, mad.ReasonConsumer, nil},
		{"to another address", func(q *mad.REQ, _, _ *host) { q.PrivateData[35]++ }, mad.ReasonConsumer, nil},
		{"from another address", func(q *mad.REQ, _, _ *host) { q.PrivateData[19]++ }, mad.ReasonConsumer, nil},
		{"MTU code 1", func(q *mad.REQ, _, _ *host) { q.MTU = 1 }, 0, nil},
		{"MTU code 0", func(q *mad.REQ, _, _ *host) { q.MTU = 0 }, mad.ReasonInvalidMTU, []byte{5}},
		{"MTU code 6", func(q *mad.REQ, _, _ *host) { q.MTU = 6 }, mad.ReasonInvalidMTU, []byte{5}},
		{"MTU above ours", func(q *mad.REQ, _, passive *host) { passive.config.MaxMTU = upTo3; q.MTU = 4 }, mad.ReasonInvalidMTU, []byte{3}},
		{"MTU like ours", func(q *mad.REQ, _, passive *host) { passive.config.MaxMTU = upTo3; q.MTU = 3 }, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, active, passive := pair(t)
			n.drop = dropAll(mad.AttributeREQ)
			active.connect(passive, 0x11)
			q := last[mad.REQ](active)
			tt.change(&q, active, passive)
			passive.deliver(active.addr, &q)
			if tt.want == 0 {
				wait[ConnectRequest](passive)
				return
			}
			passive.none()
			want := mad.REJ{TransactionID: q.TransactionID, RemoteID: q.LocalID, Message: mad.MessageREQ, Reason: tt.want}
			want.ARILength = uint8(copy(want.ARI[:], tt.ari))
			diff(t, "REJ", want, last[mad.REJ](passive))
			if len(passive.connections.byID) != 0 || len(passive.connections.byPeer) != 0 || len(passive.connections.byQPN) != 0 {
				t.Error("a refused REQ left something behind")
			}
			rejected := wait[Rejected](active)
			if tt.want == mad.ReasonInvalidMTU {
				if rejected.MTU != tt.ari[0] {
					t.Errorf("told to ask for the MTU code %d, want %d", rejected.MTU, tt.ari[0])
				}
			} else if rejected.MTU != 0 {
				t.Errorf("an MTU code of %d with another reason", rejected.MTU)
			}
		})
	}
}

// upTo3 is a Config.MaxMTU.
func upTo3(netip.Addr) uint8 { return 3 }

// TestAcceptableMTU: a peer that refuses the MTU need not say what it would take.
func TestAcceptableMTU(t *testing.T) {
	for _, tt := range []struct {
		m    mad.REJ
		want uint8
	}{
		{mad.REJ{Reason: mad.ReasonInvalidMTU, ARILength: 1, ARI: [72]byte{2}}, 2},
		{mad.REJ{Reason: mad.ReasonInvalidMTU, ARI: [72]byte{2}}, 0},
		{mad.REJ{Reason: mad.ReasonInvalidGID, ARILength: 16, ARI: [72]byte{2}}, 0},
	} {
		if got := acceptableMTUCode(&tt.m); got != tt.want {
			t.Errorf("%v with %d bytes of ARI: %d, want %d", tt.m.Reason, tt.m.ARILength, got, tt.want)
		}
	}
}

// TestRefuses shows the listener's side both ends of the request, and the peer
// the listener's reason.
func TestRefuses(t *testing.T) {
	_, active, passive := pair(t)
	var local, remote netip.AddrPort
	passive.config.Refuses = func(l, r netip.AddrPort) mad.Reason {
		local, remote = l, r
		return mad.ReasonNoResources
	}
	a := active.connect(passive, 0x11)
	diff(t, "event", Rejected{ID: a, Reason: mad.ReasonNoResources}, wait[Rejected](active))
	diff(t, "local", netip.MustParseAddrPort("10.0.0.2:7174"), local)
	diff(t, "remote", netip.MustParseAddrPort("10.0.0.1:40000"), remote)
}

// TestLinkLocal: zones are the socket's affair, GIDs have none.
func TestLinkLocal(t *testing.T) {
	n := newNetwork(t, 1)
	active, passive := n.add("fe80::1%eth0"), n.add("fe80::2%eth0")
	a, _ := establish(active, passive, 0x11, 0x12)
	active.must(active.disconnect(a))
	wait[DisconnectDone](active)
}

// TestAlternatePath: we have none, and say so to a peer that offers one.
func TestAlternatePath(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropAll(mad.AttributeREQ)
	active.connect(passive, 0x11)
	q := last[mad.REQ](active)
	q.Alternate = q.Primary
	passive.deliver(active.addr, &q)
	passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
	if rep := last[mad.REP](passive); rep.Failover != mad.FailoverUnsupported {
		t.Errorf("failover %d", rep.Failover)
	}
}

// restart replaces a host's Endpoint by a new one that knows nothing but has the
// GUID and address of the old.
func restart(h *host) {
	config := h.config
	h.Endpoint = New(config)
	clear(h.records)
	h.events = nil
	h.settle()
}

// TestStaleEstablished: a peer that restarts and uses its old QPN again is
// refused, and the connection of its former life ends on both sides.
func TestStaleEstablished(t *testing.T) {
	_, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	restart(active)
	b := active.connect(passive, 0x11)
	diff(t, "new", Rejected{ID: b, Reason: mad.ReasonStaleConnection}, wait[Rejected](active))
	diff(t, "old", Disconnected{ID: p, Lost: true}, wait[Disconnected](passive))
	if m := latest[mad.DREQ](passive); m.RemoteID != uint32(a) || m.LocalID != uint32(p) || m.RemoteQPN != 0x11 {
		t.Errorf("DREQ %+v", m)
	}
	if err := passive.disconnect(p); err != nil {
		t.Errorf("Disconnect meanwhile: %v", err)
	}
	diff(t, "done", DisconnectDone{ID: p}, wait[DisconnectDone](passive))
	wait[TimewaitOver](passive)
	active.net.clock.Run(time.Minute)
	active.events = nil
	establish(active, passive, 0x11, 0x13)
}

// TestReusedID: a peer that restarts may give an old connection's ID to another
// one, which is no duplicate since its QPN differs.
func TestReusedID(t *testing.T) {
	_, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	req := latest[mad.REQ](active)
	req.QPN = 0x99
	passive.deliver(active.addr, &req)
	if rej := latest[mad.REJ](passive); rej.Reason != mad.ReasonStaleConnection || rej.Message != mad.MessageREQ || rej.RemoteID != uint32(a) {
		t.Errorf("REJ %+v", rej)
	}
	if dreq := latest[mad.DREQ](passive); dreq.RemoteID != uint32(a) || dreq.LocalID != uint32(p) {
		t.Errorf("DREQ %+v", dreq)
	}
	diff(t, "old", []Event{Disconnected{ID: p, Lost: true}}, passive.events)
	// The next attempt has another ID.
	passive.events = nil
	b := active.connect(passive, 0x99)
	if r := wait[ConnectRequest](passive); r.QPN != 0x99 || b == a {
		t.Errorf("%+v", r)
	}
}

// TestReusedIDOfRequest: the same while our consumer thinks about the old one. One
// REJ says it all.
func TestReusedIDOfRequest(t *testing.T) {
	_, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	req := latest[mad.REQ](active)
	p := wait[ConnectRequest](passive).ID
	req.QPN = 0x99
	passive.deliver(active.addr, &req)
	diff(t, "old", []Event{AcceptFailed{ID: p, Failure: Aborted}}, passive.events)
	if got := len(passive.sent); got != 1 {
		t.Errorf("%d messages", got)
	}
	passive.events = nil
	diff(t, "new", Rejected{ID: a, Reason: mad.ReasonStaleConnection}, wait[Rejected](active))
	ended(t, active, passive)
}

// TestStaleInTimewait: packets to the QPN may be under way, so it is not to be
// used again yet.
func TestStaleInTimewait(t *testing.T) {
	_, active, passive := pair(t)
	a, _ := establish(active, passive, 0x11, 0x12)
	active.must(active.disconnect(a))
	wait[Disconnected](passive)
	active.connect(passive, 0x11)
	if r := wait[Rejected](active); r.Reason != mad.ReasonStaleConnection {
		t.Errorf("%v", r.Reason)
	}
	if passive.count(mad.AttributeDREQ) != 0 {
		t.Error("a DREQ was sent for a connection that has ended")
	}
	wait[TimewaitOver](passive)
	active.net.clock.Run(time.Minute)
	active.events = nil
	establish(active, passive, 0x11, 0x13)
}

// TestQPNAfterFailure: a connection that was accepted and never established
// leaves both ends' QPNs free for the next attempt at once.
func TestQPNAfterFailure(t *testing.T) {
	for name, fail := range map[string]func(n *network, active, passive *host, a, p ID){
		"refused by the active side": func(n *network, active, passive *host, a, p ID) {
			active.must(active.reject(a, ""))
			wait[AcceptFailed](passive)
		},
		"abandoned by the active side": func(n *network, active, passive *host, a, p ID) {
			active.abandon(a)
			wait[AcceptFailed](passive)
		},
		"abandoned by the passive side": func(n *network, active, passive *host, a, p ID) {
			passive.abandon(p)
			wait[ConnectFailed](active)
		},
		"timed out": func(n *network, active, passive *host, a, p ID) {
			wait[AcceptFailed](passive)
			wait[ConnectFailed](active)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, active, passive := pair(t)
			a := active.connect(passive, 0x11)
			p := wait[ConnectRequest](passive).ID
			passive.must(passive.accept(p, 0x12))
			wait[ConnectReply](active)
			fail(n, active, passive, a, p)
			active.events, passive.events = nil, nil
			establish(active, passive, 0x11, 0x12)
		})
	}
}

// TestStaleRequests: the peer restarts while its request is being considered or
// its reply under way.
func TestStaleRequests(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		n, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		if accepted {
			n.drop = dropAll(mad.AttributeREP)
			passive.must(passive.accept(p, 0x12))
		}
		n.clock.Run(n.delay)
		restart(active)
		b := active.connect(passive, 0x11)
		diff(t, "new", Rejected{ID: b, Reason: mad.ReasonStaleConnection}, wait[Rejected](active))
		diff(t, "old", AcceptFailed{ID: p, Failure: Aborted}, wait[AcceptFailed](passive))
		toldOld := false
		for _, d := range passive.sent {
			var m mad.REJ
			if m.Decode(d.MAD[:]) == nil && m.RemoteID == uint32(a) && m.Reason == mad.ReasonStaleConnection {
				toldOld = true
			}
		}
		if !toldOld {
			t.Error("the old request was not refused")
		}
		n.drop = nil
		ended(t, active, passive)
	}
}

// TestStaleReply: the accepting peer offers a QPN that we are connected with.
func TestStaleReply(t *testing.T) {
	_, active, passive := pair(t)
	a, _ := establish(active, passive, 0x11, 0x12)
	restart(passive)
	b := active.connect(passive, 0x21)
	p := wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, 0x12))
	wantREJ := mad.REJ{
		TransactionID: establishTransaction | uint64(b), LocalID: uint32(b), RemoteID: uint32(p),
		Message: mad.MessageREP, Reason: mad.ReasonStaleConnection,
	}
	diff(t, "new", Rejected{ID: b, Reason: mad.ReasonStaleConnection}, wait[Rejected](active))
	diff(t, "REJ", wantREJ, latest[mad.REJ](active))
	diff(t, "old", Disconnected{ID: a, Lost: true}, wait[Disconnected](active))
	diff(t, "peer", AcceptFailed{ID: p, Failure: Aborted}, wait[AcceptFailed](passive))
	wait[TimewaitOver](active)
	ended(t, active, passive)
}

// TestStaleReplyReceived: the same while our consumer thinks about the first
// offer of that QPN.
func TestStaleReplyReceived(t *testing.T) {
	_, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
	wait[ConnectReply](active)
	restart(passive)
	b := active.connect(passive, 0x21)
	passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
	diff(t, "new", Rejected{ID: b, Reason: mad.ReasonStaleConnection}, wait[Rejected](active))
	diff(t, "old", ConnectFailed{ID: a, Failure: Aborted}, wait[ConnectFailed](active))
	reasons := map[uint32]mad.Reason{} // of either, by our ID
	for _, d := range active.sent {
		var m mad.REJ
		if m.Decode(d.MAD[:]) == nil {
			reasons[m.LocalID] = m.Reason
		}
	}
	diff(t, "REJs", map[uint32]mad.Reason{uint32(a): mad.ReasonStaleConnection, uint32(b): mad.ReasonStaleConnection}, reasons)
	wait[AcceptFailed](passive)
	wait[TimewaitOver](active)
	ended(t, active, passive)
}

// TestForgottenByPeer: a peer that restarted answers our RTU, so that we need not
// find out by losing data.
func TestForgottenByPeer(t *testing.T) {
	_, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
	wait[ConnectReply](active)
	restart(passive)
	active.must(active.complete(a))
	diff(t, "event", Disconnected{ID: a, Lost: true}, wait[Disconnected](active))
}
