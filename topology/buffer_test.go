package topology

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// nodeFrom is the node s of a file.
func nodeFrom(t *testing.T, file string) Node {
	t.Helper()
	lab, err := Parse("lab.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return *lab.FindNode("s")
}

// TestBufferKeys sets each key to both ends of its range, or to each word.
func TestBufferKeys(t *testing.T) {
	hpcc := func(set func(*Buffer)) Node {
		b := Buffer{Preset: BufferHPCC}
		set(&b)
		return Node{Buffer: &b}
	}
	priorities := func(p Priorities) Node { return Node{Buffer: &Buffer{Preset: BufferHPCC}, Priorities: &p} }
	watchdog := func(detect, restore time.Duration, action WatchdogAction) Node {
		return Node{Buffer: &Buffer{Preset: BufferHPCC}, Watchdog: &Watchdog{detect, restore, action}}
	}
	for _, c := range []struct {
		keys string
		want Node
	}{
		{"", Node{}},
		{"buffer: hpcc", Node{Buffer: &Buffer{Preset: BufferHPCC}}},
		{"buffer: trident2", Node{Buffer: &Buffer{Preset: BufferTrident2}}},
		{"buffer: {preset: sonic}", Node{Buffer: &Buffer{Preset: BufferSONiC}}},
		{"buffer: {}", Node{Buffer: &Buffer{Preset: BufferHPCC}}},
		{"buffer: {size: 1KiB}", hpcc(func(b *Buffer) { b.Size = new(uint64(1 << 10)) })},
		{"buffer: {size: 1TiB}", hpcc(func(b *Buffer) { b.Size = new(uint64(1 << 40)) })},
		{"buffer: {reserve: 0B}", hpcc(func(b *Buffer) { b.Reserve = new(uint64(0)) })},
		{"buffer: {reserve: 64GiB}", hpcc(func(b *Buffer) { b.Reserve = new(uint64(1 << 36)) })},
		{"buffer: {headroom: auto}", Node{Buffer: &Buffer{Preset: BufferHPCC}}},
		{"buffer: {headroom: 0B}", hpcc(func(b *Buffer) { b.Headroom = new(uint64(0)) })},
		{"buffer: {headroom: 64GiB}", hpcc(func(b *Buffer) { b.Headroom = new(uint64(1 << 36)) })},
		{"buffer: {alpha: 0.0001}", hpcc(func(b *Buffer) { b.Alpha = new(0.0001) })},
		{"buffer: {alpha: 1/8}", hpcc(func(b *Buffer) { b.Alpha = new(0.125) })},
		{"buffer: {alpha: .5/4}", hpcc(func(b *Buffer) { b.Alpha = new(0.125) })},
		{"buffer: {alpha: 1024}", hpcc(func(b *Buffer) { b.Alpha = new(1024.0) })},
		{"buffer: {xoff: 1B}", hpcc(func(b *Buffer) { b.XOFF = new(uint64(1)) })},
		{"buffer: {xoff: 64GiB}", hpcc(func(b *Buffer) { b.XOFF = new(uint64(1 << 36)) })},
		{"buffer: {gap: 0B}", hpcc(func(b *Buffer) { b.Gap = new(uint64(0)) })},
		{"buffer: {gap: 64GiB}", hpcc(func(b *Buffer) { b.Gap = new(uint64(1 << 36)) })},
		{"buffer: {egress_alpha: 8}", hpcc(func(b *Buffer) { b.EgressAlpha = new(8.0) })},
		{"buffer: {preset: trident2, headroom: 30KB}", Node{Buffer: &Buffer{Preset: BufferTrident2, Headroom: new(uint64(30_000))}}},
		{"buffer: hpcc, priorities: {}", priorities(Priorities{})},
		{"buffer: hpcc, priorities: {lossless: []}", priorities(Priorities{Lossless: []uint32{}})},
		{"buffer: hpcc, priorities: {lossless: [7, 0, 3]}", priorities(Priorities{Lossless: []uint32{0, 3, 7}})},
		{"buffer: hpcc, priorities: {dscp: {}}", priorities(Priorities{DSCP: map[uint32]uint32{}})},
		{"buffer: hpcc, priorities: {dscp: {0: 7, 63: 0}}", priorities(Priorities{DSCP: map[uint32]uint32{0: 7, 63: 0}})},
		{"buffer: hpcc, priorities: {schedule: {0: 0.01%, 7: 100%, 6: strict}}",
			priorities(Priorities{Schedule: map[uint32]Schedule{0: {Weight: 0.0001}, 7: {Weight: 1}, 6: {Strict: true}}})},
		{"buffer: hpcc, watchdog: {detect: 1us}", watchdog(time.Microsecond, time.Microsecond, WatchdogDrop)},
		{"buffer: hpcc, watchdog: {detect: 1m, restore: 1us, action: forward}", watchdog(time.Minute, time.Microsecond, WatchdogForward)},
		{"buffer: hpcc, watchdog: {detect: 1us, restore: 1m, action: drop}", watchdog(time.Microsecond, time.Minute, WatchdogDrop)},
	} {
		for _, kind := range []Kind{Switch, Router} {
			got := nodeFrom(t, fmt.Sprintf("topology: {nodes: {s: {kind: %s, %s}}}", kind, c.keys))
			c.want.Name, c.want.Kind = "s", kind
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s of a %s (-want +got):\n%s", c.keys, kind, diff)
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var again Node
			if err := json.Unmarshal(text, &again); err != nil {
				t.Fatal(err)
			}
			again.Interfaces, again.Routes = nil, nil
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("%s, by %s (-before +after):\n%s", c.keys, text, diff)
			}
		}
	}
}

// TestBufferPrecedence has the nearest of several maps take the place of all others, and each node
// values of its own.
func TestBufferPrecedence(t *testing.T) {
	for _, c := range []struct {
		name              string
		kind, group, node string
		want              Node
	}{
		{"of a kind", "buffer: {preset: sonic, size: 1MiB}, watchdog: {detect: 1s}", "", "",
			Node{Buffer: &Buffer{Preset: BufferSONiC, Size: new(uint64(1 << 20))}, Watchdog: &Watchdog{time.Second, time.Second, WatchdogDrop}}},
		{"a group before a kind", "buffer: {preset: sonic, size: 1MiB}", "buffer: {gap: 0B}", "", Node{Buffer: &Buffer{Preset: BufferHPCC, Gap: new(uint64(0))}}},
		{"a node before a group", "", "buffer: {gap: 0B}", "buffer: trident2", Node{Buffer: &Buffer{Preset: BufferTrident2}}},
		{"from different maps", "buffer: sonic", "watchdog: {detect: 1s, restore: 2s}", "priorities: {lossless: []}",
			Node{Buffer: &Buffer{Preset: BufferSONiC}, Priorities: &Priorities{Lossless: []uint32{}}, Watchdog: &Watchdog{time.Second, 2 * time.Second, WatchdogDrop}}},
		{"of priorities as a whole", "buffer: hpcc, priorities: {lossless: [3]}", "priorities: {dscp: {1: 1}}", "", Node{Buffer: &Buffer{Preset: BufferHPCC}, Priorities: &Priorities{DSCP: map[uint32]uint32{1: 1}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := nodeFrom(t, fmt.Sprintf("topology: {kinds: {k: {kind: switch, %s}}, groups: {g: {%s}}, nodes: {s: {kind: k, group: g, %s}}}", c.kind, c.group, c.node))
			c.want.Name, c.want.Kind = "s", Switch
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
		})
	}
	lab, err := Parse("lab.yaml", []byte("topology: {kinds: {k: {kind: switch, buffer: hpcc}}, nodes: {a: {kind: k}, b: {kind: k}}}"))
	if err != nil || lab.Nodes[0].Buffer == lab.Nodes[1].Buffer {
		t.Errorf("two nodes have one buffer, or %v", err)
	}
}

// TestPFC has the nearest list of an adapter, and an empty one other than none.
func TestPFC(t *testing.T) {
	list := func(priorities ...uint32) *[]uint32 { return &priorities }
	for _, c := range []struct {
		defaults, node string
		want           *[]uint32
		json           string
	}{
		{"", "", nil, `{}`},
		{"", "pfc: [4, 0, 3]", list(0, 3, 4), `{"PFC":[0,3,4]}`},
		{"pfc: [3]", "", list(3), `{"PFC":[3]}`},
		{"pfc: [3]", "pfc: [4]", list(4), `{"PFC":[4]}`},
		{"pfc: [3]", "pfc: []", &[]uint32{}, `{"PFC":[]}`},
	} {
		got := adapterFrom(t, fmt.Sprintf("topology: {defaults: {adapter: {%s}}, nodes: {a: {adapter: {%s}}}}", c.defaults, c.node))
		if diff := cmp.Diff(Adapter{PFC: c.want}, got); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", c.defaults, c.node, diff)
		}
		text, err := json.Marshal(got)
		if err != nil || string(text) != c.json {
			t.Errorf("%s, %s is %s, %v, want %s", c.defaults, c.node, text, err, c.json)
		}
		var again Adapter
		if err := json.Unmarshal(text, &again); err != nil || !cmp.Equal(got, again) {
			t.Errorf("%s makes %+v, %v", text, again, err)
		}
	}
}

// TestPortsOfBuffers has links at a node with a buffer that have what its ports need, from
// wherever, and what they may not have in the other direction.
func TestPortsOfBuffers(t *testing.T) {
	for _, c := range []struct{ defaults, port, link string }{
		{"rate: 10gbit", "", ""},
		{"", "rate: 10gbit", ""},
		{"", "", "rate: 10gbit"},
		{"", "rate: 10gbit", "delay: 1us, jitter: 1us, loss: 1%, ecn: {min: 1KiB, max: 2KiB}"},
		{"rate: 10gbit, queue: 1MiB", "queue: none", ""},
		{"rate: 10gbit", "queue: 1MiB", "reverse: {queue: none}"},
		{"", "rate: 10gbit", "queue: 1MiB, burst: 1KiB, reverse: {queue: none, burst: none}"},
		{"", "", "reverse: {rate: 10gbit}"},
	} {
		if _, err := Parse("lab.yaml", fmt.Appendf(nil, "topology: {defaults: {link: {%s}}, nodes: {a: , s: {kind: switch, buffer: hpcc, port: {%s}}}, links: [{endpoints: ['a:e', 's:1'], %s}]}",
			c.defaults, c.port, c.link)); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
