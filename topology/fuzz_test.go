package topology

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse checks that Parse ends without a panic, that every error has its
// place, and that what it takes holds together.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../examples/pair.ndklab.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte("topology: {kinds: {k: {cpu: 1, memory: 16MiB, pids: 64}}, nodes: {a: &a {kind: k}, b: {<<: *a}}, links: [{endpoints: [{node: a, interface: e, addresses: [10.0.0.1/24]}, b:e]}]}"))
	f.Add([]byte("topology: {defaults: {adapter: {max_read_request_sge: 4, vendor_id: 0x2}}, nodes: {a: {adapter: {max_srq_depth: 0, max_initiator_request_sge: 8}}}}"))
	f.Add([]byte("topology: {nodes: {a: }, links: [{endpoints: [a:e, external:tap0]}, {endpoints: [{node: external, interface: t, addresses: [10.9.0.1/24]}, a:f]}]}"))
	f.Add([]byte("topology: {defaults: {link: {delay: 1ms, tolerance: {rate: 1%}, offload: off}}, nodes: {a: , b: }, links: [{endpoints: [a:e, b:e], jitter: {file: good.txt}, loss: {rate: 1%, burst: 5, packets: [3]}, reorder: {probability: 1%, depth: 3}, queue: {bytes: 1MiB, packets: 5}, ecn: {min: 0B, max: 1KiB}, flap: {period: 1s, down: 1ms}, faults: [{match: {opcode: [ack, 3], syndrome: nak, psn: 1-2, nth: [3, 4]}, action: delay, delay: 1ms, from: a}]}]}\ntimeline: [{at: 1s, partition: [[a], [b]]}, {at: 2s, heal: true}, {at: 3s, link: a:e, set: {corrupt: {probability: 1%, bits: 2}}}, {at: 4s, link: a:e, reset: true}]"))
	f.Add([]byte("topology: {kinds: {t: {kind: switch, stp: true, port: {rate: 1gbit}}}, nodes: {a: , b: , r: {kind: router}, s: {kind: t}, u: {kind: t}}, links: [{endpoints: [a:e, s:1]}, {endpoints: [s:2, u:2]}, {endpoints: [s:3, u:3]}, {endpoints: [u:1, r:1]}, {endpoints: [r:2, b:e], mtu: 9000}]}\nworkloads: [{name: w, from: a, to: b, operation: send, size: 1B, count: 1}]"))
	f.Add([]byte("topology: {defaults: {node: {env: {A: 1}, exec: [x], wait_for: [{node: r, stage: created}]}}, groups: {g: {files: {/etc/x: {content: y, mode: 0600}, /z: {source: good.txt}}, healthcheck: none}}, nodes: {a: {group: g, exec: [{command: x, stage: healthy}], wait_for: [{node: b, stage: healthy}]}, b: {env: {A: 2}, healthcheck: {command: x, retries: 2}}, r: {kind: router, wait_for: []}}}"))
	f.Add([]byte("name: ${SET}-${EMPTY:=x}\nseed: ${NUMBER}\ntopology: {nodes: {a: {cpu: \"${NONE:-${NUMBER}}\"}, b: }, links: [{endpoints: [\"a:${NONE:=eth0}\", \"b:$eth\"]}, {endpoints: [\"a:$$\", \"b:${NONE:?no ${SET}}\"]}]}"))
	f.Add([]byte(joinedLab + "workloads: [{name: w, operation: write, pattern: incast, to: a, nodes: [b, 'd*'], size: {mix: [1B]}, count: 1, verify: true}, {name: p, operation: send, pattern: permutation, nodes: '*', size: all, srq: true, duration: 1s}, {name: e, operation: exec, nodes: a, command: [ls], start: manual}, {name: c, operation: connect, from: a, to: b, depth: 3, count: 5}]\ntimeline: [{name: x, at: 1s, link: a:e, set: {loss: 1%}, repeat: 3, every: 1s}, {name: y, after: x, wait: 1s, kill: a}, {when: {counter: Connect, value: 3}, start: e}, {when: {workload: w, state: done}, snapshot: s}, {after: y, link: a:e, from: a, cut: true}]\nchaos: [{kind: impair, every: 100ms, for: 10ms, until: 1s, links: 'a:*', set: {loss: 1%}}, {kind: restart, every: 1s, until: 3s}]\nchecks: [{workload: w, verified: true, fairness: '> 0.5'}, {counter: Connect, node: a, value: 3, snapshot: s}, {link: a:e, loss: '< 3%'}, {leftovers: 0}, {exec: ls, node: a, output: x}]\nbaseline: {file: report.json, metrics: fairness}\n"))
	f.Add([]byte("topology: {fabric: {shape: leaf-spine, spines: 2, leaves: 3, hosts_per_leaf: 1, tiers: {host: {rate: 1gbit}, spine: {delay: 1ms}}}, nodes: {leaf*: {port: {queue: 1MiB}}, x: }, links: [{endpoints: ['x:eth*', 'leaf1:down*']}]}"))
	f.Add([]byte("topology: {nodes: {'h[1-3]': {cpu: 1}, h*: {pids: 64}, h2: , 's[1-2]': {kind: switch}}, links: [{endpoints: ['h[1-3]:eth0', 's1:p*']}, {endpoints: ['h[1-2]:x[1-2]', {node: 's[1-2]', interface: 'y*'}], cross: true}, {endpoints: ['s1:t', 's2:t']}]}\nworkloads: [{name: 'w[1-2]', from: 'h[1-2]', to: h3, operation: send, size: 1B, count: 1}]\ntimeline: [{at: 1s, link: 's?:*', from: 's*', set: {loss: 1%}}, {at: 1s, kill: 'h[1-2]'}]\nchecks: [{workload: 'w*', errors: 0}]\n"))
	f.Add([]byte("topology: {defaults: {adapter: {congestion: dcqcn, pfc: [3]}, link: {rate: 10gbit}}, kinds: {t: {kind: switch, buffer: {preset: sonic, alpha: 1/8, headroom: auto}}}, groups: {g: {priorities: {lossless: [3, 4], dscp: {26: 3, 48: 6}, schedule: {6: strict, 3: 60%}}}}, nodes: {a: , b: {adapter: {pfc: []}}, s: {kind: t, group: g, watchdog: {detect: 1ms, action: forward}}, r: {kind: router, buffer: {preset: trident2, xoff: 20KiB, gap: 0B}, priorities: {lossless: []}}}, links: [{endpoints: [a:e, s:1], ecn: {min: 1KiB, max: 2KiB, probability: 20%}}, {endpoints: [s:2, r:1]}, {endpoints: [r:2, b:e], queue: 1MiB, reverse: {queue: none}}]}\ntimeline: [{at: 1s, link: s:2, set: {rate: 1gbit}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lab, err := ParseWith(Options{Read: readSamples, Variable: variables}, "fuzz.yaml", data)
		if err != nil {
			var list ErrorList
			if !errors.As(err, &list) || len(list) == 0 {
				t.Fatalf("error %#v is no ErrorList", err)
			}
			for _, e := range list {
				if e.Line < 1 || e.Column < 1 || e.Message == "" || strings.ContainsAny(e.Message, "\n\r") {
					t.Errorf("error without place or text on one line: %#v", e)
				}
			}
			return
		}
		if text, err := Expand(Options{Variable: variables}, "fuzz.yaml", data); err != nil {
			t.Errorf("a file that is right is not expanded: %v", err)
		} else if again, err := ParseWith(Options{Read: readSamples}, "fuzz.yaml", text); err != nil {
			t.Errorf("%v\n%s", err, text)
		} else if len(again.Nodes) != len(lab.Nodes) || len(again.Links) != len(lab.Links) {
			t.Errorf("%d nodes and %d links have become %d and %d", len(lab.Nodes), len(lab.Links), len(again.Nodes), len(again.Links))
		}
		if lab.Name == "" || len(lab.Nodes) == 0 {
			t.Errorf("a lab without name or nodes: %+v", lab)
		}
		for _, n := range lab.Nodes {
			for _, route := range n.Routes {
				for _, via := range route.Via {
					if n.Kind == Switch || !slices.ContainsFunc(n.Interfaces, func(i Interface) bool {
						return slices.ContainsFunc(i.Addresses, func(a netip.Prefix) bool { return a.Masked().Contains(via) && a.Addr() != via })
					}) {
						t.Errorf("%s %s has the route %+v", n.Kind, n.Name, route)
					}
				}
			}
			a := n.Adapter
			if a.MaxReadRequestSge != nil && a.MaxInitiatorRequestSge != nil && *a.MaxReadRequestSge > *a.MaxInitiatorRequestSge {
				t.Errorf("%s reads with %d elements of %d", n.Name, *a.MaxReadRequestSge, *a.MaxInitiatorRequestSge)
			}
			depth, number := a.MaxSrqDepth, a.MaxSrqCount
			if none := depth != nil && *depth == 0; none != (number != nil && *number == 0) { // NDK-CAP-04
				t.Errorf("%s has SRQs by one limit and none by the other", n.Name)
			}
		}
		for i, l := range lab.Links {
			for end, e := range l.Endpoints {
				if found, ok := lab.FindLink(e.String()); !ok || found != i {
					t.Errorf("endpoint %s of link %d is found on %d, %v", e, i, found, ok)
				}
				if err := l.Directions[end].Check(); err != nil {
					t.Errorf("link %+v: %v", l, err)
				}
			}
		}
		for _, x := range lab.Externals {
			if e := lab.Links[x.Link].Endpoints[x.End]; !e.External() || e.Interface != x.Name || len(x.Addresses) == 0 {
				t.Errorf("external %+v is at the end %s", x, e)
			}
		}
		for _, w := range lab.Draw(1).Workloads {
			if len(w.Flows) == 0 && w.Operation != Program {
				t.Errorf("workload without flows: %+v", w)
			}
			for _, f := range w.Flows {
				p, ok := lab.Path(f.From, f.To)
				if w.Pattern != Permutation && (!ok || p.From.Address.Is4() != p.To.Address.Is4() || p.From.Address == p.To.Address) {
					t.Errorf("workload %+v has the path %+v, %v", w, p, ok)
				}
			}
		}
		for _, e := range lab.Draw(1).Timeline {
			if e.OfLink() && e.Link >= len(lab.Links) || e.Node != "" && lab.FindNode(e.Node) == nil {
				t.Errorf("event %+v", e)
			}
		}
	})
}

// FuzzParseChange checks that ParseChange ends without a panic, that its errors
// are lines of text, and that what it takes is the same again when it is written.
func FuzzParseChange(f *testing.F) {
	for _, b := range badSettings {
		f.Add(strings.Join(b.words, "\n"))
	}
	f.Add("delay=1ms\njitter={spread: 1us, distribution: normal}\nloss={rate: 1%, burst: 2}\nrate=none")
	f.Add("queue={bytes: 1MiB, packets: 7}\necn={min: 1KiB, max: 2KiB, probability: 0.5%}\ncut=true\nflap={period: 1s, down: 1ms}")
	f.Add("faults=[{match: {opcode: [read, UD_SEND_ONLY], cm: [REQ, 0x20], qp: 1, psn: 0xffffff-0, every: 2}, action: delay, delay: 1ms}]")
	f.Fuzz(func(t *testing.T, text string) {
		change, err := ParseChange(readSamples, strings.Split(text, "\n"))
		if err != nil {
			if err.Error() == "" || strings.ContainsRune(err.Error(), '\r') {
				t.Errorf("the error %q", err)
			}
			return
		}
		again, err := ParseChange(nil, change.Settings())
		if err != nil {
			t.Fatalf("%q: %v", change.Settings(), err)
		}
		if diff := cmp.Diff(change, again); diff != "" {
			t.Errorf("%q (-first +second):\n%s", change.Settings(), diff)
		}
		if change.String() == "" {
			t.Error("no words")
		}
	})
}
