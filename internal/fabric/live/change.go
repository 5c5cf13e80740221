package live

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/perftest"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/topology/naming"
	"github.com/ndklab/ndklab/topology"
)

// This file says which command does the same as a change, and what undoes it. It is pure.

// The acts of a Change.
const (
	ActSet         = "set"
	ActReset       = "reset"
	ActCut         = "cut"
	ActHeal        = "heal"
	ActPartition   = "partition"
	ActUnpartition = "unpartition"
	ActPause       = string(topology.PauseNode)
	ActResume      = string(topology.ResumeNode)
	ActStop        = string(topology.StopNode)
	ActStart       = string(topology.StartNode)
	ActRestart     = string(topology.RestartNode)
	ActKill        = string(topology.KillNode)
	ActPerf        = "perf"
)

// acts are all of them.
var acts = []string{ActSet, ActReset, ActCut, ActHeal, ActPartition, ActUnpartition, ActPause, ActResume, ActStop, ActStart, ActRestart, ActKill, ActPerf}

// IsOfLink reports whether a change is about one link.
func (c *Change) IsOfLink() bool {
	return slices.Contains([]string{ActSet, ActReset, ActCut, ActHeal}, c.Act)
}

// IsOfNode reports whether a change is about one node.
func (c *Change) IsOfNode() bool {
	return slices.Contains([]string{ActPause, ActResume, ActStop, ActStart, ActRestart, ActKill}, c.Act)
}

// Check finds what is missing in a change, or is not the name of one thing. The lab says whether it has what is named.
func (c *Change) Check() error {
	misuse := func(format string, a ...any) error { return control.Errorf(control.Usage, format, a...) }
	node := func(key, name string) error {
		if !isName(name) {
			return misuse("%s %q: expected the name of a node", key, name)
		}
		return nil
	}
	switch {
	case !slices.Contains(acts, c.Act):
		return misuse("act %q: expected one of %s", c.Act, strings.Join(acts, ", "))
	case c.IsOfLink():
		name, iface, ok := strings.Cut(c.Endpoint, ":")
		if !ok || !isName(name) || !isName(iface) {
			return misuse("endpoint %q: expected an end of a link, NODE:IFACE", c.Endpoint)
		}
		if c.Act == ActSet {
			if _, err := topology.ParseChange(nil, c.Settings); err != nil {
				return misuse("%v", err)
			}
		}
		if c.From != "" {
			return node("from", c.From)
		}
		return nil
	case c.IsOfNode():
		return node("node", c.Node)
	case c.Act == ActPerf:
		_, _, err := c.Perf()
		return cmp.Or(node("node", c.Node), node("to", c.To), err)
	case c.Act == ActPartition && len(c.Sets) == 0:
		return misuse("sets: found none, expected lists of nodes")
	}
	for _, set := range c.Sets {
		if len(set) == 0 {
			return misuse("sets: found an empty one, expected a list of nodes")
		}
		for _, name := range set {
			if err := node("sets", name); err != nil {
				return err
			}
		}
	}
	return nil
}

// isName reports whether commands take a word as the name of one thing.
func isName(word string) bool {
	return word != "" && !naming.IsSeveral(word) && !strings.ContainsAny(word, "/,:") && !strings.HasPrefix(word, "-")
}

// Perf returns the test of a change whose act is that, and the settings of its workload as topology.ParseWorkload takes them.
func (c *Change) Perf() (test string, settings []string, err error) {
	given := []string{"from=" + c.Node, "to=" + c.To}
	for _, s := range c.Settings {
		key, value, ok := strings.Cut(s, "=")
		switch {
		case key == "test":
			test = value
		case !ok || key == "from" || key == "to" || key == "pattern" || key != "size" && !slices.Contains(perftest.Keys, key):
			return "", nil, control.Errorf(control.Usage, "settings: %q: expected test=TEST, size=SIZE, duration=TIME or another flag of `ndklab perf`", s)
		case strings.ContainsAny(value, "[{,"):
			return "", nil, control.Errorf(control.Usage, "settings: %q: expected one value", s)
		default:
			given = append(given, s)
		}
	}
	settings, err = perftest.Settings(test, given)
	if err != nil {
		return "", nil, control.Errorf(control.Usage, "settings: test=%s: %v", test, err)
	}
	return test, settings, nil
}

// Command returns the command that does in a lab what a change says, as a shell takes it. The change is one that Check lets pass.
func (c *Change) Command(lab string) string {
	args := []string{"ndklab"}
	add := func(words ...string) { args = append(args, words...) }
	from := func() {
		if c.From != "" {
			add("--from", c.From)
		}
	}
	switch {
	case c.Act == ActSet:
		add("link", "set", lab+"/"+c.Endpoint)
		add(c.Settings...)
		from()
	case c.Act == ActReset:
		add("link", "reset", lab+"/"+c.Endpoint)
		from()
	case c.Act == ActCut && c.From != "": // a cable is pulled at both ends: one direction loses what it is sent
		add("link", "set", lab+"/"+c.Endpoint, "cut=true")
		from()
	case c.Act == ActHeal && c.From != "":
		add("link", "set", lab+"/"+c.Endpoint, "cut=none")
		from()
	case c.Act == ActCut:
		add("link", "down", lab+"/"+c.Endpoint)
	case c.Act == ActHeal:
		add("link", "up", lab+"/"+c.Endpoint)
	case c.Act == ActPartition:
		add("link", "partition", lab)
		for _, set := range c.Sets {
			add(strings.Join(set, ","))
		}
	case c.Act == ActUnpartition:
		add("link", "heal", lab)
	case c.Act == ActPerf:
		test, _, _ := c.Perf() // Check has found no error
		add("perf", lab, test, "--from", c.Node, "--to", c.To)
		for _, s := range c.Settings {
			if !strings.HasPrefix(s, "test=") {
				add("--" + s)
			}
		}
	default:
		add(c.Act, lab+"/"+c.Node)
	}
	return words.CommandLine(args)
}

// A Standing has the state that a change may change, from before it or from after it.
type Standing struct {
	Link      *report.Link // of a change of a link
	Node      string       // of a change of a node, its state
	Partition [][]string   // the sets in force; nil: the lab is whole
}

// Undo returns the changes that undo a change, which led from one standing to another: none if it changed nothing, or if nothing undoes it.
func (c *Change) Undo(before, after *Standing) ([]Change, error) {
	switch {
	case c.IsOfLink() && (c.Act == ActSet || c.Act == ActReset || c.From != ""):
		return undoSettings(c.Endpoint, before.Link, after.Link)
	case c.Act == ActCut && before.Link.State != after.Link.State:
		return []Change{{Act: ActHeal, Endpoint: c.Endpoint}}, nil
	case c.Act == ActHeal && before.Link.State != after.Link.State:
		return []Change{{Act: ActCut, Endpoint: c.Endpoint}}, nil
	case c.Act == ActPartition && before.Partition == nil:
		return []Change{{Act: ActUnpartition}}, nil
	case (c.Act == ActPartition || c.Act == ActUnpartition) && before.Partition != nil:
		return []Change{{Act: ActPartition, Sets: before.Partition}}, nil
	case c.Act == ActPause && before.Node != core.NodeIsPaused:
		return []Change{{Act: ActResume, Node: c.Node}}, nil
	case c.Act == ActResume && before.Node == core.NodeIsPaused:
		return []Change{{Act: ActPause, Node: c.Node}}, nil
	case (c.Act == ActStop || c.Act == ActKill) && before.Node != core.NodeIsDown && after.Node == core.NodeIsDown:
		return []Change{{Act: ActStart, Node: c.Node}}, nil
	case c.Act == ActStart && before.Node == core.NodeIsDown:
		return []Change{{Act: ActStop, Node: c.Node}}, nil
	}
	return nil, nil
}

// undoSettings returns the changes that give a link its settings from before: one of both directions if that does, else one of each.
func undoSettings(endpoint string, before, after *report.Link) ([]Change, error) {
	var settings [2][]string
	for end := range settings {
		was, err := impairmentOf(before.Directions[end].Settings)
		if err != nil {
			return nil, err
		}
		now, err := impairmentOf(after.Directions[end].Settings)
		if err != nil {
			return nil, err
		}
		settings[end] = topology.Difference(now, was).Settings()
	}
	if settings[0] != nil && slices.Equal(settings[0], settings[1]) {
		return []Change{{Act: ActSet, Endpoint: endpoint, Settings: settings[0]}}, nil
	}
	var undo []Change
	for end := range settings {
		if settings[end] != nil {
			node, _, _ := strings.Cut(before.Endpoints[end], ":")
			undo = append(undo, Change{Act: ActSet, Endpoint: endpoint, From: node, Settings: settings[end]})
		}
	}
	return undo, nil
}

// impairmentOf returns the impairment of settings that a lab reports.
func impairmentOf(settings []string) (topology.Impairment, error) {
	if len(settings) == 0 {
		return topology.Impairment{}, nil
	}
	change, err := topology.ParseChange(nil, settings)
	return change.Apply(topology.Impairment{}), err
}
