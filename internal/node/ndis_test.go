package node

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// up is an agent with an adapter, on the addresses of onLoopback.
func up(t *testing.T, adapter topology.Adapter) *Agent {
	t.Helper()
	cfg := onLoopback()
	cfg.Adapter = adapter
	a, _ := started(t, cfg)
	if err := a.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAdapter(t *testing.T) {
	a := up(t, topology.Adapter{MaxCqDepth: new(uint32(77)), MaxPdCount: new(uint32(5)), RoCEFrameSize: new(uint32(2048)), ReceiveBuffer: new(uint32(64 << 10))})
	at := netip.MustParseAddrPort("10.0.0.1:7000")
	if err := a.Workloads.Serve(t.Context(), workload.Spec{Name: "w", Operation: topology.Send, Size: 1, Depth: 1}, at); err != nil {
		t.Fatal(err)
	}
	got, err := a.Adapter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &adapter.State{
		Info: provider.DefaultAdapterInfo(), Capabilities: adapter.Capabilities{Capabilities: provider.DefaultCapabilities()},
		Configuration: provider.DefaultConfiguration(), Enabled: true, Instances: 1,
		InUse:         provider.Usage{Cqs: 1, Mrs: 1, Pds: 1},
		ReceiveBuffer: provider.ReceiveBuffer{Asked: 64 << 10, Granted: 64 << 10},
	}
	want.Info.MaxCqDepth, want.Capabilities.MaxPdCount, want.Configuration.NetworkDirectRoCEFrameSize = 77, 5, 2048
	for _, address := range []string{"10.0.0.1", "fd00::1"} {
		want.Addresses = append(want.Addresses, adapter.Address{
			Address: netip.MustParseAddr(address), Interface: "lo", MTU: 65536, RoCEFrameSize: 2048})
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestConnections(t *testing.T) {
	a := up(t, topology.Adapter{})
	spec := workload.Spec{Name: "w", Operation: topology.Send, Size: 1, Depth: 1, Duration: 1 << 40}
	at := netip.MustParseAddrPort("10.0.0.1:7000")
	if err := a.Workloads.Serve(t.Context(), spec, at); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = a.Workloads.Run(t.Context(), spec, at.Addr(), at) }() // which the test's end interrupts
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []adapter.Connection
	for len(got) < 3 || got[0].State != "established" || got[1].State != "established" {
		var err error
		if got, err = a.Connections(ctx); err != nil {
			t.Fatalf("%v; last %+v", err, got)
		}
	}
	active, passive, listener := got[0], got[1], got[2]
	if active.Local == at.String() {
		active, passive = passive, active
	}
	if active.Local != passive.Remote || active.Remote != at.String() || passive.Local != at.String() || active.Type != adapter.ActiveConnection ||
		active.QPN == 0 || active.QPN != passive.RemoteQPN || passive.QPN == 0 || passive.QPN != active.RemoteQPN {
		t.Errorf("the ends do not match: %+v, %+v", active, passive)
	}
	want := adapter.Connection{Mode: "Kernel", Type: adapter.Listener, Interface: "lo", IfIndex: 1, Local: at.String()}
	if listener != want || active.Interface != "lo" || active.IfIndex != 1 {
		t.Errorf("listener %+v, want %+v", listener, want)
	}

	// A monitor is told how many there are, and what is done on them.
	for observed := (Observation{}); len(observed.Workloads) == 0 || observed.Workloads[0].Latency.Count == 0; {
		var err error
		if observed, err = a.Observe(ctx, []int64{1, int64(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]adapter.ConnectionCount{{ConnectionKind: adapter.ConnectionKind{Type: adapter.ActiveConnection, State: "established"}, Count: 2}}, observed.Connections); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		if len(observed.Workloads) != 1 || observed.Workloads[0].Name != "w" || observed.Workloads[0].Clients != 1 || observed.InUse.Qps != 2 || observed.NDK["Connect"] != 1 || observed.Transport["packets_sent"] == 0 {
			t.Fatalf("%+v", observed)
		}
	}
}

// TestSetState disables the adapter under a workload and enables it again, each
// twice.
func TestSetState(t *testing.T) {
	a := up(t, topology.Adapter{})
	spec := workload.Spec{Name: "w", Operation: topology.Send, Size: 1, Depth: 1, Duration: 1 << 40}
	at := netip.MustParseAddrPort("10.0.0.1:7000")
	if err := a.Workloads.Serve(t.Context(), spec, at); err != nil {
		t.Fatal(err)
	}
	change := func(enable bool, want StateChange) {
		t.Helper()
		if got, err := a.SetState(t.Context(), enable); got != want || err != nil {
			t.Errorf("enable %v: %+v, %v, want %+v", enable, got, err, want)
		}
	}
	change(true, StateChange{Was: true, Enabled: true, Open: 1, Left: 1})
	change(false, StateChange{Was: true, Open: 1})
	change(false, StateChange{})
	const refused = "node n: the adapter is disabled: `ndklab adapter l/n --enable` enables it"
	other := spec
	other.Name = "other"
	if err := a.Workloads.Serve(t.Context(), other, at); err == nil || err.Error() != refused {
		t.Errorf("serve: %v", err)
	}
	if _, err := a.Workloads.Run(t.Context(), other, at.Addr(), at); err == nil || err.Error() != refused {
		t.Errorf("run: %v", err)
	}
	if found, err := a.Workloads.Unserve(t.Context(), "w", 0); err != nil || found.Error != "the adapter was disabled" {
		t.Errorf("the server: %+v, %v", found, err)
	}
	change(true, StateChange{Enabled: true})
	if err := a.Workloads.Serve(t.Context(), other, at); err != nil {
		t.Error(err)
	}
}

func TestNetworkDirectOff(t *testing.T) {
	a := up(t, topology.Adapter{NetworkDirect: new(bool)})
	if got, err := a.Adapter(t.Context()); err != nil || got.Enabled || got.Configuration.NetworkDirect != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err := a.SetState(t.Context(), true)
	wantUsage(t, err, "node n: the adapter cannot be enabled: the topology has network_direct: false for it")
	err = a.Workloads.Serve(t.Context(), workload.Spec{Name: "w", Operation: topology.Send, Depth: 1}, netip.MustParseAddrPort("10.0.0.1:7000"))
	wantUsage(t, err, "node n: the adapter is disabled: the topology has network_direct: false for it")
}

// TestNoAdapter asks a node without addresses.
func TestNoAdapter(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	if err := a.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Adapter(t.Context()); got != nil || err != nil {
		t.Errorf("adapter %+v, %v", got, err)
	}
	if got, err := a.Connections(t.Context()); len(got) > 0 || err != nil {
		t.Errorf("connections %+v, %v", got, err)
	}
	if got, err := a.Observe(t.Context(), []int64{1}); got.InUse != nil || got.NDK != nil || err != nil {
		t.Errorf("observed %+v, %v", got, err)
	}
	_, err := a.SetState(t.Context(), false)
	wantUsage(t, err, "node n: the node has no adapter: it has no address")
}

func wantUsage(t *testing.T, err error, text string) {
	t.Helper()
	var e *control.Error
	if !errors.As(err, &e) || e.Code != control.Usage || err.Error() != text {
		t.Errorf("%v, want %s", err, text)
	}
}
