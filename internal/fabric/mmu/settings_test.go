package mmu

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/topology"
)

// settingsOf returns the settings of the node s of a file, which has ports a and b and the links of those to the hosts a and b.
func settingsOf(t *testing.T, node, link string) (Config, error) {
	t.Helper()
	topo, err := topology.Parse("lab.yaml", []byte(`
name: lab
seed: 7
topology:
  nodes: {s: {kind: router, `+node+`}, a: , b: {adapter: {pfc: [3], receive_buffer: 1MiB}}}
  links:
    - {endpoints: ["a:eth0", "s:a"], rate: 10gbit, delay: 1us, mtu: 1500}
    - {endpoints: ["b:eth0", "s:b"], rate: 40gbit, delay: 2us, mtu: 4200, `+link+`}
`))
	if err != nil {
		t.Fatal(err)
	}
	return Settings(topo, topo.FindNode("s"))
}

// TestSettings: each key changes what it says, at both ports and in the classes that it is about, and nothing else. All other
// settings are those of the preset.
func TestSettings(t *testing.T) {
	all := func(c *Config, f func(class *Class)) {
		for i := range c.Ports {
			for k := range c.Ports[i].Classes {
				f(&c.Ports[i].Classes[k])
			}
		}
	}
	lossless := func(c *Config, f func(class *Class)) {
		all(c, func(class *Class) {
			if class.Lossless {
				f(class)
			}
		})
	}
	plain, err := settingsOf(t, "buffer: hpcc", "")
	if err != nil {
		t.Fatal(err)
	}
	if p := plain.Ports; plain.Name != "s" || plain.Seed != 7 || plain.Size != 12<<20 || len(p) != 2 ||
		p[0].Rate != 10e9 || p[1].Rate != 40e9 || p[0].MaxFrame != 1538 || p[1].MaxFrame != 4238 {
		t.Errorf("%+v", plain)
	}
	if got, want := plain.Ports[1].Classes[3].Headroom, Headroom(40e9, 2*time.Microsecond, 0, 4238); got != want {
		t.Errorf("headroom is %d, want %d", got, want)
	}
	for _, c := range []struct {
		node, link string
		change     func(c *Config)
	}{
		{"buffer: {preset: hpcc}", "", func(*Config) {}},
		{"buffer: {size: 5MiB}", "", func(c *Config) { c.Size = 5 << 20 }},
		{"buffer: {reserve: 8KiB}", "", func(c *Config) { lossless(c, func(k *Class) { k.Reserve = 8 << 10 }) }},
		{"buffer: {headroom: 100KiB}", "", func(c *Config) { lossless(c, func(k *Class) { k.Headroom = 100 << 10 }) }},
		{"buffer: {headroom: auto}", "", func(*Config) {}},
		{"buffer: {alpha: 1/2}", "", func(c *Config) { lossless(c, func(k *Class) { k.Alpha = 0.5 }) }},
		{"buffer: {xoff: 64KiB}", "", func(c *Config) { lossless(c, func(k *Class) { k.XOFF = 64 << 10 }) }},
		{"buffer: {gap: 9KiB}", "", func(c *Config) { lossless(c, func(k *Class) { k.Gap = 9 << 10 }) }},
		{"buffer: {egress_alpha: 3}", "", func(c *Config) {
			all(c, func(k *Class) {
				if !k.Lossless {
					k.EgressAlpha = 3
				}
			})
		}},
		{"buffer: hpcc, priorities: {dscp: {10: 5}}", "", func(*Config) {}}, // which is not the switch's to know
		{"buffer: hpcc, priorities: {schedule: {3: strict, 1: 25%}}", "", func(c *Config) {
			for i := range c.Ports {
				c.Ports[i].Classes[3].Weight, c.Ports[i].Classes[1].Weight = 0, 2500
			}
		}},
		{"buffer: hpcc, watchdog: {detect: 3ms}", "", func(c *Config) {
			c.Watchdog = Watchdog{Detect: 3 * time.Millisecond, Restore: 3 * time.Millisecond}
		}},
		{"buffer: hpcc, watchdog: {detect: 3ms, restore: 5ms, action: forward}", "", func(c *Config) {
			c.Watchdog = Watchdog{Detect: 3 * time.Millisecond, Restore: 5 * time.Millisecond, Forward: true}
		}},
		{"buffer: hpcc", "ecn: {min: 7KiB, max: 70KiB}", func(c *Config) {
			for k := range c.Ports[1].Classes {
				c.Ports[1].Classes[k].Mark = WRED{Min: 7 << 10, Max: 70 << 10, Probability: 1}
			}
		}},
		{"buffer: hpcc", "ecn: {min: 7KiB, max: 70KiB, probability: 5%}", func(c *Config) {
			for k := range c.Ports[1].Classes {
				c.Ports[1].Classes[k].Mark = WRED{Min: 7 << 10, Max: 70 << 10, Probability: 0.05}
			}
		}},
	} {
		got, err := settingsOf(t, c.node, c.link)
		if err != nil {
			t.Errorf("%s %s: %v", c.node, c.link, err)
			continue
		}
		want := plain
		want.Ports = append([]Port(nil), plain.Ports...)
		c.change(&want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.node, c.link, diff)
		}
	}
	// Of other classes and presets, all that a preset says is.
	for _, name := range presetNames {
		got, err := settingsOf(t, "buffer: "+name+", priorities: {lossless: [1, 5]}", "")
		if err != nil {
			t.Fatal(err)
		}
		classes := uint8(1<<1 | 1<<5)
		lines := []Line{{Rate: 10e9, Delay: time.Microsecond, MaxFrame: 1538}, {Rate: 40e9, Delay: 2 * time.Microsecond, MaxFrame: 4238}}
		want, err := Preset(name, &classes, lines)
		if err != nil {
			t.Fatal(err)
		}
		want.Name, want.Seed = "s", 7
		all(&want, func(k *Class) { k.Weight *= percent })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-preset +got):\n%s", name, diff)
		}
	}
	if _, err := settingsOf(t, "buffer: {size: 1KiB}", ""); err == nil || !strings.Contains(err.Error(), "of a buffer of 1024: make it larger") {
		t.Errorf("of a buffer that is too small: %v", err)
	}
}

// TestClassesOf: a DSCP has the class that the node's map says, or that of data and of CNPs.
func TestClassesOf(t *testing.T) {
	usual, own := ClassesOf(nil), ClassesOf(&topology.Node{Priorities: &topology.Priorities{DSCP: map[uint32]uint32{10: 5, 26: 2}}})
	for dscp := range uint8(64) {
		wantUsual, wantOwn := map[uint8]int{26: 3, 48: 6}[dscp], map[uint8]int{10: 5, 26: 2}[dscp]
		if got := usual.Class(dscp<<2 | 3); got != wantUsual {
			t.Errorf("DSCP %d has class %d, want %d", dscp, got, wantUsual)
		}
		if got := own.Class(dscp<<2 | 3); got != wantOwn {
			t.Errorf("DSCP %d has class %d where the node says %d", dscp, got, wantOwn)
		}
	}
}

// TestAdapterSettings: an adapter obeys and asks for pauses of its pfc alone. Of what has arrived in other classes, no more waits
// than its receive buffer holds.
func TestAdapterSettings(t *testing.T) {
	topo, err := topology.Parse("lab.yaml", []byte(`
topology:
  nodes: {b: {adapter: {pfc: [3, 5]}}, a: }
  links: [{endpoints: ["a:eth0", "b:eth0"], rate: 10gbit, delay: 1us, mtu: 1500}]
`))
	if err != nil {
		t.Fatal(err)
	}
	const receiveBuffer = 1 << 20
	for _, name := range []string{"a", "b"} {
		c, err := AdapterSettings(topo, topo.FindNode(name), receiveBuffer, 10e9)
		if err != nil || len(c.Ports) != 2 {
			t.Fatalf("%s: %+v, %v", name, c, err)
		}
		for k := range Classes {
			lossless := name == "b" && (k == 3 || k == 5)
			want, limit := Class{Weight: 1}, int64(receiveBuffer)
			if k >= controlClass {
				want.Weight = 0
			}
			behind := Class{Weight: want.Weight}
			if lossless {
				want.Lossless, want.XOFF, want.Headroom = true, receiveBuffer/2, Headroom(10e9, time.Microsecond, 0, 1538)
				limit = 0
			}
			behind.Limit = limit
			if diff := cmp.Diff([]Class{want, behind}, []Class{c.Ports[0].Classes[k], c.Ports[1].Classes[k]}); diff != "" {
				t.Errorf("%s, class %d (-want +got):\n%s", name, k, diff)
			}
		}
	}
}
