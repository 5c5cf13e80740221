package provider_test

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// TestAddressGetters: every function that gives an address in a buffer does so
// alike.
func TestAddressGetters(t *testing.T) {
	for _, family := range []struct {
		name      string
		addresses [2]netip.Addr
		size      uint32
	}{{"IPv4", addresses, 16}, {"IPv6", addresses6, 28}} {
		w := newWorldOf(t, family.addresses, provider.DefaultAdapterInfo())
		client, server := w.connect()
		shared := netip.AddrPortFrom(client.address, 5000)
		for _, getter := range []struct {
			name string
			get  func(*netip.AddrPort, *uint32) provider.Status
			want netip.AddrPort
		}{
			{"connector, local", client.conn.GetLocalAddress, must(client.conn.LocalAddress())},
			{"connector, peer", client.conn.GetPeerAddress, server.service()},
			{"accepted connector, local", server.conn.GetLocalAddress, server.service()},
			{"accepted connector, peer", server.conn.GetPeerAddress, must(client.conn.LocalAddress())},
			{"listener", server.listener.GetLocalAddress, server.service()},
			{"shared endpoint", client.share(shared).GetLocalAddress, shared},
		} {
			t.Run("NDK-CONN-34 "+family.name+" "+getter.name+", too small", func(t *testing.T) {
				before := addr("192.0.2.1:1")
				for _, given := range []uint32{0, 1, family.size - 1} {
					address, length := before, given
					if got := getter.get(&address, &length); got != provider.StatusBufferTooSmall || length != family.size || address != before {
						t.Errorf("%d bytes: %v, %d bytes needed, %v", given, got, length, address)
					}
				}
				for _, given := range []uint32{0, family.size} { // 0 to learn the size
					length := given
					if got := getter.get(nil, &length); got != provider.StatusBufferTooSmall || length != family.size {
						t.Errorf("no buffer: %v, %d bytes needed", got, length)
					}
				}
			})
			t.Run("NDK-CONN-35 "+family.name+" "+getter.name+", large enough", func(t *testing.T) {
				for _, given := range []uint32{family.size, family.size + 1, 128} {
					var address netip.AddrPort
					length := given
					if got := getter.get(&address, &length); got != success || length != family.size || address != getter.want {
						t.Errorf("%d bytes: %v, %d bytes written, %v, want %v", given, got, length, address, getter.want)
					}
				}
			})
		}
	}
	t.Run("NDK-CONN-34 no address yet", func(t *testing.T) {
		w := newWorld(t)
		c := w.hosts[0].newConnector()
		l := track(w.hosts[0], must(w.hosts[0].CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
		for _, get := range []func(*netip.AddrPort, *uint32) provider.Status{c.GetLocalAddress, c.GetPeerAddress, l.GetLocalAddress} {
			address, length := netip.AddrPort{}, uint32(28)
			w.want(get(&address, &length), provider.StatusInvalidDeviceState)
		}
	})
}
