package cm

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// TestStranger: whoever knows all numbers of a connection but has another address than
// its peer does not change it, whatever it says and wherever the connection stands.
// Messages that name the connection are counted.
func TestStranger(t *testing.T) {
	for _, s := range meetings {
		for _, m := range messages {
			n, active, passive := pair(t)
			at := s.reach(n, active, passive)
			n.drop = func(mad.Attribute) bool { return true }
			c := at.h.connections.byID[at.id]
			if c == nil {
				continue // nobody's
			}
			before, deadline, strays := *c, c.deadline, at.h.Strays()
			at.h.deliver(active.addr.Next().Next(), m.make(&at))
			for _, ev := range at.h.events {
				if ev.Of() == at.id {
					t.Errorf("%s, %s: %T", s.name, m.name, ev)
				}
			}
			if after := at.h.connections.byID[at.id]; after != c || c.record() != before.record() || c.deadline != deadline || c.giveUp != before.giveUp || c.rejected != before.rejected {
				t.Errorf("%s, %s: %+v, was %+v", s.name, m.name, c, before)
			}
			h, err := mad.DecodeHeader(m.make(&at).Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			want := uint64(1)
			switch h.Attribute {
			case mad.AttributeREQ, mad.AttributeLAP, mad.AttributeAPR, 1:
				want = 0 // it is a request of the stranger's own, or none of ours
			case mad.AttributeREP:
				if !at.h.connections.byID[at.id].active {
					want = 0 // nobody's: no peer of ours answers
				}
			}
			if got := at.h.Strays() - strays; got != want {
				t.Errorf("%s, %s: %d strays", s.name, m.name, got)
			}
		}
	}
}

// TestStrangersREQ: a REQ with the numbers of a connection, from another address, is a
// request like any other, and is taken and ended like any other.
func TestStrangersREQ(t *testing.T) {
	n, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	stranger := n.add("10.0.0.3")
	for _, qpn := range []uint32{0x11, 0x99} {
		stranger.config.GUID = active.guid()
		stranger.connections.nextID = a
		stranger.connect(passive, qpn)
		q := wait[ConnectRequest](passive)
		if q.Remote.Addr() != stranger.addr {
			t.Fatalf("%+v", q)
		}
		passive.must(passive.reject(q.ID, "no"))
		wait[Rejected](stranger)
		n.clock.Run(rejectMemory * 2)
		stranger.events = nil
		passive.events = nil
	}
	active.must(active.disconnect(a)) // still there
	diff(t, "passive", Disconnected{ID: p}, wait[Disconnected](passive))
}

// TestStrangersREP: who accepts our request in another's name does not end our connection
// with that other.
func TestStrangersREP(t *testing.T) {
	n, active, passive := pair(t)
	a, _ := establish(active, passive, 0x11, 0x12)
	stranger := n.add("10.0.0.3")
	stranger.config.GUID = passive.guid()
	b := active.connect(stranger, 0x21)
	stranger.must(stranger.accept(wait[ConnectRequest](stranger).ID, 0x12))
	if r := wait[ConnectReply](active); r.ID != b {
		t.Fatalf("%+v", r)
	}
	if c := active.connections.byID[a]; c.state != established {
		t.Errorf("the other connection is %v", State(c.state))
	}
}

// TestRouteStranger: a REQ with the numbers of another peer's does not go where that went.
func TestRouteStranger(t *testing.T) {
	local, peer, stranger := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	holder := 3
	r := Router{Holder: func(netip.AddrPort) (int, bool) { return holder, true }}
	req := (&mad.REQ{LocalID: 1, GUID: 1, ServiceID: mad.ServiceID(port)}).Append(nil)
	timeout := &mad.REJ{LocalID: 1, Reason: mad.ReasonTimeout}
	timeout.SetGUID(1)
	r.Route(local, peer, req)
	holder = 4
	if got := r.Route(local, stranger, timeout.Append(nil)); got != 0 {
		t.Errorf("a stranger's REJ: share %d", got)
	}
	if got := r.Route(local, stranger, req); got != 4 {
		t.Errorf("a stranger's REQ: share %d", got)
	}
	if got := r.Route(local, peer, timeout.Append(nil)); got != 3 {
		t.Errorf("the peer's REJ: share %d", got)
	}
}

// TestRouteAgain: a REQ that came again after its share's end is remembered for as long as
// any, though its first place in the ring is taken sooner.
func TestRouteAgain(t *testing.T) {
	local, remote := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	holder := 3
	r := Router{Holder: func(netip.AddrPort) (int, bool) { return holder, true }}
	req := func(id uint32) int {
		return r.Route(local, remote, (&mad.REQ{LocalID: id, GUID: 1, ServiceID: mad.ServiceID(port)}).Append(nil))
	}
	req(1)
	r.Forget(3)
	holder = 4
	req(1)
	for id := range uint32(rememberedREQs - 1) {
		req(100 + id)
	}
	holder = 5
	if got := req(1); got != 4 {
		t.Errorf("share %d", got)
	}
	req(2)
	if got := req(1); got != 5 {
		t.Errorf("longer ago than is remembered: share %d", got)
	}
}
