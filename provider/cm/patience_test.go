package cm

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider/roce/mad"
)

// TestThinkingAccept has the passive consumer take its time: an MRA quiets the
// peer, and all ends well.
func TestThinkingAccept(t *testing.T) {
	n, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	n.clock.Run(60 * time.Second)
	want := mad.MRA{
		TransactionID: 1<<32 | uint64(a), LocalID: uint32(p), RemoteID: uint32(a), Message: mad.MessageREQ, ServiceTimeout: 24,
	}
	diff(t, "MRA", want, last[mad.MRA](passive))
	if got := passive.count(mad.AttributeMRA); got != 1 {
		t.Errorf("%d MRAs", got)
	}
	// 0, 0.1, 0.3, 0.7, 1.5 s; the last was answered.
	if got := active.count(mad.AttributeREQ); got != 5 {
		t.Errorf("%d REQs", got)
	}
	passive.must(passive.accept(p, 0x12))
	wait[ConnectReply](active)
	active.must(active.complete(a))
	wait[Established](passive)
}

// TestMRADuplicate repeats the MRA for a duplicate at once, once it was sent.
func TestMRADuplicate(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropFirst(mad.AttributeMRA)
	active.connect(passive, 0x11)
	wait[ConnectRequest](passive)
	n.clock.Run(60 * time.Second)
	if got := passive.count(mad.AttributeMRA); got != 2 {
		t.Errorf("%d MRAs", got)
	}
}

// TestMRARunsOut: an MRA is no licence for ever.
func TestMRARunsOut(t *testing.T) {
	n, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	wait[ConnectRequest](passive)
	n.clock.Run(2 * time.Second)
	n.drop = dropAll(mad.AttributeMRA)
	failed := wait[ConnectFailed](active)
	diff(t, "failure", ConnectFailed{ID: a, Failure: TimedOut}, failed)
	if n.now() < mad.Timeout(24).Duration() || n.now() > 90*time.Second {
		t.Errorf("gave up at %v", n.now())
	}

	// Whatever service timeout a peer asks for, the wait has its limit.
	n, active, passive = pair(t)
	n.drop = dropAll(mad.AttributeREQ)
	a = active.connect(passive, 0x11)
	active.deliver(passive.addr, &mad.MRA{RemoteID: uint32(a), Message: mad.MessageREQ, ServiceTimeout: 31})
	wait[ConnectFailed](active)
	if n.now() != 90*time.Second {
		t.Errorf("gave up at %v", n.now())
	}

	// It is over a packet's way after the service timeout, 33.6 ms.
	n, active, passive = pair(t)
	n.drop = dropAll(mad.AttributeREQ)
	a = active.connect(passive, 0x11)
	active.deliver(passive.addr, &mad.MRA{RemoteID: uint32(a), Message: mad.MessageREQ, ServiceTimeout: 13})
	n.clock.RunUntil(func() bool { return active.count(mad.AttributeREQ) == 2 }, time.Minute)
	if want := mad.Timeout(13).Duration() + packetLifeTime.Duration(); n.now() != want {
		t.Errorf("asked again at %v, want %v", n.now(), want)
	}
}

// TestThinkTime: a consumer that has thought for just so long has thought long.
func TestThinkTime(t *testing.T) {
	n, active, passive := pair(t)
	active.connect(passive, 0x11)
	req := last[mad.REQ](active)
	n.drop = dropAll(mad.AttributeREQ)
	wait[ConnectRequest](passive)
	n.clock.Run(thinkTime - 1)
	passive.deliver(active.addr, &req)
	if got := passive.count(mad.AttributeMRA); got != 0 {
		t.Fatalf("%d MRAs too early", got)
	}
	n.clock.Run(1)
	passive.deliver(active.addr, &req)
	if got := passive.count(mad.AttributeMRA); got != 1 {
		t.Errorf("%d MRAs", got)
	}
}

// TestUnfittingMRA: an MRA for another message, another connection, from another
// address or in another state does nothing.
func TestUnfittingMRA(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropAll(mad.AttributeREQ)
	a := active.connect(passive, 0x11)
	active.deliver(passive.addr, &mad.MRA{RemoteID: uint32(a), Message: mad.MessageREP, ServiceTimeout: 24})
	active.deliver(passive.addr, &mad.MRA{RemoteID: uint32(a), Message: mad.MessageOther, ServiceTimeout: 24}) // of a LAP
	active.deliver(passive.addr, &mad.MRA{RemoteID: uint32(a) + 1, Message: mad.MessageREQ, ServiceTimeout: 24})
	active.deliver(passive.addr.Next(), &mad.MRA{RemoteID: uint32(a), Message: mad.MessageREQ, ServiceTimeout: 24})
	wait[ConnectFailed](active)
	if n.now() != 30*time.Second {
		t.Errorf("gave up at %v", n.now())
	}

	n, active, passive = pair(t)
	n.drop = dropAll(mad.AttributeREP, mad.AttributeREJ)
	a = active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, 0x12))
	begin := n.now()
	passive.deliver(active.addr, &mad.MRA{LocalID: uint32(a), RemoteID: uint32(p), Message: mad.MessageREQ, ServiceTimeout: 24})
	passive.deliver(active.addr, &mad.MRA{LocalID: uint32(a) + 1, RemoteID: uint32(p), Message: mad.MessageREP, ServiceTimeout: 24})
	wait[AcceptFailed](passive)
	if n.now()-begin != 30*time.Second {
		t.Errorf("gave up after %v", n.now()-begin)
	}
}

// TestThinkingComplete has the active consumer take its time between ConnectReply
// and CompleteConnect, and its RTU be lost: since the MRA keeps the peer from
// repeating its REP, the RTU is repeated unasked.
func TestThinkingComplete(t *testing.T) {
	n, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, 0x12))
	wait[ConnectReply](active)
	n.clock.Run(20 * time.Second)
	want := mad.MRA{
		TransactionID: 1<<32 | uint64(a), LocalID: uint32(a), RemoteID: uint32(p), Message: mad.MessageREP, ServiceTimeout: 24,
	}
	diff(t, "MRA", want, last[mad.MRA](active))
	if got := active.count(mad.AttributeMRA); got != 1 {
		t.Errorf("%d MRAs", got)
	}
	if got := passive.count(mad.AttributeREP); got != 5 {
		t.Errorf("%d REPs", got)
	}
	n.drop = dropFirst(mad.AttributeRTU)
	begin := n.now()
	active.must(active.complete(a))
	wait[Established](passive)
	if n.now()-begin > time.Second {
		t.Errorf("established only after %v", n.now()-begin)
	}
	n.clock.Run(time.Hour)
	if got := active.count(mad.AttributeRTU); got > 8 {
		t.Errorf("%d RTUs", got)
	}
	active.none()
	passive.none()
}

// TestAnswerBehindTraffic: while packets of other connections come from the peer, and the
// answer to a REQ or REP may be behind them, it is waited for, until the limit. Nothing
// more is sent for that than otherwise.
func TestAnswerBehindTraffic(t *testing.T) {
	for _, test := range []struct{ heardUntil, want time.Duration }{
		{0, 30 * time.Second}, {20 * time.Second, 50 * time.Second}, {time.Hour, 90 * time.Second},
	} {
		for _, lost := range []mad.Attribute{mad.AttributeREQ, mad.AttributeRTU} {
			n, active, passive := pair(t)
			n.drop = dropAll(lost, mad.AttributeREJ)
			for at := time.Second; at <= min(test.heardUntil, 2*time.Minute); at += time.Second {
				n.clock.AfterFunc(at, func() { active.heardAt, passive.heardAt = n.now(), n.now() })
			}
			a := active.connect(passive, 0x11)
			if lost == mad.AttributeREQ {
				wait[ConnectFailed](active)
			} else {
				passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
				wait[ConnectReply](active)
				active.must(active.complete(a))
				wait[AcceptFailed](passive)
			}
			if got := n.now().Truncate(time.Second); got != test.want {
				t.Errorf("gave up at %v, want %v", got, test.want)
			}
			if reqs, reps := active.count(mad.AttributeREQ), passive.count(mad.AttributeREP); max(reqs, reps) > 12 {
				t.Errorf("%d REQs, %d REPs", reqs, reps)
			}
		}
	}
}
