package topology

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parsed is the topology of a file that is right.
func parsed(t testing.TB, file string) *Topology {
	t.Helper()
	lab, err := Parse("x.ndklab.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// faces is the addresses of all interfaces in nodes, one text for each.
func faces(t *Topology) []string {
	var all []string
	for _, n := range t.Nodes {
		for _, i := range n.Interfaces {
			all = append(all, fmt.Sprint(n.Name, ":", i.Name, " ", i.Addresses))
		}
	}
	return all
}

func TestKinds(t *testing.T) {
	lab := parsed(t, `
topology:
  defaults: {node: {kind: tor, cpu: 2}, adapter: {max_srq_depth: 7}}
  kinds:
    switch: {stp: true}
    tor: {kind: switch}
    plain: {kind: switch, stp: false}
    machine: {cpu: 3}
  nodes:
    s1:
    s2: {kind: plain}
    s3: {kind: plain, stp: true}
    r: {kind: router}
    h: {kind: host}
    m: {kind: machine}
`)
	a := Adapter{MaxSrqDepth: new(uint32(7))}
	want := []Node{
		{Name: "s1", Kind: Switch, SpanningTree: true},
		{Name: "s2", Kind: Switch},
		{Name: "s3", Kind: Switch, SpanningTree: true},
		{Name: "r", Kind: Router},
		{Name: "h", Kind: Host, CPU: 2, Adapter: a},
		{Name: "m", Kind: Host, CPU: 3, Adapter: a},
	}
	if diff := cmp.Diff(want, lab.Nodes, compare); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestSegmentAddresses(t *testing.T) {
	tests := []struct {
		name, file string
		want       []string
	}{
		{
			name: "numbered by the first link, and plain links by their own",
			file: `topology:
  nodes: {a: , b: , c: , s: {kind: switch}, s2: {kind: switch}}
  links:
    - endpoints: ["a:x", "b:x"]
    - endpoints: ["s:1", "a:y"]
    - endpoints: ["b:y", "c:y"]
    - endpoints: ["c:x", "s2:1"]
    - endpoints: ["s:9", "s2:9"]
    - endpoints: ["external:tap", "s2:2"]
    - endpoints: ["b:z", "s2:3"]`,
			want: []string{
				"a:x [10.0.0.1/24 fd6e:646b:1::1/64]", "a:y [10.0.1.1/24 fd6e:646b:1:1::1/64]",
				"b:x [10.0.0.2/24 fd6e:646b:1::2/64]", "b:y [10.0.2.1/24 fd6e:646b:1:2::1/64]", "b:z [10.0.1.4/24 fd6e:646b:1:1::4/64]",
				"c:y [10.0.2.2/24 fd6e:646b:1:2::2/64]", "c:x [10.0.1.2/24 fd6e:646b:1:1::2/64]",
				"s:1 []", "s:9 []", "s2:1 []", "s2:9 []", "s2:2 []", "s2:3 []",
			},
		},
		{
			name: "in the subnets of the first that has some",
			file: `topology:
  nodes: {a: , b: , c: , s: {kind: switch}}
  links:
    - endpoints: ["a:x", "s:1"]
    - endpoints: ["s:2", {node: b, interface: x, addresses: [192.168.7.2/24, "fd00::1/64"]}]
    - endpoints: [{node: c, interface: x, addresses: [192.168.7.1/24]}, "s:3"]`,
			want: []string{"a:x [192.168.7.3/24 fd00::2/64]", "b:x [192.168.7.2/24 fd00::1/64]", "c:x [192.168.7.1/24]", "s:1 []", "s:2 []", "s:3 []"},
		},
		{
			name: "not in a subnet that the file uses",
			file: `topology:
  nodes: {a: , b: , c: , s: {kind: switch}}
  links:
    - endpoints: ["a:x", "s:1"]
    - endpoints: ["s:2", "b:x"]
    - endpoints: [{node: c, interface: x, addresses: [10.0.0.1/24]}, {node: a, interface: y, addresses: [10.0.0.2/24]}]`,
			want: []string{
				"a:x [10.0.3.1/24 fd6e:646b:1:3::1/64]", "a:y [10.0.0.2/24]", "b:x [10.0.3.2/24 fd6e:646b:1:3::2/64]", "c:x [10.0.0.1/24]",
				"s:1 []", "s:2 []",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, faces(parsed(t, test.file))); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

// star is a file of hosts at one switch.
func star(hosts int) string {
	var nodes, links strings.Builder
	for i := range hosts {
		fmt.Fprintf(&nodes, ", h%d: ", i)
		fmt.Fprintf(&links, "\n    - endpoints: [\"h%d:eth0\", \"s:p%d\"]", i, i)
	}
	return "topology:\n  nodes: {s: {kind: switch}" + nodes.String() + "}\n  links:" + links.String() + "\n"
}

// TestLargeSegments has switches with more hosts than a /24 has addresses.
func TestLargeSegments(t *testing.T) {
	for _, test := range []struct {
		hosts       int
		first, last string
	}{
		{1, "10.0.0.1/24 fd6e:646b:1::1/64", "10.0.0.1/24 fd6e:646b:1::1/64"},
		{254, "10.0.0.1/24 fd6e:646b:1::1/64", "10.0.0.254/24 fd6e:646b:1::fe/64"},
		{255, "10.1.0.1/23 fd6e:646b:1:100::1/64", "10.1.0.255/23 fd6e:646b:1:100::ff/64"},
		{510, "10.1.254.1/23 fd6e:646b:1:1fe::1/64", "10.1.255.254/23 fd6e:646b:1:1fe::1fe/64"},
		{511, "10.2.0.1/22 fd6e:646b:1:200::1/64", "10.2.1.255/22 fd6e:646b:1:200::1ff/64"},
		{3000, "10.11.192.1/20 fd6e:646b:1:bc0::1/64", "10.11.203.184/20 fd6e:646b:1:bc0::bb8/64"},
	} {
		lab := parsed(t, star(test.hosts))
		got := [2][]netip.Prefix{lab.FindNode("h0").Interfaces[0].Addresses, lab.FindNode(fmt.Sprint("h", test.hosts-1)).Interfaces[0].Addresses}
		if diff := cmp.Diff([2][]netip.Prefix{prefixes(test.first), prefixes(test.last)}, got, compare); diff != "" {
			t.Errorf("%d hosts: addresses (-want +got):\n%s", test.hosts, diff)
		}
	}
}

// TestSwitchedLoops takes loops that spanning tree breaks, and what is none.
func TestSwitchedLoops(t *testing.T) {
	parsed(t, `topology:
  kinds: {tree: {kind: switch, stp: true}}
  nodes: {s1: {kind: tree}, s2: {kind: tree}, s3: {kind: tree}, leaf: {kind: switch}, a: , b: , r: {kind: router}}
  links:
    - endpoints: ["s1:1", "s2:1"]
    - endpoints: ["s1:2", "s2:2"]
    - endpoints: ["s2:3", "s3:3"]
    - endpoints: ["s3:4", "s1:4"]
    - endpoints: ["s3:5", "leaf:5"]
    - endpoints: ["leaf:1", "a:eth0"]
    - endpoints: ["b:eth1", "a:eth1"]
    - endpoints: ["b:eth0", "s1:5"]
    - endpoints: ["r:eth0", "s1:6"]
    - endpoints: ["r:eth1", "a:eth2"]`)
}

func TestPathOverSwitches(t *testing.T) {
	lab := parsed(t, `topology:
  nodes: {a: , b: , c: , d: , s: {kind: switch}, s2: {kind: switch}, lonely: {kind: switch}}
  links:
    - endpoints: ["a:eth0", "s:1"]
    - endpoints: ["s:2", "s2:2"]
    - endpoints: ["s2:1", "b:eth0"]
    - endpoints: ["b:eth1", "c:eth1"]
    - endpoints: ["c:eth0", "s:3"]
    - endpoints: ["d:eth0", "lonely:1"]
workloads:
  - {name: w, from: a, to: b, operation: send, size: 1B, count: 1}`)
	for _, p := range []struct{ from, to, want string }{
		{"a", "b", "a:eth0 10.0.0.1 b:eth0 10.0.0.2"},
		{"c", "a", "c:eth0 10.0.0.3 a:eth0 10.0.0.1"},
		{"b", "c", "b:eth1 10.0.3.1 c:eth1 10.0.3.2"},
		{"a", "d", ""},
		{"a", "s", ""},
	} {
		got := ""
		if path, ok := lab.Path(p.from, p.to); ok {
			got = fmt.Sprintf("%s:%s %s %s:%s %s", path.From.Node, path.From.Interface, path.From.Address, path.To.Node, path.To.Interface, path.To.Address)
		}
		if got != p.want {
			t.Errorf("the path from %s to %s is %q, want %q", p.from, p.to, got, p.want)
		}
	}
}

func TestPorts(t *testing.T) {
	lab := parsed(t, `topology:
  defaults: {link: {rate: 1gbit, delay: 1ms}}
  kinds:
    switch: {port: {rate: 100gbit, burst: 1KiB}}
    leaf: {kind: switch, port: {rate: 10gbit, queue: 64KiB}}
  nodes: {a: , b: , s: {kind: switch}, l: {kind: leaf, port: {ecn: {min: 1KiB, max: 2KiB}}}, r: {kind: router, port: {rate: 5gbit}}}
  links:
    - {endpoints: ["a:eth0", "l:1"]}
    - {endpoints: ["s:1", "l:2"]}
    - {endpoints: ["l:3", "b:eth0"], rate: 2gbit, reverse: {burst: 3KiB}}
    - {endpoints: ["r:3", "b:eth1"]}`)
	leaf := Impairment{Delay: time.Millisecond, Rate: 10e9, Burst: 1 << 10, Queue: Queue{Bytes: 64 << 10}, ECN: ECN{Min: 1 << 10, Max: 2 << 10}}
	slow := leaf
	slow.Rate = 2e9
	want := [][2]Impairment{
		{{Delay: time.Millisecond, Rate: 1e9}, leaf},
		{{Delay: time.Millisecond, Rate: 100e9, Burst: 1 << 10}, leaf},
		{slow, {Delay: time.Millisecond, Rate: 2e9, Burst: 3 << 10}},
		{{Delay: time.Millisecond, Rate: 5e9}, {Delay: time.Millisecond, Rate: 1e9}},
	}
	for i, l := range lab.Links {
		if diff := cmp.Diff(want[i], l.Directions); diff != "" {
			t.Errorf("directions of link %d (-want +got):\n%s", i, diff)
		}
	}
}
