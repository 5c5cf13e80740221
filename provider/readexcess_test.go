package provider_test

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
)

// TestReadExcess is roce.md 7.1, 5 and NDK-RL-07 at the other end: a peer that has
// more READs outstanding than was agreed is refused, and one that has as many is
// not.
func TestReadExcess(t *testing.T) {
	for _, reads := range []int{2, 3} {
		w, gates := newGatedWorld(t)
		gates[1].change = func(p *roce.Received) {
			var request mad.REQ
			if p.Header.DestQPN == mad.QPN && request.Decode(p.Payload) == nil {
				request.InitiatorDepth = 2
				request.ECE = mad.ECE{} // as from a peer of another make
				p.Payload = request.Append(nil)
			}
		}
		gates[0].change = func(p *roce.Received) {
			var reply mad.REP
			if p.Header.DestQPN == mad.QPN && reply.Decode(p.Payload) == nil {
				if reply.ResponderResources != 2 {
					t.Errorf("agrees to %d READs", reply.ResponderResources)
				}
				reply.ResponderResources = 16
				p.Payload = reply.Append(nil)
			}
		}
		client, server := w.connect()
		gates[1].keep = true
		for i := range reads {
			w.want(client.qp.Read(i, client.at(100*i, 100), base, server.mr.RemoteToken(), 0), success)
		}
		w.clock.Run(100 * time.Microsecond)
		gates[1].open() // all at once
		for i := range reads {
			want := success
			if i == 2 {
				want = provider.StatusRemoteResources
			}
			client.result(want)
		}
	}
}
