package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
)

// TestSlowConsumers: a consumer may take a minute to accept, and another to
// complete, while every fifth packet is lost: the peers are asked for patience
// (roce.md 11, 15.2).
func TestSlowConsumers(t *testing.T) {
	for name, at := range map[string][2]netip.Addr{"IPv4": addresses, "IPv6": addresses6} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, at, provider.DefaultAdapterInfo())
			w.path.Loss = 0.2
			client, server := w.hosts[0], w.hosts[1]
			datagrams := map[mad.Attribute]int{}
			w.network.Tap(func(_ time.Duration, packet []byte) {
				var p roce.Received
				if err := new(roce.Verifier).DecodeIP(packet, &p); err != nil {
					t.Error(err)
				}
				if h, err := mad.DecodeHeader(p.Payload); err == nil {
					datagrams[h.Attribute]++
				}
			})
			var request *provider.Connector
			server.listen(func(c *provider.Connector) { request = c })
			client.conn = client.newConnector()
			dialled := client.dial(client.conn, server)
			w.clock.Run(time.Minute)
			accepted := server.accept(request)
			w.want(w.finish(dialled), success)
			w.clock.Run(time.Minute)
			w.want(client.complete(), success)
			w.want(w.finish(accepted), success)
			if datagrams[mad.AttributeMRA] < 2 || datagrams[mad.AttributeREQ] > 20 || datagrams[mad.AttributeREP] > 20 {
				t.Errorf("datagrams sent: %v", datagrams)
			}
		})
	}
}
