package metrics

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/histogram"
	nodeadapter "github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/verbs"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
	"github.com/ndklab/ndklab/topology"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// bars sums durations in milliseconds up.
func bars(milliseconds ...int64) histogram.Bars {
	h := histogram.New(12)
	for _, ms := range milliseconds {
		h.Record(ms*1e6, 1)
	}
	return h.Bars(Bounds())
}

// direction1 is a direction in which all has happened, and each so often as nothing else.
func direction1(from string) report.Direction {
	b := bars(1, 1, 20)
	return report.Direction{
		From: from, Packets: 101, Bytes: 102, Dropped: 103, Lost: 999, LostBy: report.LostBy{Queue: 104, Down: 105, Cut: 106, Fault: 107, Overrun: 108, Kernel: 109},
		Duplicated: 110, Reordered: 111, Corrupted: 112, Marked: 113, Faulted: 114, QueuePeak: new(uint64(115)),
		Set: &report.Quality{DelayUS: new(5000.0), JitterUS: new(250.0), Loss: new(0.01), RateGbps: new(8.0)}, DelayBars: &b,
	}
}

// sample is a lab that has something for each row. names are those of its nodes.
func sample(names ...string) *report.Observation {
	o := &report.Observation{Lab: "pair", Seed: 42, State: "ready", Up: 12.5}
	for i, name := range names {
		n := report.ObservedNode{Node: report.Node{
			NodeState: report.NodeState{Name: name, State: core.NodeIsReady}, Kind: "host", Restarts: 3,
			Counters: map[string]uint64{}, Transport: map[string]uint64{}, InUse: &provider.Usage{Qps: 1, Cqs: 2, Mrs: 3, Pds: 4, Mws: 5, Srqs: 6},
			Limits: &report.Limits{CPU: new(0.5), Memory: new(uint64(1 << 20)), PIDs: new(uint64(99))},
			Usage: &report.Usage{
				CPUSeconds: new(1.5), ThrottledSeconds: new(0.25), Memory: new(uint64(4096)), MemoryPeak: new(uint64(8192)), OOMKills: new(uint64(1)),
				PIDs: new(uint64(7)), PIDsRefused: new(uint64(2)),
			},
			Health: &report.Health{State: core.Healthy},
		}}
		for j, counter := range report.NDISNames() {
			n.Counters[counter] = uint64(1000 + j)
		}
		for j, counter := range transportCounters {
			n.Transport[counter] = uint64(2000 + j)
		}
		n.Connections = []nodeadapter.ConnectionCount{
			{ConnectionKind: nodeadapter.ConnectionKind{Type: "Connection", State: "established"}, Count: 2},
			{ConnectionKind: nodeadapter.ConnectionKind{Type: "QueuePair", State: "rts", Transport: "UD"}, Count: 3},
		}
		n.Workloads = []report.ObservedWorkload{{Name: "bulk", Clients: 2, Messages: 5, Bytes: 500, Errors: 1, Latency: bars(1, 3, 8, 8, 700)}}
		o.Nodes = append(o.Nodes, n)
		next := names[(i+1)%len(names)]
		ends := [2]string{name + ":eth0", next + ":eth1"}
		o.Links = append(o.Links, report.Link{Endpoints: ends, Engine: "linkem", State: "up", Directions: [2]report.Direction{direction1(ends[0]), direction1(ends[1])}})
	}
	return o
}

// transportCounters are those that adapters have, with congestion control too. TestTransportCounters holds them to be all.
var transportCounters = []string{
	"acks_received", "acks_sent", "bad_length", "cnps_received", "duplicates", "early_dropped", "icrc_errors", "local_ack_timeout_err", "malformed", "misdirected",
	"naks_received", "naks_sent", "np_cnp_sent", "np_ecn_marked_roce_packets", "out_of_sequence", "packet_seq_err", "packets_received", "packets_sent",
	"receive_overflow", "retransmitted", "rnr_naks_received", "rnr_naks_sent", "roce_slow_restart_cnps", "rp_cnp_handled", "rp_cnp_ignored",
	"segmentation_refused", "send_dropped", "send_too_big", "spurious_retransmissions", "super_packets_received", "super_packets_sent", "timeouts", "unknown_qp",
}

// twice are counters of the transport that adapters have under a second name.
var twice = map[string]string{"local_ack_timeout_err": "timeouts", "packet_seq_err": "naks_received"}

// written returns families in the text format.
func written(t testing.TB, families []*dto.MetricFamily) string {
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Each row of the catalogue has its metrics, with the labels and the type that it says; and what the tools of
// Prometheus find wrong with names, help and types is nothing.
func TestCatalogue(t *testing.T) {
	families := Families(sample("a", "b"), time.Millisecond)
	// Gatherers change the order of labels.
	gathered, err := prometheus.Gatherers{prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return Families(sample("a", "b"), 0), nil })}.Gather()
	if err != nil || len(gathered) != len(families) {
		t.Errorf("%d of %d families are consistent: %v", len(gathered), len(families), err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	all := Catalogue()
	for _, m := range all {
		f := byName[m.Name]
		if f == nil {
			t.Errorf("there is no %s", m.Name)
			continue
		}
		if f.GetType() != m.Type || f.GetHelp() != m.Help {
			t.Errorf("%s: %v %q", m.Name, f.GetType(), f.GetHelp())
		}
		for _, metric := range f.Metric {
			var labels []string
			for _, l := range metric.Label {
				labels = append(labels, l.GetName())
			}
			if !slices.Equal(labels, m.Labels) {
				t.Errorf("%s has the labels %v, want %v", m.Name, labels, m.Labels)
			}
		}
	}
	if len(families) != len(all) {
		t.Errorf("%d families, %d are in the catalogue", len(families), len(all))
	}
}

// The values are those of the lab, in units of Prometheus.
func TestFamilies(t *testing.T) {
	o := sample("a", "b")
	text := written(t, Families(o, 1500*time.Microsecond))
	adapter, link := `{device="ndk0",lab="pair",node="a",port="1"} `, `{from="a:eth0",lab="pair",to="b:eth1"`
	for _, want := range []string{
		`ndklab_lab_info{lab="pair",seed="42"} 1`,
		`ndklab_lab_ready{lab="pair"} 1`,
		`ndklab_lab_uptime_seconds{lab="pair"} 12.5`,
		`ndklab_scrape_duration_seconds{lab="pair"} 0.0015`,
		`ndklab_node_state{kind="host",lab="pair",node="a",state="ready"} 1`,
		`ndklab_node_state{kind="host",lab="pair",node="a",state="down"} 0`,
		`ndklab_node_restarts_total{kind="host",lab="pair",node="b"} 3`,
		`ndklab_node_healthy{kind="host",lab="pair",node="b"} 1`,
		`ndklab_node_cpu_limit_cores{kind="host",lab="pair",node="a"} 0.5`,
		`ndklab_node_memory_bytes{kind="host",lab="pair",node="a"} 4096`,
		`node_infiniband_port_data_received_bytes_total` + adapter + `1006`,
		`node_infiniband_port_data_transmitted_bytes_total` + adapter + `1007`,
		`node_infiniband_port_packets_received_total` + adapter + `1008`,
		`node_infiniband_port_packets_transmitted_total` + adapter + `1009`,
		`node_infiniband_port_errors_received_total` + adapter + `4010`, // of malformed and bad_length
		`ndklab_adapter_active_connections` + adapter + `1004`,
		`ndklab_adapter_objects{device="ndk0",lab="pair",node="a",port="1",object="srq"} 6`,
		`ndklab_connections{device="ndk0",lab="pair",node="a",port="1",state="established",transport="",type="Connection"} 2`,
		`ndklab_connections{device="ndk0",lab="pair",node="a",port="1",state="rts",transport="UD",type="QueuePair"} 3`,
		`ndklab_link_up` + link + `} 1`,
		`ndklab_link_packets_total` + link + `} 101`,
		`ndklab_link_bytes_total` + link + `} 102`,
		`ndklab_link_dropped_packets_total` + link + `,reason="loss"} 103`,
		`ndklab_link_dropped_packets_total` + link + `,reason="queue"} 104`,
		`ndklab_link_dropped_packets_total` + link + `,reason="down"} 105`,
		`ndklab_link_dropped_packets_total` + link + `,reason="cut"} 106`,
		`ndklab_link_dropped_packets_total` + link + `,reason="fault"} 107`,
		`ndklab_link_dropped_packets_total` + link + `,reason="overrun"} 108`,
		`ndklab_link_dropped_packets_total` + link + `,reason="kernel"} 109`,
		`ndklab_link_asked_rate_bytes_per_second` + link + `} 1e+09`,
		`ndklab_link_asked_delay_seconds` + link + `} 0.005`,
		`ndklab_link_asked_jitter_seconds` + link + `} 0.00025`,
		`ndklab_link_asked_loss_ratio` + link + `} 0.01`,
		`ndklab_link_delay_seconds_bucket` + link + `,le="0.0005"} 0`,
		`ndklab_link_delay_seconds_bucket` + link + `,le="0.001"} 2`,
		`ndklab_link_delay_seconds_bucket` + link + `,le="0.025"} 3`,
		`ndklab_link_delay_seconds_count` + link + `} 3`,
		`ndklab_workload_messages_total{lab="pair",node="a",workload="bulk"} 5`,
		`ndklab_workload_latency_seconds_bucket{lab="pair",node="a",workload="bulk",le="0.5"} 4`,
		`ndklab_workload_latency_seconds_bucket{lab="pair",node="a",workload="bulk",le="+Inf"} 5`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
}

// Families leave out values that are not known or not measured; a switch has a state, and a node that is down no adapter.
func TestUnknown(t *testing.T) {
	o := &report.Observation{Lab: "l", State: "starting", Nodes: []report.ObservedNode{
		{Node: report.Node{NodeState: report.NodeState{Name: "s", State: core.NodeIsReady}, Kind: "switch"}},
		{Node: report.Node{NodeState: report.NodeState{Name: "h", State: core.NodeIsDown}, Kind: "host"}},
	}, Links: []report.Link{{Endpoints: [2]string{"s:p", "h:eth0"}, State: "down", Directions: [2]report.Direction{{Set: &report.Quality{}}}}}}
	var names []string
	for _, f := range Families(o, 0) {
		names = append(names, f.GetName())
	}
	want := []string{
		"ndklab_lab_info", "ndklab_lab_ready", "ndklab_lab_uptime_seconds",
		"ndklab_link_bytes_total", "ndklab_link_corrupted_packets_total", "ndklab_link_dropped_packets_total", "ndklab_link_duplicated_packets_total",
		"ndklab_link_faulted_packets_total", "ndklab_link_marked_packets_total", "ndklab_link_packets_total", "ndklab_link_reordered_packets_total", "ndklab_link_up",
		"ndklab_node_restarts_total", "ndklab_node_state", "ndklab_scrape_duration_seconds",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	text := written(t, Families(o, 0))
	for _, want := range []string{`ndklab_lab_ready{lab="l"} 0`, `node="h",state="down"} 1`, `kind="switch",lab="l",node="s",state="ready"} 1`, `ndklab_link_up{from="s:p",lab="l",to="h:eth0"} 0`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

// Names that would end a label, or a line, are read back as they were.
func TestHostileNames(t *testing.T) {
	const hostile = "a\"} 1\nndklab_lab_ready 7\n\\\"<b>"
	text := written(t, Families(sample(hostile), 0))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if n := len(families["ndklab_lab_ready"].Metric); n != 1 {
		t.Errorf("ndklab_lab_ready has %d metrics", n)
	}
	found := 0
	for _, l := range families["ndklab_node_restarts_total"].Metric[0].Label {
		if l.GetName() == "node" && l.GetValue() == hostile {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%v", families["ndklab_node_restarts_total"])
	}
}

// Each counter of an adapter is in a metric.
func TestTransportCounters(t *testing.T) {
	names := map[string]bool{}
	for _, settings := range []*topology.Adapter{
		{}, {Congestion: new(topology.CongestionDCQCN), DCQCN: &topology.DCQCN{Preset: topology.PresetConnectX, SlowRestart: new(true)}},
	} {
		for name := range countersOf(t, settings) {
			names[name] = true
		}
	}
	for name := range names {
		if !slices.Contains(transportCounters, name) {
			t.Errorf("adapters count %s, of which there is nothing here", name)
		}
	}
	for _, name := range transportCounters {
		n := &report.ObservedNode{Node: report.Node{Transport: map[string]uint64{name: 1}, InUse: &provider.Usage{}}}
		metrics := 0
		for i := range adapterRows {
			if r := &adapterRows[i]; r.value != nil {
				if _, ok := r.value(n); ok {
					metrics++
				}
			}
		}
		if want := map[bool]int{false: 1, true: 0}[twice[name] != ""]; metrics != want {
			t.Errorf("%d metrics have %s, want %d", metrics, name, want)
		}
	}
}

// The device has the name that programs find it by.
func TestDevice(t *testing.T) {
	if device != verbs.DeviceName {
		t.Errorf("%s, want %s", device, verbs.DeviceName)
	}
}

// countersOf returns the counters of the transport of an adapter.
func countersOf(t *testing.T, settings *topology.Adapter) map[string]uint64 {
	cfg := nodeadapter.Config(settings)
	pid := os.Getpid()
	address := netip.AddrFrom4([4]byte{127, byte(1 + pid>>16), byte(pid >> 8), byte(pid)}) // nobody else's
	carrier, err := udp.Open(udp.Config{Addresses: []netip.Addr{address}, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Clock, cfg.Rand, cfg.Carrier = clock.Real(), rand.New(rand.NewPCG(1, 2)), carrier
	m, err := provider.NewMiniport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := carrier.Close(); err != nil {
			t.Error(err)
		}
	}()
	return m.TransportCounters()
}

// The document has the catalogue as a table.
func TestDocument(t *testing.T) {
	var want strings.Builder
	want.WriteString("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n")
	for _, m := range Catalogue() {
		unit := m.Unit
		if unit == "" {
			unit = "-"
		}
		want.WriteString("| `" + m.Name + "` | " + strings.ToLower(m.Type.String()) + " | " + unit + " | " + strings.Join(m.Labels, ", ") + " | " + m.Help + " |\n")
	}
	text, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/metrics.md has not this table:\n%s", want.String())
	}
}

// BenchmarkScrape translates and writes a lab of 500 nodes and as many links, on all of which there is traffic.
func BenchmarkScrape(b *testing.B) {
	names := make([]string, 500)
	for i := range names {
		names[i] = "node" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
	}
	o := sample(names...)
	b.ReportAllocs()
	for b.Loop() {
		encoder := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeOpenMetrics))
		for _, f := range Families(o, time.Second) {
			if err := encoder.Encode(f); err != nil {
				b.Fatal(err)
			}
		}
	}
}
