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
	// No two numbers alike.
	w.another(client)
	for range 2 {
		client.newCQ(1)
	}
	for range 3 {
		client.newQP()
	}
	for range 4 {
		track(client, must(client.pd.CreateMR(false, nil, nil)))
	}
	for range 6 {
		track(client, must(client.pd.CreateMW(nil, nil)))
		client.newSRQ(0)
	}
	client.newSRQ(0)
	want.Instances, want.Pds, want.Cqs, want.Qps, want.Mrs, want.Mws, want.Srqs = 2, 2, 4, 5, 6, 6, 7
	if got := client.device.Usage(); got != want {
		t.Errorf("with other objects: %+v, want %+v", got, want)
	}
	client.device.WithoutQPNs(func() {
		if _, status := client.pd.CreateQP(client.cq, client.cq, nil, 1, 1, 1, 1, 0, nil, nil); status != provider.StatusInsufficientResources {
			t.Errorf("without a number: %v", status)
		}
	})
	if got := client.device.Usage(); got != want {
		t.Errorf("after a create that failed: %+v, want %+v", got, want)
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
