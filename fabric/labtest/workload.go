package labtest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/topology"
)

// workloadSettings is a workload as a file has it, without what is zero.
func workloadSettings(w *topology.Workload) []Setting {
	var all []Setting
	add := func(given bool, key, value string) {
		if given {
			all = append(all, Setting{key, value})
		}
	}
	nodes, operation := w.Nodes, w.Operation
	if w.Commands != nil { // then the nodes are the keys of exec
		nodes, operation = nil, ""
	}
	add(w.Name != "", "name", w.Name)
	add(operation != "", "operation", string(operation))
	add(w.Pattern != "" && w.Pattern != topology.Pair && w.Operation != topology.AllReduce, "pattern", string(w.Pattern))
	from, to := w.From, w.To
	switch { // in a file, the one that the others have to do with is not among the nodes
	case w.Pattern == topology.Incast && len(nodes) > 0:
		to, nodes = nodes[0], nodes[1:]
	case w.Pattern == topology.Broadcast && len(nodes) > 0:
		from, nodes = nodes[0], nodes[1:]
	}
	add(from != "", "from", from)
	add(to != "", "to", to)
	add(len(nodes) > 0, "nodes", list(nodes, quote))
	switch {
	case w.Mixed:
		add(true, "size", "{mix: "+list(w.Sizes, topology.FormatSize)+"}")
	case len(w.Sizes) > 0:
		add(true, "size", list(w.Sizes, topology.FormatSize))
	default:
		add(w.Size > 0, "size", topology.FormatSize(w.Size))
	}
	add(w.Measure != "", "measure", string(w.Measure))
	one := 1 // is what is absent from a file
	if w.Operation == topology.Connect {
		one = 0
	}
	add(w.Depth > one, "depth", strconv.Itoa(w.Depth))
	add(w.QPs > one, "qps", strconv.Itoa(w.QPs))
	add(w.Inline, "inline", "true")
	add(w.SRQ, "srq", "true")
	add(w.Polling, "completion", "poll")
	add(w.Rate > 0, "rate", topology.FormatRate(w.Rate))
	add(w.Count > 0, "count", strconv.FormatUint(w.Count, 10))
	add(w.Duration > 0, "duration", topology.FormatDuration(w.Duration))
	add(w.WarmUp > 0, "warmup", topology.FormatDuration(w.WarmUp))
	add(w.Verify, "verify", "true")
	add(w.Reconnect, "reconnect", "true")
	add(len(w.Command) > 0, "command", list(w.Command, quote))
	add(w.Commands != nil, "exec", programs(w))
	add(w.Ready != (topology.Readiness{}), "ready", w.Ready.String())
	add(w.Timeout > 0, "timeout", topology.FormatDuration(w.Timeout))
	add(w.Start > 0, "start", topology.FormatDuration(w.Start))
	add(w.Manual, "start", "manual")
	return all
}

// programs lists the commands of each of a workload's nodes, in one line of YAML.
func programs(w *topology.Workload) string {
	var entries []string
	for i, node := range w.Nodes[:min(len(w.Nodes), len(w.Commands))] {
		entries = append(entries, quote(node)+": "+list(w.Commands[i], quote))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// list is a list in one line of YAML.
func list[T any](items []T, format func(T) string) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = format(item)
	}
	return fmt.Sprintf("[%s]", strings.Join(texts, ", "))
}
