package cm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// TestReject is the consumer's refusal, on either side.
func TestReject(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		_, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.reject(p, "no, thank you"))
		wantREJ := mad.REJ{TransactionID: 1<<32 | uint64(a), RemoteID: uint32(a), Message: mad.MessageREQ, Reason: mad.ReasonConsumer}
		copy(wantREJ.PrivateData[:], "no, thank you")
		diff(t, "REJ", wantREJ, last[mad.REJ](passive))
		diff(t, "event", Rejected{ID: a, Reason: mad.ReasonConsumer, PrivateData: wantREJ.PrivateData}, wait[Rejected](active))
		ended(t, active, passive)
		if got := passive.count(mad.AttributeREJ); got != 1 {
			t.Errorf("%d REJs", got)
		}
	})
	t.Run("reply", func(t *testing.T) {
		_, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.accept(p, 0x12))
		wait[ConnectReply](active)
		active.must(active.reject(a, "after all"))
		wantREJ := mad.REJ{
			TransactionID: 1<<32 | uint64(a), LocalID: uint32(a), RemoteID: uint32(p), Message: mad.MessageREP, Reason: mad.ReasonConsumer,
		}
		copy(wantREJ.PrivateData[:], "after all")
		diff(t, "REJ", wantREJ, last[mad.REJ](active))
		diff(t, "event", AcceptFailed{ID: p, Failure: Aborted}, wait[AcceptFailed](passive))
		ended(t, active, passive)
	})
}

// TestRejectLost: the REJ is said again when asked again, and the consumer is not
// asked twice.
func TestRejectLost(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		n, active, passive := pair(t)
		n.drop = dropFirst(mad.AttributeREJ)
		active.connect(passive, 0x11)
		passive.must(passive.reject(wait[ConnectRequest](passive).ID, "no"))
		if r := wait[Rejected](active); r.Reason != mad.ReasonConsumer || r.PrivateData[0] != 'n' {
			t.Errorf("%+v", r)
		}
		if n.now() > 200*time.Millisecond {
			t.Errorf("rejected after %v", n.now())
		}
		ended(t, active, passive)
	})
	t.Run("reply", func(t *testing.T) {
		n, active, passive := pair(t)
		n.drop = dropFirst(mad.AttributeREJ)
		a := active.connect(passive, 0x11)
		passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
		wait[ConnectReply](active)
		active.must(active.reject(a, "no"))
		first := last[mad.REJ](active)
		wait[AcceptFailed](passive)
		diff(t, "repeated REJ", first, last[mad.REJ](active))
		if n.now() > 200*time.Millisecond {
			t.Errorf("aborted after %v", n.now())
		}
		ended(t, active, passive)
	})
	t.Run("RTU after it", func(t *testing.T) {
		n, active, passive := pair(t)
		n.drop = dropFirst(mad.AttributeREJ)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.accept(p, 0x12))
		wait[ConnectReply](active)
		passive.abandon(p)
		active.must(active.complete(a))
		diff(t, "event", Disconnected{ID: a, Lost: true}, wait[Disconnected](active))
		ended(t, active, passive)
	})
	t.Run("long ago", func(t *testing.T) {
		n, active, passive := pair(t)
		active.connect(passive, 0x11)
		req := last[mad.REQ](active)
		passive.must(passive.reject(wait[ConnectRequest](passive).ID, "no"))
		first := last[mad.REJ](passive)
		n.clock.Run(8 * time.Second) // a Linux peer asks again after 4.6 s
		passive.deliver(active.addr, &req)
		diff(t, "repeated REJ", first, last[mad.REJ](passive))
		passive.none()
	})
	// After an MRA the peer asks no more.
	t.Run("request after an MRA", func(t *testing.T) {
		n, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		n.clock.Run(10 * time.Second)
		n.drop = dropFirst(mad.AttributeREJ)
		passive.must(passive.reject(p, ""))
		if rej := last[mad.REJ](passive); rej.LocalID != uint32(p) || rej.RemoteID != uint32(a) {
			t.Errorf("REJ %+v", rej)
		}
		begin := n.now()
		wait[Rejected](active)
		if n.now()-begin > 200*time.Millisecond {
			t.Errorf("rejected after %v", n.now()-begin)
		}
		ended(t, active, passive)
	})
	t.Run("reply after an MRA", func(t *testing.T) {
		n, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
		wait[ConnectReply](active)
		n.clock.Run(10 * time.Second)
		n.drop = dropFirst(mad.AttributeREJ)
		active.must(active.reject(a, ""))
		begin := n.now()
		wait[AcceptFailed](passive)
		if n.now()-begin > 200*time.Millisecond {
			t.Errorf("aborted after %v", n.now()-begin)
		}
		ended(t, active, passive)
	})
}

// TestRejectedRetry: after a refusal the same QP may be used for another attempt
// at once (NDK-CONN-13).
func TestRejectedRetry(t *testing.T) {
	_, active, passive := pair(t)
	for range 3 {
		active.connect(passive, 0x11)
		passive.must(passive.reject(wait[ConnectRequest](passive).ID, ""))
		wait[Rejected](active)
	}
	_, p := establish(active, passive, 0x11, 0x12)
	// When the attempts are forgotten, the connection is still known by its QPN.
	active.net.clock.Run(time.Minute)
	active.events, passive.events = nil, nil
	restart(active)
	active.connect(passive, 0x11)
	diff(t, "event", Disconnected{ID: p, Lost: true}, wait[Disconnected](passive))
}

// TestRejection has each of a REJ's reasons arrive in each state.
func TestRejection(t *testing.T) {
	type reached struct {
		h, peer    *host
		id, peerID ID
	}
	// Each brings a connection into a state, and says what a REJ makes of it.
	states := []struct {
		name    string
		reach   func(n *network, active, passive *host) reached
		message mad.Message
		want    func(id ID, r mad.Reason) Event
	}{
		{"request sent", func(n *network, active, passive *host) reached {
			n.drop = dropAll(mad.AttributeREQ)
			return reached{active, passive, active.connect(passive, 0x11), 0}
		}, mad.MessageREQ, func(id ID, r mad.Reason) Event { return Rejected{ID: id, Reason: r} }},
		{"request received", func(n *network, active, passive *host) reached {
			a := active.connect(passive, 0x11)
			return reached{passive, active, wait[ConnectRequest](passive).ID, a}
		}, mad.MessageOther, func(id ID, r mad.Reason) Event { return AcceptFailed{ID: id, Failure: Aborted} }},
		{"reply sent", func(n *network, active, passive *host) reached {
			n.drop = dropAll(mad.AttributeREP)
			a := active.connect(passive, 0x11)
			p := wait[ConnectRequest](passive).ID
			passive.must(passive.accept(p, 0x12))
			return reached{passive, active, p, a}
		}, mad.MessageREP, func(id ID, r mad.Reason) Event { return AcceptFailed{ID: id, Failure: Aborted} }},
		{"reply received", func(n *network, active, passive *host) reached {
			a := active.connect(passive, 0x11)
			p := wait[ConnectRequest](passive).ID
			passive.must(passive.accept(p, 0x12))
			wait[ConnectReply](active)
			return reached{active, passive, a, p}
		}, mad.MessageOther, func(id ID, r mad.Reason) Event {
			if r == mad.ReasonTimeout {
				return ConnectFailed{ID: id, Failure: TimedOut}
			}
			return ConnectFailed{ID: id, Failure: Aborted}
		}},
		{"established, active", func(n *network, active, passive *host) reached {
			a, p := establish(active, passive, 0x11, 0x12)
			return reached{active, passive, a, p}
		}, mad.MessageOther, func(id ID, r mad.Reason) Event { return Disconnected{ID: id, Lost: true} }},
		{"established, passive", func(n *network, active, passive *host) reached {
			a, p := establish(active, passive, 0x11, 0x12)
			return reached{passive, active, p, a}
		}, mad.MessageREP, func(id ID, r mad.Reason) Event { return Disconnected{ID: id, Lost: true} }},
		{"disconnecting", func(n *network, active, passive *host) reached {
			a, p := establish(active, passive, 0x11, 0x12)
			n.drop = dropAll(mad.AttributeDREQ)
			active.must(active.disconnect(a))
			return reached{active, passive, a, p}
		}, mad.MessageOther, func(id ID, r mad.Reason) Event { return DisconnectDone{ID: id} }},
		{"timewait", func(n *network, active, passive *host) reached {
			a, p := establish(active, passive, 0x11, 0x12)
			active.must(active.disconnect(a))
			wait[Disconnected](passive)
			return reached{passive, active, p, a}
		}, mad.MessageOther, func(id ID, r mad.Reason) Event { return nil }},
	}
	for _, tt := range states {
		for _, reason := range []mad.Reason{
			mad.ReasonConsumer, mad.ReasonInvalidServiceID, mad.ReasonStaleConnection, mad.ReasonTimeout,
			mad.ReasonInvalidCommID, mad.ReasonNoResources, 99,
		} {
			t.Run(tt.name+", "+reason.String(), func(t *testing.T) {
				n, active, passive := pair(t)
				r := tt.reach(n, active, passive)
				r.h.none()
				rej := &mad.REJ{LocalID: uint32(r.peerID), RemoteID: uint32(r.id), Message: tt.message, Reason: reason}

				// Not from there, not with those IDs.
				r.h.deliver(r.peer.addr.Next().Next(), rej)
				if r.peerID != 0 {
					wrong := *rej
					wrong.LocalID++
					r.h.deliver(r.peer.addr, &wrong)
				}
				wrong := *rej
				wrong.RemoteID += 1000
				r.h.deliver(r.peer.addr, &wrong)
				r.h.none()

				sent := len(r.h.sent)
				for range 2 { // the second time it has no effect
					r.h.deliver(r.peer.addr, rej)
				}
				if len(r.h.sent) != sent {
					t.Errorf("a REJ was answered by %v", attribute(r.h.sent[sent]))
				}
				want := []Event{}
				if ev := tt.want(r.id, reason); ev != nil {
					want = []Event{ev}
				}
				diff(t, "events", want, append([]Event{}, r.h.events...))
			})
		}
	}
}

// TestTimeoutREJ: when Linux gives up on a REQ it sends a REJ whose sender can be
// found only by the GUID in the ARI.
func TestTimeoutREJ(t *testing.T) {
	_, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	wait[ConnectRequest](passive)
	rej := &mad.REJ{LocalID: uint32(a), Message: mad.MessageOther, Reason: mad.ReasonTimeout}
	passive.deliver(active.addr, rej) // no GUID
	rej.SetGUID(active.guid() + 1)
	passive.deliver(active.addr, rej)
	rej.SetGUID(active.guid())
	passive.deliver(active.addr.Next().Next(), rej)
	passive.none()
	rej.Reason = mad.ReasonNoResources // whose ARI is no GUID
	passive.deliver(active.addr, rej)
	passive.none()
	rej.Reason = mad.ReasonTimeout
	passive.deliver(active.addr, rej)
	wait[AcceptFailed](passive)
}

// TestTimeoutREJFromPassive: the peer's REPs were lost and it has given up. It
// knows our ID, we do not know its.
func TestTimeoutREJFromPassive(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropAll(mad.AttributeREQ)
	a := active.connect(passive, 0x11)
	rej := &mad.REJ{LocalID: 77, RemoteID: uint32(a), Message: mad.MessageOther, Reason: mad.ReasonTimeout}
	rej.SetGUID(passive.guid())
	active.deliver(passive.addr, rej)
	diff(t, "event", Rejected{ID: a, Reason: mad.ReasonTimeout}, wait[Rejected](active))
}

// TestREPInTimewait: the sender of a REP for a connection that has ended is told.
func TestREPInTimewait(t *testing.T) {
	_, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	rep := last[mad.REP](passive)
	passive.must(passive.disconnect(p))
	wait[Disconnected](active)
	active.deliver(passive.addr, &rep)
	want := mad.REJ{
		TransactionID: rep.TransactionID, LocalID: uint32(a), RemoteID: uint32(p),
		Message: mad.MessageREP, Reason: mad.ReasonInvalidCommID,
	}
	diff(t, "REJ", want, last[mad.REJ](active))
	active.none()
}

// TestBeforeTheREP: a connection whose peer has not told its ID yet cannot be
// ended by messages that name none.
func TestBeforeTheREP(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropAll(mad.AttributeREQ)
	a := active.connect(passive, 0x11)
	active.deliver(passive.addr, &mad.DREQ{RemoteID: uint32(a), RemoteQPN: 0x11})
	active.deliver(passive.addr, &mad.DREP{RemoteID: uint32(a)})
	active.deliver(passive.addr, &mad.RTU{RemoteID: uint32(a)})
	active.none()
	if got := last[mad.REJ](active); got.Reason != mad.ReasonInvalidCommID || got.Message != mad.MessageOther {
		t.Errorf("the RTU drew %+v", got)
	}
	active.deliver(passive.addr.Next(), &mad.REP{LocalID: 77, RemoteID: uint32(a), QPN: 0x12, GUID: passive.guid()})
	active.none()
	active.deliver(passive.addr, &mad.REP{LocalID: 77, RemoteID: uint32(a), QPN: 0x12, GUID: passive.guid()})
	wait[ConnectReply](active)
}

// TestStrayREQRejection: the refusal of a stray duplicate of the REQ does not
// concern the connection that the REQ has become.
func TestStrayREQRejection(t *testing.T) {
	_, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, 0x12))
	wait[ConnectReply](active)
	rej := &mad.REJ{RemoteID: uint32(a), LocalID: uint32(p), Message: mad.MessageREQ, Reason: mad.ReasonInvalidServiceID}
	active.deliver(passive.addr, rej)
	active.none()
	active.must(active.complete(a))
	active.deliver(passive.addr, rej)
	active.none()
}

// TestUnknownConnection: some kinds of message are answered when they are for an ID
// that nobody knows, others are not.
func TestUnknownConnection(t *testing.T) {
	_, h, other := pair(t)
	for _, tt := range []struct {
		name string
		m    interface{ Append([]byte) []byte }
		want any
	}{
		{"REP", &mad.REP{TransactionID: 7, LocalID: 1, RemoteID: 2},
			mad.REJ{TransactionID: 7, LocalID: 2, RemoteID: 1, Message: mad.MessageREP, Reason: mad.ReasonInvalidCommID}},
		{"RTU", &mad.RTU{TransactionID: 7, LocalID: 1, RemoteID: 2},
			mad.REJ{TransactionID: 7, LocalID: 2, RemoteID: 1, Message: mad.MessageOther, Reason: mad.ReasonInvalidCommID}},
		{"DREQ", &mad.DREQ{TransactionID: 7, LocalID: 1, RemoteID: 2, RemoteQPN: 3},
			mad.DREP{TransactionID: 7, LocalID: 2, RemoteID: 1}},
		{"SIDR_REQ", &mad.SIDRREQ{TransactionID: 7, RequestID: 1, ServiceID: 0x01111234},
			mad.SIDRREP{TransactionID: 7, RequestID: 1, ServiceID: 0x01111234, Status: mad.SIDRUnsupported}},
		{"MRA", &mad.MRA{LocalID: 1, RemoteID: 2}, nil},
		{"REJ", &mad.REJ{LocalID: 1, RemoteID: 2}, nil},
		{"DREP", &mad.DREP{LocalID: 1, RemoteID: 2}, nil},
		{"SIDR_REP", &mad.SIDRREP{RequestID: 1}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.sent = nil
			h.deliver(other.addr, tt.m)
			h.none()
			switch want := tt.want.(type) {
			case nil:
				if len(h.sent) != 0 {
					t.Errorf("%v was sent", attribute(h.sent[0]))
				}
			case mad.REJ:
				diff(t, "answer", want, last[mad.REJ](h))
			case mad.DREP:
				diff(t, "answer", want, last[mad.DREP](h))
			case mad.SIDRREP:
				diff(t, "answer", want, last[mad.SIDRREP](h))
			}
		})
	}
	h.sent = nil
	for _, b := range [][]byte{nil, make([]byte, 255), make([]byte, 256)} {
		h.Handle(0, h.addr, other.addr, b)
	}
	h.settle()
	h.none()
	if len(h.sent) != 0 {
		t.Error("malformed datagrams were answered")
	}
}

// TestRefuse gives a reason of the consumer's own.
func TestRefuse(t *testing.T) {
	n, active, passive := pair(t)
	active.connect(passive, 0x11)
	passive.must(passive.Reject(n.now(), wait[ConnectRequest](passive).ID, mad.ReasonVendorOption, []byte("no")))
	passive.settle()
	if r := wait[Rejected](active); r.Reason != mad.ReasonVendorOption || string(r.PrivateData[:2]) != "no" {
		t.Errorf("rejected: %+v", r)
	}
	n.empty()
}

// TestIgnored has a request be as if it had been lost, until it is delivered.
func TestIgnored(t *testing.T) {
	n, active, passive := pair(t)
	full := true
	passive.config.Refuses = func(netip.AddrPort, netip.AddrPort) mad.Reason {
		if full {
			return Ignored
		}
		return 0
	}
	id := active.connect(passive, 0x11)
	n.clock.Run(time.Second)
	passive.none()
	if len(passive.sent) != 0 {
		t.Errorf("%v was sent", attribute(passive.sent[0]))
	}
	full = false
	passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x22))
	if r := wait[ConnectReply](active); r.ID != id {
		t.Errorf("reply %+v", r)
	}
}
