package mmu

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"pgregory.net/rapid"
)

// TestHeadroomSuffices: with the headroom that Headroom returns nothing is lost, and as much of it is
// used as possible when frame and packets just miss each other, give or take a packet.
func TestHeadroomSuffices(t *testing.T) {
	most, headroom := int64(0), Headroom(40e9, delay, 0, onWire)
	rapid.Check(t, func(rt *rapid.T) {
		hosts := rapid.IntRange(2, 6).Draw(rt, "hosts")
		n := incast(t, hosts, 40, 1<<20, nil)
		for h := range hosts {
			f := n.add(1+h, 1+hosts, 1_000_000, nil, congestion.CNP{})
			f.start = time.Duration(rapid.IntRange(0, 1000).Draw(rt, "start"))
			// The frames have to wait for packets that go the other way.
			n.add(1+hosts, 1+h, 500_000, nil, congestion.CNP{}).start = time.Duration(rapid.IntRange(0, 1000).Draw(rt, "back"))
		}
		n.run(time.Second)
		if n.dropped() != 0 {
			rt.Fatalf("dropped %v", n.drops)
		}
		for i, f := range n.flows {
			if f.doneAt == 0 {
				rt.Fatalf("flow %d is not done", i)
			}
		}
		for h := range hosts {
			most = max(most, n.switches[0].Counters(n.now, h, data).HeadroomPeak)
		}
	})
	t.Logf("%d bytes of headroom used of %d", most, headroom)
	if most < headroom-2*onWire {
		t.Errorf("%d bytes of headroom used of %d: more than is needed", most, headroom)
	}
}

// TestLessHeadroomDrops: with two packets less a lossless class loses some.
func TestLessHeadroomDrops(t *testing.T) {
	n := incast(t, 16, 10, 12<<20, func(_ int, c *Config) {
		for i := range c.Ports {
			c.Ports[i].Classes[data].Headroom -= 2 * onWire
		}
	})
	for h := range 16 {
		n.add(1+h, 17, 1<<20, nil, congestion.CNP{})
	}
	n.run(time.Second)
	if n.drops[NoHeadroom] == 0 || n.dropped() != n.drops[NoHeadroom] {
		t.Errorf("dropped %v, want some for want of headroom", n.drops)
	}
}
