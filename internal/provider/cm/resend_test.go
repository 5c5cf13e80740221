package cm

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// dropAll loses every message of the given kinds.
func dropAll(kinds ...mad.Attribute) func(mad.Attribute) bool {
	return func(a mad.Attribute) bool {
		for _, kind := range kinds {
			if a == kind {
				return true
			}
		}
		return false
	}
}

// dropFirst loses the first message of a kind.
func dropFirst(kind mad.Attribute) func(mad.Attribute) bool {
	dropped := false
	return func(a mad.Attribute) bool {
		if a == kind && !dropped {
			dropped = true
			return true
		}
		return false
	}
}

// resends returns the times at which a host sent its only kind of message, and the
// time at which it gave up.
func resends(n *network, h *host, over func() bool) (at []time.Duration, gaveUp time.Duration) {
	seen := len(h.sent)
	at = []time.Duration{n.now()}
	for !over() && n.clock.Step() {
		for ; seen < len(h.sent); seen++ {
			if !over() {
				at = append(at, n.now())
			}
		}
	}
	return at, n.now()
}

// TestPace pins the instants at which an unanswered message is repeated: soon,
// then ever more slowly, down to the pace of Linux (roce.md 12.3).
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name string
		pace time.Duration // slowest
		run  func(n *network, active, passive *host) (h *host, over func() bool)
	}{
		{"REQ", slowestREQ, func(n *network, active, passive *host) (*host, func() bool) {
			n.drop = dropAll(mad.AttributeREQ)
			active.connect(passive, 0x11)
			return active, func() bool { return len(active.events) > 0 }
		}},
		{"REP", slowest, func(n *network, active, passive *host) (*host, func() bool) {
			active.connect(passive, 0x11)
			p := wait[ConnectRequest](passive).ID
			n.drop = dropAll(mad.AttributeREQ, mad.AttributeREP)
			passive.must(passive.accept(p, 0x12))
			return passive, func() bool { return len(passive.events) > 0 }
		}},
		{"DREQ", slowest, func(n *network, active, passive *host) (*host, func() bool) {
			a, _ := establish(active, passive, 0x11, 0x12)
			n.drop = dropAll(mad.AttributeDREQ)
			active.must(active.disconnect(a))
			return active, func() bool { return len(active.events) > 0 }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, active, passive := pair(t)
			h, over := tt.run(n, active, passive)
			start := n.now()
			message := h.sent[len(h.sent)-1]
			before := len(h.sent)
			at, gaveUp := resends(n, h, over)
			for i := range at {
				at[i] -= start
			}
			want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms}
			for next := 3100*ms + min(3200*ms, tt.pace); next < 30*time.Second; {
				want = append(want, next)
				if next == 6300*ms {
					next += min(6400*ms, tt.pace)
				} else {
					next += tt.pace
				}
			}
			diff(t, "instants", want, at)
			if gaveUp-start != 30*time.Second {
				t.Errorf("gave up after %v", gaveUp-start)
			}
			for _, d := range h.sent[before : before+len(at)-1] {
				if d != message {
					t.Fatal("a repetition differs from the first message")
				}
			}
		})
	}
}

// TestRetryLimit has the count of repetitions end an attempt before the time.
func TestRetryLimit(t *testing.T) {
	n, active, passive := pair(t)
	active.config.Timeout = 10 * time.Minute
	active.config.EstablishTimeout = time.Hour
	n.drop = dropAll(mad.AttributeREQ)
	a := active.connect(passive, 0x11)
	diff(t, "failure", ConnectFailed{ID: a, Failure: TimedOut}, wait[ConnectFailed](active))
	if got := active.count(mad.AttributeREQ); got != 1+maxRetries {
		t.Errorf("%d REQs", got)
	}
	// The pace is REQ's slowest from the eighth on (see TestPace): 12.7 s and 8 more.
	if want := 6300*time.Millisecond + 10*slowestREQ; n.now() != want {
		t.Errorf("gave up after %v, want %v", n.now(), want)
	}
}

// TestRetryLimitOfEach: each message is repeated as often, whatever it took to get
// the one before across.
func TestRetryLimitOfEach(t *testing.T) {
	n, active, passive := pair(t)
	for _, h := range n.hosts {
		h.config.Timeout, h.config.EstablishTimeout = 10*time.Minute, time.Hour
	}
	n.drop = dropAll(mad.AttributeREQ)
	a := active.connect(passive, 0x11)
	n.clock.RunUntil(func() bool { return active.count(mad.AttributeREQ) == 10 }, time.Hour)
	n.drop = nil
	passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
	wait[ConnectReply](active)
	active.must(active.complete(a))
	n.drop = dropAll(mad.AttributeDREQ)
	active.must(active.disconnect(a))
	wait[DisconnectDone](active)
	if got := active.count(mad.AttributeDREQ); got != 1+maxRetries {
		t.Errorf("%d DREQs", got)
	}
}

// TestNoAnswer has Connect fail, and the peer be told with what Linux needs to
// find the connection by.
func TestNoAnswer(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropAll(mad.AttributeREP)
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	diff(t, "failure", ConnectFailed{ID: a, Failure: TimedOut}, wait[ConnectFailed](active))
	rej := last[mad.REJ](active)
	want := mad.REJ{TransactionID: 1<<32 | uint64(a), LocalID: uint32(a), Message: mad.MessageOther, Reason: mad.ReasonTimeout}
	want.SetGUID(active.guid())
	diff(t, "REJ", want, rej)
	diff(t, "at the peer", AcceptFailed{ID: p, Failure: Aborted}, wait[AcceptFailed](passive))
	if err := passive.accept(p, 0x12); err != ErrState {
		t.Errorf("Accept after the peer gave up: %v", err)
	}
	if err := passive.reject(p, ""); err != ErrState {
		t.Errorf("Reject after the peer gave up: %v", err)
	}
	ended(t, active, passive)
}

// TestGivingUpUnheard has the REJ of a Connect that timed out be lost: the peer's
// Accept fails when its REP arrives nowhere.
func TestGivingUpUnheard(t *testing.T) {
	for _, late := range []time.Duration{0, time.Minute} {
		n, active, passive := pair(t)
		active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		n.drop = dropAll(mad.AttributeREJ, mad.AttributeMRA)
		wait[ConnectFailed](active)
		n.clock.Run(time.Second + late) // the connection is in timewait, or forgotten
		n.drop = nil
		passive.must(passive.accept(p, 0x12))
		begin := n.now()
		diff(t, "failure", AcceptFailed{ID: p, Failure: Aborted}, wait[AcceptFailed](passive))
		if n.now()-begin > 10*time.Millisecond {
			t.Errorf("the peer learned it only after %v", n.now()-begin)
		}
		ended(t, active, passive)
	}
}

// TestNoRTU has an accepted connection that is never completed fail after tens of
// seconds, and the other side hear of it.
func TestNoRTU(t *testing.T) {
	n, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, 0x12))
	wait[ConnectReply](active)
	begin := n.now()
	diff(t, "failure", AcceptFailed{ID: p, Failure: TimedOut}, wait[AcceptFailed](passive))
	if d := n.now() - begin; d < 30*time.Second || d > 2*time.Minute {
		t.Errorf("failed after %v", d)
	}
	if rej := last[mad.REJ](passive); rej.Reason != mad.ReasonTimeout || rej.RemoteID != uint32(a) || rej.LocalID != uint32(p) {
		t.Errorf("REJ %+v", rej)
	}
	diff(t, "at the peer", ConnectFailed{ID: a, Failure: TimedOut}, wait[ConnectFailed](active))
	if err := active.complete(a); err != ErrState {
		t.Errorf("CompleteConnect after the peer gave up: %v", err)
	}
	ended(t, active, passive)
}

// TestLostMessages loses each message once: everything works, a little later.
func TestLostMessages(t *testing.T) {
	for _, kind := range []mad.Attribute{
		mad.AttributeREQ, mad.AttributeREP, mad.AttributeRTU, mad.AttributeDREQ, mad.AttributeDREP,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			n, active, passive := pair(t)
			n.drop = dropFirst(kind)
			a, _ := establish(active, passive, 0x11, 0x12)
			active.must(active.disconnect(a))
			diff(t, "done", DisconnectDone{ID: a}, wait[DisconnectDone](active))
			wait[Disconnected](passive)
			if n.now() > 200*time.Millisecond {
				t.Errorf("all took %v", n.now())
			}
			ended(t, active, passive)
		})
	}
}

// TestTrafficInsteadOfRTU establishes by the first data.
func TestTrafficInsteadOfRTU(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropAll(mad.AttributeRTU)
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, 0x12))
	wait[ConnectReply](active)
	active.must(active.complete(a))
	passive.noteTraffic(p)
	wait[Established](passive)
	n.drop = nil
	n.clock.Run(time.Minute)
	passive.noteTraffic(p)
	passive.none()
	if got := passive.count(mad.AttributeREP); got != 1 {
		t.Errorf("%d REPs", got)
	}
	// A late RTU changes nothing.
	passive.deliver(active.addr, &mad.RTU{LocalID: uint32(a), RemoteID: uint32(p)})
	passive.none()
}

// TestDuplicateREQ is the table of roce.md section 11 for a REQ that comes again.
func TestDuplicateREQ(t *testing.T) {
	n, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	req := last[mad.REQ](active)
	again := func() {
		passive.deliver(active.addr, &req)
		passive.none()
	}
	p := wait[ConnectRequest](passive).ID

	again()
	if len(passive.sent) != 0 {
		t.Fatalf("a request received: %v was sent", attribute(passive.sent[0]))
	}

	passive.must(passive.accept(p, 0x12))
	rep := last[mad.REP](passive)
	sent := len(passive.sent)
	again()
	if len(passive.sent) != sent+1 || last[mad.REP](passive) != rep {
		t.Error("reply sent: the REP was not repeated")
	}

	wait[ConnectReply](active)
	active.must(active.complete(a))
	wait[Established](passive)
	sent = len(passive.sent)
	again()
	if len(passive.sent) != sent {
		t.Error("established: something was sent")
	}

	active.must(active.disconnect(a))
	wait[Disconnected](passive)
	again()
	want := mad.REJ{
		TransactionID: req.TransactionID, RemoteID: uint32(a), Message: mad.MessageREQ, Reason: mad.ReasonStaleConnection,
	}
	diff(t, "in timewait", want, last[mad.REJ](passive))
	wait[DisconnectDone](active)
	ended(t, active, passive)

	// From another address it is no duplicate, and names another than that.
	active.connect(passive, 0x13)
	req = last[mad.REQ](active)
	wait[ConnectRequest](passive)
	n.clock.Run(2 * time.Second)
	sent = len(passive.sent)
	passive.deliver(active.addr.Next().Next(), &req)
	passive.none()
	if rej := latest[mad.REJ](passive); len(passive.sent) != sent+1 || rej.Reason != mad.ReasonInvalidGID {
		t.Errorf("a duplicate from elsewhere: %d messages, %+v", len(passive.sent)-sent, rej)
	}
}

// TestDuplicateREP repeats the RTU.
func TestDuplicateREP(t *testing.T) {
	n, active, passive := pair(t)
	n.clock.Run(time.Minute)
	a := active.connect(passive, 0x11)
	passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x12))
	rep := last[mad.REP](passive)
	wait[ConnectReply](active)
	sent := len(active.sent)
	active.deliver(passive.addr, &rep)
	if len(active.sent) != sent {
		t.Errorf("%v was sent while the consumer thinks", attribute(active.sent[sent]))
	}
	active.must(active.complete(a))
	rtu := last[mad.RTU](active)
	sent = len(active.sent)
	active.deliver(passive.addr, &rep)
	if len(active.sent) != sent+1 || last[mad.RTU](active) != rtu {
		t.Error("the RTU was not repeated")
	}
	active.none()
	n.drop = dropAll(mad.AttributeDREQ)
	active.must(active.disconnect(a))
	sent = len(active.sent)
	active.deliver(passive.addr, &rep)
	if len(active.sent) != sent {
		t.Errorf("%v was sent while disconnecting", attribute(active.sent[sent]))
	}
}

// TestUnfittingREP: a REP of another ID of the peer's, or to the side that
// accepts, is of no connection, whatever the state.
func TestUnfittingREP(t *testing.T) {
	n, active, passive := pair(t)
	n.drop = dropAll(mad.AttributeREJ) // looked at only
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	refused := func(h, from *host, rep mad.REP) {
		t.Helper()
		sent := len(h.sent)
		h.deliver(from.addr, &rep)
		if len(h.sent) != sent+1 {
			t.Fatalf("%d messages were sent", len(h.sent)-sent)
		}
		diff(t, "REJ", mad.REJ{
			TransactionID: rep.TransactionID, LocalID: rep.RemoteID, RemoteID: rep.LocalID,
			Message: mad.MessageREP, Reason: mad.ReasonInvalidCommID,
		}, last[mad.REJ](h))
		h.none()
	}
	toPassive := mad.REP{TransactionID: 7, LocalID: uint32(a), RemoteID: uint32(p), QPN: 0x11, GUID: active.guid()}
	refused(passive, active, toPassive)
	passive.must(passive.accept(p, 0x12))
	refused(passive, active, toPassive)
	wait[ConnectReply](active)
	other := mad.REP{TransactionID: 8, LocalID: uint32(p) + 1, RemoteID: uint32(a), QPN: 0x13, GUID: passive.guid()}
	refused(active, passive, other)
	active.must(active.complete(a))
	wait[Established](passive)
	refused(active, passive, other)
	refused(passive, active, toPassive)
}

// TestRTUInTimewait: nothing is said of a connection that has ended in good order.
func TestRTUInTimewait(t *testing.T) {
	_, active, passive := pair(t)
	a, p := establish(active, passive, 0x11, 0x12)
	passive.must(passive.disconnect(p))
	wait[DisconnectDone](passive)
	sent := len(passive.sent)
	passive.deliver(active.addr, &mad.RTU{LocalID: uint32(a), RemoteID: uint32(p)})
	if len(passive.sent) != sent {
		t.Errorf("%v was sent", attribute(passive.sent[sent]))
	}
	passive.none()
}
