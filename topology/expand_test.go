package topology

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/internal/topology/shape"
)

// TestExpand holds files to others that say the same without ranges, patterns and free
// interfaces.
func TestExpand(t *testing.T) {
	for _, test := range []struct{ name, brief, long string }{
		{"zipped", `
nodes: {s: {kind: switch}, "h[1-3]": {cpu: 1}}
links: [{endpoints: ["h[1-3]:eth0", "s:p[1-3]"], delay: 1ms}]`, `
nodes: {s: {kind: switch}, h1: {cpu: 1}, h2: {cpu: 1}, h3: {cpu: 1}}
links: [{endpoints: ["h1:eth0", "s:p1"], delay: 1ms}, {endpoints: ["h2:eth0", "s:p2"], delay: 1ms}, {endpoints: ["h3:eth0", "s:p3"], delay: 1ms}]`},
		{"free interfaces", `
nodes: {s: {kind: switch}, "h[1-3]": }
links: [{endpoints: ["h[1-3]:eth*", "s:p*"]}, {endpoints: ["h1:eth0", "h2:eth*"]}, {endpoints: ["h2:eth2", "h3:eth*"]}]`, `
nodes: {s: {kind: switch}, h1: , h2: , h3: }
links: [{endpoints: ["h1:eth1", "s:p0"]}, {endpoints: ["h2:eth0", "s:p1"]}, {endpoints: ["h3:eth0", "s:p2"]}, {endpoints: ["h1:eth0", "h2:eth1"]}, {endpoints: ["h2:eth2", "h3:eth1"]}]`},
		{"several interfaces at several nodes", `
nodes: {"s[1-2]": {kind: switch}, "h[1-2]-[1-2]": }
links: [{endpoints: ["h[1-2]-[1-2]:eth0", "s[1-2]:p[1-2]"]}]`, `
nodes: {s1: {kind: switch}, s2: {kind: switch}, h1-1: , h1-2: , h2-1: , h2-2: }
links: [{endpoints: ["h1-1:eth0", "s1:p1"]}, {endpoints: ["h1-2:eth0", "s1:p2"]}, {endpoints: ["h2-1:eth0", "s2:p1"]}, {endpoints: ["h2-2:eth0", "s2:p2"]}]`},
		{"crossed", `
nodes: {"leaf[1-3]": {kind: router}, "spine[1-2]": {kind: router}}
links: [{endpoints: ["leaf[1-3]:up[1-2]", "spine[1-2]:leaf[1-3]"], cross: true}]`, `
nodes: {leaf1: {kind: router}, leaf2: {kind: router}, leaf3: {kind: router}, spine1: {kind: router}, spine2: {kind: router}}
links: [{endpoints: ["leaf1:up1", "spine1:leaf1"]}, {endpoints: ["leaf1:up2", "spine2:leaf1"]}, {endpoints: ["leaf2:up1", "spine1:leaf2"]},
  {endpoints: ["leaf2:up2", "spine2:leaf2"]}, {endpoints: ["leaf3:up1", "spine1:leaf3"]}, {endpoints: ["leaf3:up2", "spine2:leaf3"]}]`},
		{"crossed with free interfaces", `
nodes: {"a[1-2]": , "b[1-2]": }
links: [{endpoints: ["a[1-2]:eth*", {node: "b[1-2]", interface: eth*}], cross: true}]`, `
nodes: {a1: , a2: , b1: , b2: }
links: [{endpoints: ["a1:eth0", "b1:eth0"]}, {endpoints: ["a1:eth1", "b2:eth0"]}, {endpoints: ["a2:eth0", "b1:eth1"]}, {endpoints: ["a2:eth1", "b2:eth1"]}]`},
		{"nearer entries", `
nodes: {"h*": {cpu: 4, memory: 64MiB, env: {A: 1}}, "h[1-3]": {cpu: 2}, "h[2-3]": {pids: 100, cpu: 3}, h3: {cpu: 1}}
links: []`, `
nodes: {h1: {cpu: 2, memory: 64MiB, env: {A: 1}}, h2: {cpu: 3, pids: 100, memory: 64MiB, env: {A: 1}}, h3: {cpu: 1, pids: 100, memory: 64MiB, env: {A: 1}}}
links: []`},
		{"outside", `
nodes: {"h[1-2]": }
links: [{endpoints: ["h[1-2]:eth0", "external:tap*"]}]`, `
nodes: {h1: , h2: }
links: [{endpoints: ["h1:eth0", "external:tap0"]}, {endpoints: ["h2:eth0", "external:tap1"]}]`},
		{"workloads", `
nodes: {s: {kind: switch}, "h[1-4]": }
links: [{endpoints: ["h[1-4]:eth0", "s:p*"]}]
workloads: [{name: "w[1-2]", from: "h[1-2]", to: "h[3-4]", operation: send, size: 1B, count: 1}, {name: "v[1-2]", from: h4, to: "h[1-2]", operation: send, size: 1B, count: 1}]`, `
nodes: {s: {kind: switch}, h1: , h2: , h3: , h4: }
links: [{endpoints: ["h1:eth0", "s:p0"]}, {endpoints: ["h2:eth0", "s:p1"]}, {endpoints: ["h3:eth0", "s:p2"]}, {endpoints: ["h4:eth0", "s:p3"]}]
workloads: [{name: w1, from: h1, to: h3, operation: send, size: 1B, count: 1}, {name: w2, from: h2, to: h4, operation: send, size: 1B, count: 1},
  {name: v1, from: h4, to: h1, operation: send, size: 1B, count: 1}, {name: v2, from: h4, to: h2, operation: send, size: 1B, count: 1}]`},
		{"targets", `
nodes: {s: {kind: switch}, "h[1-4]": {}, h4: {wait_for: [{node: "h[1-2]", stage: healthy}]}}
links: [{endpoints: ["h[1-4]:eth0", "s:p*"], faults: [{match: {}, action: drop, from: "h*"}]}]
workloads:
  - {name: "w[1-2]", from: "h[1-2]", to: h4, operation: send, size: 1B, count: 1, verify: true}
  - {name: ring, pattern: ring, nodes: ["h[3,1]", "*"], operation: send, size: 1B, count: 1}
timeline:
  - {name: x, at: 1s, link: "h[1-2]:eth0", down: true}
  - {after: x, link: "s:p?", from: "h*", set: {loss: 1%}}
  - {at: 1s, link: "h1:eth*", from: "*", reset: true}
  - {at: 2s, partition: [["h[1-2]", s], ["h[3-4]"]]}
  - {at: 3s, kill: "h[1-2]"}
  - {at: 4s, start: "*"}
  - {at: 5s, exec: ls, node: "h[3-4]"}
checks:
  - {workload: "w*", errors: 0, verified: true}
  - {link: "h[3-4]:*", from: "h[3-4]", dropped: 0}
  - {counter: Connect, node: "h[1-2]", value: 1}
chaos:
  - {kind: down, every: 1s, for: 1s, until: 3s, links: "h[1-2]:eth0"}
capture:
  - {link: "h[1-2]:*", file: a}
  - {interfaces: ["h[1-2]:*", "s:p[2-3]"], file: b}`, `
nodes: {s: {kind: switch}, h1: , h2: , h3: , h4: {wait_for: [{node: h1, stage: healthy}, {node: h2, stage: healthy}]}}
links:
  - {endpoints: ["h1:eth0", "s:p0"], faults: [{match: {}, action: drop, from: h1}]}
  - {endpoints: ["h2:eth0", "s:p1"], faults: [{match: {}, action: drop, from: h2}]}
  - {endpoints: ["h3:eth0", "s:p2"], faults: [{match: {}, action: drop, from: h3}]}
  - {endpoints: ["h4:eth0", "s:p3"], faults: [{match: {}, action: drop, from: h4}]}
workloads:
  - {name: w1, from: h1, to: h4, operation: send, size: 1B, count: 1, verify: true}
  - {name: w2, from: h2, to: h4, operation: send, size: 1B, count: 1, verify: true}
  - {name: ring, pattern: ring, nodes: [h3, h1, h2, h4], operation: send, size: 1B, count: 1}
timeline:
  - {at: 1s, link: "h1:eth0", down: true}
  - {name: x, at: 1s, link: "h2:eth0", down: true}
  - {after: x, link: "h1:eth0", from: h1, set: {loss: 1%}}
  - {after: x, link: "h2:eth0", from: h2, set: {loss: 1%}}
  - {after: x, link: "h3:eth0", from: h3, set: {loss: 1%}}
  - {after: x, link: "h4:eth0", from: h4, set: {loss: 1%}}
  - {at: 1s, link: "h1:eth0", reset: true}
  - {at: 2s, partition: [[h1, h2, s], [h3, h4]]}
  - {at: 3s, kill: h1}
  - {at: 3s, kill: h2}
  - {at: 4s, start: h1}
  - {at: 4s, start: h2}
  - {at: 4s, start: h3}
  - {at: 4s, start: h4}
  - {at: 5s, exec: ls, node: h3}
  - {at: 5s, exec: ls, node: h4}
checks:
  - {workload: w1, errors: 0, verified: true}
  - {workload: w2, errors: 0, verified: true}
  - {link: "h3:eth0", from: h3, dropped: 0}
  - {link: "h4:eth0", from: h4, dropped: 0}
  - {counter: Connect, node: h1, value: 1}
  - {counter: Connect, node: h2, value: 1}
chaos:
  - {kind: down, every: 1s, for: 1s, until: 3s, links: ["h1:eth0", "h2:eth0"]}
capture:
  - {interfaces: ["h1:eth0", "s:p0", "h2:eth0", "s:p1"], file: a}
  - {interfaces: ["h1:eth0", "h2:eth0", "s:p2", "s:p3"], file: b}`},
		{"fabric", `
fabric:
  shape: leaf-spine
  spines: 2
  leaves: 2
  hosts_per_leaf: 1
  tiers: {host: {rate: 10gbit, delay: 1us}, spine: {rate: 100gbit, queue: 1MiB, mtu: 9000}}
defaults: {link: {delay: 5us, mtu: 9000}}
nodes: {"leaf*": {port: {queue: 2MiB}}, h1-1: {cpu: 1}, extra: }
links: [{endpoints: ["extra:eth0", "leaf1:down*"]}]`, `
defaults: {link: {delay: 5us, mtu: 9000}}
nodes:
  spine1: {kind: router}
  spine2: {kind: router}
  leaf1: {kind: router, port: {queue: 2MiB}}
  h1-1: {cpu: 1}
  leaf2: {kind: router, port: {queue: 2MiB}}
  h2-1:
  extra:
links:
  - {endpoints: ["h1-1:eth0", "leaf1:down1"], rate: 10gbit, delay: 1us}
  - {endpoints: ["h2-1:eth0", "leaf2:down1"], rate: 10gbit, delay: 1us}
  - {endpoints: ["leaf1:up1", "spine1:leaf1"], rate: 100gbit, queue: 1MiB}
  - {endpoints: ["leaf2:up1", "spine1:leaf2"], rate: 100gbit, queue: 1MiB}
  - {endpoints: ["leaf1:up2", "spine2:leaf1"], rate: 100gbit, queue: 1MiB}
  - {endpoints: ["leaf2:up2", "spine2:leaf2"], rate: 100gbit, queue: 1MiB}
  - {endpoints: ["extra:eth0", "leaf1:down0"]}`},
		{"fabric with its defaults", `
fabric: {shape: dumbbell, nodes: 1, tiers: {trunk: {rate: 1gbit}}}`, `
nodes: {west: {kind: switch}, east: {kind: switch}, w1: , e1: }
links: [{endpoints: ["west:trunk", "east:trunk"], rate: 1gbit}, {endpoints: ["w1:eth0", "west:p1"]}, {endpoints: ["e1:eth0", "east:p1"]}]`},
		{"anchors", `
nodes: {"h[1-2]": &h {cpu: 1}, b: *h, c: {<<: *h, cpu: 2}}
links: [&l {endpoints: ["h[1-2]:eth*", "b:eth*"], delay: 1ms}, {<<: *l, endpoints: ["c:eth0", "h[1]:eth*"]}]`, `
nodes: {h1: {cpu: 1}, h2: {cpu: 1}, b: {cpu: 1}, c: {cpu: 2}}
links: [{endpoints: ["h1:eth0", "b:eth0"], delay: 1ms}, {endpoints: ["h2:eth0", "b:eth1"], delay: 1ms}, {endpoints: ["c:eth0", "h1:eth1"], delay: 1ms}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			brief, long := parsed(t, inTopology(test.brief)), parsed(t, inTopology(test.long))
			if diff := cmp.Diff(long, brief, cmpopts.IgnoreTypes(Place{}), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
				t.Errorf("(-long +brief)\n%s", diff)
			}
			text, err := Expand(Options{}, "x.ndklab.yaml", []byte(inTopology(test.brief)))
			if err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(string(text), "&#") || strings.Contains(string(text), "fabric:") {
				t.Errorf("expanded to\n%s", text)
			}
			if diff := cmp.Diff(long, parsed(t, string(text)), cmpopts.IgnoreTypes(Place{}), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
				t.Errorf("(-long +expanded)\n%s\n%s", diff, text)
			}
		})
	}
}

// inTopology puts the nodes and links of a file under the key topology, and what follows
// them behind it.
func inTopology(text string) string {
	before, after, _ := strings.Cut(strings.TrimSpace(text), "\nworkloads:")
	if after != "" {
		after = "\nworkloads:" + after
	}
	return "topology:\n  " + strings.ReplaceAll(before, "\n", "\n  ") + after + "\n"
}

// TestExpandWork holds a file of a few lines to work that grows as its nodes do.
func TestExpandWork(t *testing.T) {
	work := func(nodes int) float64 {
		text := []byte(fmt.Sprintf(`topology:
  nodes:
    s[1-%[2]d]: {kind: switch}
    h[1-%[1]d]: {cpu: 1}
    h1: {cpu: 2}
    h*: {memory: 64MiB}
  links:
    - {endpoints: ["h[1-%[1]d]:eth0", "s[1-%[2]d]:p[1-100]"], delay: 1ms}
`, nodes, nodes/100))
		return testing.AllocsPerRun(1, func() {
			if _, err := Parse("lab.yaml", text); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := work(1000), work(4000)
	if many > 4.2*few {
		t.Errorf("%.0f allocations for 1000 nodes, %.0f for 4000", few, many)
	}
}

// TestExpandText holds what is written to what is read: dollars, and values that look like
// others.
func TestExpandText(t *testing.T) {
	text := `topology: {nodes: {a: {env: {A: "1", B: "$$HOME", C: "${SET}", D: "true", E: "x: y", F: "$$$${X}"}, exec: ["echo $$A"]}}}`
	want, err := ParseWith(Options{Variable: variables}, "x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	expanded, err := Expand(Options{Variable: variables}, "x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Nodes, parsed(t, string(expanded)).Nodes); diff != "" {
		t.Errorf("%s\n%s", diff, expanded)
	}
}

// tierOf is the tier of a shape's link, by the names of what it joins.
func tierOf(l Link) string {
	ends := l.Endpoints[0].String() + " " + l.Endpoints[1].String()
	for _, tier := range []string{"core", "agg", "spine", "trunk"} { // that a link leads up to
		if strings.Contains(ends, tier) {
			return tier
		}
	}
	return "host"
}

// TestExpandShapes parses every shape with its defaults and no more, and with settings for
// each tier, which the links of that tier have and no others.
func TestExpandShapes(t *testing.T) {
	for _, s := range shape.All() {
		lab := parsed(t, "topology: {fabric: {shape: "+s.Name+"}}")
		if len(lab.Nodes) < 4 || len(lab.Links) < 4 {
			t.Errorf("%s has %d nodes and %d links", s.Name, len(lab.Nodes), len(lab.Links))
		}
		for _, tier := range s.Tiers {
			lab := parsed(t, "topology: {fabric: {shape: "+s.Name+", tiers: {"+tier+": {delay: 7us}}}}")
			for _, l := range lab.Links {
				if got, want := l.Directions[0].Delay == 7*time.Microsecond, tierOf(l) == tier; got != want {
					t.Errorf("%s: settings of %s at %v: %v", s.Name, tier, l.Endpoints, got)
				}
			}
		}
	}
	// Where a fabric has all nodes and links, the schema (TestSchemaVerdicts) takes lists of
	// none beside it, too.
	for _, text := range []string{"topology: {fabric: {shape: star}, nodes: {}, links: []}", "topology: {fabric: {shape: star}, nodes: , links: }"} {
		if lab := parsed(t, text); len(lab.Nodes) != 9 {
			t.Errorf("%s: %d nodes", text, len(lab.Nodes))
		}
	}
	if _, err := Expand(Options{}, "x.yaml", []byte("topology: {fabric: {shape: torus}}")); err == nil {
		t.Error("a wrong file is expanded")
	}
}
