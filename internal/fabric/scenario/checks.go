package scenario

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// This file has the checks of counters, of what is left over and of programs.

// judgeCounter compares a counter with a check.
func judgeCounter(r *report.Run, c *topology.Check) []report.Check {
	nodes, name, when := r.Nodes, c.Counter, "at the end"
	if c.Node != "" {
		name += " of " + c.Node
	}
	switch {
	case c.Snapshot != "":
		nodes, when = r.Snapshots[c.Snapshot], "in snapshot "+c.Snapshot
		name += " " + when
	case c.At != 0:
		nodes, when = r.Snapshots[snapshotAt(c.At)], snapshotAt(c.At)
		name += " " + when
	}
	var all []report.Check
	for _, b := range c.Bounds {
		v := report.Check{Name: name, Expected: bound(b)}
		sum, found := report.Sum(only(nodes, c.Node), c.Counter)
		switch {
		case found:
			v.Got, v.Passed = fmt.Sprint(sum), b.Holds(float64(sum))
			if !v.Passed {
				v.Got += shares(nodes, c.Node, c.Counter)
				v.Where = "the counters of " + ofNode(c.Node) + " " + when
			}
		case nodes == nil && c.Snapshot != "":
			v.Got, v.Where = "no snapshot "+c.Snapshot, "the timeline, whose snapshot has not come about"
		case len(report.CounterNames(only(nodes, c.Node))) == 0:
			v.Got, v.Where = ofNode(c.Node)+" told no counters", states(nodes, c.Node)
		default:
			v.Got, v.Where = "no such counter", "the counters that there are: "+strings.Join(report.CounterNames(nodes), ", ")
		}
		all = append(all, v)
	}
	return all
}

func ofNode(node string) string {
	if node == "" {
		return "all nodes"
	}
	return "node " + node
}

// only returns the node of that name; all of them for "".
func only(nodes []report.Node, name string) []report.Node {
	if name == "" {
		return nodes
	}
	for i := range nodes {
		if nodes[i].Name == name {
			return nodes[i : i+1]
		}
	}
	return nil
}

// shares returns which nodes a sum comes from, if it is one.
func shares(nodes []report.Node, node, counter string) string {
	if node != "" {
		return ""
	}
	var parts []string
	for i := range nodes {
		if n, _ := report.Sum(nodes[i:i+1], counter); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", nodes[i].Name, n))
		}
	}
	return listed(parts)
}

// listed returns some of a list in parentheses, behind a sum.
func listed(parts []string) string {
	const most = 4
	if len(parts) > most {
		parts = append(parts[:most:most], fmt.Sprintf("%d more", len(parts)-most))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// states returns the states of nodes that do not answer.
func states(nodes []report.Node, node string) string {
	var parts []string
	for i := range nodes {
		if n := &nodes[i]; n.State != core.NodeIsReady && (node == "" || n.Name == node) {
			parts = append(parts, fmt.Sprintf("node %s, which is %s", n.Name, n.InWords()))
		}
	}
	if len(parts) == 0 {
		return "the lab's log"
	}
	return strings.Join(parts, "; ")
}

// judgeLeft compares what is left over with a check.
func judgeLeft(r *report.Run, c *topology.Check) []report.Check {
	var all []report.Check
	for _, b := range c.Bounds {
		v := report.Check{Name: string(b.Metric), Expected: bound(b)}
		if c.Node != "" {
			v.Name += " of " + c.Node
		}
		var sum uint64
		known := false
		var parts []string
		for i := range r.Nodes {
			n := &r.Nodes[i]
			if c.Node != "" && n.Name != c.Node {
				continue
			}
			got, text, ok := remains(n, b.Metric)
			known = known || ok
			if sum += got; got > 0 {
				parts = append(parts, text)
			}
		}
		if !known {
			v.Got, v.Where = ofNode(c.Node)+" did not tell", states(r.Nodes, c.Node)
		} else if v.Passed = b.Holds(float64(sum)); v.Passed {
			v.Got = fmt.Sprint(sum)
		} else {
			v.Got = fmt.Sprint(sum) + listed(parts)
			if sum == 0 {
				v.Where = "what " + ofNode(c.Node) + " had in use at the end"
				all = append(all, v)
				continue
			}
			v.Where = "programs that the lab still runs, and workloads that failed: they have not closed what they had made"
		}
		all = append(all, v)
	}
	return all
}

// remains returns what is left in a node, in number and in words.
func remains(n *report.Node, m topology.Metric) (sum uint64, text string, known bool) {
	if m == topology.OpenConnections {
		sum, known = n.Counters["ActiveConnection"]
		return sum, fmt.Sprintf("%s %d", n.Name, sum), known
	}
	if n.InUse == nil {
		return 0, "", false
	}
	var kinds []string
	for _, k := range []struct {
		n    uint32
		name string
	}{
		{n.InUse.Qps, "QP"}, {n.InUse.Cqs, "CQ"}, {n.InUse.Mrs, "MR"}, {n.InUse.Mws, "MW"}, {n.InUse.Srqs, "SRQ"}, {n.InUse.Pds, "PD"},
	} {
		if k.n > 0 {
			sum += uint64(k.n)
			kinds = append(kinds, words.Plural(int(k.n), k.name))
		}
	}
	return sum, n.Name + ": " + strings.Join(kinds, " and "), true
}

// judgeProgram compares how a program ended, and what it printed, with a check.
func judgeProgram(lab string, c *topology.Check, v *programExit) report.Check {
	r := report.Check{
		Name:     fmt.Sprintf("`%s` in %s", words.CommandLine(c.Command), c.Node),
		Expected: fmt.Sprintf("exit status %d", c.Status),
	}
	matches := true
	if c.Output != "" {
		r.Expected += fmt.Sprintf(" and output that matches %q", c.Output)
		pattern, err := regexp.Compile(c.Output)
		if err != nil { // which the topology would have refused
			r.Got = err.Error()
			return r
		}
		matches = pattern.MatchString(v.Output)
	}
	switch err := v.problem(c); {
	case err != nil:
		r.Got = err.Error()
	case !matches:
		r.Got = fmt.Sprintf("exit status %d, and the output %s", v.Status, excerpt(v.Output))
	default:
		r.Got, r.Passed = fmt.Sprintf("exit status %d", v.Status), true
		return r
	}
	r.Where = fmt.Sprintf("the lab's log, and the program itself: `ndklab exec %s/%s -- %s` in a lab that `run --keep` leaves up", lab, c.Node, words.CommandLine(c.Command))
	return r
}

// excerpt returns the end of what a program has printed.
func excerpt(output string) string {
	const most = 200 // bytes
	output = strings.TrimSpace(output)
	if output == "" {
		return "was empty"
	}
	if len(output) > most {
		return fmt.Sprintf("ended with %q", output[len(output)-most:])
	}
	return fmt.Sprintf("was %q", output)
}
