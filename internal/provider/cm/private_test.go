package cm

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// pattern is n bytes of which none is 0, and no two neighbours are alike.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + i%255)
	}
	return b
}

// TestPrivateData: what a message has room for arrives whole, and what a consumer
// leaves is zeros (roce.md 12.2).
func TestPrivateData(t *testing.T) {
	for _, addrs := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		for _, short := range []int{0, 1, 1000} {
			n := newNetwork(t, 1)
			active, passive := n.add(addrs[0]), n.add(addrs[1])
			size := func(most int) int { return max(most-short, 0) }
			arrived := func(what string, got []byte, most, sent int) {
				t.Helper()
				want := append(pattern(sent), make([]byte, most-sent)...)
				if !bytes.Equal(got, want) {
					t.Errorf("%s with %d bytes: arrived %x", what, sent, got)
				}
			}
			connect := func(qpn uint32) (ID, ID) {
				p := active.connectParams(passive, qpn)
				p.PrivateData = pattern(size(56))
				a, err := active.Connect(n.now(), p)
				active.must(err)
				active.settle()
				r := wait[ConnectRequest](passive)
				arrived("REQ", r.PrivateData[:], 56, size(56))
				return a, r.ID
			}

			_, p := connect(0x11)
			passive.must(passive.reject(p, string(pattern(size(148)))))
			rejected := wait[Rejected](active)
			arrived("REJ", rejected.PrivateData[:], 148, size(148))

			a, p := connect(0x11)
			params := acceptParams(0x12)
			params.PrivateData = pattern(size(196))
			passive.must(passive.Accept(n.now(), p, params))
			passive.settle()
			reply := wait[ConnectReply](active)
			arrived("REP", reply.PrivateData[:], 196, size(196))
			active.must(active.reject(a, string(pattern(size(148)))))
			rej := last[mad.REJ](active)
			arrived("REJ of a REP", rej.PrivateData[:], 148, size(148))
			wait[AcceptFailed](passive)
		}
	}
}

// TestPrivateDataUnseen: consumers have none in RTU, DREQ and DREP; a peer's is
// passed over, and so is all of its SIDR_REQ's.
func TestPrivateDataUnseen(t *testing.T) {
	n, active, passive := pair(t)
	a := active.connect(passive, 0x11)
	p := wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, 0x12))
	wait[ConnectReply](active)
	n.drop = dropAll(mad.AttributeRTU, mad.AttributeDREQ)
	active.must(active.complete(a))
	passive.deliver(active.addr, &mad.RTU{
		LocalID: uint32(a), RemoteID: uint32(p), PrivateData: [mad.RTUPrivateData]byte(pattern(224)),
	})
	wait[Established](passive)
	active.must(active.disconnect(a))
	passive.deliver(active.addr, &mad.DREQ{
		LocalID: uint32(a), RemoteID: uint32(p), RemoteQPN: 0x12, PrivateData: [mad.DREQPrivateData]byte(pattern(220)),
	})
	wait[Disconnected](passive)
	diff(t, "DREP", mad.DREP{LocalID: uint32(p), RemoteID: uint32(a)}, last[mad.DREP](passive))
	n.drop = nil
	active.deliver(passive.addr, &mad.DREP{
		LocalID: uint32(p), RemoteID: uint32(a), PrivateData: [mad.DREPPrivateData]byte(pattern(224)),
	})
	wait[DisconnectDone](active)
	passive.deliver(active.addr, &mad.SIDRREQ{
		RequestID: 5, ServiceID: 0x01110000 + port, PrivateData: [mad.SIDRREQPrivateData]byte(pattern(216)),
	})
	diff(t, "SIDR_REP", mad.SIDRREP{
		RequestID: 5, ServiceID: 0x01110000 + port, Status: mad.SIDRUnsupported,
	}, last[mad.SIDRREP](passive))
}

// TestIPv6Admission is TestAdmission for what differs over IPv6.
func TestIPv6Admission(t *testing.T) {
	v4 := netip.MustParseAddr("10.0.0.1")
	for _, tt := range []struct {
		name   string
		change func(q *mad.REQ)
		want   mad.Reason // 0: not refused
	}{
		{"nothing", func(q *mad.REQ) {}, 0},
		{"low bits of the IP version", func(q *mad.REQ) { q.PrivateData[1] |= 0x0F }, 0}, // Linux does not look, either
		{"minor version", func(q *mad.REQ) { q.PrivateData[0] = 0x01 }, mad.ReasonConsumer},
		{"major version", func(q *mad.REQ) { q.PrivateData[0] = 0x10 }, mad.ReasonConsumer},
		{"IP version 0", func(q *mad.REQ) { q.PrivateData[1] = 0 }, mad.ReasonConsumer},
		{"IPv4 header", func(q *mad.REQ) {
			mad.IPHeader{Source: netip.AddrPortFrom(v4, 1), Destination: v4}.Put(q.PrivateData[:])
		}, mad.ReasonConsumer},
		{"IP version 4 over IPv6 addresses", func(q *mad.REQ) { q.PrivateData[1] = 4 << 4 }, mad.ReasonConsumer},
		{"from another address", func(q *mad.REQ) { q.PrivateData[4]++ }, mad.ReasonConsumer},
		{"to another address", func(q *mad.REQ) { q.PrivateData[20]++ }, mad.ReasonConsumer},
		{"from another GID", func(q *mad.REQ) { q.Primary.LocalGID = v4 }, mad.ReasonInvalidGID},
		{"to another GID", func(q *mad.REQ) { q.Primary.RemoteGID = v4 }, mad.ReasonInvalidGID},
		{"to no GID", func(q *mad.REQ) { q.Primary.RemoteGID = netip.Addr{} }, mad.ReasonInvalidGID},
		{"from port 0", func(q *mad.REQ) { q.PrivateData[2], q.PrivateData[3] = 0, 0 }, 0},
		{"to port 0", func(q *mad.REQ) { q.ServiceID = mad.ServiceID(0) }, mad.ReasonInvalidServiceID},
		{"IB port space", func(q *mad.REQ) { q.ServiceID = 0x013F0000 + port }, mad.ReasonInvalidServiceID},
		{"bits above the port space", func(q *mad.REQ) { q.ServiceID |= 1 << 32 }, mad.ReasonInvalidServiceID},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, 1)
			active, passive := n.add("fd00::1"), n.add("fd00::2")
			n.drop = dropAll(mad.AttributeREQ)
			active.connect(passive, 0x11)
			q := last[mad.REQ](active)
			tt.change(&q)
			passive.deliver(active.addr, &q)
			if tt.want == 0 {
				wait[ConnectRequest](passive)
				return
			}
			passive.none()
			want := mad.REJ{TransactionID: q.TransactionID, RemoteID: q.LocalID, Message: mad.MessageREQ, Reason: tt.want}
			if tt.want == mad.ReasonInvalidGID {
				gid := passive.addr.As16()
				want.ARILength = uint8(copy(want.ARI[:], gid[:]))
			}
			diff(t, "REJ", want, last[mad.REJ](passive))
		})
	}
}
