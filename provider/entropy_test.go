package provider_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestEntropy is roce.md 1: a queue pair's packets have a UDP source port that
// follows from its number and its peer's, so that a switch that spreads flows
// spreads connections and keeps each in order.
func TestEntropy(t *testing.T) {
	w := newWorld(t)
	ports := map[uint32]uint16{} // by destination
	w.network.Tap(func(_ time.Duration, packet []byte) {
		var p roce.Received
		if err := new(roce.Verifier).DecodeIP(packet, &p); err != nil {
			t.Fatal(err)
		}
		port := binary.BigEndian.Uint16(packet[20:])
		if before, ok := ports[p.Header.DestQPN]; ok && before != port {
			t.Errorf("packets for QP %#x leave from ports %#x and %#x", p.Header.DestQPN, before, port)
		}
		ports[p.Header.DestQPN] = port
	})
	different := map[uint16]bool{}
	for i := range 4 {
		if i == 0 {
			w.connect()
		} else {
			w.rejoin()
		}
		client, server := w.hosts[0], w.hosts[1]
		w.want(client.qp.Write(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
		client.result(success)
		for _, ends := range [2][2]*host{{client, server}, {server, client}} {
			from, to := ends[0].qp.Number(), ends[1].qp.Number()
			// The simulated carrier has a port for every hash.
			if got, want := ports[to], 0xC000|uint16(roce.FlowLabel(from, to)); got != want {
				t.Errorf("from QP %#x to QP %#x: port %#x, not %#x", from, to, got, want)
			}
			different[ports[to]] = true
		}
	}
	if len(different) < 3 {
		t.Errorf("%d ports for 4 connections", len(different))
	}
}
