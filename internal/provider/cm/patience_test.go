package cm

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
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

	// The wait has its limit, whatever service timeout a peer asks for.
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
	n.clock.Run(answerTime - 1)
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
	const begin = 10 * time.Second
	for _, test := range []struct {
		name              string
		elsewhere         bool          // the packets are another host's
		until, answeredAt time.Duration // since begin
		want              time.Duration
	}{
		{"nothing comes", false, 0, 0, 30 * time.Second},
		{"for a time", false, 20 * time.Second, 0, 50 * time.Second},
		{"all the time", false, time.Hour, 0, 90 * time.Second},
		{"from elsewhere", true, time.Hour, 0, 30 * time.Second},
		{"what was sent before is answered", false, time.Hour, -time.Second, 90 * time.Second},
		{"what was sent later is answered", false, time.Hour, 5 * time.Second, 30 * time.Second},
		{"later", false, time.Hour, 45 * time.Second, 60 * time.Second},
	} {
		for _, lost := range []mad.Attribute{mad.AttributeREQ, mad.AttributeRTU} {
			n, active, passive := pair(t)
			n.drop = dropAll(lost, mad.AttributeREJ)
			active.heardFrom, passive.heardFrom = passive.addr, active.addr
			if test.elsewhere {
				active.heardFrom, passive.heardFrom = active.addr, passive.addr
			}
			n.clock.Run(begin)
			for at := time.Second; at <= min(test.until, 2*time.Minute); at += time.Second {
				n.clock.AfterFunc(at, func() {
					active.heardAt, passive.heardAt = n.now(), n.now()
					if test.answeredAt != 0 && at >= test.answeredAt {
						active.answered, passive.answered = begin+test.answeredAt, begin+test.answeredAt
					}
				})
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
			if got := (n.now() - begin).Truncate(time.Second); got != test.want {
				t.Errorf("%s: gave up after %v, want %v", test.name, got, test.want)
			}
			if reqs, reps := active.count(mad.AttributeREQ), passive.count(mad.AttributeREP); max(reqs, reps) > 12 {
				t.Errorf("%s: %d REQs, %d REPs", test.name, reqs, reps)
			}
		}
	}
}

// TestEndBehindTraffic: nothing else is waited for longer because the peer is heard: neither
// the answer to a DREQ nor the end of the timewait.
func TestEndBehindTraffic(t *testing.T) {
	var took [2]time.Duration
	for i, heard := range []bool{false, true} {
		n, active, passive := pair(t)
		a, _ := establish(active, passive, 0x11, 0x12)
		if heard {
			active.heardFrom, active.heardAt = passive.addr, time.Hour
		}
		n.drop = dropAll(mad.AttributeDREQ)
		active.must(active.disconnect(a))
		diff(t, "done", DisconnectDone{ID: a, TimedOut: true}, wait[DisconnectDone](active))
		wait[TimewaitOver](active)
		took[i] = n.now()
	}
	if took[0] != took[1] {
		t.Errorf("it takes %v while the peer is heard, and else %v", took[1], took[0])
	}
}
