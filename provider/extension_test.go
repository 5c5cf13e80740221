package provider_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
)

// TestSelectiveIsAgreedOn: what only our own devices know is on the wire if both
// ends want it, and otherwise nothing of it but the offer. Under loss everything
// arrives either way.
func TestSelectiveIsAgreedOn(t *testing.T) {
	for _, goBackN := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("go-back-N %v", goBackN), func(t *testing.T) {
			w := newEmptyWorld(t)
			for i, address := range addresses {
				cfg := w.config(w.network.Attach(mtu, address))
				cfg.GoBackN = goBackN[i]
				w.hosts[i] = w.equip(w.start(cfg), address)
				w.hosts[i].fill(i)
			}
			ours, offers, consents := 0, 0, 0
			var verifier roce.Verifier
			w.network.Tap(func(_ time.Duration, packet []byte) {
				var p roce.Received
				if verifier.DecodeIP(packet, &p) != nil {
					t.Error("a packet that cannot be decoded")
				}
				var req mad.REQ
				var rep mad.REP
				switch {
				case p.Header.Opcode == roce.SelectiveAcknowledge:
					ours++
				case p.Header.Opcode != roce.UDSendOnly:
				case req.Decode(p.Payload) == nil && req.ECE != mad.ECE{}:
					offers++
				case rep.Decode(p.Payload) == nil && rep.ECE != mad.ECE{}:
					consents++
				}
			})
			client, server := w.connect()
			w.path.Rand = rand.New(rand.NewPCG(7, 7))
			w.path.Loss = 0.05
			const size = 300_001
			w.want(client.qp.Write(nil, client.at(0, size), base, server.mr.RemoteToken(), 0), provider.StatusSuccess)
			client.result(success)
			if !bytes.Equal(client.memory[:size], server.memory[:size]) {
				t.Error("the data differ")
			}
			w.path.Loss = 0
			w.settle()
			both := !goBackN[0] && !goBackN[1]
			if (ours > 0) != both || (offers > 0) != !goBackN[0] || (consents > 0) != both {
				t.Errorf("%d packets of our own, %d offers, %d consents", ours, offers, consents)
			}
		})
	}
}

// TestEchoIsNoConsent: librdmacm answers a REQ with the vendor that it names, and
// a peer may send back the rest as well.
func TestEchoIsNoConsent(t *testing.T) {
	offer, consent := provider.Extensions()
	if offer == consent || consent.Options == 0 || offer.Vendor != consent.Vendor {
		t.Errorf("the offer is %+v, the consent %+v", offer, consent)
	}
}
