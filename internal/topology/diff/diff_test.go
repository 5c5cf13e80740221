package diff

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

var compare = cmp.Options{
	cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}), cmpopts.EquateEmpty(),
	cmpopts.IgnoreFields(topology.Link{}, "EngineAt"), // the place in the file
}

// parse is the topology of a file, of a lab that is up or, for nil, not.
func parse(t interface{ Fatalf(string, ...any) }, running *topology.Topology, file string) *topology.Topology {
	got, err := topology.ParseWith(topology.Options{Running: running}, "x.ndklab.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return got
}

// The changes of a lab, as people read them.
func TestCompare(t *testing.T) {
	const ab = "topology:\n  nodes: {a: , b: }\n  links:\n    - {endpoints: ['a:eth0', 'b:eth0']}\n"
	const star = `topology:
  nodes: {a: , b: , s: {kind: switch}}
  links:
    - {endpoints: ["a:eth0", "s:1"]}
    - {endpoints: ["b:eth0", "s:2"]}
`
	const routed = `topology:
  nodes: {a: , b: , r: {kind: router}}
  links:
    - {endpoints: ["a:eth0", "r:1"]}
    - {endpoints: ["r:2", "b:eth0"]}
`
	tests := []struct {
		name, was, is string
		want          string
	}{
		{"nothing", ab, ab, ""},
		{"what nodes are given", ab, "topology:\n  nodes: {a: {env: {A: x}, healthcheck: {command: x}, wait_for: [{node: b, stage: created}]}, b: }\n  links:\n    - {endpoints: ['a:eth0', 'b:eth0']}\n", `
± node a restarts because env none -> others, healthcheck none -> others, wait_for none -> others (it is for nodes that start)
`},
		{"order and comments", star, `topology:
  links:
    - {endpoints: ["b:eth0", "s:2"]}
    - {endpoints: ["a:eth0", "s:1"]} # first
  nodes: {s: {kind: switch}, b: , a: }
`, ""},
		{"a node at a switch", star, strings.Replace(star, "a: ,", "a: , c: ,", 1) + "    - {endpoints: ['c:eth0', 's:3'], delay: 1ms, reverse: {loss: 1%}}\n", `
+ node c (host), eth0 10.0.0.3/24 fd6e:646b:1::3/64
+ link c:eth0 - s:3, delay 1ms from c, delay 1ms, loss 1% from s
`},
		{"a node less", star, strings.Replace(strings.Replace(star, "b: ,", "", 1), "    - {endpoints: [\"b:eth0\", \"s:2\"]}\n", "", 1), `
- node b
- link b:eth0 - s:2
`},
		{"impairments", ab, ab[:len(ab)-2] + ", delay: 1ms, loss: 1%, reverse: {loss: 2%}}\n", `
~ link a:eth0 - b:eth0 delay from a none -> 1ms, loss from a none -> 1%, delay from b none -> 1ms, loss from b none -> 2%
`},
		{"one value", ab[:len(ab)-2] + ", delay: 1ms, jitter: 1us}\n", ab[:len(ab)-2] + ", delay: 2ms}\n", `
~ link a:eth0 - b:eth0 delay 1ms -> 2ms, jitter 1us -> none
`},
		{"what a link is", ab, ab[:len(ab)-2] + ", mtu: 1500, down: true, overrun: allow, tolerance: {rate: 20%}}\n", `
~ link a:eth0 - b:eth0 mtu 4200 -> 1500, down false -> true, tolerance.rate 0.1 -> 0.2, overrun fail -> allow
`},
		{"the MTU of netem", ab[:len(ab)-2] + ", engine: netem}\n", ab[:len(ab)-2] + ", engine: netem, mtu: 1500}\n", `
± link a:eth0 - b:eth0 is made anew because mtu 4200 -> 1500 (netem reckons with it from when it is there)
`},
		{"how a link is made", ab, ab[:len(ab)-2] + ", offload: off, engine: netem}\n", `
± link a:eth0 - b:eth0 is made anew because engine linkem -> netem, offload on -> off (its interfaces are made for one engine)
`},
		{"limits", ab, strings.Replace(ab, "a: ", "a: {cpu: 0.5, memory: 1GiB}", 1), `
± node a restarts because cpu none -> 0.5, memory none -> 1GiB (whether its processes are limited they have from when they start)
`},
		{"other limits", strings.Replace(ab, "a: ", "a: {cpu: 0.5, memory: 1GiB, pids: 100}", 1), strings.Replace(ab, "a: ", "a: {cpu: 1, memory: 2GiB, pids: 200}", 1), `
~ node a cpu 0.5 -> 1, memory 1GiB -> 2GiB, pids 100 -> 200
`},
		{"a policy", ab, strings.Replace(ab, "a: ", "a: {restart: always}", 1), `
~ node a restart never -> always
`},
		{"programs", ab, strings.Replace(ab, "a: ", "a: {verbs: off}", 1), `
± node a restarts because verbs on -> off (its agent has this from when it starts)
`},
		{"an adapter", ab, strings.Replace(ab, "a: ", "a: {cpu: 1, adapter: {max_srq_depth: 4096, roce_frame_size: 1024}}", 1), `
± node a restarts because cpu none -> 1, adapter.max_srq_depth the default -> 4096, adapter.roce_frame_size the default -> 1024 (whether its processes are limited they have from when they start)
`},
		{"congestion control", ab, strings.Replace(ab, "a: ", "a: {adapter: {congestion: dcqcn, dcqcn: paper, dscp: 24}}", 1), `
± node a restarts because adapter.congestion the default -> dcqcn, adapter.dcqcn none -> others, adapter.dscp the default -> 24 (its adapter has its settings from when it is opened)
`},
		{"another kind", star, strings.Replace(strings.Replace(star, "s: {kind: switch}", "s: {kind: router}", 1), `["b:eth0", "s:2"]`, `[{node: b, interface: eth0, addresses: [192.0.2.1/24]}, "s:2"]`, 1), `
± node b restarts because eth0 10.0.0.2/24 fd6e:646b:1::2/64 -> 192.0.2.1/24 (its adapter binds the addresses that there are when it is opened)
± node s is made anew because kind switch -> router (its agent has this from when it starts); 1 none -> 10.0.0.2/24 fd6e:646b:1::2/64, 2 none -> 192.0.2.2/24
~ routes of a
± link a:eth0 - s:1 is made anew because node s as it was -> another (its interface there goes with the node)
± link b:eth0 - s:2 is made anew because node s as it was -> another (its interface there goes with the node)
`},
		{"another link between hosts", ab, strings.Replace(ab, "b: ", "b: , c: ", 1) + "    - {endpoints: ['b:eth1', 'c:eth0']}\n", `
± node b restarts because eth1 none -> 10.0.1.1/24 fd6e:646b:1:1::1/64 (its adapter binds the addresses that there are when it is opened)
+ node c (host), eth0 10.0.1.2/24 fd6e:646b:1:1::2/64
+ link b:eth1 - c:eth0
`},
		{"another link of a router", routed, strings.Replace(routed, "b: ,", "b: , c: ,", 1) + "    - {endpoints: ['r:3', 'c:eth0']}\n", `
+ node c (host), eth0 10.0.2.2/24 fd6e:646b:1:2::2/64
~ node r 3 none -> 10.0.2.1/24 fd6e:646b:1:2::1/64
+ link r:3 - c:eth0
`},
		{"a shorter way", strings.Replace(routed, "b: ,", "b: , q: {kind: router},", 1) + "    - {endpoints: ['r:3', 'q:1']}\n",
			strings.Replace(strings.Replace(routed, "b: ,", "b: , q: {kind: router},", 1), `["r:2",`, `["q:2",`, 1) + "    - {endpoints: ['r:3', 'q:1']}\n", `
~ node q 2 none -> 10.0.1.1/24 fd6e:646b:1:1::1/64, routes
~ routes of r
- link r:2 - b:eth0
+ link q:2 - b:eth0
`},
		{"plans", ab, ab + "workloads: [{name: w, from: a, to: b, operation: send, size: 1B, count: 1}]\ntimeline: [{at: 1s, link: 'a:eth0', down: true}]\nchecks: [{workload: w, errors: 0}]\ncapture: [{link: 'a:eth0', file: x.pcapng}]\n", `
~ workloads, timeline, checks, capture
  captures are those that the lab was made with, until it is made anew
`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			was := parse(t, nil, test.was)
			is := parse(t, was, test.is)
			d, err := Compare(was, is)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), d.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d.None() != (test.want == "") {
				t.Errorf("None is %v", d.None())
			}
		})
	}
}

// The name, the seed, the dilation, the hosts of nodes and the links to the outside of a lab cannot change.
func TestRefused(t *testing.T) {
	was := parse(t, nil, "name: a\nseed: 1\ntopology: {groups: {g: {together: true}}, nodes: {a: , h: {host: 1, group: g}}}")
	for file, want := range map[string]string{
		"name: b\nseed: 1\ntopology: {groups: {g: {together: true}}, nodes: {a: , h: {host: 1, group: g}}}":                                     "the name changes from a to b",
		"name: a\nseed: 2\ntopology: {groups: {g: {together: true}}, nodes: {a: , h: {host: 1, group: g}}}":                                     "the seed changes from 1 to 2",
		"name: a\ndilation: 2\ntopology: {groups: {g: {together: true}}, nodes: {a: , h: {host: 1, group: g}}}":                                 "the dilation changes from 1 to 2",
		"name: a\ndilation: 1\ntopology: {groups: {g: {together: true}}, nodes: {a: , h: {host: 1, group: g}}}":                                 "",
		"name: a\ntopology: {groups: {g: {together: true}}, nodes: {a: , h: {host: 1, group: g}}}":                                              "",
		"name: a\ntopology: {groups: {g: {together: true}}, nodes: {a: , h: {host: 1, group: g}}, links: [{endpoints: ['a:e', 'external:x']}]}": "the link a:e - external:x to outside of the lab is added",
		"name: a\ntopology: {groups: {g: {together: true}}, nodes: {a: , h: {host: x, group: g}}}":                                              "host of node h changes from 1 to x",
		"name: a\ntopology: {groups: {g: {together: true}}, nodes: {a: {group: g}, h: {host: 1, group: g}}}":                                    "together of node a changes from none to g",
		"name: a\ntopology: {groups: {g: {together: true}}, nodes: {a: , b: {host: 2, group: g}, h: {host: 1, group: g}}}\n\n":                  "",
	} {
		_, err := Compare(was, parse(t, was, file))
		if refused := (*RefusedError)(nil); want == "" && err != nil || want != "" && (!errors.As(err, &refused) || err.Error() != want) {
			t.Errorf("%s: got %v, want %s", file, err, want)
		}
	}
}

// Packet buffers and what is at them cannot change, but what their links do to packets can, and what nodes run.
func TestBuffersRefused(t *testing.T) {
	const file = `
topology:
  defaults: {adapter: {pfc: [3]}, link: {rate: 1gbit}}
  nodes: {s: {kind: switch, buffer: hpcc, watchdog: {detect: 1s}}, a: {adapter: {receive_rate: 1gbit}}, b: , c: , plain: {kind: switch}}
  links:
    - {endpoints: ["a:eth0", "s:0"]}
    - {endpoints: ["b:eth0", "s:1"]}
    - {endpoints: ["c:eth0", "plain:1"], delay: 1ms}
`
	was := parse(t, nil, file)
	for _, c := range []struct{ from, to, at string }{
		{"buffer: hpcc", "buffer: {size: 1MiB}", "s"},
		{"buffer: hpcc", "buffer: hpcc, priorities: {lossless: [4]}", "s"},
		{", watchdog: {detect: 1s}", "", "s"},
		{"buffer: hpcc, watchdog: {detect: 1s}", "", "s"},
		{"receive_rate: 1gbit", "receive_rate: 2gbit", "a"},
		{"receive_rate: 1gbit", "receive_rate: 1gbit, receive_buffer: 1MiB", "a"},
		{"b: ,", "b: {adapter: {pfc: [3, 4]}},", "b"},
		{"s:1", "s:2", "s"},
		{"link: {rate: 1gbit}", "link: {rate: 1gbit, mtu: 1500}", "s"},
		{"{kind: switch}", "{kind: switch, buffer: sonic}", "plain"},
		{"rate: 1gbit}", "rate: 2gbit}", ""},
		{"b: ,", "b: {env: {A: x}},", ""},
	} {
		changed := strings.Replace(file, c.from, c.to, 1)
		if changed == file {
			t.Fatalf("no %s", c.from)
		}
		_, err := Compare(was, parse(t, was, changed))
		want := "packet buffers change, or the links at them, at node " + c.at
		if refused := (*RefusedError)(nil); c.at == "" && err != nil || c.at != "" && (!errors.As(err, &refused) || err.Error() != want) {
			t.Errorf("%s: got %v, want %s", c.to, err, want)
		}
	}
}

// Keys are those of files.
func TestKeys(t *testing.T) {
	example, err := os.ReadFile("../../../examples/adapter.ndklab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	of := reflect.TypeFor[topology.Adapter]()
	for i := range of.NumField() {
		if k := key(of.Field(i).Name); !strings.Contains(string(example), " "+k+": ") {
			t.Errorf("%s is %s, which is no key", of.Field(i).Name, k)
		}
	}
}

// patch does to a topology what a difference says, as a lab would.
func patch(t *topology.Topology, d *Difference) {
	for _, n := range d.Nodes {
		i := slices.IndexFunc(t.Nodes, func(o topology.Node) bool { return o.Name == n.Name })
		switch n.Action {
		case Add:
			t.Nodes = append(t.Nodes, *n.Is)
		case Remove:
			t.Nodes = slices.Delete(t.Nodes, i, i+1)
		case Replace, Restart:
			t.Nodes[i] = *n.Is
		case Alter:
			for _, c := range n.Changes {
				if c.Key == routesKey {
					t.Nodes[i].Routes = n.Is.Routes
				}
			}
		}
		// Interfaces come and go with links.
		if n.Is != nil && n.Action == Alter {
			for j, f := range t.Nodes[i].Interfaces {
				if k := slices.IndexFunc(n.Changes, func(c Change) bool { return c.Key == f.Name }); k >= 0 {
					at := slices.IndexFunc(n.Is.Interfaces, func(g topology.Interface) bool { return g.Name == f.Name })
					t.Nodes[i].Interfaces[j] = n.Is.Interfaces[at]
				}
			}
		}
	}
	for _, l := range d.Links {
		i := slices.IndexFunc(t.Links, func(o topology.Link) bool { return o.Endpoints == l.Endpoints })
		switch l.Action {
		case Add:
			t.Links = append(t.Links, *l.Is)
		case Remove:
			t.Links = slices.Delete(t.Links, i, i+1)
		case Replace:
			t.Links[i] = *l.Is
		case Alter:
			for _, c := range l.Changes {
				switch key, _, _ := strings.Cut(c.Key, " from "); key {
				case "mtu":
					t.Links[i].MTU = l.Is.MTU
				case "down":
					t.Links[i].Down = l.Is.Down
				case "overrun":
					t.Links[i].AllowOverrun = l.Is.AllowOverrun
				case "delay", "loss":
					for end, e := range l.Endpoints {
						if c.Key == key || strings.HasSuffix(c.Key, " from "+e.Node) {
							to := &t.Links[i].Directions[end]
							if to.Delay = l.Is.Directions[end].Delay; key == "loss" {
								to.Loss = l.Is.Directions[end].Loss
							}
						}
					}
				}
			}
		}
	}
}

// canonical is a topology without its order, and without what a lab finds out of its
// links: which interfaces its nodes have.
func canonical(t *topology.Topology) *topology.Topology {
	c := *t
	c.Nodes, c.Links = slices.Clone(t.Nodes), slices.Clone(t.Links)
	for i := range c.Nodes {
		c.Nodes[i].Interfaces = nil
	}
	slices.SortFunc(c.Nodes, func(a, b topology.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Links, func(a, b topology.Link) int { return strings.Compare(fmt.Sprint(a.Endpoints), fmt.Sprint(b.Endpoints)) })
	return &c
}

// drawFile is a file of some nodes and links in any order.
func drawFile(t *rapid.T, name string) string {
	kinds := map[string]string{"a": "host", "b": "host", "c": "host", "r": "router", "q": "router", "s": "switch", "u": "switch"}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "r", "q", "s", "u"}), 1, 7, rapid.ID).Draw(t, name)
	var file strings.Builder
	file.WriteString("name: x\ntopology:\n  nodes:\n")
	for _, n := range names {
		kind, keys := kinds[n], ""
		if rapid.IntRange(0, 9).Draw(t, "other kind") == 0 {
			kind = "router"
		}
		if kind == "host" {
			keys = rapid.SampledFrom([]string{"", "", ", cpu: 1", ", memory: 32MiB", ", adapter: {max_cq_depth: 7}"}).Draw(t, "keys")
		}
		fmt.Fprintf(&file, "    %s: {kind: %s%s}\n", n, kind, keys)
	}
	var links []string
	for i, a := range names {
		for _, b := range names[i+1:] {
			x, y := min(a, b), max(a, b)
			if rapid.Bool().Draw(t, "link") {
				keys := rapid.SampledFrom([]string{"", "", ", delay: 1ms", ", delay: 2ms, reverse: {loss: 1%}", ", down: true", ", offload: off", ", overrun: allow"}).Draw(t, "keys")
				links = append(links, fmt.Sprintf("    - {endpoints: [\"%s:to-%s\", \"%s:to-%s\"]%s}\n", x, y, y, x, keys))
			}
		}
	}
	file.WriteString("  links:\n" + strings.Join(rapid.Permutation(links).Draw(t, "order"), ""))
	return file.String()
}

// draw is a topology that is right, and its file.
func draw(t *rapid.T, name string, running *topology.Topology) (*topology.Topology, string) {
	for range 20 {
		file := drawFile(t, name)
		if got, err := topology.ParseWith(topology.Options{Running: running}, "x.ndklab.yaml", []byte(file)); err == nil {
			return got, file
		}
	}
	t.Skip("no lab that is right")
	return nil, ""
}

// The difference of A and B makes B of A, nothing makes no difference, and what is
// removed the one way is added the other.
func TestDifferenceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, _ := draw(t, "was", nil)
		is, file := draw(t, "is", was)
		d, err := Compare(was, is)
		if err != nil {
			t.Fatal(err)
		}
		same, err := Compare(is, parse(t, is, file))
		if err != nil || !same.None() {
			t.Errorf("the same file differs: %v, %v", same, err)
		}
		back, err := Compare(is, was)
		if err != nil {
			t.Fatal(err)
		}
		there, gone := d.Counts()
		here, come := back.Counts()
		if there[Add] != here[Remove] || there[Remove] != here[Add] || gone[Add] != come[Remove] || gone[Remove] != come[Add] {
			t.Errorf("there:\n%sand back:\n%s", d, back)
		}
		for _, n := range d.Nodes {
			for _, l := range d.Links {
				if n.Action == Replace && l.Action == Alter && (l.Endpoints[0].Node == n.Name || l.Endpoints[1].Node == n.Name) {
					t.Errorf("%s, but %s", n, l)
				}
			}
		}
		got := *was
		got.Nodes, got.Links = slices.Clone(was.Nodes), slices.Clone(was.Links)
		patch(&got, d)
		if diff := cmp.Diff(canonical(is), canonical(&got), compare); diff != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, d)
		}
	})
}

// A lab that is not up gets everything.
func TestAll(t *testing.T) {
	is := parse(t, nil, "name: x\nseed: 7\ntopology:\n  nodes: {a: , b: }\n  links: [{endpoints: ['a:e', 'b:e'], delay: 1ms, engine: netem, down: true}]")
	const want = "+ node a (host), e 10.0.0.1/24 fd6e:646b:1::1/64\n+ node b (host), e 10.0.0.2/24 fd6e:646b:1::2/64\n+ link a:e - b:e, delay 1ms, down, engine netem\n"
	if got := All(is).String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Plans stay the same wherever they stand in the file, and whatever the order of the
// links that they are about.
func TestPlans(t *testing.T) {
	const nodes = "topology:\n  nodes: {a: , b: , c: }\n  links:\n"
	const ab, bc = "    - endpoints: ['a:eth0', 'b:eth0']\n", "    - endpoints: ['b:eth1', 'c:eth0']\n"
	const plans = `
workloads: [{name: w, from: a, to: b, operation: send, size: 1B, count: 1}]
timeline: [{at: 1s, link: 'a:eth0', down: true}, {at: 2s, kill: c}]
chaos: [{kind: down, every: 1s, for: 1s, until: 9s, links: 'b:eth1'}]
checks: [{workload: w, errors: 0}, {link: 'a:eth0', dropped: 0}]
`
	was := parse(t, nil, nodes+ab+bc+plans)
	if d, err := Compare(was, parse(t, was, "# a comment\n"+nodes+bc+ab+plans)); err != nil || !d.None() {
		t.Errorf("%v, %v", d, err)
	}
	for change, want := range map[string]string{
		"count: 1}=count: 2}":                             "workloads",
		"kill: c=kill: b":                                 "timeline",
		"links: 'b:eth1'=links: 'a:eth0'":                 "timeline",
		"for: 1s=for: 2s":                                 "timeline",
		"link: 'a:eth0', dropped=link: 'b:eth1', dropped": "checks",
		"at: 1s, link: 'a:eth0'=at: 1s, link: 'c:eth0'":   "timeline",
	} {
		old, new, _ := strings.Cut(change, "=")
		d, err := Compare(was, parse(t, was, nodes+ab+bc+strings.Replace(plans, old, new, 1)))
		if err != nil || strings.Join(d.Plans, " ") != want {
			t.Errorf("%s: %+v, %v, want %s", change, d, err, want)
		}
	}
	with := *was
	with.Baseline = &topology.Baseline{File: "x"}
	if d, err := Compare(was, &with); err != nil || strings.Join(d.Plans, " ") != "checks" {
		t.Errorf("a baseline: %+v, %v", d, err)
	}
}
