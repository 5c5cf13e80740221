package provider_test

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
)

// TestReorderBuffer: what all queue pairs of a device together keep of early packets is
// bounded by its configuration. Packets that find no room are counted, and sent again.
func TestReorderBuffer(t *testing.T) {
	const size, queuePairs = 256 << 10, 8
	var gates []*gate
	w := newWorldWith(t, addresses, func(cfg *provider.Config) {
		cfg.ReorderBuffer = size
		gates = append(gates, &gate{Carrier: cfg.Carrier})
		cfg.Carrier = gates[len(gates)-1]
	})
	client, server := w.connect()
	// The client does not hear of packets that it has not sent.
	gates[0].change = func(p *roce.Received) {
		if p.Header.Opcode == roce.SelectiveAcknowledge {
			p.Header.Opcode, p.Header.Syndrome = roce.Acknowledge, roce.SyndromeACK
			p.Header.PSN = roce.PSNAdd(p.Header.PSN, -1)
		}
	}
	payload := make([]byte, server.device.ActiveAddresses()[0].FrameSize)
	gates[1].keep = true
	for i := range queuePairs {
		if i > 0 {
			gates[1].keep = false
			w.rejoin()
			gates[1].keep = true
		}
		server.receive(1)
		w.want(client.qp.Send(nil, nil, 0), success)
		w.clock.Run(100 * time.Microsecond)
		first := gates[1].kept[0]
		gates[1].kept = nil
		for ahead := range 100 {
			p := first
			p.Header.PSN = roce.PSNAdd(p.Header.PSN, 2+ahead)
			p.Header.Opcode, p.Payload = roce.SendMiddle, payload
			gates[1].kept = append(gates[1].kept, p)
		}
		gates[1].open()
		client.result(success) // sent again
		server.result(success)
		if held := server.device.ReorderBuffer(); held > size || held < size/2 && i > 2 {
			t.Fatalf("%d queue pairs hold %d bytes of %d", i+1, held, size)
		}
	}
	counted := server.device.TransportCounters()
	if counted["early_dropped"] == 0 || counted["bad_length"] != 0 {
		t.Errorf("%d packets found no room, %d had a wrong length", counted["early_dropped"], counted["bad_length"])
	}
}

// TestDatagramOfWrongLength: a management datagram has 256 bytes.
func TestDatagramOfWrongLength(t *testing.T) {
	for _, n := range []int{0, mad.Size - 1, mad.Size + 1, 1 << 16} {
		w, gates := newGatedWorld(t)
		gates[1].change = func(p *roce.Received) {
			p.Payload = append(p.Payload, make([]byte, 1<<16)...)[:n]
		}
		client, server := w.hosts[0], w.hosts[1]
		server.listen(nil)
		client.conn = client.newConnector()
		client.dial(client.conn, server)
		w.clock.Run(50 * time.Millisecond)
		if got := server.device.TransportCounters()["bad_length"]; got != 1 {
			t.Errorf("%d bytes: %d of a wrong length", n, got)
		}
		gates[1].change = nil
	}
}
