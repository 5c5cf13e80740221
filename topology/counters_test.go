package topology_test

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
	"github.com/ndklab/ndklab/topology"
)

// Files know all counters that adapters have, and no others.
func TestCounters(t *testing.T) {
	pid := os.Getpid()
	carrier, err := udp.Open(udp.Config{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{127, 61, byte(pid >> 8), byte(pid)})}})
	if err != nil {
		t.Fatal(err)
	}
	dcqcn := congestion.ConnectX()
	dcqcn.SlowRestart = true
	device, err := provider.NewMiniport(provider.Config{
		Carrier: carrier, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(1, 2)), Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(),
		Congestion: congestion.Config{Algorithm: congestion.WithDCQCN, DCQCN: dcqcn},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	want := slices.AppendSeq(slices.Collect(maps.Keys(device.Counters().Map())), maps.Keys(device.TransportCounters()))
	got := slices.DeleteFunc(topology.Counters(), func(name string) bool { return strings.Contains(name, "_prio") }) // of a simulation
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-adapter +files):\n%s", diff)
	}
}
