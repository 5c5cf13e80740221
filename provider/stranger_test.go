package provider_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// TestStranger: whoever has another address than the peer of a connection does it no harm
// with packets of any opcode, nor with what its ends have said when they made or ended
// another one of the same numbers. All are counted.
func TestStranger(t *testing.T) {
	stranger := netip.MustParseAddr("10.0.0.66")
	w, gates := newGatedWorld(t)
	var heard [2][]roce.Received // of management
	for i, g := range gates {
		g.change = func(p *roce.Received) {
			if p.Header.DestQPN == mad.QPN {
				copied := *p
				copied.Payload = bytes.Clone(p.Payload)
				heard[i] = append(heard[i], copied)
			}
		}
	}
	client, server := w.connect()
	for _, g := range gates {
		g.change = nil
	}
	if len(heard[0]) == 0 || len(heard[1]) == 0 {
		t.Fatal("no datagram was heard")
	}
	exchange := func() {
		server.receive(1)
		w.want(client.qp.Send(nil, nil, 0), success)
		client.result(success)
		server.result(success)
	}
	exchange()

	for i, h := range []*struct {
		misdirected func() uint64
		qpn         uint32
	}{
		{func() uint64 { return client.device.TransportCounters()["misdirected"] }, client.qp.Number()},
		{func() uint64 { return server.device.TransportCounters()["misdirected"] }, server.qp.Number()},
	} {
		from := roce.Flow{Local: addresses[i], Remote: stranger, SourcePort: 0xC000}
		before, sent := h.misdirected(), uint64(0)
		for op := range 256 {
			op := roce.Opcode(op)
			if !op.Known() {
				continue
			}
			for psn := range uint32(4) { // those of an idle connection are close to its first
				for _, p := range heard[1-i] {
					start := startingPSN(p.Payload)
					for _, n := range []int{0, 1, 256, 4096} {
						gates[i].receiver.Receive([]roce.Received{{
							Flow:    from,
							Header:  roce.Header{Opcode: op, PKey: roce.DefaultPKey, DestQPN: h.qpn, PSN: (start + psn) & roce.PSNMask, AckReq: true},
							Payload: make([]byte, n),
						}})
						sent++
					}
				}
			}
		}
		if got := h.misdirected() - before; got != sent {
			t.Errorf("%d of %d packets are counted", got, sent)
		}
		before = h.misdirected()
		for _, p := range heard[i] {
			p.Flow.Remote = stranger
			gates[i].receiver.Receive([]roce.Received{p})
		}
		// These messages name the connection, and one is the disconnect that its peer
		// could send.
		rtu := new(mad.RTU)
		rep := new(mad.REP)
		for _, p := range append(heard[0], heard[1]...) {
			if rep.Decode(p.Payload) == nil {
				rtu.LocalID, rtu.RemoteID = rep.RemoteID, rep.LocalID
			}
		}
		if i == 0 { // the peer is the passive side
			rtu.LocalID, rtu.RemoteID = rtu.RemoteID, rtu.LocalID
		}
		for _, m := range []interface{ Append([]byte) []byte }{
			&mad.DREQ{LocalID: rtu.LocalID, RemoteID: rtu.RemoteID, RemoteQPN: h.qpn},
			&mad.DREP{LocalID: rtu.LocalID, RemoteID: rtu.RemoteID},
			&mad.REJ{LocalID: rtu.LocalID, RemoteID: rtu.RemoteID, Message: mad.MessageOther, Reason: mad.ReasonConsumer},
			rtu,
		} {
			gates[i].receiver.Receive([]roce.Received{{
				Flow:    from,
				Header:  roce.Header{Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: mad.QPN, QKey: mad.QKey, SourceQPN: mad.QPN},
				Payload: m.Append(nil),
			}})
		}
		if got := h.misdirected() - before; got < 4 {
			t.Errorf("%d datagrams are counted", got)
		}
	}
	w.clock.Run(time.Second)
	exchange()
	if client.disconnected+server.disconnected != 0 {
		t.Errorf("the client was disconnected %d times, the server %d", client.disconnected, server.disconnected)
	}
}

// startingPSN returns the PSN that a REQ or REP has packets begin with; 0 for others.
func startingPSN(b []byte) uint32 {
	req, rep := new(mad.REQ), new(mad.REP)
	switch {
	case req.Decode(b) == nil:
		return req.StartingPSN
	case rep.Decode(b) == nil:
		return rep.StartingPSN
	}
	return 0
}
