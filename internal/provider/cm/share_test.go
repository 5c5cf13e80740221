package cm

import (
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// TestChanges follows what others are told of a connection, and checks that they
// are told no later than the peer.
func TestChanges(t *testing.T) {
	n, active, passive := pair(t)
	var a, p ID
	check := func(what string, activeState, passiveState State) {
		t.Helper()
		got := [2]State{Closed, Closed}
		for i, r := range []map[ID]Record{active.records, passive.records} {
			for _, r := range r {
				got[i] = r.State
			}
		}
		diff(t, what, [2]State{activeState, passiveState}, got)
	}
	check("before", Closed, Closed)
	a = active.connect(passive, 0x11)
	check("REQ sent", Requesting, Closed)
	p = wait[ConnectRequest](passive).ID
	check("REQ received", Requesting, Requested)
	passive.must(passive.accept(p, 0x12))
	check("REP sent", Requesting, Accepting)
	wait[ConnectReply](active)
	check("REP received", ReplyReceived, Accepting)
	active.must(active.complete(a))
	check("RTU sent", Connected, Accepting)
	wait[Established](passive)
	check("RTU received", Connected, Connected)

	c := active.connections.byID[a]
	diff(t, "record", Record{
		ID: a, State: Connected, Active: true, Local: c.local, Remote: c.remote, QPN: 0x11,
		TransactionID: c.transactionID, PeerGUID: passive.guid(), PeerID: uint32(p), PeerQPN: 0x12,
	}, active.records[a])

	active.must(active.disconnect(a))
	check("DREQ sent", Disconnecting, Connected)
	wait[Disconnected](passive)
	check("DREQ received", Disconnecting, Closed)
	wait[DisconnectDone](active)
	check("DREP received", Closed, Closed)
	ended(t, active, passive)
	n.empty()
}

// TestChangesOnce: however much happens to a connection, there is one record to
// take; and none is kept where nobody takes them.
func TestChangesOnce(t *testing.T) {
	for _, track := range []bool{true, false} {
		_, active, passive := pair(t)
		active.config.Track = track
		id, err := active.Connect(0, active.connectParams(passive, 0x11))
		active.must(err)
		active.Abandon(0, id)
		taken := 0
		for r, ok := active.NextChange(); ok; r, ok = active.NextChange() {
			taken++
			if r.ID != id || r.State != Closed {
				t.Errorf("record %+v", r)
			}
		}
		if want := map[bool]int{true: 1, false: 0}[track]; taken != want {
			t.Errorf("tracked %v: %d records, want %d", track, taken, want)
		}
	}
}

// TestAdopt has one end's process die at every stage of a connection, and
// another take over. The peer must hear of it soon, and nothing must remain.
func TestAdopt(t *testing.T) {
	const soon = 5 * time.Second
	for _, test := range []struct {
		name string
		// stage brings a connection about, as far as it goes, and returns which of
		// the ends is to die and what the other must be told.
		stage func(active, passive *host) (dies, stays *host, told []Event)
	}{
		{"REQ sent", func(a, p *host) (*host, *host, []Event) {
			a.connect(p, 0x11)
			r := wait[ConnectRequest](p)
			return a, p, []Event{AcceptFailed{r.ID, Aborted}}
		}},
		{"REQ sent, REP on its way", func(a, p *host) (*host, *host, []Event) {
			a.connect(p, 0x11)
			r := wait[ConnectRequest](p)
			p.must(p.accept(r.ID, 0x12))
			return a, p, []Event{AcceptFailed{r.ID, Aborted}}
		}},
		{"REP received", func(a, p *host) (*host, *host, []Event) {
			a.connect(p, 0x11)
			r := wait[ConnectRequest](p)
			p.must(p.accept(r.ID, 0x12))
			wait[ConnectReply](a)
			return a, p, []Event{AcceptFailed{r.ID, Ended}}
		}},
		{"REP received, and the peer asked for patience", func(a, p *host) (*host, *host, []Event) {
			a.connect(p, 0x11)
			r := wait[ConnectRequest](p)
			p.must(p.accept(r.ID, 0x12))
			wait[ConnectReply](a)
			a.awaitSent(mad.AttributeMRA)
			return a, p, []Event{AcceptFailed{r.ID, Ended}}
		}},
		{"RTU sent", func(a, p *host) (*host, *host, []Event) {
			id := a.connect(p, 0x11)
			r := wait[ConnectRequest](p)
			p.must(p.accept(r.ID, 0x12))
			wait[ConnectReply](a)
			a.must(a.complete(id))
			return a, p, []Event{Established{r.ID}, Disconnected{ID: r.ID}}
		}},
		{"RTU lost", func(a, p *host) (*host, *host, []Event) {
			id := a.connect(p, 0x11)
			r := wait[ConnectRequest](p)
			p.must(p.accept(r.ID, 0x12))
			wait[ConnectReply](a)
			a.net.drop = dropFirst(mad.AttributeRTU)
			a.must(a.complete(id))
			return a, p, []Event{AcceptFailed{r.ID, Ended}}
		}},
		{"established, active", func(a, p *host) (*host, *host, []Event) {
			_, id := establish(a, p, 0x11, 0x12)
			return a, p, []Event{Disconnected{ID: id}}
		}},
		{"DREQ lost", func(a, p *host) (*host, *host, []Event) {
			id, peer := establish(a, p, 0x11, 0x12)
			a.net.drop = dropFirst(mad.AttributeDREQ)
			a.must(a.disconnect(id))
			return a, p, []Event{Disconnected{ID: peer}}
		}},
		{"REQ received", func(a, p *host) (*host, *host, []Event) {
			id := a.connect(p, 0x11)
			wait[ConnectRequest](p)
			return p, a, []Event{Rejected{ID: id, Reason: mad.ReasonConsumer}}
		}},
		{"REQ received, and the peer asked for patience", func(a, p *host) (*host, *host, []Event) {
			id := a.connect(p, 0x11)
			wait[ConnectRequest](p)
			p.awaitSent(mad.AttributeMRA)
			a.net.drop = dropFirst(mad.AttributeREJ)
			return p, a, []Event{Rejected{ID: id, Reason: mad.ReasonConsumer}}
		}},
		{"REP sent", func(a, p *host) (*host, *host, []Event) {
			id := a.connect(p, 0x11)
			r := wait[ConnectRequest](p)
			p.must(p.accept(r.ID, 0x12))
			wait[ConnectReply](a)
			return p, a, []Event{ConnectFailed{id, Ended}}
		}},
		{"established, passive", func(a, p *host) (*host, *host, []Event) {
			id, _ := establish(a, p, 0x11, 0x12)
			return p, a, []Event{Disconnected{ID: id}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNetwork(t, 1)
			dies, stays, told := test.stage(n.addShare("10.0.0.1", 3), n.addShare("10.0.0.2", 3))
			heir := dies.replaced()
			confirmed := 0
			for _, r := range dies.records {
				if heir.Adopt(n.now(), r) {
					confirmed++
				}
			}
			heir.settle()
			n.clock.Run(soon)
			n.drop = nil
			stays.events = slices.DeleteFunc(stays.events, func(e Event) bool { _, ok := e.(TimewaitOver); return ok })
			diff(t, "peer's events", told, stays.events)
			if n := heir.Disconnecting(); n != 0 {
				t.Errorf("%d connections are still being disconnected", n)
			}
			for range confirmed {
				wait[DisconnectDone](heir)
			}
			wait[TimewaitOver](heir)
			heir.none()
			n.empty()
		})
	}
}

// TestAdoptNothing: what is closed, or has been adopted, is left alone.
func TestAdoptNothing(t *testing.T) {
	n, active, passive := pair(t)
	establish(active, passive, 0x11, 0x12)
	heir := active.replaced()
	for _, r := range active.records {
		r.State = Closed
		if heir.Adopt(n.now(), r) || len(heir.connections.byID) != 0 {
			t.Error("a closed connection was adopted")
		}
		r.State = Connected
		if !heir.Adopt(n.now(), r) || heir.Adopt(n.now(), r) || heir.Disconnecting() != 1 {
			t.Error("not adopted once")
		}
	}
	heir.settle()
	wait[Disconnected](passive)
	wait[DisconnectDone](heir)
	// Packets to the peer's QPN may be under way for the time of an ACK timeout.
	if len(heir.connections.byQPN) != 1 {
		t.Error("the peer's QPN is forgotten at once")
	}
	begin := n.now()
	wait[TimewaitOver](heir)
	if took := n.now() - begin; took != adoptedAckTimeout.Duration() {
		t.Errorf("a timewait of %v", took)
	}
	n.empty()
}

// replaced ends a host without a word, and puts another in its place.
func (h *host) replaced() *host {
	if h.timer != nil {
		h.timer.Stop()
	}
	n := h.net
	heir := n.add(h.addr.String())
	heir.config.GUID = h.config.GUID
	heir.listening = false
	n.hosts = n.hosts[:len(n.hosts)-1]
	n.hosts[slices.Index(n.hosts, h)] = heir
	return heir
}

// awaitSent lets time pass until the host has sent a message.
func (h *host) awaitSent(a mad.Attribute) {
	h.net.t.Helper()
	if !h.net.clock.RunUntil(func() bool { return h.count(a) > 0 }, time.Minute) {
		h.net.t.Fatalf("%v: no %v was sent", h.addr, a)
	}
}
