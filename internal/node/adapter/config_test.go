package adapter

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// adapterOf is the adapter of a topology whose one node has the given adapter
// block.
func adapterOf(t *testing.T, block string) *topology.Adapter {
	t.Helper()
	file := "topology: {nodes: {a: {adapter: {" + block + "}}}}"
	topo, err := topology.Parse("test.ndklab.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return &topo.Nodes[0].Adapter
}

// startable starts and ends a device with a configuration, on a network of its
// own.
func startable(cfg provider.Config) error {
	c := clock.NewVirtual()
	cfg.Carrier = sim.NewNetwork(c, &sim.Impaired{}).Attach(4200, netip.MustParseAddr("10.0.0.1"))
	cfg.Clock, cfg.Rand = c, rand.New(rand.NewPCG(1, 2))
	m, err := provider.NewMiniport(cfg)
	if err != nil {
		return err
	}
	m.BeginClose(func() {})
	c.Run(0)
	return nil
}

// adapterKeys are the keys of an adapter block that have a range: both of its
// ends, as files write them, and what the device's configuration then has.
var adapterKeys = []struct {
	key         string
	least, most string
	min, max    any
	of          func(*provider.Config) any
}{
	{"max_registration_size", "1B", "256TiB", uint64(1), uint64(1 << 48), func(c *provider.Config) any { return c.Info.MaxRegistrationSize }},
	{"max_window_size", "0B", "256TiB", uint64(0), uint64(1 << 48), func(c *provider.Config) any { return c.Info.MaxWindowSize }},
	{"frmr_page_count", "16", "1048576", uint32(16), uint32(1 << 20), func(c *provider.Config) any { return c.Info.FRMRPageCount }},
	{"max_initiator_request_sge", "1", "256", uint32(1), uint32(256), func(c *provider.Config) any { return c.Info.MaxInitiatorRequestSge }},
	{"max_receive_request_sge", "1", "256", uint32(1), uint32(256), func(c *provider.Config) any { return c.Info.MaxReceiveRequestSge }},
	{"max_read_request_sge", "1", "256", uint32(1), uint32(256), func(c *provider.Config) any { return c.Info.MaxReadRequestSge }},
	{"max_transfer_length", "1B", "2GiB", uint32(1), uint32(1 << 31), func(c *provider.Config) any { return c.Info.MaxTransferLength }},
	{"max_inline_data_size", "0B", "64KiB", uint32(0), uint32(64 << 10), func(c *provider.Config) any { return c.Info.MaxInlineDataSize }},
	{"max_inbound_read_limit", "0", "255", uint32(0), uint32(255), func(c *provider.Config) any { return c.Info.MaxInboundReadLimit }},
	{"max_outbound_read_limit", "0", "255", uint32(0), uint32(255), func(c *provider.Config) any { return c.Info.MaxOutboundReadLimit }},
	{"max_receive_queue_depth", "1", "1048576", uint32(1), uint32(1 << 20), func(c *provider.Config) any { return c.Info.MaxReceiveQueueDepth }},
	{"max_initiator_queue_depth", "1", "1048576", uint32(1), uint32(1 << 20), func(c *provider.Config) any { return c.Info.MaxInitiatorQueueDepth }},
	{"max_srq_depth", "0", "1048576", uint32(0), uint32(1 << 20), func(c *provider.Config) any { return c.Info.MaxSrqDepth }},
	{"max_cq_depth", "1", "67108864", uint32(1), uint32(1 << 26), func(c *provider.Config) any { return c.Info.MaxCqDepth }},
	{"large_request_threshold", "0B", "4294967295B", uint32(0), uint32(1<<32 - 1), func(c *provider.Config) any { return c.Info.LargeRequestThreshold }},
	{"max_caller_data", "0B", "56B", uint32(0), uint32(56), func(c *provider.Config) any { return c.Info.MaxCallerData }},
	{"max_callee_data", "0B", "148B", uint32(0), uint32(148), func(c *provider.Config) any { return c.Info.MaxCalleeData }},
	{"vendor_id", "0", "0xFFFFFF", uint32(0), uint32(1<<24 - 1), func(c *provider.Config) any { return c.Info.VendorID }},
	{"device_id", "0", "4294967295", uint32(0), uint32(1<<32 - 1), func(c *provider.Config) any { return c.Info.DeviceID }},

	{"in_order_dma_supported", "false", "true", false, true, hasFlag(provider.AdapterInOrderDMA)},
	{"rdma_read_sink_not_required", "false", "true", false, true, hasFlag(provider.AdapterReadSinkNotRequired)},
	{"cq_interrupt_moderation_supported", "false", "true", false, true, hasFlag(provider.AdapterCQInterruptModeration)},
	{"multi_engine_supported", "false", "true", false, true, hasFlag(provider.AdapterMultiEngine)},
	{"rdma_read_local_invalidate_supported", "false", "true", false, true, hasFlag(provider.AdapterReadLocalInvalidate)},
	{"cq_resize_supported", "false", "true", false, true, hasFlag(provider.AdapterCQResize)},
	{"loopback_connections_supported", "false", "true", false, true, hasFlag(provider.AdapterLoopbackConnections)},

	{"max_qp_count", "1", "262144", uint32(1), uint32(1 << 18), func(c *provider.Config) any { return c.Capabilities.MaxQpCount }},
	{"max_cq_count", "1", "16777216", uint32(1), uint32(1 << 24), func(c *provider.Config) any { return c.Capabilities.MaxCqCount }},
	{"max_mr_count", "1", "16777216", uint32(1), uint32(1 << 24), func(c *provider.Config) any { return c.Capabilities.MaxMrCount }},
	{"max_pd_count", "1", "16777216", uint32(1), uint32(1 << 24), func(c *provider.Config) any { return c.Capabilities.MaxPdCount }},
	{"max_mw_count", "0", "16777216", uint32(0), uint32(1 << 24), func(c *provider.Config) any { return c.Capabilities.MaxMwCount }},
	{"max_srq_count", "0", "16777216", uint32(0), uint32(1 << 24), func(c *provider.Config) any { return c.Capabilities.MaxSrqCount }},
	{"system_max_inbound_read_limit", "0", "1048576", uint32(0), uint32(1 << 20), func(c *provider.Config) any { return c.Capabilities.MaxInboundReadLimit }},
	{"system_max_outbound_read_limit", "0", "1048576", uint32(0), uint32(1 << 20), func(c *provider.Config) any { return c.Capabilities.MaxOutboundReadLimit }},

	{"network_direct", "false", "true", uint32(0), uint32(1), func(c *provider.Config) any { return c.Configuration.NetworkDirect }},
	{"roce_frame_size", "256", "4096", uint32(256), uint32(4096), func(c *provider.Config) any { return c.Configuration.NetworkDirectRoCEFrameSize }},
	{"receive_buffer", "16KiB", "128MiB", uint32(16 << 10), uint32(128 << 20), func(c *provider.Config) any { return c.ReceiveBuffer }},
	{"go_back_n", "false", "true", false, true, func(c *provider.Config) any { return c.GoBackN }},
	{"reorder_buffer", "64KiB", "1GiB", uint32(64 << 10), uint32(1 << 30), func(c *provider.Config) any { return c.ReorderBuffer }},
	{"pend", "false", "true", false, true, func(c *provider.Config) any { return c.Pend }},

	{"congestion", "window", "none", congestion.Window, congestion.None, func(c *provider.Config) any { return c.Congestion.Algorithm }},
	{"dscp", "0", "63", uint8(0), uint8(63), func(c *provider.Config) any { return c.Congestion.DSCP }},
}

func hasFlag(f provider.AdapterFlags) func(*provider.Config) any {
	return func(c *provider.Config) any { return c.Info.AdapterFlags&f != 0 }
}

// TestAdapterConfig sets each key to both ends of its range: a device starts
// with it, and has it.
func TestAdapterConfig(t *testing.T) {
	if n := reflect.TypeFor[topology.Adapter]().NumField(); n != len(adapterKeys)+7 { // DCQCN, DCTCP, BDP and CNP are in congestion_test.go; PFC, ReceiveRate and Turnaround are for the network
		t.Errorf("topology.Adapter has %d fields, but %d are tested", n, len(adapterKeys)+7)
	}
	for _, k := range adapterKeys {
		for value, want := range map[string]any{k.least: k.min, k.most: k.max} {
			cfg := Config(adapterOf(t, k.key+": "+value))
			if got := k.of(&cfg); got != want {
				t.Errorf("%s: %s makes %v, want %v", k.key, value, got, want)
			}
			if err := startable(cfg); err != nil {
				t.Errorf("%s: %s: %v", k.key, value, err)
			}
		}
	}
}

// TestEveryKeyAtOnce has each key at either end of its range together with all
// others.
func TestEveryKeyAtOnce(t *testing.T) {
	for _, most := range []bool{false, true} {
		var block []string
		for _, k := range adapterKeys {
			value := k.least
			if most {
				value = k.most
			}
			block = append(block, k.key+": "+value)
		}
		if err := startable(Config(adapterOf(t, strings.Join(block, ", ")))); err != nil {
			t.Errorf("most %v: %v", most, err)
		}
	}
}

// TestAdapterDefaults sets nothing.
func TestAdapterDefaults(t *testing.T) {
	cfg := Config(&topology.Adapter{})
	if diff := cmp.Diff(provider.DefaultAdapterInfo(), cfg.Info); diff != "" {
		t.Errorf("info: %s", diff)
	}
	if diff := cmp.Diff(provider.DefaultCapabilities(), cfg.Capabilities); diff != "" {
		t.Errorf("capabilities: %s", diff)
	}
	want := provider.DefaultConfiguration()
	want.NetworkDirectRoCEFrameSize = 0 // the largest that the link allows
	if diff := cmp.Diff(&want, cfg.Configuration); diff != "" {
		t.Errorf("configuration: %s", diff)
	}
	if cfg.ReceiveBuffer != provider.DefaultReceiveBuffer {
		t.Errorf("a receive buffer of %d bytes", cfg.ReceiveBuffer)
	}
	if diff := cmp.Diff(congestion.Config{}, cfg.Congestion); diff != "" {
		t.Errorf("congestion control: %s", diff)
	}
	if cfg.Pend || cfg.GoBackN {
		t.Errorf("creates pend: %v; go-back-N: %v", cfg.Pend, cfg.GoBackN)
	}
}

// TestDefaultsGiveWay has limits that depend on each other, of which one is set.
func TestDefaultsGiveWay(t *testing.T) {
	const initiator, read = 30, 30 // the defaults
	for _, test := range []struct {
		block           string
		initiator, read uint32
	}{
		{"max_initiator_request_sge: 8", 8, 8},
		{"max_initiator_request_sge: 40", 40, read},
		{"max_read_request_sge: 40", 40, 40},
		{"max_read_request_sge: 8", initiator, 8},
		{"max_read_request_sge: 4, max_initiator_request_sge: 5", 5, 4},
	} {
		cfg := Config(adapterOf(t, test.block))
		if i := &cfg.Info; i.MaxInitiatorRequestSge != test.initiator || i.MaxReadRequestSge != test.read {
			t.Errorf("%s: initiator %d, read %d", test.block, i.MaxInitiatorRequestSge, i.MaxReadRequestSge)
		}
		if err := startable(cfg); err != nil {
			t.Errorf("%s: %v", test.block, err)
		}
	}
	for _, block := range []string{"max_srq_depth: 0", "max_srq_count: 0"} {
		if err := startable(Config(adapterOf(t, block))); err != nil {
			t.Errorf("%s: %v", block, err)
		}
	}
}

// TestExample has the example that shows every key show its default.
func TestExample(t *testing.T) {
	const file = "../../../examples/adapter.ndklab.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range adapterKeys {
		if !strings.Contains(string(text), " "+k.key+": ") {
			t.Errorf("%s is missing", k.key)
		}
	}
	topo, err := topology.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}
	want, got := Config(&topology.Adapter{}), Config(&topo.FindNode("tuned").Adapter)
	if diff := cmp.Diff(want.Info, got.Info) + cmp.Diff(want.Capabilities, got.Capabilities) + cmp.Diff(want.Configuration, got.Configuration) + cmp.Diff(want.Congestion, got.Congestion); diff != "" || got.Pend || got.ReceiveBuffer != want.ReceiveBuffer {
		t.Errorf("-default +example:\n%s", diff)
	}
}
