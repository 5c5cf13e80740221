package provider_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/provider"
)

// TestUsage counts what two hosts have, before and after they are connected.
func TestUsage(t *testing.T) {
	w := newWorldWith(t, addresses, func(c *provider.Config) {
		// READs are counted where they are limited.
		c.Capabilities.MaxInboundReadLimit, c.Capabilities.MaxOutboundReadLimit = 100, 100
	})
	want := provider.Usage{Instances: 1, Qps: 1, Cqs: 1, Mrs: 1, Pds: 1}
	if got := w.hosts[0].device.Usage(); got != want {
		t.Errorf("before: %+v, want %+v", got, want)
	}
	client, server := w.connect()
	want.InboundReads, want.OutboundReads = 16, 16
	for _, h := range []*host{client, server} {
		if got := h.device.Usage(); got != want {
			t.Errorf("connected: %+v, want %+v", got, want)
		}
	}
	w.another(client)
	want.Instances, want.Qps, want.Cqs, want.Mrs, want.Pds = 2, 2, 2, 2, 2
	if got := client.device.Usage(); got != want {
		t.Errorf("with another instance: %+v, want %+v", got, want)
	}
}

// TestActiveAddresses has the frame size of the configuration and that of the
// interface, whichever is less.
func TestActiveAddresses(t *testing.T) {
	for _, test := range []struct {
		configured uint32
		want       int
	}{{0, 4096}, {4096, 4096}, {1024, 1024}} {
		w := newWorldWith(t, addresses, func(c *provider.Config) { c.Configuration.NetworkDirectRoCEFrameSize = test.configured })
		want := []provider.ActiveAddress{{Address: addresses[0], MTU: mtu, FrameSize: test.want}}
		got := w.hosts[0].device.ActiveAddresses()
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b provider.ActiveAddress) bool { return a == b })); diff != "" {
			t.Errorf("configured %d: %s", test.configured, diff)
		}
	}
}
