package metrics

import (
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	dto "github.com/prometheus/client_model/go"
)

// nodesOf returns the nodes of a lab: hosts, routers and switches.
func nodesOf(o *report.Observation, lab *dto.LabelPair) []subject[*report.ObservedNode] {
	all := make([]subject[*report.ObservedNode], len(o.Nodes))
	kinds := map[string]*dto.LabelPair{}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if kinds[n.Kind] == nil {
			kinds[n.Kind] = pair("kind", n.Kind)
		}
		all[i] = subject[*report.ObservedNode]{n, []*dto.LabelPair{kinds[n.Kind], lab, pair("node", n.Name)}}
	}
	return all
}

// states are the states that a node may be in.
var (
	states      = []string{core.NodeIsReady, core.NodeIsStarting, core.NodeIsDown, core.NodeIsPaused, core.NodeIsUnresponsive}
	stateLabels = labelled("state", states...)
)

var nodeLabels = []string{"kind", "lab", "node"}

var nodeRows = []row[*report.ObservedNode]{
	{
		Metric: Metric{"ndklab_node_state", Gauge, "0 or 1", append(slices.Clone(nodeLabels), "state"), "1 for the state that the node is in, 0 for the others: ready, starting, down, paused or unresponsive"},
		values: func(n *report.ObservedNode, put func(float64, ...*dto.LabelPair)) {
			for i, state := range states {
				put(truth(n.State == state), stateLabels[i])
			}
		},
	},
	node("ndklab_node_restarts_total", Counter, "starts", "How often the node was started again",
		func(n *report.ObservedNode) (float64, bool) { return float64(n.Restarts), true }),
	node("ndklab_node_healthy", Gauge, "0 or 1", "Whether the node's healthcheck passes; absent of nodes without one, and of those that are down",
		func(n *report.ObservedNode) (float64, bool) {
			return truth(n.Health != nil && n.Health.State == core.Healthy), n.Health != nil
		}),
	usage("ndklab_node_cpu_seconds_total", Counter, "seconds", "Processor time that the node's processes have used", func(u *report.Usage) (float64, bool) { return known(u.CPUSeconds) }),
	usage("ndklab_node_cpu_throttled_seconds_total", Counter, "seconds", "Time that they waited because of the limit, summed over processors", func(u *report.Usage) (float64, bool) { return known(u.ThrottledSeconds) }),
	usage("ndklab_node_memory_bytes", Gauge, "bytes", "Memory that they use now, with the page cache of their files", func(u *report.Usage) (float64, bool) { return known(u.Memory) }),
	usage("ndklab_node_memory_peak_bytes", Gauge, "bytes", "The most memory that they have used", func(u *report.Usage) (float64, bool) { return known(u.MemoryPeak) }),
	usage("ndklab_node_oom_kills_total", Counter, "processes", "Processes that were killed because the memory was over its limit", func(u *report.Usage) (float64, bool) { return known(u.OOMKills) }),
	usage("ndklab_node_processes", Gauge, "processes", "Processes and threads now", func(u *report.Usage) (float64, bool) { return known(u.PIDs) }),
	usage("ndklab_node_processes_refused_total", Counter, "processes", "Processes and threads that could not be started because of the limit", func(u *report.Usage) (float64, bool) { return known(u.PIDsRefused) }),
	limit("ndklab_node_cpu_limit_cores", "cores", "The limit of processor time; absent without one", func(l *report.Limits) (float64, bool) { return known(l.CPU) }),
	limit("ndklab_node_memory_limit_bytes", "bytes", "The limit of memory, swap included; absent without one", func(l *report.Limits) (float64, bool) { return known(l.Memory) }),
	limit("ndklab_node_processes_limit", "processes", "The limit of processes and threads; absent without one", func(l *report.Limits) (float64, bool) { return known(l.PIDs) }),
}

func node(name string, kind Type, unit, help string, value func(*report.ObservedNode) (float64, bool)) row[*report.ObservedNode] {
	return row[*report.ObservedNode]{Metric: Metric{name, kind, unit, nodeLabels, help}, value: value}
}

// usage is a row of what a node uses, which is known of nodes with limits.
func usage(name string, kind Type, unit, help string, of func(*report.Usage) (float64, bool)) row[*report.ObservedNode] {
	return node(name, kind, unit, help+"; known of nodes with limits", func(n *report.ObservedNode) (float64, bool) {
		if n.Usage == nil {
			return 0, false
		}
		return of(n.Usage)
	})
}

// limit is a row of a limit of nodes.
func limit(name, unit, help string, of func(*report.Limits) (float64, bool)) row[*report.ObservedNode] {
	return node(name, Gauge, unit, help, func(n *report.ObservedNode) (float64, bool) {
		if n.Limits == nil {
			return 0, false
		}
		return of(n.Limits)
	})
}
