package cm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A meeting is one end of a connection that has come to some state, and the peer
// whose messages it is to hear there.
type meeting struct {
	h, peer    *host
	id, peerID ID // peerID is 0 where h has not heard it
	qpn        uint32
	peerQPN    uint32
}

// meetings bring a connection about, as far as their name says. Messages that are
// sent later go nowhere.
var meetings = []struct {
	name  string
	reach func(n *network, active, passive *host) meeting
}{
	{"unknown", func(n *network, active, passive *host) meeting {
		return meeting{passive, active, 78, 77, 0x12, 0x11}
	}},
	{"REQ sent", func(n *network, active, passive *host) meeting {
		n.drop = dropAll(mad.AttributeREQ)
		return meeting{active, passive, active.connect(passive, 0x11), 0, 0x11, 0x12}
	}},
	{"REQ received", func(n *network, active, passive *host) meeting {
		a := active.connect(passive, 0x11)
		return meeting{passive, active, wait[ConnectRequest](passive).ID, a, 0, 0x11}
	}},
	{"MRA sent", func(n *network, active, passive *host) meeting {
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.awaitSent(mad.AttributeMRA)
		return meeting{passive, active, p, a, 0, 0x11}
	}},
	{"REP sent", func(n *network, active, passive *host) meeting {
		n.drop = dropAll(mad.AttributeREP)
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.accept(p, 0x12))
		return meeting{passive, active, p, a, 0x12, 0x11}
	}},
	{"REP received", func(n *network, active, passive *host) meeting {
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.accept(p, 0x12))
		wait[ConnectReply](active)
		n.clock.Run(2 * time.Second) // the consumer takes its time
		return meeting{active, passive, a, p, 0x11, 0x12}
	}},
	{"active", func(n *network, active, passive *host) meeting {
		a, p := establish(active, passive, 0x11, 0x12)
		return meeting{active, passive, a, p, 0x11, 0x12}
	}},
	{"passive", func(n *network, active, passive *host) meeting {
		a, p := establish(active, passive, 0x11, 0x12)
		return meeting{passive, active, p, a, 0x12, 0x11}
	}},
	{"DREQ sent", func(n *network, active, passive *host) meeting {
		a, p := establish(active, passive, 0x11, 0x12)
		n.drop = dropAll(mad.AttributeDREQ)
		passive.must(passive.disconnect(p))
		return meeting{passive, active, p, a, 0x12, 0x11}
	}},
	{"timewait", func(n *network, active, passive *host) meeting {
		a, p := establish(active, passive, 0x11, 0x12)
		active.must(active.disconnect(a))
		wait[Disconnected](passive)
		return meeting{passive, active, p, a, 0x12, 0x11}
	}},
	{"REQ rejected", func(n *network, active, passive *host) meeting {
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.reject(p, "no"))
		return meeting{passive, active, p, a, 0, 0x11}
	}},
	{"REP rejected", func(n *network, active, passive *host) meeting {
		a := active.connect(passive, 0x11)
		p := wait[ConnectRequest](passive).ID
		passive.must(passive.accept(p, 0x12))
		wait[ConnectReply](active)
		active.must(active.reject(a, "no"))
		return meeting{active, passive, a, p, 0x11, 0x12}
	}},
}

// messages are all that the peer can send about the connection, for the first time
// or again.
var messages = []struct {
	name string
	make func(m *meeting) interface{ Append([]byte) []byte }
}{
	{"REQ", func(m *meeting) interface{ Append([]byte) []byte } {
		q := latestREQ(m)
		q.LocalID, q.GUID, q.QPN = uint32(m.peerID), m.peer.guid(), m.peerQPN
		return &q
	}},
	{"MRA of REQ", mra(mad.MessageREQ)},
	{"MRA of REP", mra(mad.MessageREP)},
	{"MRA of LAP", mra(mad.MessageOther)},
	{"REJ of REQ", rej(mad.MessageREQ)},
	{"REJ of REP", rej(mad.MessageREP)},
	{"REJ", rej(mad.MessageOther)},
	{"REP", func(m *meeting) interface{ Append([]byte) []byte } {
		return &mad.REP{LocalID: m.peerLocal(), RemoteID: uint32(m.id), QPN: m.peerQPN, GUID: m.peer.guid()}
	}},
	{"RTU", func(m *meeting) interface{ Append([]byte) []byte } {
		return &mad.RTU{LocalID: m.peerLocal(), RemoteID: uint32(m.id)}
	}},
	{"DREQ", func(m *meeting) interface{ Append([]byte) []byte } {
		return &mad.DREQ{LocalID: m.peerLocal(), RemoteID: uint32(m.id), RemoteQPN: m.qpn}
	}},
	{"DREQ, wrong QPN", func(m *meeting) interface{ Append([]byte) []byte } {
		return &mad.DREQ{LocalID: m.peerLocal(), RemoteID: uint32(m.id), RemoteQPN: m.qpn + 1}
	}},
	{"DREP", func(m *meeting) interface{ Append([]byte) []byte } {
		return &mad.DREP{LocalID: m.peerLocal(), RemoteID: uint32(m.id)}
	}},
	{"LAP", other(mad.AttributeLAP)},
	{"APR", other(mad.AttributeAPR)},
	{"ClassPortInfo", other(1)},
}

// peerLocal is the peer's ID in its messages.
func (m *meeting) peerLocal() uint32 {
	if m.peerID == 0 {
		return 77
	}
	return uint32(m.peerID)
}

// latestREQ is a REQ like those of the meeting's network, to m.h.
func latestREQ(m *meeting) mad.REQ {
	n := newNetwork(m.h.net.t, 1)
	from, to := n.add(m.peer.addr.String()), n.add(m.h.addr.String())
	from.connect(to, 1)
	return last[mad.REQ](from)
}

func mra(about mad.Message) func(m *meeting) interface{ Append([]byte) []byte } {
	return func(m *meeting) interface{ Append([]byte) []byte } {
		return &mad.MRA{LocalID: m.peerLocal(), RemoteID: uint32(m.id), Message: about, ServiceTimeout: 24}
	}
}

func rej(of mad.Message) func(m *meeting) interface{ Append([]byte) []byte } {
	return func(m *meeting) interface{ Append([]byte) []byte } {
		return &mad.REJ{LocalID: m.peerLocal(), RemoteID: uint32(m.id), Message: of, Reason: mad.ReasonConsumer}
	}
}

// raw is a datagram that is encoded already.
type raw []byte

func (r raw) Append(b []byte) []byte { return append(b, r...) }

// other is a message that is not decoded, with the IDs at the places where all
// messages have them.
func other(a mad.Attribute) func(m *meeting) interface{ Append([]byte) []byte } {
	return func(m *meeting) interface{ Append([]byte) []byte } {
		b := (&mad.RTU{LocalID: m.peerLocal(), RemoteID: uint32(m.id)}).Append(nil)
		b[16], b[17] = byte(a>>8), byte(a)
		return raw(b)
	}
}

// told says in words what a host has sent and what its consumer was told.
func told(sent []Datagram, events []Event) string {
	var words []string
	for _, d := range sent {
		word := attribute(d).String()
		var r mad.REJ
		if r.Decode(d.MAD[:]) == nil {
			word += fmt.Sprintf(" %d", r.Reason)
		}
		words = append(words, word)
	}
	for _, ev := range events {
		words = append(words, strings.TrimPrefix(fmt.Sprintf("%T", ev), "cm."))
	}
	return strings.Join(words, ", ")
}

// TestEveryMessageInEveryState is the table of roce.md section 11, for all messages
// and not only those that should come: what is sent and what the consumer is told.
// Where nothing is said, nothing happens.
func TestEveryMessageInEveryState(t *testing.T) {
	want := map[string]map[string]string{
		"unknown": {
			"REQ": "ConnectRequest", "REP": "REJ 6", "RTU": "REJ 6",
			"DREQ": "DREP", "DREQ, wrong QPN": "DREP",
		},
		"REQ sent": {
			"REQ":        "ConnectRequest", // which has nothing to do with ours
			"MRA of REQ": "patience",
			"REJ of REQ": "Rejected", "REJ of REP": "Rejected", "REJ": "Rejected",
			"REP": "ConnectReply", "RTU": "REJ 6",
			"DREQ": "DREP", "DREQ, wrong QPN": "DREP",
		},
		"REQ received": {
			"REJ of REP": "AcceptFailed", "REJ": "AcceptFailed",
			"REP": "REJ 6", "DREQ": "DREP, AcceptFailed",
		},
		"MRA sent": {
			"REQ":        "MRA",
			"REJ of REP": "AcceptFailed", "REJ": "AcceptFailed",
			"REP": "REJ 6", "DREQ": "DREP, AcceptFailed",
		},
		"REP sent": {
			"REQ": "REP", "MRA of REP": "patience",
			"REJ of REP": "AcceptFailed", "REJ": "AcceptFailed",
			"REP": "REJ 6", "RTU": "Established", "DREQ": "DREP, AcceptFailed",
		},
		"REP received": {
			"REQ":        "REJ 10, REJ 10, ConnectFailed", // the peer has forgotten ours
			"REJ of REP": "ConnectFailed", "REJ": "ConnectFailed",
			"REP": "MRA", "DREQ": "DREP, ConnectFailed",
		},
		"active": {
			"REQ":        "DREQ, REJ 10, Disconnected",
			"REJ of REP": "Disconnected", "REJ": "Disconnected",
			"REP": "RTU", "DREQ": "DREP, Disconnected",
		},
		"passive": {
			"REJ of REP": "Disconnected", "REJ": "Disconnected",
			"REP": "REJ 6", "DREQ": "DREP, Disconnected",
		},
		"DREQ sent": {
			"REJ of REP": "DisconnectDone", "REJ": "DisconnectDone",
			"REP": "REJ 6", "DREQ": "DREP, DisconnectDone", "DREP": "DisconnectDone",
		},
		"timewait": {
			"REQ": "REJ 10", "REP": "REJ 6", "DREQ": "DREP",
		},
		"REQ rejected": {
			"REQ": "REJ 28", "REP": "REJ 6", "RTU": "REJ 28", "DREQ": "DREP",
		},
		"REP rejected": {
			"REQ": "REJ 10", "REP": "REJ 28", "RTU": "REJ 28", "DREQ": "DREP",
		},
	}
	for _, s := range meetings {
		for _, m := range messages {
			n, active, passive := pair(t)
			at := s.reach(n, active, passive)
			n.drop = func(mad.Attribute) bool { return true }
			at.h.none()
			sent := len(at.h.sent)
			before, _ := at.h.Deadline()
			at.h.deliver(at.peer.addr, m.make(&at))
			got := told(at.h.sent[sent:], at.h.events)
			if after, _ := at.h.Deadline(); got == "" && after > before+time.Minute {
				got = "patience"
			}
			if got != want[s.name][m.name] {
				t.Errorf("%s, %s: %q, want %q", s.name, m.name, got, want[s.name][m.name])
			}
			// Said again, it is no news.
			at.h.events = nil
			at.h.deliver(at.peer.addr, m.make(&at))
			if len(at.h.events) > 0 {
				t.Errorf("%s, %s for the second time: %v", s.name, m.name, names(at.h.events))
			}
		}
	}
}
