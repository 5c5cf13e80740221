package provider_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestMisdirected is roce.md 1, 2.1, 3.2 and 7.1, step 1: what makes a packet a
// queue pair's, and what does not matter. A packet that is nobody's is dropped
// without an answer, and its message arrives when it is sent again as it should be.
func TestMisdirected(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*roce.Received)
		taken   bool
		counted string // where the loss shows, if it does
	}{
		{"as it is", func(*roce.Received) {}, true, ""},
		{"another UDP source port", func(p *roce.Received) { p.Flow.SourcePort = 0 }, true, ""},
		{"MigReq, as hardware sets it", func(p *roce.Received) { p.Header.MigReq = true }, true, ""},
		{"FECN", func(p *roce.Received) { p.Header.FECN = true }, true, ""},
		{"BECN", func(p *roce.Received) { p.Header.BECN = true }, true, ""},
		{"from another address", func(p *roce.Received) { p.Flow.Remote = netip.MustParseAddr("10.0.0.7") }, false, "misdirected"},
		{"from our own address", func(p *roce.Received) { p.Flow.Remote = p.Flow.Local }, false, "misdirected"},
		{"to another address", func(p *roce.Received) { p.Flow.Local = netip.MustParseAddr("10.0.0.7") }, false, "misdirected"},
		{"to another queue pair", func(p *roce.Received) { p.Header.DestQPN ^= 1 << 12 }, false, "unknown_qp"},
		{"to QP 0", func(p *roce.Received) { p.Header.DestQPN = 0 }, false, "unknown_qp"},
		{"to the multicast QP", func(p *roce.Received) { p.Header.DestQPN = 0xFFFFFF }, false, "unknown_qp"},
		{"to QP 1", func(p *roce.Received) { p.Header.DestQPN = 1 }, false, "misdirected"},
		{"a UD packet", func(p *roce.Received) { p.Header.Opcode, p.Header.QKey = roce.UDSendOnly, 0x80010000 }, false, "misdirected"},
		{"a CNP", func(p *roce.Received) { p.Header.Opcode, p.Header.PSN, p.Header.BECN = roce.CNP, 0, true }, false, "cnps_received"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, gates := newGatedWorld(t)
			client, server := w.connect()
			before := server.device.TransportCounters()
			gates[1].change = test.change
			answers := 0
			gates[0].change = func(*roce.Received) { answers++ }
			server.receive(1)
			w.want(client.qp.Send(nil, nil, 0), success)
			w.clock.Run(time.Millisecond)
			if (server.cq.Len() > 0) != test.taken || (answers > 0) != test.taken {
				t.Errorf("%d completions and %d answers", server.cq.Len(), answers)
			}
			for name, n := range server.device.TransportCounters() {
				if was := before[name]; slices.Contains([]string{"misdirected", "unknown_qp", "cnps_received"}, name) && (n > was) != (name == test.counted) {
					t.Errorf("%s went from %d to %d", name, was, n)
				}
			}
			gates[0].change, gates[1].change = nil, nil
			client.result(success)
			server.result(success)
		})
	}
}
