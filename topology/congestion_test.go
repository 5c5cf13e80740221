package topology

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// congestionParameters has the range of each key of dcqcn, dctcp, bdp and cnp: both ends of it, as a file and
// as JSON have them.
var congestionParameters = []struct {
	in, key     string
	least, most string // in a file
	min, max    string // in JSON
}{
	{"dcqcn", "preset", "connectx", "paper", `"connectx"`, `"paper"`},
	{"dcqcn", "clamp_tgt_rate", "false", "true", "false", "true"},
	{"dcqcn", "clamp_tgt_rate_after_time_inc", "false", "true", "false", "true"},
	{"dcqcn", "rpg_time_reset", "1us", "10s", "1000", "10000000000"},
	{"dcqcn", "rpg_byte_reset", "0B", "1TiB", "0", "1099511627776"},
	{"dcqcn", "rpg_threshold", "1", "31", "1", "31"},
	{"dcqcn", "rpg_max_rate", "0bit", "1tbit", "0", "1000000000000"},
	{"dcqcn", "rpg_ai_rate", "1kbit", "1tbit", "1000", "1000000000000"},
	{"dcqcn", "rpg_hai_rate", "1kbit", "1tbit", "1000", "1000000000000"},
	{"dcqcn", "rpg_gd", "10", "11", "10", "11"},
	{"dcqcn", "rpg_min_dec_fac", "0%", "100%", "0", "1"},
	{"dcqcn", "rpg_min_rate", "1kbit", "1tbit", "1000", "1000000000000"},
	{"dcqcn", "rate_to_set_on_first_cnp", "0bit", "1tbit", "0", "1000000000000"},
	{"dcqcn", "dce_tcp_g", "0", "1023", "0", "1023"},
	{"dcqcn", "dce_tcp_rtt", "1us", "10s", "1000", "10000000000"},
	{"dcqcn", "rate_reduce_monitor_period", "0us", "10s", "0", "10000000000"},
	{"dcqcn", "initial_alpha_value", "0", "1023", "0", "1023"},
	{"dcqcn", "slow_restart", "false", "true", "false", "true"},
	{"dctcp", "g", "0%", "100%", "0", "1"},
	{"dctcp", "rtt", "1us", "10s", "1000", "10000000000"},
	{"bdp", "rtt", "1us", "10s", "1000", "10000000000"},
	{"cnp", "dscp", "0", "63", "0", "63"},
	{"cnp", "min_time", "0us", "10s", "0", "10000000000"},
	{"cnp", "delay", "0us", "10s", "0", "10000000000"},
	{"cnp", "per", "qp", "port", `"qp"`, `"port"`},
}

// TestCongestionParameters sets each parameter to both ends of its range, alone and with all
// others.
func TestCongestionParameters(t *testing.T) {
	if n := reflect.TypeFor[DCQCN]().NumField() + reflect.TypeFor[DCTCP]().NumField() + reflect.TypeFor[BDP]().NumField() + reflect.TypeFor[CNP]().NumField(); n != len(congestionParameters) {
		t.Errorf("%d parameters, but %d are tested", n, len(congestionParameters))
	}
	type block map[string]map[string]string
	parse := func(of block) block {
		t.Helper()
		var keys []string
		congestion := "dcqcn"
		for in, parameters := range of {
			keys = append(keys, in+": {"+keysOf(parameters)+"}")
			if in != "cnp" {
				congestion = in
			}
		}
		got := make(block)
		set := parseAdapter(t, "topology: {nodes: {a: {adapter: {congestion: "+congestion+", "+strings.Join(keys, ", ")+"}}}}")
		for in := range of {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal([]byte(set[strings.ToUpper(in)]), &fields); err != nil {
				t.Fatalf("%s: %v", in, err)
			}
			got[in] = make(map[string]string)
			for key, value := range fields {
				got[in][key] = string(value)
			}
		}
		return got
	}
	least, min := block{"dcqcn": {}, "cnp": {}}, block{"dcqcn": {}, "cnp": {}}
	most, max := block{"dcqcn": {}, "cnp": {}}, block{"dcqcn": {}, "cnp": {}}
	for _, p := range congestionParameters {
		for value, want := range map[string]string{p.least: p.min, p.most: p.max} {
			if got := parse(block{p.in: {p.key: value}})[p.in][p.key]; got != want {
				t.Errorf("%s: %s: %s makes %s, want %s", p.in, p.key, value, got, want)
			}
		}
		if p.in == "dctcp" || p.in == "bdp" {
			continue // they exclude dcqcn
		}
		least[p.in][p.key], min[p.in][p.key] = p.least, p.min
		most[p.in][p.key], max[p.in][p.key] = p.most, p.max
	}
	least["dcqcn"]["rpg_max_rate"], min["dcqcn"]["rpg_max_rate"] = "1kbit", "1000"
	if diff := cmp.Diff(min, parse(least)); diff != "" {
		t.Errorf("the least (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(max, parse(most)); diff != "" {
		t.Errorf("the most (-want +got):\n%s", diff)
	}
}

// keysOf is a map as one line of a file has it, without its braces.
func keysOf(m map[string]string) string {
	var keys []string
	for key, value := range m {
		keys = append(keys, key+": "+value)
	}
	return strings.Join(keys, ", ")
}

// adapterFrom is the adapter of the node a.
func adapterFrom(t *testing.T, file string) Adapter {
	t.Helper()
	lab, err := Parse("lab.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return lab.FindNode("a").Adapter
}

// TestCongestionPrecedence has blocks of different precedence: the nearest takes the place of all
// that others say, and a nearer congestion control makes parameters of DCQCN void.
func TestCongestionPrecedence(t *testing.T) {
	dcqcn := CongestionDCQCN
	for _, test := range []struct {
		name                        string
		defaults, kind, group, node string
		want                        Adapter
	}{
		{"nothing", "", "", "", "", Adapter{}},
		{"brief", "congestion: dcqcn, dcqcn: paper", "", "", "", Adapter{Congestion: &dcqcn, DCQCN: &DCQCN{Preset: PresetPaper}}},
		{"empty maps", "congestion: dcqcn", "", "", "dcqcn: {}, cnp: {}", Adapter{Congestion: &dcqcn, DCQCN: &DCQCN{Preset: PresetConnectX}, CNP: &CNP{}}},
		{"a map in the place of another", "congestion: dcqcn, dcqcn: {preset: paper, rpg_gd: 10}", "dcqcn: {rpg_threshold: 3}", "", "",
			Adapter{Congestion: &dcqcn, DCQCN: &DCQCN{Preset: PresetConnectX, RPGThreshold: new(uint32(3))}}},
		{"a preset in the place of a map", "congestion: dcqcn, dcqcn: {rpg_gd: 10}", "dcqcn: {rpg_gd: 11}", "dcqcn: connectx", "", Adapter{Congestion: &dcqcn, DCQCN: &DCQCN{Preset: PresetConnectX}}},
		{"parameters far, congestion near", "dcqcn: paper", "cnp: {delay: 1us}", "", "congestion: dcqcn",
			Adapter{Congestion: &dcqcn, DCQCN: &DCQCN{Preset: PresetPaper}, CNP: &CNP{Delay: new(time.Microsecond)}}},
		{"dctcp", "congestion: dctcp, dctcp: {g: 50%}", "dctcp: {rtt: 12us}, cnp: {delay: 1us}", "", "", Adapter{Congestion: new(CongestionDCTCP), DCTCP: &DCTCP{RTT: new(12 * time.Microsecond)}, CNP: &CNP{Delay: new(time.Microsecond)}}},
		{"bdp", "congestion: bdp, bdp: {rtt: 12us}", "", "", "", Adapter{Congestion: new(CongestionBDP), BDP: &BDP{RTT: new(12 * time.Microsecond)}}},
		{"dctcp near", "congestion: dcqcn, dcqcn: paper", "cnp: {delay: 1us}", "congestion: dctcp", "", Adapter{Congestion: new(CongestionDCTCP), CNP: &CNP{Delay: new(time.Microsecond)}}},
		{"bdp near", "congestion: dctcp, dctcp: {}", "cnp: {}", "", "congestion: bdp", Adapter{Congestion: new(CongestionBDP)}},
		{"another congestion near", "congestion: dcqcn, dcqcn: paper, dscp: 24", "cnp: {delay: 1us}", "congestion: none", "", Adapter{Congestion: new(CongestionNone), DSCP: new(uint32(24))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := fmt.Sprintf("topology: {defaults: {adapter: {%s}}, kinds: {k: {adapter: {%s}}}, groups: {g: {adapter: {%s}}}, nodes: {a: {kind: k, group: g, adapter: {%s}}}}",
				test.defaults, test.kind, test.group, test.node)
			if diff := cmp.Diff(test.want, adapterFrom(t, file)); diff != "" {
				t.Errorf("adapter (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCongestionAsJSON has an adapter the same after a way through JSON, as it goes to an agent,
// and nothing of congestion in the JSON of one that says nothing of it.
func TestCongestionAsJSON(t *testing.T) {
	for _, block := range []string{
		"congestion: none, dscp: 0",
		"congestion: dctcp, dctcp: {g: 0%, rtt: 1us}, cnp: {}",
		"congestion: bdp, bdp: {rtt: 1us}",
		"congestion: dcqcn, dcqcn: paper, cnp: {dscp: 0, min_time: 0us, delay: 0us, per: address}",
		"congestion: dcqcn, dcqcn: {clamp_tgt_rate: false, rpg_byte_reset: 0B, rpg_min_dec_fac: 12.5%, rpg_max_rate: 0bit, initial_alpha_value: 0}",
	} {
		want := adapterFrom(t, "topology: {nodes: {a: {adapter: {"+block+"}}}}")
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Adapter
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, by %s (-want +got):\n%s", block, text, diff)
		}
	}
	if text, err := json.Marshal(Adapter{}); err != nil || string(text) != "{}" {
		t.Errorf("an adapter without any key is %s, %v", text, err)
	}
}
