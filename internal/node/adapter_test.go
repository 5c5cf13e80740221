package node

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// onLoopback is a node with an adapter but no link.
func onLoopback() Config {
	return Config{Lab: "l", Name: "n", Seed: 1, Interfaces: []Interface{{Name: "lo", MTU: 65536, Addresses: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("fe80::1/64")}}}}
}

// TestWorkload runs a workload on one node, over its loopback interface, and
// finds it in the counters.
func TestWorkload(t *testing.T) {
	a, log := started(t, onLoopback())
	spec := workload.Spec{Name: "w", Operation: topology.Write, Size: 10000, Depth: 4, Count: 100, Verify: true, Seed: 7}
	at := netip.MustParseAddrPort("10.0.0.1:7000")
	if err := a.Workloads.Serve(t.Context(), spec, at); err == nil || err.Error() != "node n: the node has no adapter: it has no address" {
		t.Errorf("before it is up: %v", err)
	}
	if c, err := a.Counters(t.Context()); len(c.NDK) > 0 || err != nil {
		t.Errorf("counters before it is up: %v, %v", c, err)
	}
	if err := a.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Workloads.Serve(t.Context(), spec, at); err != nil {
		t.Fatal(err)
	}
	if err := a.Workloads.Serve(t.Context(), spec, at); err == nil {
		t.Error("served twice")
	}
	result, err := a.Workloads.Run(t.Context(), spec, at.Addr(), at)
	if err != nil || result.Messages != spec.Count || result.Errors != 0 || result.Bytes != spec.Count*spec.Size {
		t.Errorf("client: %+v, %v", result, err)
	}
	found, err := a.Workloads.Unserve(t.Context(), spec.Name, 0)
	if err != nil || found.Verified != spec.Count || found.Mismatches != 0 {
		t.Errorf("server: %+v, %v", found, err)
	}
	if _, err := a.Workloads.Unserve(t.Context(), spec.Name, 0); err == nil {
		t.Error("unserved twice")
	}
	if progress, err := a.Workloads.Progress(t.Context()); len(progress) > 0 || err != nil {
		t.Errorf("progress: %v, %v", progress, err)
	}
	c, err := a.Counters(t.Context())
	if err != nil || c.NDK["Connect"] != 1 || c.NDK["Accept"] != 1 || c.NDK["RDMAOutOctets"] < spec.Count*spec.Size ||
		c.Transport["packets_sent"] < spec.Count {
		t.Errorf("counters: %v, %v", c, err)
	}
	if text := log.text(t); text != "" {
		t.Errorf("log: %s", text)
	}
}

func TestAdapterCannotBeOpened(t *testing.T) {
	cfg := onLoopback()
	cfg.Adapter.MaxReadRequestSge = new(uint32)
	a, _ := started(t, cfg)
	if err := a.Up(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "node n: adapter: ") {
		t.Errorf("got %v", err)
	}
}

func TestAddresses(t *testing.T) {
	cfg := onLoopback()
	var got []string
	for _, a := range cfg.addresses() {
		got = append(got, a.Address.String())
	}
	if diff := cmp.Diff([]string{"10.0.0.1", "fd00::1"}, got); diff != "" {
		t.Error(diff)
	}
}
