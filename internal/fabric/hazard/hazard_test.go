package hazard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
)

// find is the hazards of a file.
func find(t testing.TB, file string) []string {
	t.Helper()
	topo, err := topology.Parse("x.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return Find(topo)
}

// ring is five routers in a ring, each with a host, and more keys of each router, of each adapter and of the file.
func ring(router, adapter, more string) string {
	return `
topology:
  defaults:
    adapter: {congestion: dcqcn, pfc: [3]` + adapter + `}
    link: {rate: 10gbit, delay: 1us}
  kinds:
    hop: {kind: router, buffer: hpcc` + router + `}
  nodes:
    h[0-4]:
    r[0-4]: {kind: hop}
  links:
    - {endpoints: ["h[0-4]:e", "r[0-4]:h"]}
    - {endpoints: ["r0:up", "r1:down"]}
    - {endpoints: ["r1:up", "r2:down"]}
    - {endpoints: ["r2:up", "r3:down"]}
    - {endpoints: ["r3:up", "r4:down"]}
    - {endpoints: ["r4:up", "r0:down"]}
` + more
}

// around returns what Find says of a cycle of queues of a class.
func around(class int, queues ...string) []string {
	return []string{fmt.Sprintf("%s -> %s may deadlock: each queue of class %d waits for the next, expected paths without such a cycle, or a watchdog",
		strings.Join(queues, " -> "), queues[0], class)}
}

// flowsOf is workloads of pairs.
func flowsOf(pairs ...string) string {
	text := "workloads:\n"
	for i, p := range pairs {
		from, to, _ := strings.Cut(p, " ")
		text += fmt.Sprintf("  - {name: w%d, operation: write, from: %s, to: %s, size: 1MiB, count: 1}\n", i, from, to)
	}
	return text
}

func TestDeadlocks(t *testing.T) {
	upIn := func(class int) []string { return around(class, "r0:up", "r1:up", "r2:up", "r3:up", "r4:up") }
	up := upIn(3)
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"between any two hosts", ring("", "", ""), up},
		{"of flows around", ring("", "", flowsOf("h0 h2", "h1 h3", "h2 h4", "h3 h0", "h4 h1")), up},
		{"of flows around, but one", ring("", "", flowsOf("h0 h2", "h1 h3", "h2 h4", "h3 h0")), nil},
		{"of flows of one hop", ring("", "", flowsOf("h0 h1", "h1 h2", "h2 h3", "h3 h4", "h4 h0")), nil},
		{"of a permutation", ring("", "", "workloads: [{name: p, operation: write, pattern: permutation, nodes: 'h*', size: 1MiB, count: 1}]\n"), up},
		{"of a permutation of some", ring("", "", "workloads: [{name: p, operation: write, pattern: permutation, nodes: 'h[0-2]', size: 1MiB, count: 1}]\n"), nil},
		{"of programs", ring("", "", "workloads: [{name: p, exec: {h0: [a], h1: [b]}}]\n"), up},
		{"in no lossless class", ring(", priorities: {lossless: []}", "", ""), nil},
		{"in another lossless class", ring(", priorities: {lossless: [4]}", "", ""), nil},
		{"of SONiC", strings.ReplaceAll(ring("", ", dscp: 3", ""), "hpcc", "{preset: sonic}"), nil},
		{"of packets in another class", ring("", ", dscp: 0", ""), nil},
		{"of class 0", ring(", priorities: {lossless: [0]}", ", dscp: 0", ""), upIn(0)},
		{"of notifications", ring(", priorities: {lossless: [6]}", "", ""), upIn(6)},
		{"of two classes", ring(", priorities: {lossless: [3, 6]}", "", ""), slices.Concat(up, upIn(6))},
		{"that a watchdog ends", strings.Replace(ring("", "", ""), "r[0-4]: {kind: hop}", "r[0-4]: {kind: hop}\n    r3: {watchdog: {detect: 1ms}}", 1),
			[]string{strings.Replace(up[0], "expected paths without such a cycle, or a watchdog", "until a watchdog ends that", 1)}},
		{"of no notifications", strings.Replace(ring(", priorities: {lossless: [6]}", "", ""), "congestion: dcqcn", "congestion: none", 1), nil},
		{"broken by a router with other classes", strings.Replace(ring("", "", ""), "r[0-4]: {kind: hop}", "r[0-4]: {kind: hop}\n    r3: {priorities: {dscp: {26: 2}}}", 1), nil},
		{"broken by a router that has others in the class", strings.Replace(ring("", "", ""), "r[0-4]: {kind: hop}", "r[0-4]: {kind: hop}\n    r3: {priorities: {dscp: {26: 2, 48: 3}}}", 1), nil},
		{"broken by a router without a buffer", strings.Replace(ring("", "", ""), "r[0-4]: {kind: hop}", "r[0-4]: {kind: hop}\n    r3: {kind: router}", 1), nil},
		{"with a link that is down", strings.Replace(ring("", "", ""), `"r0:down"]`, `"r0:down"], down: true`, 1), up}, // routes are those of all links
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, h := range find(t, c.file) {
				if strings.Contains(h, "deadlock") {
					got = append(got, h)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSwitchesInARing has a tree of switches, which has no cycle, and one of routers at switches, which has.
func TestSwitchesInARing(t *testing.T) {
	const hosts = `
topology:
  defaults: {adapter: {congestion: dcqcn, pfc: [3]}, link: {rate: 10gbit}}
  nodes:
    h[0-4]:
    s[0-4]: {kind: switch, stp: true, buffer: hpcc}
  links:
    - {endpoints: ["h[0-4]:e", "s[0-4]:h"]}
    - {endpoints: ["s0:up", "s1:down"]}
    - {endpoints: ["s1:up", "s2:down"]}
    - {endpoints: ["s2:up", "s3:down"]}
    - {endpoints: ["s3:up", "s4:down"]}
    - {endpoints: ["s4:up", "s0:down"]}
`
	if got := find(t, hosts); got != nil {
		t.Errorf("a tree of switches has %v", got)
	}
	// Five routers, of which each link has a switch in its midst.
	file := ring("", "", "")
	nodes, links := "", ""
	for i := range 5 {
		nodes += fmt.Sprintf("\n    s%d: {kind: switch, buffer: hpcc}", i)
		old := fmt.Sprintf(`"r%d:up", "r%d:down"`, i, (i+1)%5)
		file = strings.Replace(file, old, fmt.Sprintf(`"r%d:up", "s%d:a"`, i, i), 1)
		links += fmt.Sprintf("    - {endpoints: [\"s%d:b\", \"r%d:down\"]}\n", i, (i+1)%5)
	}
	file = strings.Replace(file, "    r[0-4]: {kind: hop}", "    r[0-4]: {kind: hop}"+nodes, 1) + links
	want := around(3, "r0:up", "s0:b", "r1:up", "s1:b", "r2:up", "s2:b", "r3:up", "s3:b", "r4:up", "s4:b")
	if diff := cmp.Diff(want, find(t, file)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestShortHeadrooms(t *testing.T) {
	const star = `
topology:
  defaults: {adapter: {congestion: dcqcn, pfc: [3]}, link: {rate: 10gbit, delay: 1us}}
  nodes: {a: , b: , s: {kind: switch, buffer: %s}}
  links:
    - {endpoints: ["a:e", "s:1"]}
    - {endpoints: ["b:e", "s:2"]%s}
`
	short := func(has, need, port, least string) []string {
		return []string{fmt.Sprintf("s has a headroom of %s, and up to %s may still arrive by s:%s once the neighbour there is to pause, expected headroom: %s or more: packets may be dropped", has, need, port, least)}
	}
	// 2 us at 10 Gb/s are 2500 bytes; a packet of the MTU 4200 takes 4238, a PFC frame 84.
	const need = 2500 + 2*4238 + 84
	for _, c := range []struct {
		buffer, link string
		want         []string
	}{
		{"hpcc", "", nil},
		{"{headroom: auto}", "", nil},
		{fmt.Sprintf("{headroom: %dB}", need), "", nil},
		{fmt.Sprintf("{headroom: %dB}", need-1), "", short(fmt.Sprintf("%dB", need-1), fmt.Sprintf("%dB", need), "1", fmt.Sprintf("%dB", need))},
		{fmt.Sprintf("{headroom: %dB}", need), ", reverse: {delay: 3us}", short(fmt.Sprintf("%dB", need), fmt.Sprintf("%dB", need+2500), "2", fmt.Sprintf("%dB", need+2500))},
		{fmt.Sprintf("{headroom: %dB}", need), ", rate: 20gbit", short(fmt.Sprintf("%dB", need), fmt.Sprintf("%dB", need+2500), "2", fmt.Sprintf("%dB", need+2500))},
		{fmt.Sprintf("{headroom: %dB}", need), ", rate: none, reverse: {rate: 20gbit}", short(fmt.Sprintf("%dB", need), fmt.Sprintf("%dB", need+2500), "2", fmt.Sprintf("%dB", need+2500))},
		{"{headroom: 0B}, priorities: {lossless: []}", "", nil},
		{"trident2", "", nil},
		{"trident2", ", delay: 10us", short("22400B", "33560B", "2", "33560B")},
	} {
		if diff := cmp.Diff(c.want, find(t, fmt.Sprintf(star, c.buffer, c.link))); diff != "" {
			t.Errorf("%s%s (-want +got):\n%s", c.buffer, c.link, diff)
		}
	}
}

func TestUnpaused(t *testing.T) {
	const star = `
topology:
  defaults: {adapter: {congestion: dcqcn%s}, link: {rate: 10gbit}}
  nodes: {"h[1-5]": , h1: {%s}, s: {kind: switch, buffer: %s}, u: {kind: switch}, x: }
  links:
    - {endpoints: ["h[1-5]:e", "s:*"]}
    - {endpoints: ["s:up", "u:down"]}
    - {endpoints: ["x:e", "u:1"]}
`
	unpaused := func(class int, hosts string) []string {
		return []string{fmt.Sprintf("s cannot pause class %d of %s, expected pfc: [%d] of the adapter there: what it sends may be dropped", class, hosts, class)}
	}
	for _, c := range []struct {
		adapter, one, buffer, more string
		want                       []string
	}{
		{"", "", "hpcc", "", unpaused(3, "h1, h2, h3 ... (5 in all)")},
		{", pfc: [3]", "", "hpcc", "", nil},
		{", pfc: [4]", "", "hpcc", flowsOf("h3 h4"), unpaused(3, "h3, h4")},
		{", pfc: [3]", "adapter: {pfc: []}", "hpcc", "", unpaused(3, "h1")},
		{", pfc: [3]", "adapter: {pfc: [], network_direct: false}", "hpcc", "", nil},
		{", pfc: [3]", "adapter: {pfc: [], congestion: window}", "hpcc", "", nil}, // its packets have class 0
		{", pfc: [3]", "", "hpcc, priorities: {lossless: [3, 4], dscp: {26: 4}}", flowsOf("h1 h2"), unpaused(4, "h1, h2")},
		{"", "", "hpcc, priorities: {lossless: []}", "", nil},
	} {
		if diff := cmp.Diff(c.want, find(t, fmt.Sprintf(star, c.adapter, c.one, c.buffer)+c.more)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c, diff)
		}
	}
	if got := find(t, "topology: {nodes: {a: {adapter: {pfc: [3]}}, b: }, links: [{endpoints: ['a:e', 'b:e']}]}"); got != nil {
		t.Errorf("without a buffer %v", got)
	}
}

// large is 1,024 hosts at 32 leaves and 16 spines.
func large() string {
	return `
topology:
  defaults: {adapter: {congestion: dcqcn, pfc: [3]}, link: {rate: 100gbit, delay: 1us}}
  kinds: {hop: {kind: router, buffer: {size: 64MiB}}}
  nodes:
    h[1-1024]:
    leaf[1-32]: {kind: hop}
    spine[1-16]: {kind: hop}
  links:
    - {endpoints: ["leaf[1-32]:up*", "spine[1-16]:down*"], cross: true}
` + hostLinks()
}

func hostLinks() (text string) {
	for leaf := range 32 {
		text += fmt.Sprintf("    - {endpoints: [\"h[%d-%d]:e\", \"leaf%d:h*\"]}\n", 32*leaf+1, 32*leaf+32, leaf+1)
	}
	return text
}

// TestManyHosts finds no hazard between any two of 1,024 hosts, and passes each router once for each of them:
// what it allocates would be many times as much else.
func TestManyHosts(t *testing.T) {
	topo, err := topology.Parse("x.yaml", []byte(large()))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1, func() {
		if got := Find(topo); got != nil {
			t.Error(got)
		}
	}); n > 1024*1024 {
		t.Errorf("%.0f allocations for %d pairs of hosts", n, 1024*1023)
	}
}

func BenchmarkManyHosts(b *testing.B) {
	topo, err := topology.Parse("x.yaml", []byte(large()))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		Find(topo)
	}
}
