package cm

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// TestDisconnectByPassive: either side may disconnect.
func TestDisconnectByPassive(t *testing.T) {
	_, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	passive.must(passive.disconnect(p))
	if m := last[mad.DREQ](passive); m.RemoteQPN != 0x11 || m.LocalID != uint32(p) || m.RemoteID != uint32(a) {
		t.Errorf("DREQ %+v", m)
	}
	diff(t, "active", Disconnected{ID: a}, wait[Disconnected](active))
	diff(t, "passive", DisconnectDone{ID: p}, wait[DisconnectDone](passive))
	ended(t, active, passive)
}

// TestCrossingDisconnects: both sides are done, neither is told of the other.
func TestCrossingDisconnects(t *testing.T) {
	_, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	active.must(active.disconnect(a))
	passive.must(passive.disconnect(p))
	diff(t, "active", DisconnectDone{ID: a}, wait[DisconnectDone](active))
	diff(t, "passive", DisconnectDone{ID: p}, wait[DisconnectDone](passive))
	if active.count(mad.AttributeDREP) != 1 || passive.count(mad.AttributeDREP) != 1 {
		t.Error("a DREQ was not answered")
	}
	ended(t, active, passive)
}

// TestDisconnectAfterPeer: Disconnect is done at once when the peer was first.
func TestDisconnectAfterPeer(t *testing.T) {
	_, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	active.must(active.disconnect(a))
	wait[Disconnected](passive)
	sent := len(passive.sent)
	passive.must(passive.disconnect(p))
	diff(t, "events", []Event{DisconnectDone{ID: p}}, passive.events)
	if len(passive.sent) != sent {
		t.Error("something was sent")
	}
	wait[DisconnectDone](passive)
	wait[DisconnectDone](active)
	ended(t, active, passive)
}

// TestDisconnectUnanswered ends the connection nevertheless.
func TestDisconnectUnanswered(t *testing.T) {
	n, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	n.drop = dropAll(mad.AttributeDREQ)
	active.must(active.disconnect(a))
	diff(t, "done", DisconnectDone{ID: a, TimedOut: true}, wait[DisconnectDone](active))
	wait[TimewaitOver](active)
	passive.none()

	// The other side finds out when it disconnects: the DREQ is answered although
	// the connection is forgotten.
	n.drop = nil
	passive.must(passive.disconnect(p))
	dreq := last[mad.DREQ](passive)
	diff(t, "done", DisconnectDone{ID: p}, wait[DisconnectDone](passive))
	diff(t, "DREP", mad.DREP{TransactionID: dreq.TransactionID, LocalID: uint32(a), RemoteID: uint32(p)}, last[mad.DREP](active))
	ended(t, passive)
	active.none()
}

// TestDuplicateDREQ: in timewait the DREP is repeated, and nothing else happens.
func TestDuplicateDREQ(t *testing.T) {
	_, active, passive := pair(t)
	a, _ := establish(active, passive, 0x11, 0x12)
	active.must(active.disconnect(a))
	dreq := last[mad.DREQ](active)
	wait[Disconnected](passive)
	passive.deliver(active.addr, &dreq)
	passive.none()
	if got := passive.count(mad.AttributeDREP); got != 2 {
		t.Errorf("%d DREPs", got)
	}
	wait[DisconnectDone](active)
	ended(t, active, passive)
}

// TestUnfittingDREQ: one that names another QPN is ignored; one from another
// address, or for other IDs, is answered but ends nothing.
func TestUnfittingDREQ(t *testing.T) {
	_, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	sent := len(passive.sent)
	passive.deliver(active.addr, &mad.DREQ{LocalID: uint32(a), RemoteID: uint32(p), RemoteQPN: 0x13})
	if len(passive.sent) != sent {
		t.Error("a DREQ for another QPN was answered")
	}
	passive.deliver(active.addr.Next().Next(), &mad.DREQ{LocalID: uint32(a), RemoteID: uint32(p), RemoteQPN: 0x12})
	passive.deliver(active.addr, &mad.DREQ{LocalID: uint32(a) + 1, RemoteID: uint32(p), RemoteQPN: 0x12})
	if got := passive.count(mad.AttributeDREP); got != 2 {
		t.Errorf("%d DREPs", got)
	}
	passive.none()
	passive.must(passive.disconnect(p)) // still there
	wait[DisconnectDone](passive)
}

// TestUnfittingDREP ends nothing.
func TestUnfittingDREP(t *testing.T) {
	n, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	drep := &mad.DREP{LocalID: uint32(p), RemoteID: uint32(a)}
	active.deliver(passive.addr, drep) // not disconnecting
	active.none()
	n.drop = dropAll(mad.AttributeDREQ)
	active.must(active.disconnect(a))
	active.deliver(passive.addr.Next(), drep)
	active.deliver(passive.addr, &mad.DREP{LocalID: uint32(p) + 1, RemoteID: uint32(a)})
	active.none()
	active.deliver(passive.addr, drep)
	wait[DisconnectDone](active)
}

// TestDREQBeforeRTU: the active side completes and disconnects at once, and the
// RTU is lost.
func TestDREQBeforeRTU(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropAll(mad.AttributeRTU)
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, 0x12))
	wait[ConnectReply](active)
	active.must(active.complete(a))
	active.must(active.disconnect(a))
	diff(t, "active", DisconnectDone{ID: a}, wait[DisconnectDone](active))
	diff(t, "passive", AcceptFailed{ID: p, Failure: Ended}, wait[AcceptFailed](passive))
	ended(t, active, passive)
}

// TestAbandon ends a connection in every state: the peer learns, the consumer
// hears of nothing but TimewaitOver.
func TestAbandon(t *testing.T) {
	t.Run("request sent", func(t *testing.T) {
		_, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		active.abandon(a)
		active.abandon(a) // once is enough
		if rej := last[mad.REJ](active); rej.Reason != mad.ReasonTimeout {
			t.Errorf("REJ %+v", rej)
		}
		diff(t, "peer", AcceptFailed{ID: p, Failure: Aborted}, wait[AcceptFailed](passive))
		ended(t, active, passive)
	})
	t.Run("request received", func(t *testing.T) {
		_, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		passive.abandon(wait[ConnectRequest](passive).ID)
		diff(t, "peer", Rejected{ID: a, Reason: mad.ReasonConsumer}, wait[Rejected](active))
		ended(t, active, passive)
	})
	t.Run("reply sent", func(t *testing.T) {
		_, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.accept(p, 0x12))
		wait[ConnectReply](active)
		passive.abandon(p)
		if rej := last[mad.REJ](passive); rej.Reason != mad.ReasonConsumer || rej.Message != mad.MessageOther {
			t.Errorf("REJ %+v", rej)
		}
		diff(t, "peer", ConnectFailed{ID: a, Failure: Aborted}, wait[ConnectFailed](active))
		if err := active.complete(a); err != ErrState {
			t.Errorf("CompleteConnect after the peer gave up: %v", err)
		}
		ended(t, active, passive)
	})
	t.Run("reply sent after an MRA", func(t *testing.T) {
		n, active, passive := pair(t)
		active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		n.clock.Run(10 * time.Second)
		passive.must(passive.accept(p, 0x12))
		wait[ConnectReply](active)
		passive.abandon(p)
		wait[ConnectFailed](active)
		ended(t, active, passive)
		if got := passive.count(mad.AttributeREJ); got != 1 {
			t.Errorf("%d REJs", got)
		}
	})
	t.Run("reply sent, unheard", func(t *testing.T) {
		n, active, passive := pair(t)
		n.drop = dropAll(mad.AttributeREP)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.accept(p, 0x12))
		passive.abandon(p)
		diff(t, "peer", Rejected{ID: a, Reason: mad.ReasonConsumer}, wait[Rejected](active))
		ended(t, active, passive)
	})
	t.Run("reply received", func(t *testing.T) {
		_, active, passive := pair(t)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.accept(p, 0x12))
		wait[ConnectReply](active)
		active.abandon(a)
		diff(t, "peer", AcceptFailed{ID: p, Failure: Aborted}, wait[AcceptFailed](passive))
		ended(t, active, passive)
	})
	t.Run("established", func(t *testing.T) {
		_, active, passive := pair(t)
		a, p := establish(active, passive, 0x11, 0x12)
		active.abandon(a)
		diff(t, "peer", Disconnected{ID: p}, wait[Disconnected](passive))
		passive.abandon(p)
		ended(t, active, passive)
	})
	t.Run("disconnecting", func(t *testing.T) {
		n, active, passive := pair(t)
		a, _ := establish(active, passive, 0x11, 0x12)
		n.drop = dropFirst(mad.AttributeDREQ)
		active.must(active.disconnect(a))
		active.abandon(a)
		wait[Disconnected](passive)
		ended(t, active, passive)
	})
}

// TestAbandonBetweenEvents: events that are already queued are withdrawn.
func TestAbandonBetweenEvents(t *testing.T) {
	n, active, passive := pair(t)
	a, _ := establish(active, passive, 0x11, 0x12)
	b, _ := establish(active, passive, 0x21, 0x22)
	for _, id := range []ID{a, b} {
		peer := active.connections.byID[id].peerID
		active.Handle(n.now(), active.addr, passive.addr,
			(&mad.DREQ{LocalID: peer, RemoteID: uint32(id), RemoteQPN: active.connections.byID[id].qpn}).Append(nil))
	}
	first, _ := active.NextEvent()
	diff(t, "first", Event(Disconnected{ID: a}), first)
	active.Abandon(n.now(), b)
	if ev, ok := active.NextEvent(); ok {
		t.Errorf("%#v of an abandoned connection", ev)
	}
	active.settle()
	diff(t, "timewait", TimewaitOver{ID: a, QPN: 0x11}, wait[TimewaitOver](active))
	diff(t, "timewait", TimewaitOver{ID: b, QPN: 0x21}, wait[TimewaitOver](active))
}

// TestTimewaitLimits: a timewait is as long as the ACK timeout that the active side
// chooses, which may be hours, or none, and then does not hold a connection for
// hours.
func TestTimewaitLimits(t *testing.T) {
	for timeout, want := range map[mad.Timeout]time.Duration{
		1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond, 20: 4294967296 * time.Nanosecond,
		21: 8 * time.Second, 31: 8 * time.Second, 0: 8 * time.Second,
	} {
		n, active, passive := pair(t)
		p := active.connectParams(passive, 0x11)
		p.AckTimeout = timeout
		a, err := active.Connect(n.now(), p)
		active.must(err)
		active.settle()
		passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
		wait[ConnectReply](active)
		active.must(active.complete(a))
		wait[Established](passive)
		active.must(active.disconnect(a))
		wait[Disconnected](passive)
		begin := n.now()
		wait[TimewaitOver](passive)
		if got := n.now() - begin; got != want {
			t.Errorf("timeout %d: timewait of %v, want %v", timeout, got, want)
		}
	}
}
