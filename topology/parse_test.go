package topology

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// compare is without the places of what a scenario does, which TestPlaces has.
var compare = cmp.Options{
	cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}), cmpopts.EquateEmpty(),
	cmpopts.IgnoreFields(Workload{}, "Place"), cmpopts.IgnoreFields(Event{}, "Place"), cmpopts.IgnoreFields(Chaos{}, "Place"),
	cmpopts.IgnoreFields(Check{}, "Place"), cmpopts.IgnoreFields(Baseline{}, "Place"),
}

// prefixes are addresses in CIDR form, separated by spaces.
func prefixes(text string) []netip.Prefix {
	var list []netip.Prefix
	for _, s := range strings.Fields(text) {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// hosts makes of nodes that are given no kind what Parse does.
func hosts(nodes []Node) []Node {
	for i := range nodes {
		if nodes[i].Kind == "" {
			nodes[i].Kind = Host
		}
	}
	return nodes
}

// at is one interface of a node.
func at(name string, link, end int, addresses string) Interface {
	return Interface{Name: name, Link: link, End: end, Addresses: prefixes(addresses)}
}

// link is a link with the same impairment both ways.
func link(from, to string, mtu int, i Impairment) Link {
	a, _ := endpoint(from)
	b, _ := endpoint(to)
	return joining([2]Endpoint{a, b}, mtu, i, i)
}

// joining is a link with all else left to defaults.
func joining(ends [2]Endpoint, mtu int, there, back Impairment) Link {
	return Link{Endpoints: ends, MTU: mtu, Directions: [2]Impairment{there, back}, Engine: Linkem, Offload: true, Tolerance: DefaultTolerance}
}

// pairWorkload is a workload of a pair with what is left to defaults.
func pairWorkload(w Workload) Workload {
	w.Pattern, w.Flows, w.Measure, w.Depth, w.QPs = Pair, []Flow{{w.From, w.To}}, Bandwidth, max(w.Depth, 1), 1
	return w
}

func TestParseExample(t *testing.T) {
	data, err := os.ReadFile("../examples/pair.ndklab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("pair.ndklab.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	want := &Topology{
		Name: "pair", Seed: 42, HasSeed: true,
		Nodes: hosts([]Node{
			{Name: "client", CPU: 0.5, Memory: 256 << 20,
				Interfaces: []Interface{at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64")}},
			{Name: "server", Adapter: Adapter{MaxSrqDepth: new(uint32(1024)), MaxInboundReadLimit: new(uint32(16))},
				Interfaces: []Interface{at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64")}},
		}),
		Links: []Link{link("client:eth0", "server:eth0", 4200,
			Impairment{Delay: time.Millisecond, Jitter: Jitter{Spread: 50 * time.Microsecond}, Loss: Loss{Rate: 0.001}, Rate: 10e9})},
		Workloads: []Workload{
			pairWorkload(Workload{Name: "bulk", From: "client", To: "server", Operation: Write, Size: 64 << 10, Depth: 16, Duration: 3 * time.Second, Verify: true}),
			pairWorkload(Workload{Name: "fetch", From: "client", To: "server", Operation: Read, Size: 64 << 10, Depth: 16, Duration: 3 * time.Second, Verify: true}),
			pairWorkload(Workload{Name: "ping", From: "client", To: "server", Operation: Send, Size: 64, Count: 1000, Start: time.Second, Verify: true}),
		},
		Timeline: []Event{{At: 2 * time.Second, Set: Change{Loss: &Loss{Rate: 0.02}}}},
		Checks: []Check{
			{Workload: "bulk", Bounds: []Bound{{Errors, "==", 0, "0"}, {Throughput, ">=", 200e6, ">= 200mbit"}}},
			{Workload: "ping", Bounds: []Bound{{LatencyP99, "<=", 50e6, "<= 50ms"}}},
		},
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("Topology (-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		file string // of the lab x.ndklab.yaml
		want Topology
	}{
		{
			name: "smallest",
			file: `topology: {nodes: {a: }}`,
			want: Topology{Nodes: []Node{{Name: "a"}}},
		},
		{
			name: "empty sections and a seed of zero",
			file: "seed: 0\ntopology:\n  defaults:\n  kinds:\n  groups:\n  nodes: {a: {}}\n  links:\nworkloads:\ntimeline: []\nchecks:\n",
			want: Topology{HasSeed: true, Nodes: []Node{{Name: "a"}}},
		},
		{
			name: "node over group over kind over defaults",
			file: `
topology:
  defaults:
    node: {cpu: 1, memory: 1GiB, pids: 100}
    adapter: {max_cq_depth: 1, max_srq_depth: 1, max_inline_data_size: 1B, max_transfer_length: 1B}
  kinds:
    big: {memory: 2GiB, pids: 200, adapter: {max_srq_depth: 2, max_inline_data_size: 2B, max_transfer_length: 2B}}
  groups:
    rack: {memory: 3GiB, cpu: 3, adapter: {max_inline_data_size: 3B, max_transfer_length: 3B}}
  nodes:
    a: {kind: big, group: rack, cpu: 4, adapter: {max_transfer_length: 4B}}
    b: {kind: big, group: rack}
    c: {kind: big}
    d: {kind: host}`,
			want: Topology{Nodes: []Node{
				{Name: "a", CPU: 4, Memory: 3 << 30, PIDs: 200, Adapter: depths(1, 2, 3, 4)},
				{Name: "b", CPU: 3, Memory: 3 << 30, PIDs: 200, Adapter: depths(1, 2, 3, 3)},
				{Name: "c", CPU: 1, Memory: 2 << 30, PIDs: 200, Adapter: depths(1, 2, 2, 2)},
				{Name: "d", CPU: 1, Memory: 1 << 30, PIDs: 100, Adapter: depths(1, 1, 1, 1)},
			}},
		},
		{
			name: "where kinds and groups come from",
			file: `
topology:
  defaults: {node: {kind: small, group: low}}
  kinds: {host: {cpu: 9}, small: {cpu: 1}, big: {cpu: 2, group: high}}
  groups: {low: {memory: 16MiB}, high: {memory: 32MiB}, both: {kind: big, memory: 64MiB}}
  nodes:
    a: {}
    b: {kind: big}
    c: {group: both}
    d: {kind: host, group: high}`,
			want: Topology{Nodes: []Node{
				{Name: "a", CPU: 1, Memory: 16 << 20},
				{Name: "b", CPU: 2, Memory: 32 << 20},
				{Name: "c", CPU: 2, Memory: 64 << 20},
				{Name: "d", CPU: 9, Memory: 32 << 20},
			}},
		},
		{
			name: "hosts of nodes, and groups that stay together",
			file: `
topology:
  defaults: {node: {host: 1}}
  kinds: {switch: {group: rack}, far: {host: node-17.cluster}}
  groups: {rack: {together: true}, row: {together: false, host: 10.0.0.1}}
  nodes:
    a: {kind: far, host: 3}
    b: {kind: far, group: row}
    c: {kind: far}
    r: {kind: router, group: rack}
    s: {kind: switch}`,
			want: Topology{Nodes: []Node{
				{Name: "a", Host: "3", HostAt: Place{"some/where/x.ndklab.yaml", 7, 26}},
				{Name: "b", Host: "10.0.0.1", HostAt: Place{"some/where/x.ndklab.yaml", 5, 65}},
				{Name: "c", Host: "node-17.cluster", HostAt: Place{"some/where/x.ndklab.yaml", 4, 46}},
				{Name: "r", Kind: Router, Host: "1", HostAt: Place{"some/where/x.ndklab.yaml", 3, 27}, Together: "rack", TogetherAt: Place{"some/where/x.ndklab.yaml", 5, 29}},
				{Name: "s", Kind: Switch, Host: "1", HostAt: Place{"some/where/x.ndklab.yaml", 3, 27}, Together: "rack", TogetherAt: Place{"some/where/x.ndklab.yaml", 5, 29}},
			}},
		},
		{
			name: "restart, which switches do not take from the defaults",
			file: `
topology:
  defaults: {node: {restart: always}}
  kinds: {frail: {restart: never}, tor: {kind: switch}}
  groups: {lasting: {restart: always}}
  nodes:
    a: {}
    b: {kind: frail}
    c: {kind: frail, group: lasting}
    d: {group: lasting, restart: never}
    r: {kind: router}
    s: {kind: tor}`,
			want: Topology{Nodes: []Node{
				{Name: "a", Restart: true}, {Name: "b"}, {Name: "c", Restart: true}, {Name: "d"},
				{Name: "r", Kind: Router, Restart: true}, {Name: "s", Kind: Switch},
			}},
		},
		{
			name: "verbs, which only hosts take from the defaults",
			file: `
topology:
  defaults: {node: {verbs: off}}
  groups: {seeing: {verbs: on}}
  nodes:
    a: {}
    b: {group: seeing}
    c: {group: seeing, verbs: off}
    r: {kind: router}`,
			want: Topology{Nodes: []Node{{Name: "a", NoVerbs: true}, {Name: "b"}, {Name: "c", NoVerbs: true}, {Name: "r", Kind: Router}}},
		},
		{
			name: "the built-in kind takes settings",
			file: `topology: {kinds: {host: {cpu: 2}}, nodes: {a: }}`,
			want: Topology{Nodes: []Node{{Name: "a", CPU: 2}}},
		},
		{
			name: "link defaults, own values, reverse",
			file: `
topology:
  defaults: {link: {mtu: 1500, delay: 2ms, rate: 1gbit}}
  nodes: {a: , b: }
  links:
    - endpoints: ["a:eth0", "b:eth0"]
    - {endpoints: ["b:eth1", "a:eth1"], mtu: 9000, jitter: 1ms, reverse: {delay: 1s, loss: 100%}}`,
			want: Topology{
				Nodes: []Node{
					{Name: "a", Interfaces: []Interface{at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64"), at("eth1", 1, 1, "10.0.1.2/24 fd6e:646b:1:1::2/64")}},
					{Name: "b", Interfaces: []Interface{at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64"), at("eth1", 1, 0, "10.0.1.1/24 fd6e:646b:1:1::1/64")}},
				},
				Links: []Link{
					link("a:eth0", "b:eth0", 1500, Impairment{Delay: 2 * time.Millisecond, Rate: 1e9}),
					joining([2]Endpoint{{"b", "eth1"}, {"a", "eth1"}}, 9000,
						Impairment{Delay: 2 * time.Millisecond, Jitter: Jitter{Spread: time.Millisecond}, Rate: 1e9},
						Impairment{Delay: time.Second, Jitter: Jitter{Spread: time.Millisecond}, Loss: Loss{Rate: 1}, Rate: 1e9},
					),
				},
			},
		},
		{
			name: "given addresses",
			file: `
topology:
  nodes: {a: , b: }
  links:
    - endpoints: ["a:eth0", "b:eth0"]
    - endpoints: [{node: a, interface: eth1, addresses: [10.0.2.1/24]}, {node: b, interface: eth1, addresses: [10.0.2.9/24, fd00::9/64]}]
    - endpoints: ["a:eth2", "b:eth2"]
    - endpoints: [{node: a, interface: eth3, addresses: [192.0.2.2/29, "fd6e:646b:1:5::1/64"]}, "b:eth3"]
    - endpoints: ["a:eth4", {node: b, interface: eth4, addresses: [198.51.100.1/31]}]`,
			want: Topology{
				Nodes: []Node{
					{Name: "a", Interfaces: []Interface{
						at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64"),
						at("eth1", 1, 0, "10.0.2.1/24"),
						at("eth2", 2, 0, "10.0.6.1/24 fd6e:646b:1:6::1/64"), // 2 is used in IPv4, 5 in IPv6
						at("eth3", 3, 0, "192.0.2.2/29 fd6e:646b:1:5::1/64"),
						at("eth4", 4, 0, "198.51.100.0/31"),
					}},
					{Name: "b", Interfaces: []Interface{
						at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64"),
						at("eth1", 1, 1, "10.0.2.9/24 fd00::9/64"),
						at("eth2", 2, 1, "10.0.6.2/24 fd6e:646b:1:6::2/64"),
						at("eth3", 3, 1, "192.0.2.1/29 fd6e:646b:1:5::2/64"),
						at("eth4", 4, 1, "198.51.100.1/31"),
					}},
				},
				Links: []Link{
					link("a:eth0", "b:eth0", 4200, Impairment{}), link("a:eth1", "b:eth1", 4200, Impairment{}),
					link("a:eth2", "b:eth2", 4200, Impairment{}), link("a:eth3", "b:eth3", 4200, Impairment{}),
					link("a:eth4", "b:eth4", 4200, Impairment{}),
				},
			},
		},
		{
			name: "shared and wide subnets",
			file: `
topology:
  nodes: {a: , b: }
  links:
    - endpoints: [{node: a, interface: eth0, addresses: [10.0.1.1/23]}, "b:eth0"]
    - endpoints: ["a:eth1", "b:eth1"]
    - endpoints: [{node: a, interface: eth2, addresses: [10.0.1.2/23]}, "b:eth2"]`,
			want: Topology{
				Nodes: []Node{
					{Name: "a", Interfaces: []Interface{
						at("eth0", 0, 0, "10.0.1.1/23"), at("eth1", 1, 0, "10.0.3.1/24 fd6e:646b:1:3::1/64"), at("eth2", 2, 0, "10.0.1.2/23"),
					}},
					{Name: "b", Interfaces: []Interface{
						at("eth0", 0, 1, "10.0.0.1/23"), at("eth1", 1, 1, "10.0.3.2/24 fd6e:646b:1:3::2/64"), at("eth2", 2, 1, "10.0.0.2/23"),
					}},
				},
				Links: []Link{
					link("a:eth0", "b:eth0", 4200, Impairment{}), link("a:eth1", "b:eth1", 4200, Impairment{}),
					link("a:eth2", "b:eth2", 4200, Impairment{}),
				},
			},
		},
		{
			name: "timeline and checks",
			file: `
topology: {nodes: {a: , b: }, links: [{endpoints: ["a:eth0", "b:eth0"]}]}
workloads: [{name: w, from: b, to: a, operation: send, size: 0B, duration: 1m30s}]
timeline:
  - {at: 3s, link: "b:eth0", from: b, set: {jitter: 1ms, rate: 1.5mbit}}
  - {at: 1s, link: "b:eth0", set: {delay: 1.5ms}}
  - {at: 0s, link: "a:eth0", down: true}
  - {at: 1µs, link: "a:eth0", up: true}
checks:
  - {latency_max: "< 1s", workload: w, errors: "<= 3", latency_min: ">1us", latency_p50: "== 0ms"}`,
			want: Topology{
				Nodes: []Node{
					{Name: "a", Interfaces: []Interface{at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64")}},
					{Name: "b", Interfaces: []Interface{at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64")}},
				},
				Links:     []Link{link("a:eth0", "b:eth0", 4200, Impairment{})},
				Workloads: []Workload{pairWorkload(Workload{Name: "w", From: "b", To: "a", Operation: Send, Duration: 90 * time.Second})},
				Timeline: []Event{
					{At: 3 * time.Second, From: "b", Set: Change{Jitter: &Jitter{Spread: time.Millisecond}, Rate: new(uint64(1500000))}},
					{At: time.Second, Set: Change{Delay: new(1500 * time.Microsecond)}},
					{Down: true},
					{At: time.Microsecond, Up: true},
				},
				Checks: []Check{{Workload: "w", Bounds: []Bound{
					{LatencyMax, "<", 1e9, "< 1s"}, {Errors, "<=", 3, "<= 3"},
					{LatencyMin, ">", 1e3, ">1us"}, {LatencyP50, "==", 0, "== 0ms"},
				}}},
			},
		},
		{
			name: "every impairment",
			file: `
topology:
  nodes: {a: , b: }
  links:
    - endpoints: ["a:eth0", "b:eth0"]
      delay: 1ms
      jitter: {spread: 50us, distribution: normal}
      loss: {rate: 1%, burst: 5, every: 100, packets: [3, 17]}
      duplicate: 0.1%
      reorder: {probability: 1%, depth: 3}
      corrupt: {probability: 0.1%, where: anywhere, bits: 2}
      rate: 1gbit
      burst: 64KiB
      queue: {bytes: 1MiB, packets: 1000}
      ecn: {min: 100KiB, max: 400KiB}
      cut: true
      flap: {period: 1s, down: 100ms}
      faults:
        - {match: {opcode: [ack], syndrome: nak, nth: 3}, action: drop}
        - {match: {cm: REQ, count: 1}, action: delay, delay: 1ms, from: b}
        - {match: {psn: 5-20}, action: corrupt, from: a}
      reverse: {jitter: 1us, loss: none, reorder: 2%, rate: none, queue: 10packets, ecn: none, cut: false, flap: none}
    - {endpoints: ["a:eth1", "b:eth1"], faults: [{match: {opcode: cnp}, action: drop}], reverse: {faults: []}}
    - {endpoints: ["a:eth2", "b:eth2"], jitter: {file: good.txt}, delay: 1ms, reverse: {jitter: {file: dir/good.txt}}}`,
			want: Topology{
				Nodes: []Node{
					{Name: "a", Interfaces: []Interface{at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64"), at("eth1", 1, 0, "10.0.1.1/24 fd6e:646b:1:1::1/64"), at("eth2", 2, 0, "10.0.2.1/24 fd6e:646b:1:2::1/64")}},
					{Name: "b", Interfaces: []Interface{at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64"), at("eth1", 1, 1, "10.0.1.2/24 fd6e:646b:1:1::2/64"), at("eth2", 2, 1, "10.0.2.2/24 fd6e:646b:1:2::2/64")}},
				},
				Links: []Link{
					joining([2]Endpoint{{"a", "eth0"}, {"b", "eth0"}}, 4200,
						Impairment{
							Delay: time.Millisecond, Jitter: Jitter{Spread: 50 * time.Microsecond, Distribution: Normal},
							Loss: Loss{0.01, 5, 100, []uint64{3, 17}}, Duplicate: 0.001, Reorder: Reorder{0.01, 3}, Corrupt: Corrupt{0.001, true, 2},
							Rate: 1e9, Burst: 64 << 10, Queue: Queue{1 << 20, 1000}, ECN: ECN{Min: 100 << 10, Max: 400 << 10}, Cut: true, Flap: Flap{time.Second, 100 * time.Millisecond},
							Faults: []Fault{
								{Match: Match{Opcodes: []uint8{0x11, 0x12, 0xd1}, Syndromes: []string{"nak"}, Packets: []uint64{3}}, Action: Drop},
								{Match: Match{PSN: &PSNs{5, 20}}, Action: Corrode},
							},
						},
						Impairment{
							Delay: time.Millisecond, Jitter: Jitter{Spread: time.Microsecond},
							Duplicate: 0.001, Reorder: Reorder{0.02, 0}, Corrupt: Corrupt{0.001, true, 2},
							Burst: 64 << 10, Queue: Queue{Packets: 10},
							Faults: []Fault{
								{Match: Match{Opcodes: []uint8{0x11, 0x12, 0xd1}, Syndromes: []string{"nak"}, Packets: []uint64{3}}, Action: Drop},
								{Match: Match{CM: []uint16{0x10}, Count: 1}, Action: Postpone, Delay: time.Millisecond},
							},
						}),
					joining([2]Endpoint{{"a", "eth1"}, {"b", "eth1"}}, 4200,
						Impairment{Faults: []Fault{{Match: Match{Opcodes: []uint8{0x81}}, Action: Drop}}}, Impairment{}),
					joining([2]Endpoint{{"a", "eth2"}, {"b", "eth2"}}, 4200,
						Impairment{Delay: time.Millisecond, Jitter: *goodSamples()},
						Impairment{Delay: time.Millisecond, Jitter: Jitter{Distribution: Sampled, Samples: []time.Duration{2 * time.Millisecond}}}),
				},
			},
		},
		{
			name: "defaults of links",
			file: `
topology:
  defaults: {link: {engine: netem, offload: off, overrun: allow, tolerance: {delay: 2ms, delay_p10: 1ms, loss: 1%}, loss: {every: 3}, faults: [{match: {}, action: drop}]}}
  nodes: {a: , b: }
  links:
    - {endpoints: ["a:eth0", "b:eth0"], engine: linkem, down: true}
    - {endpoints: ["a:eth1", "b:eth1"], offload: on, overrun: fail, tolerance: {loss: 2%, delay_p99: 1s, rate: 3%}, loss: none, faults: none, down: false}`,
			want: Topology{
				Nodes: []Node{
					{Name: "a", Interfaces: []Interface{at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64"), at("eth1", 1, 0, "10.0.1.1/24 fd6e:646b:1:1::1/64")}},
					{Name: "b", Interfaces: []Interface{at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64"), at("eth1", 1, 1, "10.0.1.2/24 fd6e:646b:1:1::2/64")}},
				},
				Links: []Link{
					{
						Endpoints: [2]Endpoint{{"a", "eth0"}, {"b", "eth0"}}, MTU: 4200,
						Directions: [2]Impairment{lossyDefault(), lossyDefault()},
						Down:       true, Engine: Linkem, EngineAt: Place{"some/where/x.ndklab.yaml", 6, 49}, AllowOverrun: true,
						Tolerance: Tolerance{time.Millisecond, 2 * time.Millisecond, DefaultTolerance.DelayP99, DefaultTolerance.Rate, 0.01},
					},
					{
						Endpoints: [2]Endpoint{{"a", "eth1"}, {"b", "eth1"}}, MTU: 4200,
						Directions: [2]Impairment{{Faults: []Fault{}}, {Faults: []Fault{}}},
						Engine:     Netem, EngineAt: Place{"some/where/x.ndklab.yaml", 3, 29}, Offload: true,
						Tolerance: Tolerance{time.Millisecond, 2 * time.Millisecond, time.Second, 0.03, 0.02},
					},
				},
			},
		},
		{
			name: "events",
			file: `
topology:
  nodes: {a: , b: , c: }
  links: [{endpoints: ["a:eth0", "b:eth0"], delay: 1ms}]
timeline:
  - {at: 1s, link: "a:eth0", reset: true}
  - {at: 2s, link: "a:eth0", from: b, reset: true}
  - {at: 3s, partition: [[a], [b, c]]}
  - {at: 4s, heal: true}
  - {at: 5s, link: "a:eth0", from: a, set: {jitter: {samples: [-1ms]}, rate: none, faults: []}}`,
			want: Topology{
				Nodes: []Node{
					{Name: "a", Interfaces: []Interface{at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64")}},
					{Name: "b", Interfaces: []Interface{at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64")}},
					{Name: "c"},
				},
				Links: []Link{link("a:eth0", "b:eth0", 4200, Impairment{Delay: time.Millisecond})},
				Timeline: []Event{
					{At: time.Second, Reset: true},
					{At: 2 * time.Second, From: "b", Reset: true},
					{At: 3 * time.Second, Partition: [][]string{{"a"}, {"b", "c"}}},
					{At: 4 * time.Second, Heal: true},
					{At: 5 * time.Second, From: "a", Set: Change{Jitter: &Jitter{Distribution: Sampled, Samples: []time.Duration{-time.Millisecond}}, Rate: new(uint64), Faults: &[]Fault{}}},
				},
			},
		},
		{
			name: "externals",
			file: `
topology:
  nodes: {a: }
  links:
    - {endpoints: ["a:eth0", "external:tap0"], mtu: 1500, reverse: {loss: 1%}}
    - endpoints: [{node: external, interface: port1, addresses: [192.0.2.9/24]}, "a:eth1"]
    - endpoints: [{node: a, interface: eth2, addresses: [10.7.0.1/24]}, {node: external, interface: up.2}]
timeline:
  - {at: 1s, link: "external:tap0", from: external, set: {delay: 1ms}}`,
			want: Topology{
				Nodes: []Node{{Name: "a", Interfaces: []Interface{
					at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64"),
					at("eth1", 1, 1, "192.0.2.1/24"),
					at("eth2", 2, 0, "10.7.0.1/24"),
				}}},
				Needs: []Need{
					{"a", "a link leads outside the lab", Place{"some/where/x.ndklab.yaml", 5, 30}, ""},
					{"a", "a link leads outside the lab", Place{"some/where/x.ndklab.yaml", 6, 19}, ""},
					{"a", "a link leads outside the lab", Place{"some/where/x.ndklab.yaml", 7, 73}, ""},
				},
				Externals: []Interface{
					at("tap0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64"),
					at("port1", 1, 0, "192.0.2.9/24"),
					at("up.2", 2, 1, "10.7.0.2/24"),
				},
				Links: []Link{
					joining([2]Endpoint{{"a", "eth0"}, {"external", "tap0"}}, 1500, Impairment{}, Impairment{Loss: Loss{Rate: 0.01}}),
					link("external:port1", "a:eth1", 4200, Impairment{}),
					link("a:eth2", "external:up.2", 4200, Impairment{}),
				},
				Timeline: []Event{{At: time.Second, Link: 0, From: "external", Set: Change{Delay: new(time.Millisecond)}}},
			},
		},
		{
			name: "anchors, aliases and merge keys",
			file: `
topology:
  nodes:
    a: &small {cpu: 0.5, memory: 64MiB}
    b: *small
    c: {<<: *small, cpu: 2}
    d: {memory: 16MiB, <<: [{cpu: 3}, *small]}
    ? &e e
    : *small`,
			want: Topology{Nodes: []Node{
				{Name: "a", CPU: 0.5, Memory: 64 << 20},
				{Name: "b", CPU: 0.5, Memory: 64 << 20},
				{Name: "c", CPU: 2, Memory: 64 << 20},
				{Name: "d", CPU: 3, Memory: 16 << 20},
				{Name: "e", CPU: 0.5, Memory: 64 << 20},
			}},
		},
		{
			name: "names that YAML might take for something else",
			file: "\ufefftopology: {nodes: {1: , on: , \"null\": , true: }, links: [{endpoints: [\"1:a.b_c-d\", on:eth0]}]}\r\n",
			want: Topology{
				Nodes: []Node{
					{Name: "1", Interfaces: []Interface{at("a.b_c-d", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64")}},
					{Name: "on", Interfaces: []Interface{at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64")}},
					{Name: "null"}, {Name: "true"},
				},
				Links: []Link{link("1:a.b_c-d", "on:eth0", 4200, Impairment{})},
			},
		},
		{
			name: "captures",
			file: `
topology:
  nodes: {a: , b: }
  links:
    - {endpoints: ["a:eth0", "b:eth0"], capture: true}
    - {endpoints: ["a:eth1", "b:eth1"], capture: false}
    - {endpoints: ["a:eth2", "b:eth2"], capture: out/two.pcapng}
capture:
  - {link: "b:eth1", file: one.pcapng, filter: udp port 4791, snaplen: 128}
  - {interfaces: ["b:eth2", "a:eth0"], file: ring.pcapng, ring: {size: 1MiB}}
  - {interfaces: ["a:eth1"], file: few.pcapng, ring: {size: 10MiB, files: 2}}`,
			want: Topology{
				Nodes: []Node{
					{Name: "a", Interfaces: []Interface{at("eth0", 0, 0, "10.0.0.1/24 fd6e:646b:1::1/64"), at("eth1", 1, 0, "10.0.1.1/24 fd6e:646b:1:1::1/64"), at("eth2", 2, 0, "10.0.2.1/24 fd6e:646b:1:2::1/64")}},
					{Name: "b", Interfaces: []Interface{at("eth0", 0, 1, "10.0.0.2/24 fd6e:646b:1::2/64"), at("eth1", 1, 1, "10.0.1.2/24 fd6e:646b:1:1::2/64"), at("eth2", 2, 1, "10.0.2.2/24 fd6e:646b:1:2::2/64")}},
				},
				Links: []Link{
					link("a:eth0", "b:eth0", 4200, Impairment{}), link("a:eth1", "b:eth1", 4200, Impairment{}), link("a:eth2", "b:eth2", 4200, Impairment{}),
				},
				Captures: []Capture{
					{Interfaces: []Endpoint{{"a", "eth0"}, {"b", "eth0"}}, File: "x-a-eth0.pcapng"},
					{Interfaces: []Endpoint{{"a", "eth2"}, {"b", "eth2"}}, File: "out/two.pcapng"},
					{Interfaces: []Endpoint{{"a", "eth1"}, {"b", "eth1"}}, File: "one.pcapng", Filter: "udp port 4791", Snaplen: 128},
					{Interfaces: []Endpoint{{"b", "eth2"}, {"a", "eth0"}}, File: "ring.pcapng", RingSize: 1 << 20, RingFiles: 5},
					{Interfaces: []Endpoint{{"a", "eth1"}}, File: "few.pcapng", RingSize: 10 << 20, RingFiles: 2},
				},
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseWith(Options{Read: readSamples}, "some/where/x.ndklab.yaml", []byte(test.file))
			if err != nil {
				t.Fatal(err)
			}
			test.want.Name = "x"
			hosts(test.want.Nodes)
			for i := range test.want.Links {
				test.want.Links[i].Number = i // as long as no lab is running
			}
			// TestGivenAddresses tests which addresses are given.
			if diff := cmp.Diff(&test.want, got, compare, cmpopts.IgnoreFields(Interface{}, "Given")); diff != "" {
				t.Errorf("Topology (-want +got):\n%s", diff)
			}
		})
	}
}

// depths is an adapter with four of its limits.
func depths(cq, srq, inline, transfer uint32) Adapter {
	return Adapter{MaxCqDepth: &cq, MaxSrqDepth: &srq, MaxInlineDataSize: &inline, MaxTransferLength: &transfer}
}

func lossyDefault() Impairment {
	return Impairment{Loss: Loss{Every: 3}, Faults: []Fault{{Action: Drop}}}
}
