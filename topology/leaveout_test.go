package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// badOptions are options that do not suit a file of the nodes a, b and c.
var badOptions = []struct {
	options Options
	want    string
}{
	{Options{Name: "No Name"}, `x.yaml:1:1: the lab is to have another name: "No Name" is no plain name, expected a-z, 0-9 and, inside, -`},
	{Options{Nodes: []string{"a", "d"}}, `x.yaml:2:10: no node is "d", expected one of a, b, c`},
	{Options{Nodes: []string{"x*"}}, `x.yaml:2:10: no node is "x*", expected one of a, b, c`},
	{Options{Nodes: []string{"["}}, `x.yaml:2:10: "[" has no ] behind its [, expected a range such as h[1-64]`},
}

func TestBadOptions(t *testing.T) {
	for _, test := range badOptions {
		_, err := ParseWith(test.options, "x.yaml", []byte("topology:\n  nodes: {a: , b: , c: }\n"))
		if err == nil || err.Error() != test.want {
			t.Errorf("%+v: got %v\nwant %s", test.options, err, test.want)
		}
	}
}

func TestName(t *testing.T) {
	for _, file := range []string{"name: x\ntopology: {nodes: {a: }}", "topology: {nodes: {a: }}"} {
		if got, err := ParseWith(Options{Name: "other"}, "<stdin>", []byte(file)); err != nil || got.Name != "other" {
			t.Errorf("%q: %+v, %v", file, got, err)
		}
	}
}

const leaveOutFile = `
topology:
  nodes: {a: , b: , c: , d: , r: {kind: router}, s: {kind: switch}}
  links:
    - endpoints: ["a:eth0", "c:eth0"]
    - endpoints: ["a:eth1", "s:1"]
    - endpoints: ["b:eth0", "s:2"]
    - endpoints: ["s:3", "r:1"]
    - endpoints: ["r:2", "d:eth0"]
    - endpoints: ["c:eth1", "external:tap0"]
    - endpoints: ["b:eth1", "external:tap1"]
workloads:
  - {name: ab, from: a, to: b, operation: send, size: 1B, count: 1}
  - {name: ac, from: a, to: c, operation: send, size: 1B, count: 1}
  - {name: ad, from: a, to: d, operation: send, size: 1B, count: 1}
timeline:
  - {at: 1s, link: "a:eth0", down: true}
  - {at: 2s, link: "b:eth0", down: true}
  - {at: 3s, partition: [[c]]}
  - {at: 4s, partition: [[a, b], [s, c]]}
  - {at: 5s, heal: true}
checks:
  - {workload: ab, errors: 0}
  - {workload: ad, errors: 0}
capture:
  - {interfaces: ["a:eth0", "a:eth1"], file: a.pcapng}
  - {link: "r:2", file: r.pcapng}
`

// The parts that stay are as in the whole lab, and those that do not are told of.
func TestLeaveOut(t *testing.T) {
	whole, err := Parse("x.yaml", []byte(leaveOutFile))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		nodes           []string
		names, links    string
		workloads       string
		events          []Event
		captured        []Endpoint
		externals, told string
		routes          string // of a
	}{
		{
			nodes: []string{"*"}, names: "a b c d r s", links: "0 1 2 3 4 5 6", workloads: "ab ac ad", events: whole.Timeline,
			captured: []Endpoint{{"a", "eth0"}, {"a", "eth1"}, {"r", "2"}, {"d", "eth0"}}, externals: "tap0 tap1",
			routes: "0.0.0.0/0 ::/0",
		},
		{
			nodes: []string{"[ab]", "s"}, names: "a b s", links: "1 2 6", workloads: "ab",
			events: []Event{
				{At: 2e9, Link: 1, Down: true}, {At: 4e9, Partition: [][]string{{"a", "b"}, {"s"}}}, {At: 5e9, Heal: true},
			},
			captured: []Endpoint{{"a", "eth1"}}, externals: "tap1",
			told: "workloads ac, ad; timeline entries at 1s, 3s; checks of ad; captures to r.pcapng",
		},
		{ // a workload whose way is gone although both of its ends are there
			nodes: []string{"a", "d", "s"}, names: "a d s", links: "1",
			events:   []Event{{At: 4e9, Partition: [][]string{{"a"}, {"s"}}}, {At: 5e9, Heal: true}},
			captured: []Endpoint{{"a", "eth1"}},
			told:     "workloads ab, ac, ad; timeline entries at 1s, 2s, 3s; checks of ab, ad; captures to r.pcapng",
		},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.nodes, ","), func(t *testing.T) {
			var told []string
			got, err := ParseWith(Options{Nodes: test.nodes, LeftOut: func(what string) { told = append(told, what) }}, "x.yaml", []byte(leaveOutFile))
			if err != nil {
				t.Fatal(err)
			}
			var names, workloads, externals, routes []string
			var captured []Endpoint
			var links []Link
			for _, n := range got.Nodes {
				names = append(names, n.Name)
				for _, i := range n.Interfaces {
					if l := got.Links[i.Link]; l.Endpoints[i.End] != (Endpoint{n.Name, i.Name}) {
						t.Errorf("interface %s:%s is at %v", n.Name, i.Name, l.Endpoints)
					}
					for _, j := range whole.FindNode(n.Name).Interfaces {
						if j.Name == i.Name && !cmp.Equal(i.Addresses, j.Addresses, compare) {
							t.Errorf("%s:%s has the addresses %v, not %v", n.Name, i.Name, i.Addresses, j.Addresses)
						}
					}
				}
			}
			for _, r := range got.Nodes[0].Routes {
				routes = append(routes, r.To.String())
			}
			for _, i := range []byte(strings.ReplaceAll(test.links, " ", "")) {
				links = append(links, whole.Links[i-'0'])
			}
			for _, w := range got.Workloads {
				workloads = append(workloads, w.Name)
			}
			for _, x := range got.Externals {
				externals = append(externals, x.Name)
			}
			for _, c := range got.Captures {
				captured = append(captured, c.Interfaces...)
			}
			for what, is := range map[string][2]string{
				"nodes": {strings.Join(names, " "), test.names}, "workloads": {strings.Join(workloads, " "), test.workloads},
				"externals": {strings.Join(externals, " "), test.externals}, "told": {strings.Join(told, "; "), test.told},
				"routes": {strings.Join(routes, " "), test.routes},
			} {
				if is[0] != is[1] {
					t.Errorf("%s: got %q, want %q", what, is[0], is[1])
				}
			}
			for what, diff := range map[string]string{
				"links": cmp.Diff(links, got.Links, compare), "events": cmp.Diff(test.events, got.Timeline, compare),
				"captures": cmp.Diff(test.captured, captured, compare),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
		})
	}
}

// The parts of a scenario that stay are about nodes and links that are there.
func TestLeaveOutScenario(t *testing.T) {
	const file = `
topology:
  nodes: {a: , b: , c: , d: }
  links: [{endpoints: ["d:e", "a:d"]}, {endpoints: ["a:e", "b:e"]}, {endpoints: ["b:f", "c:e"]}, {endpoints: ["c:f", "a:f"]}]
workloads:
  - {name: ring, operation: send, pattern: ring, nodes: [a, b, c], size: 1B, count: 1}
  - {name: perm, operation: send, pattern: permutation, nodes: [b, a], size: 1B, count: 1}
  - {name: prog, operation: exec, nodes: [a, d], command: x, start: manual}
  - {name: own, operation: exec, nodes: b, command: x, start: manual}
timeline:
  - {after: six, mark: last}
  - {name: six, after: two, mark: second}
  - {name: two, at: 2s, kill: c}
  - {name: ok, at: 3s, link: "b:e", cut: true}
  - {after: ok, start: own}
  - {at: 4s, start: prog}
  - {when: {workload: ring, state: done}, mark: no}
  - {when: {counter: Connect, node: d, value: 1}, mark: no}
  - {when: {counter: Connect, value: 1}, snapshot: kept}
  - {after: six, snapshot: lost}
chaos:
  - {kind: down, every: 1s, for: 1s, until: 2s}
  - {kind: kill, every: 1s, for: 1s, until: 2s, nodes: [c, b]}
  - {kind: kill, every: 1s, for: 1s, until: 2s, nodes: [c]}
checks:
  - {workload: ring, errors: 0}
  - {workload: perm, errors: 0}
  - {link: "b:f", dropped: 0}
  - {link: "b:e", dropped: 0}
  - {counter: Connect, value: 3, snapshot: kept}
  - {counter: Connect, value: 3, snapshot: lost}
  - {counter: Connect, value: 3, node: d}
  - {leftovers: 0, node: b}
baseline: {file: report.json, workloads: ring}
`
	var told []string
	got, err := ParseWith(Options{Nodes: []string{"a", "b"}, Read: readSamples, LeftOut: func(what string) { told = append(told, what) }}, "x.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"workloads ring, prog", "timeline entries at 0ms, six, two, 4s, 0ms, 0ms, 0ms", "chaos kill",
		"checks of ring, a link, the counter Connect, the counter Connect",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if len(got.Timeline) != 3 || got.Timeline[0].Name != "ok" || got.Timeline[0].Link != 0 || got.Timeline[2].Snapshot != "kept" {
		t.Errorf("%+v", got.Timeline)
	}
	if len(got.Chaos) != 2 || !cmp.Equal(got.Chaos[0].Links, []int{0}) || !cmp.Equal(got.Chaos[1].Nodes, []string{"b"}) {
		t.Errorf("%+v", got.Chaos)
	}
	if len(got.Checks) != 4 || got.Checks[1].Link != 0 || got.Baseline != nil {
		t.Errorf("%+v %+v", got.Checks, got.Baseline)
	}
}

// A check of a switch goes with it, and that of all deadlocks stays.
func TestLeaveOutBufferChecks(t *testing.T) {
	lab := &Topology{Checks: []Check{{OfBuffer: true, Switch: "left"}, {OfBuffer: true, Switch: "here"}, {OfBuffer: true}}}
	s := selection{&reader{}, lab, nil, map[string]bool{"here": true}, make(map[string]bool)}
	s.leaveOutUses()
	if want := []Check{{OfBuffer: true, Switch: "here"}, {OfBuffer: true}}; !cmp.Equal(want, lab.Checks) {
		t.Errorf("got %+v, want %+v", lab.Checks, want)
	}
}
