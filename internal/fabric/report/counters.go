package report

import (
	"maps"
	"slices"
	"time"
)

// NDISNames returns the names of the counters of an adapter, in the order of
// NDIS_NDK_PERFORMANCE_COUNTERS (ndkpi.md 3.5).
func NDISNames() []string {
	return []string{
		"Connect", "Accept", "ConnectFailure", "ConnectionError", activeConnection, "CQError",
		"RDMAInOctets", "RDMAOutOctets", "RDMAInFrames", "RDMAOutFrames",
	}
}

// TransportNames returns the names of the transport's counters that any of the nodes has, sorted.
func TransportNames(nodes []Node) []string {
	return namesOf(nodes, func(n *Node) []map[string]uint64 { return []map[string]uint64{n.Transport} })
}

// CounterNames returns the names of the counters, of either set, that any of the nodes has,
// sorted.
func CounterNames(nodes []Node) []string { return namesOf(nodes, (*Node).counters) }

// counters returns both sets of counters of a node.
func (n *Node) counters() []map[string]uint64 { return []map[string]uint64{n.Counters, n.Transport} }

func namesOf(nodes []Node, sets func(*Node) []map[string]uint64) []string {
	all := map[string]bool{}
	for i := range nodes {
		for _, set := range sets(&nodes[i]) {
			for name := range set {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Sum adds up a counter, of either set, over nodes. found is false if none of them has it.
func Sum(nodes []Node, counter string) (sum uint64, found bool) {
	for i := range nodes {
		for _, counters := range nodes[i].counters() {
			value, ok := counters[counter]
			sum, found = sum+value, found || ok
		}
	}
	return sum, found
}

// Changes holds what nodes counted in an interval.
type Changes struct {
	Lab     string    `json:"lab"`
	Time    time.Time `json:"time"`    // of the interval's end
	Seconds float64   `json:"seconds"` // of the interval
	Nodes   []Node    `json:"nodes"`   // ActiveConnection counts those at the end
}

// Since returns what nodes have counted since before, which holds the same nodes.
func Since(before, now []Node) []Node {
	changed := slices.Clone(now)
	for i := range changed {
		n := &changed[i]
		n.Counters, n.Transport = since(before[i].Counters, n.Counters), since(before[i].Transport, n.Transport)
		n.Usage = n.Usage.since(before[i].Usage)
	}
	return changed
}

func since(before, now map[string]uint64) map[string]uint64 {
	changed := map[string]uint64{}
	for name, value := range now {
		was, known := before[name]
		switch {
		case name == activeConnection:
			changed[name] = value
		case known: // else the node did not answer then
			changed[name] = value - min(value, was)
		}
	}
	return changed
}

// activeConnection is the one counter that may decrease.
const activeConnection = "ActiveConnection"
