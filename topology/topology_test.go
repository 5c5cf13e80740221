package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNameFromFile(t *testing.T) {
	for file, want := range map[string]string{
		"pair.ndklab.yaml": "pair", "/a/b/pair.ndklab.yml": "pair", "two-by-two.yaml": "two-by-two", "x": "x",
	} {
		got, err := Parse(file, []byte("topology: {nodes: {a: }}"))
		if err != nil || got.Name != want {
			t.Errorf("%s names the lab %v, %v; want %s", file, got, err, want)
		}
	}
}

// TestSubnets has a link in every subnet of the first reserve, and more, which get smaller ones of the second.
func TestSubnets(t *testing.T) {
	var b strings.Builder
	// The first link's addresses take all subnets but the last 256 of the first reserve, and some of the second.
	b.WriteString("topology:\n  nodes: {a: , b: , 'c[1-5]': , s: {kind: switch}}\n  links:\n  - endpoints:\n")
	for n := 1; n <= 2; n++ {
		fmt.Fprintf(&b, "    - {node: %c, interface: given, addresses: [172.16.0.%d/29, \"fd6e:646b:4:3::%d/64\"", "?ab"[n], n, n)
		for bits := 9; bits <= 16; bits++ {
			fmt.Fprintf(&b, ", 10.%d.0.%d/%d", 256-1<<(17-bits), n, bits)
		}
		b.WriteString("]}\n")
	}
	for i := range 256 {
		fmt.Fprintf(&b, "  - {endpoints: [a:e%d, b:e%d]}\n", i, i)
	}
	b.WriteString("  - {endpoints: [a:more, b:more]}\n  - {endpoints: ['c[1-5]:eth0', 's:*']}\n  - {endpoints: [a:last, b:last]}\n")
	got, err := Parse("large.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		node int
		face Interface
	}{
		{1, at("e255", 256, 1, "10.255.255.2/24 fd6e:646b:1:ffff::2/64")},
		{1, at("more", 257, 1, "172.16.0.10/30 fd6e:646b:4:2::2/64")},
		{6, at("eth0", 262, 0, "172.16.0.21/29 fd6e:646b:4:4::5/64")},
		{1, at("last", 263, 1, "172.16.0.26/30 fd6e:646b:4:6::2/64")},
	} {
		faces := got.Nodes[want.node].Interfaces
		i := slices.IndexFunc(faces, func(f Interface) bool { return f.Name == want.face.Name })
		if diff := cmp.Diff(want.face, faces[i], compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.face.Name, diff)
		}
	}
	again, err := ParseWith(Options{Running: got}, "large.yaml", []byte(strings.Replace(b.String(), "  - {endpoints: [a:more, b:more]}\n", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	faces := again.Nodes[1].Interfaces
	if last := faces[len(faces)-1]; !slices.Equal(last.Addresses, at("last", 0, 1, "172.16.0.26/30 fd6e:646b:4:6::2/64").Addresses) {
		t.Errorf("an address that the running lab has chosen becomes %v", last.Addresses)
	}
}

// Subnets of both reserves have the numbers that they overlap.
func TestReserves(t *testing.T) {
	for _, r := range reserves {
		for f, p := range r.families {
			for _, number := range []int{0, 1, 255, 256, r.subnets - 1} {
				first, end := p.overlap(p.subnet(number))
				if first != number || end != number+1 || !p.all.Overlaps(p.subnet(number)) {
					t.Errorf("family %d: subnet %d is %s, which overlaps %d to %d", f, number, p.subnet(number), first, end)
				}
			}
		}
	}
	for prefix, want := range map[string][2]int{
		"172.16.0.0/29": {0, 2}, "172.16.0.6/32": {1, 2}, "172.16.0.0/11": {0, 1 << 18}, "fd6e:646b:4::/63": {0, 2}, "fd6e:646b:7:ffff::1/128": {1<<18 - 1, 1 << 18}, "192.0.2.0/24": {0, 0},
	} {
		p := netip.MustParsePrefix(prefix)
		pool := reserves[1].families[0]
		if p.Addr().Is6() {
			pool = reserves[1].families[1]
		}
		if first, end := pool.overlap(p); [2]int{first, end} != want {
			t.Errorf("%s overlaps %d to %d, want %v", prefix, first, end, want)
		}
	}
}

func TestLookups(t *testing.T) {
	lab, err := Parse("x.yaml", []byte(`
topology:
  nodes: {a: , b: , c: }
  links:
    - endpoints: ["a:eth0", "b:eth0"]
    - endpoints: ["b:eth1", {node: c, interface: up, addresses: [fd00::1/64]}]
    - endpoints:
        - {node: c, interface: eth1, addresses: [fd01::1/64, 10.9.0.1/24, 10.8.0.1/24]}
        - {node: a, interface: eth1, addresses: [10.8.0.2/24, fd01::2/64]}
    - endpoints: ["b:eth2", "a:eth2"]`))
	if err != nil {
		t.Fatal(err)
	}
	hop := func(node, iface, address string) Hop { return Hop{node, iface, netip.MustParseAddr(address)} }
	paths := []struct {
		from, to string
		want     Path
		ok       bool
	}{
		{"a", "b", Path{hop("a", "eth0", "10.0.0.1"), hop("b", "eth0", "10.0.0.2")}, true},
		{"b", "a", Path{hop("b", "eth0", "10.0.0.2"), hop("a", "eth0", "10.0.0.1")}, true},
		{"b", "c", Path{hop("b", "eth1", "fd00::2"), hop("c", "up", "fd00::1")}, true},
		{"a", "c", Path{hop("a", "eth1", "10.8.0.2"), hop("c", "eth1", "10.8.0.1")}, true},
		{"a", "a", Path{}, false},
		{"a", "d", Path{}, false},
	}
	for _, p := range paths {
		got, ok := lab.Path(p.from, p.to)
		if diff := cmp.Diff(p.want, got, compare); diff != "" || ok != p.ok {
			t.Errorf("Path(%s, %s) is %v, %v (-want +got):\n%s", p.from, p.to, got, ok, diff)
		}
	}
	between := []struct {
		sets [][]string
		want []int
	}{
		{[][]string{{"a"}, {"b"}, {"c"}}, []int{0, 1, 2, 3}},
		{[][]string{{"a", "b"}, {"c"}}, []int{1, 2}},
		{[][]string{{"a"}}, []int{0, 2, 3}},
		{[][]string{{"a", "b", "c"}}, nil},
		{nil, nil},
	}
	for _, b := range between {
		if got := lab.Between(b.sets); !slices.Equal(got, b.want) {
			t.Errorf("between %v are the links %v, want %v", b.sets, got, b.want)
		}
	}
	outside := &Topology{Links: []Link{link("a:eth0", "external:tap0", 4200, Impairment{}), link("b:eth0", "a:eth1", 4200, Impairment{})}}
	if got := outside.Between([][]string{{"a"}}); !slices.Equal(got, []int{1}) {
		t.Errorf("between a and the rest are the links %v, want not that to the outside", got)
	}
	for endpoint, want := range map[string]int{"a:eth0": 0, "c:up": 1, "a:eth2": 3, "a:eth9": -1, "a": -1, "": -1, "a:eth0:": -1} {
		got, ok := lab.FindLink(endpoint)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("FindLink(%q) is %d, %v; want %d", endpoint, got, ok, want)
		}
	}
	if n := lab.FindNode("b"); n != &lab.Nodes[1] {
		t.Errorf("FindNode(b) is %v", n)
	}
	if n := lab.FindNode("d"); n != nil {
		t.Errorf("FindNode(d) is %v", n)
	}
}
