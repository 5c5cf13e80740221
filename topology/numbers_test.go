package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// endsOf is the addresses of each end of a link that is no switch's, with the link's
// number in front.
func endsOf(t *Topology) map[string]string {
	all := make(map[string]string)
	add := func(node string, faces []Interface) {
		for _, i := range faces {
			if len(i.Addresses) > 0 {
				all[node+":"+i.Name] = fmt.Sprint(t.Links[i.Link].Number, i.Addresses)
			}
		}
	}
	for _, n := range t.Nodes {
		add(n.Name, n.Interfaces)
	}
	add(external, t.Externals)
	return all
}

// Numbers and addresses chosen for links of a lab that is up stay while its file
// changes.
func TestRunning(t *testing.T) {
	const frame = "topology:\n  nodes: {a: , b: , c: , d: , s: {kind: switch}, u: {kind: switch}}\n  links:\n"
	tests := []struct {
		name           string
		running, links string // endpoints, a link each line
		want           map[string]string
	}{
		{
			"a link in front of others", "a:0 b:0\nb:1 c:1", "c:2 a:2\nb:1 c:1\na:0 b:0",
			map[string]string{
				"a:0": "0 [10.0.0.1/24 fd6e:646b:1::1/64]", "b:0": "0 [10.0.0.2/24 fd6e:646b:1::2/64]",
				"b:1": "1 [10.0.1.1/24 fd6e:646b:1:1::1/64]", "c:1": "1 [10.0.1.2/24 fd6e:646b:1:1::2/64]",
				"c:2": "3 [10.0.3.1/24 fd6e:646b:1:3::1/64]", "a:2": "3 [10.0.3.2/24 fd6e:646b:1:3::2/64]",
			},
		},
		{
			"a link that goes elsewhere now is another one", "a:0 b:0\nc:0 d:0", "c:0 d:0\na:0 c:1",
			map[string]string{
				"c:0": "1 [10.0.1.1/24 fd6e:646b:1:1::1/64]", "d:0": "1 [10.0.1.2/24 fd6e:646b:1:1::2/64]",
				"a:0": "2 [10.0.2.1/24 fd6e:646b:1:2::1/64]", "c:1": "2 [10.0.2.2/24 fd6e:646b:1:2::2/64]",
			},
		},
		{
			"a host at a switch, in front of others", "a:0 s:1\nb:0 s:2", "c:0 s:3\nb:0 s:2\na:0 s:1",
			map[string]string{
				"a:0": "0 [10.0.0.1/24 fd6e:646b:1::1/64]", "b:0": "1 [10.0.0.2/24 fd6e:646b:1::2/64]", "c:0": "3 [10.0.0.3/24 fd6e:646b:1::3/64]",
			},
		},
		{
			"a segment in two", "a:0 s:1\ns:2 u:2\nu:1 b:0\nu:3 c:0", "a:0 s:1\nu:1 b:0\nu:3 c:0",
			map[string]string{
				"a:0": "0 [10.0.0.1/24 fd6e:646b:1::1/64]",
				"b:0": "2 [10.0.2.1/24 fd6e:646b:1:2::1/64]", "c:0": "3 [10.0.2.2/24 fd6e:646b:1:2::2/64]",
			},
		},
		{
			"two segments in one", "a:0 s:1\nu:1 b:0\nu:3 c:0", "u:1 b:0\nu:3 c:0\na:0 s:1\ns:2 u:2",
			map[string]string{
				"b:0": "1 [10.0.1.1/24 fd6e:646b:1:1::1/64]", "c:0": "2 [10.0.1.2/24 fd6e:646b:1:1::2/64]",
				"a:0": "0 [10.0.1.3/24 fd6e:646b:1:1::3/64]",
			},
		},
		{
			"what the file gives comes first", "a:0 b:0\nb:1 c:1", "a:0 b:0\nb:1/10.0.0.9/24 c:1",
			map[string]string{
				"a:0": "0 [10.0.2.1/24 fd6e:646b:1:2::1/64]", "b:0": "0 [10.0.2.2/24 fd6e:646b:1:2::2/64]",
				"b:1": "1 [10.0.0.9/24]", "c:1": "1 [10.0.0.1/24]",
			},
		},
		{
			"what the file gave was not chosen", "a:0/192.0.2.1/24 b:0/192.0.2.9/24", "a:0 b:0",
			map[string]string{"a:0": "0 [10.0.0.1/24 fd6e:646b:1::1/64]", "b:0": "0 [10.0.0.2/24 fd6e:646b:1::2/64]"},
		},
		{
			"what was chosen beside what the file gave stays", "a:0/192.0.2.1/24 b:0", "a:0 b:0",
			map[string]string{"a:0": "0 [192.0.2.1/24]", "b:0": "0 [192.0.2.2/24]"},
		},
		{
			"beside what the file gives", "a:0/192.0.2.1/24 s:1\nb:0 s:2\nc:0 s:3", "a:0/192.0.2.1/24 s:1\nd:0 s:4\nc:0 s:3",
			map[string]string{"a:0": "0 [192.0.2.1/24]", "c:0": "2 [192.0.2.3/24]", "d:0": "1 [192.0.2.2/24]"},
		},
		{
			"the file gives another what was chosen", "a:0/192.0.2.1/24 s:1\nb:0 s:2", "a:0/192.0.2.2/24 s:1\nb:0 s:2",
			map[string]string{"a:0": "0 [192.0.2.2/24]", "b:0": "1 [192.0.2.1/24]"},
		},
		{
			"outside the lab", "a:0 external:x\na:1 external:y", "a:1 external:y\na:0 external:x",
			map[string]string{
				"a:0": "0 [10.0.0.1/24 fd6e:646b:1::1/64]", "external:x": "0 [10.0.0.2/24 fd6e:646b:1::2/64]",
				"a:1": "1 [10.0.1.1/24 fd6e:646b:1:1::1/64]", "external:y": "1 [10.0.1.2/24 fd6e:646b:1:1::2/64]",
			},
		},
	}
	file := func(links string) []byte {
		text := frame
		for line := range strings.Lines(links) {
			text += "    - endpoints: ["
			for _, e := range strings.Fields(line) {
				node, iface, _ := strings.Cut(e, ":")
				iface, given, _ := strings.Cut(iface, "/")
				text += fmt.Sprintf("{node: %s, interface: %q, addresses: [%s]},", node, iface, given)
			}
			text += "]\n"
		}
		return []byte(text)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			running, err := Parse("x.yaml", file(test.running))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseWith(Options{Running: running}, "x.yaml", file(test.links))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, endsOf(got)); diff != "" {
				t.Errorf("ends (-want +got):\n%s", diff)
			}
		})
	}
}

// A segment that has outgrown its subnet gets another.
func TestRunningOutgrown(t *testing.T) {
	lab := func(running *Topology, hosts int) *Topology {
		var nodes, links strings.Builder
		for i := range hosts {
			fmt.Fprintf(&nodes, "h%d: , ", i)
			fmt.Fprintf(&links, "    - endpoints: [h%d:e, s:%d]\n", i, i)
		}
		got, err := ParseWith(Options{Running: running}, "x.yaml", []byte("topology:\n  nodes: {s: {kind: switch}, "+nodes.String()+"}\n  links:\n"+links.String()))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	running := lab(nil, 254)
	if got := endsOf(lab(running, 253)); got["h252:e"] != "252 [10.0.0.253/24 fd6e:646b:1::fd/64]" {
		t.Errorf("a smaller segment: %s", got["h252:e"])
	}
	if got := endsOf(lab(running, 255)); got["h0:e"] != "0 [10.1.0.1/23 fd6e:646b:1:100::1/64]" {
		t.Errorf("an outgrown segment: %s", got["h0:e"])
	}
}

// drawLab is a file of some hosts, routers and switches without loops of these, in
// any order.
func drawLab(t *rapid.T, name string) string {
	nodes := []string{"a", "b", "c", "d", "r", "q", "s", "u"}
	stay := rapid.SliceOfNDistinct(rapid.SampledFrom(nodes), 1, len(nodes), rapid.ID).Draw(t, name+" nodes")
	kind := func(n string) string {
		switch n {
		case "r", "q":
			return "router"
		case "s", "u":
			return "switch"
		}
		return "host"
	}
	var file, links strings.Builder
	file.WriteString("topology:\n  nodes:\n")
	for _, n := range stay {
		fmt.Fprintf(&file, "    %s: {kind: %s}\n", n, kind(n))
	}
	number := 0
	var drawn []string
	for i, a := range nodes {
		for j, b := range nodes[i+1:] {
			if slices.Contains(stay, a) && slices.Contains(stay, b) && rapid.IntRange(0, 2).Draw(t, name+" link "+a+b) == 0 {
				link := fmt.Sprintf("    - {endpoints: [\"%s:%s%d\", \"%s:%s%d\"], delay: %dms}\n", a, b, j, b, a, j, rapid.IntRange(0, 1).Draw(t, "delay"))
				if rapid.IntRange(0, 5).Draw(t, "given") == 0 {
					link = fmt.Sprintf("    - endpoints: [{node: %s, interface: %s%d, addresses: [10.0.%d.7/24]}, \"%s:%s%d\"]\n", a, b, j, number, b, a, j)
					number++
				}
				drawn = append(drawn, link)
			}
		}
	}
	for _, l := range rapid.Permutation(drawn).Draw(t, name+" order") {
		links.WriteString(l)
	}
	return file.String() + "  links:\n" + links.String()
}

// drawTopology is a lab that is right.
func drawTopology(t *rapid.T, name string, running *Topology) (*Topology, string) {
	for range 20 {
		file := drawLab(t, name)
		if got, err := ParseWith(Options{Running: running}, "x.yaml", []byte(file)); err == nil {
			return got, file
		}
	}
	t.Skip("no lab that is right")
	return nil, ""
}

// These hold whatever becomes of a file: numbers and addresses are each there once, links keep
// their numbers, ends of a segment share subnets that no other has, and reading the
// file once more changes nothing.
func TestRunningProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		running, _ := drawTopology(t, "running", nil)
		got, file := drawTopology(t, "changed", running)
		again, err := ParseWith(Options{Running: got}, "x.yaml", []byte(file))
		if err != nil {
			t.Fatalf("read again: %v\n%s", err, file)
		}
		if diff := cmp.Diff(got, again, compare); diff != "" {
			t.Errorf("read again (-first +second):\n%s\n%s", diff, file)
		}
		numbers := make(map[int]bool)
		for _, l := range got.Links {
			if numbers[l.Number] {
				t.Errorf("number %d twice", l.Number)
			}
			numbers[l.Number] = true
			if i, ok := running.FindLink(l.Endpoints[0].String()); ok && running.Links[i].Endpoints == l.Endpoints && running.Links[i].Number != l.Number {
				t.Errorf("%v has the number %d, not %d", l.Endpoints, l.Number, running.Links[i].Number)
			}
		}
		segments := got.Segments()
		owner := make(map[netip.Addr]string)
		of := make(map[netip.Prefix]int)
		inside := make(map[int][]netip.Prefix)
		for _, n := range got.Nodes {
			for _, i := range n.Interfaces {
				segment := segments[i.Link]
				for _, a := range i.Addresses {
					if other := owner[a.Addr()]; other != "" {
						t.Errorf("%s is at %s and at %s", a, other, n.Name)
					}
					owner[a.Addr()] = n.Name
					if other, ok := of[a.Masked()]; ok && other != segment {
						t.Errorf("%s is in two segments", a.Masked())
					}
					of[a.Masked()] = segment
				}
				if n.Kind == Switch {
					continue
				}
				if own := subnetsOf(i.Addresses); inside[segment] == nil {
					inside[segment] = own
				} else if !slices.Equal(own, inside[segment]) {
					t.Errorf("%s:%s is in %v, others in %v", n.Name, i.Name, own, inside[segment])
				}
			}
		}
	})
}
