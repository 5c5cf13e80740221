package provider_test

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider/rc"
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// TestCredit: what queue pairs may have in flight on a path that nothing is known
// of is what the receive buffer at the other end holds, and they share it.
func TestCredit(t *testing.T) {
	w, gates := newGatedWorld(t)
	gates[1].change = func(p *roce.Received) {
		if p.Header.DestQPN != mad.QPN {
			p.Header.DestQPN = 0 // nobody answers
		}
	}
	sent := 0
	w.network.Tap(func(_ time.Duration, packet []byte) {
		var p roce.Received
		if err := new(roce.Verifier).DecodeIP(packet, &p); err != nil {
			t.Fatal(err)
		}
		if p.Header.Opcode.IsWrite() {
			sent++
		}
	})
	const payload = 4096
	capacity := w.network.Attach(mtu).ReceiveBuffer()
	for busy := 1; busy <= 4; busy++ {
		if busy == 1 {
			w.connect()
		} else {
			w.rejoin()
		}
		client, server := w.hosts[0], w.hosts[1]
		sent = 0
		w.want(client.qp.Write(nil, client.at(0, 1<<20), base, server.mr.RemoteToken(), 0), success)
		if want := capacity / busy / (payload + rc.PacketOverhead); sent != want {
			t.Errorf("%d packets sent at once with %d queue pairs at it, want %d", sent, busy, want)
		}
	}
	gates[1].change = nil
}
