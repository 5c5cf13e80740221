package provider_test

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

func TestRoutes(t *testing.T) {
	for name, want := range map[string]provider.Status{
		"NDK-CONN-11 no route to the network": provider.StatusNetworkUnreachable,
		"NDK-CONN-11 no route to the host":    provider.StatusHostUnreachable,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.hosts[0], w.hosts[1]
			var delivered *provider.Connector
			server.listen(ignore(&delivered))
			to := netip.PrefixFrom(server.address, 32)
			w.network.Route(to, want)
			from := client.share(addr("10.0.0.1:5001"))
			client.conn = client.newConnector()
			for range 2 { // nothing stays in use
				w.want(client.dialFrom(client.conn, client.qp, addr("10.0.0.1:5000"), server.service()).returned, want)
				w.want(client.dialShared(client.conn, client.qp, from, server.service()).returned, want)
			}
			w.settle()
			if delivered != nil {
				t.Fatal("a request was delivered all the same")
			}
			w.counted(t, provider.Counters{ConnectFailure: 4}, provider.Counters{}) // NDK-CNT-03

			// NDK-CONN-13: once there is a route, the same connector connects.
			w.network.Route(to, success)
			w.finish(server.close(server.listener))
			var accepted *async
			server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
			w.want(w.finish(client.dialShared(client.conn, client.qp, from, server.service())), success)
			w.want(client.complete(), success)
			w.want(w.finish(accepted), success)
		})
	}
}
