package simulate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/topology"
)

// racks is a topology of racks with hosts, whose switches have links to all spines.
func racks(t testing.TB, racks, hosts, spines int, spine, host string) *topology.Topology {
	t.Helper()
	var nodes, links strings.Builder
	for r := range racks {
		fmt.Fprintf(&nodes, "    leaf%d: {kind: router}\n", r)
		for h := range hosts {
			fmt.Fprintf(&nodes, "    h%d-%d: {}\n", r, h)
			fmt.Fprintf(&links, "    - {endpoints: [\"h%d-%d:eth0\", \"leaf%d:d%d\"]%s}\n", r, h, r, h, host)
		}
		for s := range spines {
			fmt.Fprintf(&links, "    - {endpoints: [\"leaf%d:u%d\", \"spine%d:l%d\"]%s}\n", r, s, s, r, spine)
		}
	}
	for s := range spines {
		fmt.Fprintf(&nodes, "    spine%d: {kind: router}\n", s)
	}
	return parsed(t, "topology:\n  nodes:\n"+nodes.String()+"  links:\n"+links.String())
}

// members returns the number of nodes in each shard whose names begin so.
func (s sharding) members(prefix string) []int {
	n := make([]int, s.count)
	for name, shard := range s.of {
		if strings.HasPrefix(name, prefix) {
			n[shard]++
		}
	}
	return n
}

// Shards have the same work, hosts are with their switch, and only links with a delay lead from one to another.
func TestShardingOf(t *testing.T) {
	delayed := ", delay: 1us"
	t.Run("racks", func(t *testing.T) {
		s := shardingOf(racks(t, 4, 6, 2, delayed, ""), 2)
		if s.count != 2 || !cmp.Equal(s.members("h"), []int{12, 12}) || !cmp.Equal(s.members("spine"), []int{1, 1}) {
			t.Errorf("%d shards: %v", s.count, s.of)
		}
		for name, shard := range s.of {
			if rack, _, ok := strings.Cut(name, "-"); ok && s.of["leaf"+rack[1:]] != shard {
				t.Errorf("%s is not where its switch is", name)
			}
		}
	})
	t.Run("three racks in up to four shards", func(t *testing.T) {
		if s := shardingOf(racks(t, 3, 6, 1, delayed, delayed), 4); s.count != 4 {
			t.Errorf("%d shards: %v", s.count, s.of)
		}
		if s := shardingOf(racks(t, 3, 6, 1, delayed, ""), 4); s.count != 3 {
			t.Errorf("%d shards, want one for each rack", s.count)
		}
	})
	t.Run("one switch", func(t *testing.T) {
		if s := shardingOf(racks(t, 1, 12, 0, "", delayed), 2); s.count != 2 {
			t.Errorf("%d shards, want hosts in both", s.count)
		}
	})
	t.Run("more shards than racks", func(t *testing.T) {
		if s := shardingOf(racks(t, 4, 6, 0, "", ""), 5); s.count != 4 {
			t.Errorf("%d shards, want none without work", s.count)
		}
	})
	t.Run("jitter", func(t *testing.T) {
		for jitter, want := range map[string]int{"spread: 500ns": 2, "spread: 900ns": 1, "spread: 100ns, distribution: normal": 1} {
			if s := shardingOf(racks(t, 4, 6, 2, delayed+", jitter: {"+jitter+"}", ""), 2); s.count != want {
				t.Errorf("%s: %d shards, want %d", jitter, s.count, want)
			}
		}
	})
	t.Run("no delay", func(t *testing.T) {
		if s := shardingOf(racks(t, 4, 6, 2, "", ""), 2); s.count != 1 {
			t.Errorf("%d shards: %v", s.count, s.of)
		}
	})
	t.Run("deadlock", func(t *testing.T) {
		if s := shardingOf(read(t, "../../../examples/congestion/ring-deadlock.ndklab.yaml"), 2); s.count != 1 {
			t.Errorf("%d shards where a deadlock is possible", s.count)
		}
	})
	t.Run("options", func(t *testing.T) {
		large, small := racks(t, 4, 8, 2, delayed, ""), racks(t, 2, 8, 2, delayed, "")
		for _, c := range []struct {
			name string
			o    Options
			t    *topology.Topology
			want int
		}{
			{"asked for", Options{Shards: 2}, large, 2}, {"one", Options{Shards: 1}, large, 1},
			{"far too many", Options{Shards: 1 << 40}, large, 5}, {"few nodes", Options{Shards: 2}, small, 1},
			{"programs", Options{Shards: 2, Programs: make([]Program, 1)}, large, 1},
		} {
			if s := c.o.sharding(c.t); s.count != c.want {
				t.Errorf("%s: %d shards, want %d", c.name, s.count, c.want)
			}
		}
	})
}

// A shard that sends gets idle frames and rooms for those that it has sent, so that neither it nor the other makes new ones for ever.
func TestHanded(t *testing.T) {
	from, to := &shard{}, &shard{}
	payload := [][]byte{make([]byte, 1000)}
	made := map[*frame]bool{}
	rooms := map[*byte]bool{}
	for range 1000 {
		f := from.frames.get(payload, false)
		made[f], rooms[&f.payload[0]] = true, true
		handed(from, to, f)
		to.frames.put(f)
	}
	if len(made) > 2 || len(rooms) > 2 {
		t.Errorf("%d frames and %d rooms were made, want 2", len(made), len(rooms))
	}
}
