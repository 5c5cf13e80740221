package topology

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// adapterRanges has the range of each key of an adapter block: the field of
// Adapter it sets, both ends of its range as a file and as JSON have them, and
// what lies beyond the ends. Keys that need another are in congestion_test.go.
var adapterRanges = []struct {
	key, field   string
	least, most  string // in a file
	min, max     string // in JSON
	below, above string
}{
	{"max_registration_size", "MaxRegistrationSize", "1B", "256TiB", "1", "281474976710656", "0B", "281474976710657B"},
	{"max_window_size", "MaxWindowSize", "0B", "256TiB", "0", "281474976710656", "-1B", "281474976710657B"},
	{"frmr_page_count", "FRMRPageCount", "16", "1048576", "16", "1048576", "15", "1048577"},
	{"max_initiator_request_sge", "MaxInitiatorRequestSge", "1", "256", "1", "256", "0", "257"},
	{"max_receive_request_sge", "MaxReceiveRequestSge", "1", "256", "1", "256", "0", "257"},
	{"max_read_request_sge", "MaxReadRequestSge", "1", "256", "1", "256", "0", "257"},
	{"max_transfer_length", "MaxTransferLength", "1B", "2GiB", "1", "2147483648", "0B", "2147483649B"},
	{"max_inline_data_size", "MaxInlineDataSize", "0B", "64KiB", "0", "65536", "-1B", "65537B"},
	{"max_inbound_read_limit", "MaxInboundReadLimit", "0", "255", "0", "255", "-1", "256"},
	{"max_outbound_read_limit", "MaxOutboundReadLimit", "0", "255", "0", "255", "-1", "256"},
	{"max_receive_queue_depth", "MaxReceiveQueueDepth", "1", "1048576", "1", "1048576", "0", "1048577"},
	{"max_initiator_queue_depth", "MaxInitiatorQueueDepth", "1", "1048576", "1", "1048576", "0", "1048577"},
	{"max_srq_depth", "MaxSrqDepth", "0", "1048576", "0", "1048576", "-1", "1048577"},
	{"max_cq_depth", "MaxCqDepth", "1", "67108864", "1", "67108864", "0", "67108865"},
	{"large_request_threshold", "LargeRequestThreshold", "0B", "4294967295B", "0", "4294967295", "-1B", "4GiB"},
	{"max_caller_data", "MaxCallerData", "0B", "56B", "0", "56", "-1B", "57B"},
	{"max_callee_data", "MaxCalleeData", "0B", "148B", "0", "148", "-1B", "149B"},
	{"vendor_id", "VendorID", "0x0", "0xFFFFFF", "0", "16777215", "-1", "16777216"},
	{"device_id", "DeviceID", "0", "4294967295", "0", "4294967295", "-0x1", "0x100000000"},

	{"in_order_dma_supported", "InOrderDMASupported", "false", "true", "false", "true", "0", "yes"},
	{"rdma_read_sink_not_required", "RDMAReadSinkNotRequired", "false", "true", "false", "true", "0", "yes"},
	{"cq_interrupt_moderation_supported", "CQInterruptModerationSupported", "false", "true", "false", "true", "0", "yes"},
	{"multi_engine_supported", "MultiEngineSupported", "false", "true", "false", "true", "0", "yes"},
	{"rdma_read_local_invalidate_supported", "RDMAReadLocalInvalidateSupported", "false", "true", "false", "true", "0", "yes"},
	{"cq_resize_supported", "CQResizeSupported", "false", "true", "false", "true", "0", "yes"},
	{"loopback_connections_supported", "LoopbackConnectionsSupported", "false", "true", "false", "true", "0", "yes"},

	{"max_qp_count", "MaxQpCount", "1", "262144", "1", "262144", "0", "262145"},
	{"max_cq_count", "MaxCqCount", "1", "16777216", "1", "16777216", "0", "16777217"},
	{"max_mr_count", "MaxMrCount", "1", "16777216", "1", "16777216", "0", "16777217"},
	{"max_pd_count", "MaxPdCount", "1", "16777216", "1", "16777216", "0", "16777217"},
	{"max_mw_count", "MaxMwCount", "0", "16777216", "0", "16777216", "-1", "16777217"},
	{"max_srq_count", "MaxSrqCount", "0", "16777216", "0", "16777216", "-1", "16777217"},
	{"system_max_inbound_read_limit", "SystemMaxInboundReadLimit", "0", "1048576", "0", "1048576", "-1", "1048577"},
	{"system_max_outbound_read_limit", "SystemMaxOutboundReadLimit", "0", "1048576", "0", "1048576", "-1", "1048577"},

	{"network_direct", "NetworkDirect", "false", "true", "false", "true", "0", "yes"},
	{"roce_frame_size", "RoCEFrameSize", "256", "4096", "256", "4096", "128", "8192"},
	{"receive_buffer", "ReceiveBuffer", "16KiB", "128MiB", "16384", "134217728", "16383B", "134217729B"},
	{"go_back_n", "GoBackN", "false", "true", "false", "true", "0", "yes"},
	{"reorder_buffer", "ReorderBuffer", "64KiB", "1GiB", "65536", "1073741824", "65535B", "1025MiB"},
	{"pend", "Pend", "false", "true", "false", "true", "0", "yes"},

	{"congestion", "Congestion", "window", "bdp", `"window"`, `"bdp"`, "0", "cubic"},
	{"receive_rate", "ReceiveRate", "1kbit", "1tbit", "1000", "1000000000000", "999bit", "1001gbit"},
	{"turnaround", "Turnaround", "0us", "10s", "0", "10000000000", "-1us", "11s"},
	{"dscp", "DSCP", "0", "63", "0", "63", "-1", "64"},
}

// parseAdapter returns the adapter that a file gives the node a: the fields that
// are set, as JSON has them.
func parseAdapter(t *testing.T, file string) map[string]string {
	t.Helper()
	lab, err := Parse("lab.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(lab.FindNode("a").Adapter)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &fields); err != nil {
		t.Fatal(err)
	}
	set := make(map[string]string)
	for name, value := range fields {
		set[name] = string(value)
	}
	return set
}

func TestAdapterKeys(t *testing.T) {
	if n := reflect.TypeFor[Adapter]().NumField(); n != len(adapterRanges)+5 { // DCQCN, DCTCP, BDP, CNP and PFC
		t.Errorf("%d fields of Adapter, but %d are tested", n, len(adapterRanges)+5)
	}
	for _, k := range adapterRanges {
		t.Run(k.key, func(t *testing.T) {
			file := func(value string) string {
				return fmt.Sprintf("topology: {nodes: {a: {adapter: {%s: %s}}}}", k.key, value)
			}
			for value, want := range map[string]string{k.least: k.min, k.most: k.max} {
				if got := parseAdapter(t, file(value))[k.field]; got != want {
					t.Errorf("%s makes %s %q, want %s", value, k.field, got, want)
				}
			}
			column := len("topology: {nodes: {a: {adapter: {: ") + len(k.key) + 1
			for _, value := range []string{k.below, k.above, "[]", ""} {
				list := parseBad(t, "lab.yaml", []byte(file(value)))
				if len(list) != 1 || list[0].Line != 1 || !strings.HasPrefix(list[0].Message, k.key+": ") || !strings.Contains(list[0].Message, ", expected ") {
					t.Errorf("for the value %q: %v", value, list)
				} else if value != "" && list[0].Column != column {
					t.Errorf("for the value %q: column %d, want %d", value, list[0].Column, column)
				}
			}
		})
	}
}

func TestFrameSizes(t *testing.T) {
	for _, size := range []string{"256", "512", "1024", "2048", "4096"} {
		if got := parseAdapter(t, "topology: {nodes: {a: {adapter: {roce_frame_size: "+size+"}}}}"); got["RoCEFrameSize"] != size {
			t.Errorf("%s makes %v", size, got)
		}
	}
}

// TestAdapterKeysTogether has every key in one block, at one end of its range.
func TestAdapterKeysTogether(t *testing.T) {
	var least, most []string
	wantLeast, wantMost := make(map[string]string), make(map[string]string)
	for _, k := range adapterRanges {
		least, most = append(least, k.key+": "+k.least), append(most, k.key+": "+k.most)
		wantLeast[k.field], wantMost[k.field] = k.min, k.max
	}
	file := func(block []string) string {
		return "topology: {nodes: {a: {adapter: {" + strings.Join(block, ", ") + "}}}}"
	}
	if diff := cmp.Diff(wantLeast, parseAdapter(t, file(least))); diff != "" {
		t.Errorf("the least (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantMost, parseAdapter(t, file(most))); diff != "" {
		t.Errorf("the most (-want +got):\n%s", diff)
	}
}

// TestAdapterPrecedence gives each key in one place more at a time, the nearer
// later.
func TestAdapterPrecedence(t *testing.T) {
	for _, k := range adapterRanges {
		values := [4]string{}
		for place, want := range []string{k.min, k.max, k.min, k.max} {
			values[place] = k.key + ": " + []string{k.least, k.most, k.least, k.most}[place]
			file := fmt.Sprintf(`
topology:
  defaults: {adapter: {%s}}
  kinds: {k: {adapter: {%s}}}
  groups: {g: {adapter: {%s}}}
  nodes: {a: {kind: k, group: g, adapter: {%s}}}`, values[0], values[1], values[2], values[3])
			if got := parseAdapter(t, file)[k.field]; got != want {
				t.Errorf("%s is %q, want %s:%s", k.field, got, want, file)
			}
		}
	}
}

func TestAdapterKeysAreSuggested(t *testing.T) {
	for _, k := range adapterRanges {
		for _, written := range []string{k.key[:1] + k.key[2:], k.key[:len(k.key)-1], strings.ReplaceAll(k.key, "_", "-"), k.field} {
			if written == k.key {
				continue
			}
			file := fmt.Sprintf("topology: {nodes: {a: {adapter: {%s: 1}}}}", written)
			got := parseBad(t, "lab.yaml", []byte(file)).Error()
			want := fmt.Sprintf("lab.yaml:1:34: unknown key %q in an adapter, expected %q?", written, k.key)
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	}
}

// TestAdapterFieldsTogether has values that go together, and what follows from
// one that stands alone.
func TestAdapterFieldsTogether(t *testing.T) {
	tests := []struct {
		name           string
		defaults, node string
		want           map[string]string
	}{
		{"nothing", ``, ``, map[string]string{}},
		{"reads with as many elements", `max_initiator_request_sge: 8`, `max_read_request_sge: 8`,
			map[string]string{"MaxInitiatorRequestSge": "8", "MaxReadRequestSge": "8"}},
		{"reads alone", ``, `max_read_request_sge: 256`, map[string]string{"MaxReadRequestSge": "256"}},
		{"others alone", ``, `max_initiator_request_sge: 1`, map[string]string{"MaxInitiatorRequestSge": "1"}},
		{"a mended default", `max_initiator_request_sge: 8, max_read_request_sge: 16`, `max_read_request_sge: 4`,
			map[string]string{"MaxInitiatorRequestSge": "8", "MaxReadRequestSge": "4"}},
		{"NDK-CAP-04 SRQs without depth", ``, `max_srq_depth: 0`, map[string]string{"MaxSrqDepth": "0", "MaxSrqCount": "0"}},
		{"NDK-CAP-04 no SRQs", ``, `max_srq_count: 0`, map[string]string{"MaxSrqDepth": "0", "MaxSrqCount": "0"}},
		{"NDK-CAP-04 both 0", `max_srq_count: 0`, `max_srq_depth: 0`, map[string]string{"MaxSrqDepth": "0", "MaxSrqCount": "0"}},
		{"NDK-CAP-04 neither 0", `max_srq_count: 1`, `max_srq_depth: 1`, map[string]string{"MaxSrqDepth": "1", "MaxSrqCount": "1"}},
		{"a depth alone", ``, `max_srq_depth: 1`, map[string]string{"MaxSrqDepth": "1"}},
		{"a count alone", ``, `max_srq_count: 1`, map[string]string{"MaxSrqCount": "1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := fmt.Sprintf("topology: {defaults: {adapter: {%s}}, nodes: {a: {adapter: {%s}}}}", test.defaults, test.node)
			if diff := cmp.Diff(test.want, parseAdapter(t, file)); diff != "" {
				t.Errorf("adapter (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAdaptersAreTheirNodes checks that nodes do not share the values of a block
// that applies to both.
func TestAdaptersAreTheirNodes(t *testing.T) {
	lab, err := Parse("lab.yaml", []byte("topology: {defaults: {adapter: {max_cq_depth: 5}}, nodes: {a: , b: }}"))
	if err != nil {
		t.Fatal(err)
	}
	*lab.Nodes[0].Adapter.MaxCqDepth = 6
	if got := *lab.Nodes[1].Adapter.MaxCqDepth; got != 5 {
		t.Errorf("b's limit became %d with a's", got)
	}
}
