package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// settable is a file with every form of what a path may lead to.
const settable = `seed: 3
topology:
  defaults:
    link: {rate: 10gbit}
  nodes:
    "h[1-3]": {}
    s: {kind: switch, buffer: {size: 1MiB}}
  links:
    - {endpoints: ["h[1-3]:eth0", "s:p*"], delay: &d 1ms}
    - endpoints: ["h1:eth1", {node: h2, interface: eth1}]
      delay: *d
workloads:
  - {name: bulk, from: h1, to: h2, operation: write, size: 4KiB, count: 1}
  - {name: ping, from: h1, to: h2, operation: send, size: 64B, count: 1}
timeline:
  - {at: 1s, link: "h1:eth0", set: {loss: 1%}}
  - {at: 2s, link: "h1:eth0", set: {loss: 2%}}
`

// setIn parses the file with settings.
func setIn(t *testing.T, file string, texts ...string) (*Topology, error) {
	t.Helper()
	var o Options
	for _, text := range texts {
		s, err := ParseSetting(text)
		if err != nil {
			t.Fatal(err)
		}
		if s.String() != text {
			t.Errorf("%s is read as %s", text, s)
		}
		o.Set = append(o.Set, s)
	}
	return ParseWith(o, "f.yaml", []byte(file))
}

// delays returns the delay of each link.
func delays(p *Topology) string {
	var all []string
	for _, l := range p.Links {
		all = append(all, l.Directions[0].Delay.String())
	}
	return strings.Join(all, " ")
}

// Each form of a path leads to its places, and to no other, also where several places share a value.
func TestSet(t *testing.T) {
	sizes := func(p *Topology) string {
		var all []string
		for _, w := range p.Workloads {
			all = append(all, FormatSize(w.Size))
		}
		return strings.Join(all, " ")
	}
	for _, test := range []struct {
		set  []string
		got  func(*Topology) string
		want string
	}{
		{[]string{"link.delay=5ms"}, delays, "5ms 5ms 5ms 5ms"},
		{[]string{"topology.links.delay=5ms"}, delays, "5ms 5ms 5ms 5ms"},
		{[]string{"link[h2-s].delay=5ms"}, delays, "1ms 5ms 1ms 1ms"},
		{[]string{"link[s-h2].delay=5ms"}, delays, "1ms 5ms 1ms 1ms"},
		{[]string{"link[h1-h2].delay=5ms"}, delays, "1ms 1ms 1ms 5ms"},
		{[]string{"link[h1:eth0].delay=5ms"}, delays, "5ms 1ms 1ms 1ms"},
		{[]string{"link[*-s].delay=5ms", "link[h[2-3]-s].delay=7ms"}, delays, "5ms 7ms 7ms 1ms"},
		{[]string{"workload.size=1KiB"}, sizes, "1KiB 1KiB"},
		{[]string{"workload[ping].size=1KiB"}, sizes, "4KiB 1KiB"},
		{[]string{"workloads[ping].size=1KiB"}, sizes, "4KiB 1KiB"},
		{[]string{"seed=9"}, func(p *Topology) string { return FormatSize(p.Seed) }, "9B"},
		{[]string{"node[s].buffer.size=2MiB"}, func(p *Topology) string { return FormatSize(*p.FindNode("s").Buffer.Size) }, "2MiB"},
		{[]string{"timeline[2].at=7s"}, func(p *Topology) string { return p.Timeline[0].At.String() + " " + p.Timeline[1].At.String() }, "1s 7s"},
		{[]string{"defaults.link.rate=1gbit"}, func(p *Topology) string { return FormatRate(p.Links[0].Directions[0].Rate) }, "1gbit"},
		{[]string{"defaults.adapter.congestion=dcqcn"}, func(p *Topology) string { return fmt.Sprint(*p.FindNode("h1").Adapter.Congestion) }, "dcqcn"},
		{[]string{"link[h1-h2].loss={rate: 1%, burst: 5}"}, func(p *Topology) string { return strings.Join(p.Links[3].Directions[0].Settings(), " ") }, "delay=1ms loss={rate: 1%, burst: 5} rate=10gbit"},
	} {
		p, err := setIn(t, settable, test.set...)
		if err != nil {
			t.Errorf("%v: %v", test.set, err)
			continue
		}
		if got := test.got(p); got != test.want {
			t.Errorf("%v: %s, want %s", test.set, got, test.want)
		}
	}
}

// A setting of the fabric block holds before the block is expanded, another one in what comes of it.
func TestSetInFabric(t *testing.T) {
	const file = "topology:\n  fabric: {shape: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 1}\n"
	p, err := setIn(t, file, "fabric.leaves=3", "link[leaf3-spine1].delay=2ms")
	if err != nil {
		t.Fatal(err)
	}
	slow := 0
	for _, l := range p.Links {
		if l.Directions[0].Delay == 2*time.Millisecond {
			slow++
		}
	}
	if len(p.Links) != 6 || slow != 1 {
		t.Errorf("%d links, %d of them with the delay", len(p.Links), slow)
	}
}

// badPaths are settings that are none, and what is said of them.
var badPaths = map[string]string{
	"link.delay":     "found \"link.delay\", expected PATH=VALUE such as link.delay=1ms",
	"=1ms":           "expected PATH=VALUE",
	"link[a.delay=1": "link[a.delay: the bracket after link has no end, expected ]",
	"link[].delay=1": "link[].delay: nothing is in the brackets after link, expected a name",
	"link..delay=1":  "\"link..delay\" is no path, expected keys with dots between them, such as link.delay or workload[bulk].size",
	"link[a]x=1":     "is no path",
	"link.delay=":    "link.delay: there is no value, expected one such as link.delay=1ms",
	"link.delay={":   "link.delay: not YAML",
}

// An error in a setting has the place that it is for, and the names that are there instead.
func TestWrongSettings(t *testing.T) {
	for set, want := range map[string]string{
		"lnik.delay=1ms":               `f.yaml:1:1: lnik.delay: a file has no key "lnik", expected "link"?`,
		"link.dealy=1ms":               `f.yaml:9:7: unknown key "dealy" in a link, expected "delay"?`,
		"link.delay=1parsec":           `f.yaml:9:51: delay: `,
		"link[h9-s].delay=1ms":         `f.yaml:9:5: link[h9-s].delay: links has no "h9-s", expected `,
		"workload[bulky].size=1KiB":    `f.yaml:13:3: workload[bulky].size: workloads has no "bulky", expected "bulk"?`,
		"workload[x].size=1KiB":        `expected one of bulk, ping`,
		"node[q].cpu=1":                `nodes has no "q", expected one of h1, h2, h3, s`,
		"timeline[3].at=1s":            `timeline has no "3", expected one of 1, 2`,
		"seed.x=1":                     `f.yaml:1:7: seed.x: seed is "3", expected a map`,
		"checks[w].errors=0":           `the file has no checks, expected some to set something of`,
		"topology.fabric.leafs=1":      `unknown key "leafs" in a fabric`,
		"node[s].buffer.size.x=1":      `expected a map`,
		"workload[bulk].duration=soon": `duration: `,
	} {
		if _, err := setIn(t, settable, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
	for text, want := range badPaths {
		if _, err := ParseSetting(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A file with settings written out by itself is the same topology.
func TestExpandWithSettings(t *testing.T) {
	o := Options{Set: []Setting{{"link[h1-h2].delay", "5ms"}, {"workload.size", "1KiB"}}}
	text, err := Expand(o, "f.yaml", []byte(settable))
	if err != nil {
		t.Fatal(err)
	}
	set, err := ParseWith(o, "f.yaml", []byte(settable))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Parse("f.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(delays(set), delays(plain)); diff != "" || plain.Workloads[1].Size != 1024 {
		t.Errorf("%s\n%s", diff, text)
	}
}

// A list that several places share changes in one of them alone.
func TestSetInShared(t *testing.T) {
	const file = `topology:
  nodes: {a: {}, b: {}, c: {}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], faults: &f [{match: {nth: 3}, action: drop}]}
    - {endpoints: ["b:eth1", "c:eth0"], faults: *f}
`
	p, err := setIn(t, file, "link[b-c].faults[1].match.nth=5")
	if err != nil {
		t.Fatal(err)
	}
	first, second := fmt.Sprint(p.Links[0].Directions[0].Settings()), fmt.Sprint(p.Links[1].Directions[0].Settings())
	if !strings.Contains(first, "nth: 3") || !strings.Contains(second, "nth: 5") {
		t.Errorf("%s and %s", first, second)
	}
}
