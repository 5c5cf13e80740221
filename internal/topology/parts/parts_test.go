package parts

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// parse returns the topology of a file, x.ndklab.yaml.
func parse(t interface{ Fatalf(string, ...any) }, file string) *topology.Topology {
	is, err := topology.Parse("x.ndklab.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return is
}

// on returns the nodes of each host, with spaces between.
func on(t *topology.Topology, p *Placement, hosts int) []string {
	lists := make([][]string, hosts)
	for _, n := range t.Nodes {
		lists[p.Of(n.Name)] = append(lists[p.Of(n.Name)], n.Name)
	}
	texts := make([]string, hosts)
	for i, l := range lists {
		texts[i] = strings.Join(l, " ")
	}
	return texts
}

// pair has two stars of three hosts, joined by a link.
const pair = `seed: 1
topology:
  groups: {g: {together: true}}
  nodes:
    a[1-3]: {}
    b[1-3]: {}
    s[1-2]: {kind: switch}
  links:
    - {endpoints: ["a[1-3]:eth0", "s1:*"]}
    - {endpoints: ["b[1-3]:eth0", "s2:*"]}
    - {endpoints: ["s1:up", "s2:up"]}
`

// ring has four nodes in a ring, of whose links these are the keys.
func ring(ab, bc, cd, da string) string {
	return fmt.Sprintf(`seed: 1
topology:
  nodes: {a: {host: 1}, b: , c: , d: }
  links:
    - {endpoints: ["a:1", "b:2"], %s}
    - {endpoints: ["b:1", "c:2"], %s}
    - {endpoints: ["c:1", "d:2"], %s}
    - {endpoints: ["d:1", "a:2"], %s}
`, ab, bc, cd, da)
}

// A placement has few links cross, and keeps to the file.
func TestPlan(t *testing.T) {
	four := Alike(4)
	for _, test := range []struct {
		name, file string
		hosts      []Host
		want       []string // by host
		cut        string   // links, by their first ends, and the hosts of both
	}{
		{"one link is cut", pair, Alike(2), []string{"a1 a2 a3 s1", "b1 b2 b3 s2"}, "s1:up 0-1"},
		{"one host", pair, Alike(1), []string{"a1 a2 a3 b1 b2 b3 s1 s2"}, ""},
		{"a pin by number", strings.Replace(pair, "b[1-3]: {}", "b[1-3]: {host: 1}", 1), Alike(2), []string{"b1 b2 b3 s2", "a1 a2 a3 s1"}, "s1:up 1-0"},
		{"a pin by name", strings.Replace(pair, "b[1-3]: {}", "b[1-3]: {host: x}", 1), []Host{{Name: "y"}, {Name: "x"}}, []string{"a1 a2 a3 s1", "b1 b2 b3 s2"}, "s1:up 0-1"},
		{"a name before a number", strings.Replace(pair, "b[1-3]: {}", "b[1-3]: {host: 1}", 1), []Host{{Name: "2"}, {Name: "1"}}, []string{"a1 a2 a3 s1", "b1 b2 b3 s2"}, "s1:up 0-1"},
		{"larger hosts have more", `{seed: 1, topology: {nodes: {"a[1-8]": }}}`, []Host{{CPUs: 6}, {CPUs: 2}}, []string{"a1 a3 a4 a5 a7 a8", "a2 a6"}, ""},
		{"processors asked for", `{seed: 1, topology: {nodes: {a: {cpu: 4}, "b[1-4]": {}, c: {cpu: 0.01}}}}`, Alike(2), []string{"a", "b1 b2 b3 b4 c"}, ""},
		{"fewer nodes than hosts", "topology: {nodes: {a: {host: 2}, b: {host: 4}}}", four, []string{"", "a", "", "b"}, ""},
		{"an end outside is at the first host", `
seed: 1
topology:
  nodes: {a: , b: , c: , d: }
  links: [{endpoints: ["c:eth0", "external:tap0"]}, {endpoints: ["a:eth0", "b:eth0"]}, {endpoints: ["c:eth1", "d:eth0"]}]`, Alike(2), []string{"c d", "a b"}, ""},
		{"unless its node is pinned", `
seed: 1
topology:
  nodes: {a: , b: , c: , d: {host: 2}}
  links: [{endpoints: ["c:eth0", "external:tap0"]}, {endpoints: ["a:eth0", "b:eth0"]}, {endpoints: ["c:eth1", "d:eth0"], engine: netem}]`, Alike(2), []string{"a b", "c d"}, ""},
		{"together", strings.NewReplacer("a[1-3]: {}", "a[1-3]: {}\n    a1: {group: g, host: 2}", "b[1-3]: {}", "b[1-3]: {}\n    b1: {group: g}").Replace(pair), Alike(2),
			[]string{"a2 b2 b3 s1 s2", "a1 a3 b1"}, "a1:eth0 1-0, a3:eth0 1-0, b1:eth0 1-0"},
		{"a packet buffer keeps its switch and the nodes at it", `
seed: 1
topology:
  nodes: {s: {kind: switch, buffer: hpcc}, "a[1-4]": , "b[1-4]": }
  links: [{endpoints: ["a[1-4]:eth0", "s:*"], rate: 1gbit}]`, Alike(2), []string{"s a1 a2 a3 a4", "b1 b2 b3 b4"}, ""},
		{"what is slow is cut", ring("rate: 1mbit", "rate: 2gbit", "rate: 1mbit", "rate: 1gbit"), Alike(2), []string{"a d", "b c"}, "a:1 0-1, c:1 1-0"},
		{"but netem keeps its nodes", ring("rate: 1mbit, offload: off, engine: netem", "rate: 2gbit", "rate: 1mbit", "rate: 1gbit"), Alike(2), []string{"a b", "c d"}, "b:1 0-1, d:1 1-0"},
		{"delay that hides what hosts are apart is cut first", ring("delay: 39us", "delay: 40us", "delay: 39us", "delay: 40us"), Alike(2), []string{"a b", "c d"}, "b:1 0-1, d:1 1-0"},
		{"wherever it is", ring("delay: 40us", "delay: 39us", "delay: 40us", "delay: 39us"), Alike(2), []string{"a d", "b c"}, "a:1 0-1, c:1 1-0"},
		{"memory is a bound", `
seed: 1
topology:
  nodes: {"a[1-4]": {memory: 3GiB}, "b[1-4]": }
  links: [{endpoints: ["a1:1", "a2:1"]}, {endpoints: ["a2:2", "a3:1"]}, {endpoints: ["a3:2", "a4:1"]}, {endpoints: ["b1:1", "b2:1"]}, {endpoints: ["b2:2", "b3:1"]}, {endpoints: ["b3:2", "b4:1"]}]`,
			[]Host{{Name: "x", Memory: 7 << 30}, {Name: "y", Memory: 7 << 30}}, []string{"a1 a2 b1 b2 b3 b4", "a3 a4"}, "a2:2 0-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			is := parse(t, test.file)
			p, err := Plan(is, test.hosts, UsualApart)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, on(is, p, len(test.hosts))); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
			var cut []string
			for _, c := range p.Cut() {
				cut = append(cut, fmt.Sprintf("%s %d-%d", is.Links[c.Link].Endpoints[0], c.Hosts[0], c.Hosts[1]))
			}
			if got := strings.Join(cut, ", "); got != test.cut {
				t.Errorf("cut: %s, want %s", got, test.cut)
			}
			if p.Of("nobody") != -1 {
				t.Error("a node that there is not has a host")
			}
		})
	}
}

// Errors name the place of a contradiction.
func TestCannotBe(t *testing.T) {
	many := make([]Host, 20)
	for i := range many {
		many[i].Name = fmt.Sprintf("n%d", i+1)
	}
	small := []Host{{Name: "x", Memory: 4 << 30}, {Name: "y", Memory: 4 << 30}}
	for _, test := range []struct {
		name, file string
		hosts      []Host
		want       string
	}{
		{"unknown hosts", `topology: {kinds: {k: {host: z}}, nodes: {"a[1-3]": {kind: k}, b: {host: 3}, c: {host: 1}, d: {host: 08x}}}`, Alike(2),
			`x.ndklab.yaml:1:30: host: no host is "z", expected a number from 1 to 2 or one of host1, host2
x.ndklab.yaml:1:74: host: no host is "3", expected a number from 1 to 2 or one of host1, host2
x.ndklab.yaml:1:102: host: no host is "08x", expected a number from 1 to 2 or one of host1, host2`},
		{"many hosts", `topology: {nodes: {a: {host: z}}}`, many,
			`x.ndklab.yaml:1:30: host: no host is "z", expected a number from 1 to 20 or one of n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, n15, n16 and 4 more`},
		{"a group on two hosts", "topology:\n  groups: {g: {together: true}}\n  nodes: {a: {group: g, host: 1}, b: {group: g, host: x}}", small,
			`x.ndklab.yaml:3:55: host: b is to be on y, but stays on one host with a, which is to be on x (line 3): the group g stays together (x.ndklab.yaml:2:26); expected the same host for both`},
		{"what links keep", `topology:
  nodes:
    a: {host: 1}
    s: {kind: switch, buffer: hpcc}
    b: 
    c: {host: 2}
  links:
    - {endpoints: ["a:eth0", "s:1"], rate: 1gbit}
    - {endpoints: ["b:eth0", "s:2"], rate: 1gbit}
    - {endpoints: ["b:eth1", "c:eth0"], engine: netem}`, Alike(2),
			`x.ndklab.yaml:6:15: host: c is to be on host2, but stays on one host with a, which is to be on host1 (line 3): the link b:eth1 - c:eth0 has engine: netem (x.ndklab.yaml:10:49), the link b:eth0 - s:2 is at a packet buffer, the link a:eth0 - s:1 is at a packet buffer; expected the same host for both`},
		{"a group that is too large", "topology:\n  groups: {g: {together: true, memory: 2GiB}}\n  nodes: {'a[1-3]': {group: g}, b: {memory: 16MiB}}", small,
			`x.ndklab.yaml:2:26: a1 and the nodes that stay on one host with it, 3 in all, ask for 6GiB of memory, and the host x has 4GiB, expected less, or nodes that need not stay together`},
		{"a lab that is too large", "topology:\n  nodes: {'a[1-5]': {memory: 2GiB}}", small, `lab x: the nodes on the host x would ask for 6GiB of memory, and it has 4GiB, expected less, or more hosts`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Plan(parse(t, strings.Replace(test.file, "host: x", "host: y", 1)), test.hosts, UsualApart)
			if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The summary for people and for programs.
func TestSummary(t *testing.T) {
	is := parse(t, `seed: 1
topology:
  nodes: {a: {host: 1, memory: 1GiB}, b: {host: 2}, c: {host: 3}, d: {host: 2, memory: 16MiB}}
  links:
    - {endpoints: ["b:eth0", "a:eth0"], rate: 2gbit, delay: 1ms, reverse: {rate: 1gbit, delay: 10us}}
    - {endpoints: ["a:eth1", "b:eth1"], rate: 1gbit, delay: 38us}
    - {endpoints: ["a:eth2", "b:eth2"], rate: none, reverse: {rate: 1gbit}}
    - {endpoints: ["c:eth0", "b:eth3"], delay: 1ms}
    - {endpoints: ["d:eth0", "b:eth4"]}`)
	p, err := Plan(is, []Host{{Name: "x"}, {Name: "y"}, {Name: "z"}, {Name: "spare"}}, UsualApart)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Summary(38 * time.Microsecond)
	const want = `host x: nodes: 1, links that cross: 3, memory asked for: 1GiB
host y: nodes: 2, links that cross: 4, memory asked for: 16MiB
host z: nodes: 1, links that cross: 1
host spare: nodes: 0, links that cross: 0
links that cross hosts: 4 of 5, 2 of them ask for less delay than the 38 us between hosts
x - y: links: 3, 2gbit and 4gbit back, 1 without a rate, 2 of less delay
y - z: links: 1, 1 without a rate
`
	if diff := cmp.Diff(want, s.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	const inJSON = `{"hosts":[{"name":"x","nodes":1,"cut":3,"memory":1073741824},{"name":"y","nodes":2,"cut":4,"memory":16777216},{"name":"z","nodes":1,"cut":1,"memory":0},{"name":"spare","nodes":0,"cut":0,"memory":0}],` +
		`"links":5,"cut":4,"near":2,"apart_us":38,"pairs":[{"hosts":["x","y"],"links":3,"near":2,"bps":[2000000000,4000000000],"unlimited":1},{"hosts":["y","z"],"links":1,"near":0,"bps":[0,0],"unlimited":1}]}`
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(inJSON, string(got)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// Every node has a host, that which it asks for, nodes that stay together have the same, only links that may cross do, and the
// same topology gives the same placement.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var file strings.Builder
		n := rapid.IntRange(2, 40).Draw(t, "nodes")
		hosts := Alike(rapid.IntRange(1, 5).Draw(t, "hosts"))
		fmt.Fprintf(&file, "seed: %d\ntopology:\n  groups: {g: {together: true}, h: {}}\n  nodes:\n", rapid.IntRange(0, 9).Draw(t, "seed"))
		for i := range n {
			keys := []string{}
			if i > 2 && rapid.IntRange(0, 4).Draw(t, "pinned") == 0 {
				keys = append(keys, fmt.Sprintf("host: %d", rapid.IntRange(1, len(hosts)).Draw(t, "host")))
			} else if i < 10 {
				keys = append(keys, rapid.SampledFrom([]string{"group: g", "group: h", "cpu: 3"}).Draw(t, "keys"))
			}
			fmt.Fprintf(&file, "    n%d: {%s}\n", i, strings.Join(keys, ", "))
		}
		file.WriteString("  links:\n")
		for i := 1; i < n; i++ {
			keys := rapid.SampledFrom([]string{"", ", delay: 1ms", ", rate: 1gbit", ", engine: netem"}).Draw(t, "link")
			fmt.Fprintf(&file, "    - {endpoints: ['n%d:*', 'n%d:*']%s}\n", rapid.IntRange(0, i-1).Draw(t, "to"), i, keys)
		}
		is := parse(t, strings.ReplaceAll(file.String(), ":*", ":eth*"))
		p, err := Plan(is, hosts, UsualApart)
		if err != nil {
			if !strings.Contains(err.Error(), "expected the same host for both") {
				t.Fatal(err)
			}
			return
		}
		group := -1
		for _, node := range is.Nodes {
			host := p.Of(node.Name)
			if node.Host != "" && node.Host != fmt.Sprint(host+1) {
				t.Errorf("%s is on %d", node.Name, host)
			}
			if node.Together != "" && group >= 0 && group != host {
				t.Errorf("%s is on %d, its group on %d", node.Name, host, group)
			} else if node.Together != "" {
				group = host
			}
		}
		crosses := make(map[int]bool)
		for _, c := range p.Cut() {
			crosses[c.Link] = true
		}
		for i, l := range is.Links {
			apart := p.Of(l.Endpoints[0].Node) != p.Of(l.Endpoints[1].Node)
			if apart != crosses[i] || apart && l.Engine == topology.Netem {
				t.Errorf("link %d: apart %v, told of %v", i, apart, crosses[i])
			}
		}
		again, err := Plan(is, slices.Clone(hosts), UsualApart)
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("another placement: %v", err)
		}
	})
}

// large returns a lab of some 60,000 nodes: switches with 100 hosts each, which are a ring with chords.
func large(tb testing.TB) *topology.Topology {
	const switches, hosts = 600, 100
	var file strings.Builder
	fmt.Fprintf(&file, "seed: 1\ntopology:\n  nodes:\n    s[1-%d]: {kind: switch, stp: true}\n", switches)
	for i := 1; i <= switches; i++ {
		fmt.Fprintf(&file, "    h%d-[1-%d]: {}\n", i, hosts)
	}
	file.WriteString("  links:\n")
	for i := 1; i <= switches; i++ {
		fmt.Fprintf(&file, "    - {endpoints: ['h%d-[1-%d]:eth0', 's%d:*']}\n", i, hosts, i)
	}
	for i := 1; i <= switches; i++ {
		fmt.Fprintf(&file, "    - {endpoints: ['s%d:r0', 's%d:r1'], delay: 1ms}\n", i, i%switches+1)
	}
	return parse(tb, file.String())
}

// A lab of 60,000 nodes has its switches on 64 hosts with few links that cross: of its ring one for each host, and of the hosts at
// switches that have to be divided, as 600 switches do not make 64 equal shares.
func TestLarge(t *testing.T) {
	is := large(t)
	p, err := Plan(is, Alike(64), UsualApart)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Summary(UsualApart)
	most := 0
	for _, h := range s.Hosts {
		most = max(most, h.Nodes)
	}
	if share := len(is.Nodes) / 64; most > share*104/100 || s.Cut > 2500 {
		t.Errorf("the fullest host has %d nodes, its share is %d; %s", most, share, s.Crossing())
	}
}

// BenchmarkPlan is of 60,600 nodes on 64 hosts.
func BenchmarkPlan(b *testing.B) {
	is, hosts := large(b), Alike(64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Plan(is, hosts, UsualApart); err != nil {
			b.Fatal(err)
		}
	}
}
