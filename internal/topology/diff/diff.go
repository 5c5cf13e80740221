// Package diff is the difference between two topologies of one lab: what becomes of
// a lab that is up when its file changes.
//
// It compares what topologies say, by the names of nodes and the ends of links: the
// order of a file is nothing that a lab has. It also decides what of a change can be
// made while a node or link goes on, and what has it made anew; why is said where
// that is decided (node.go, link.go). It changes nothing itself: package lab does,
// and print.go is how people read it before.
//
// Start reading at Compare and Difference.
package diff

import (
	"cmp"
	"fmt"

	"github.com/ndklab/ndklab/topology"
)

// An Action says what is done with a node or link.
type Action string

// The actions.
const (
	Add     Action = "add"
	Remove  Action = "remove"
	Alter   Action = "alter"   // it goes on, and is otherwise from now on
	Restart Action = "restart" // of a node: its processes end, and begin again with new settings
	Replace Action = "replace" // it is removed, and added again
)

// A Difference has the changes that turn a lab of one topology into one of another.
type Difference struct {
	Nodes []Node `json:"nodes"` // those removed, then the others in the order of the new topology
	Links []Link `json:"links"` // likewise
	// Plans names the changed parts that neither make nodes nor links: "labels", "hosts", "convergence", "workloads",
	// "timeline", "checks" and "capture". A lab that is up runs none of them, but records
	// captures.
	Plans []string `json:"plans"`
}

// A Node says what happens to a node.
type Node struct {
	Action  Action         `json:"action"`
	Name    string         `json:"name"`
	Changes []Change       `json:"changes,omitempty"` // of Alter; of Restart and Replace, with those that would not need it
	Was, Is *topology.Node `json:"-"`                 // nil for Add, and for Remove
}

// A Link says what happens to a link. Its ends are the same before and afterwards: one
// with another end is another link.
type Link struct {
	Action    Action               `json:"action"`
	Endpoints [2]topology.Endpoint `json:"-"`
	Ends      [2]string            `json:"endpoints"`
	Changes   []Change             `json:"changes,omitempty"`
	Was, Is   *topology.Link       `json:"-"`
}

// A Change is one setting that changes, with both values as people read them.
type Change struct {
	Key  string `json:"key"` // as in the file
	From string `json:"from"`
	To   string `json:"to"`
	Why  string `json:"why,omitempty"` // this change needs more than Alter
}

// None reports whether the topologies are the same but for their order.
func (d *Difference) None() bool { return len(d.Nodes) == 0 && len(d.Links) == 0 && len(d.Plans) == 0 }

// A RefusedError is a difference that no change of a running lab bridges.
type RefusedError struct{ What string }

// Error says what differs.
func (e *RefusedError) Error() string { return e.What }

// Compare returns the changes that turn a lab that is up into that of another topology,
// which was read with the first as topology.Options.Running. It fails with a
// *RefusedError if they differ in their name, in their seed, on which all that is random
// depends (a topology without a seed may be of any), in their dilation, by which every process of the lab lives, in where
// nodes are to be (compareHosts), in packet buffers and what is at them (compareBuffers), or in where the lab has links to its
// outside, which somebody there relies on.
func Compare(was, is *topology.Topology) (*Difference, error) {
	if was.Name != is.Name {
		return nil, &RefusedError{fmt.Sprintf("the name changes from %s to %s", was.Name, is.Name)}
	}
	if is.HasSeed && was.Seed != is.Seed {
		return nil, &RefusedError{fmt.Sprintf("the seed changes from %d to %d", was.Seed, is.Seed)}
	}
	if from, to := was.DilationFactor(), is.DilationFactor(); from != to {
		return nil, &RefusedError{fmt.Sprintf("the dilation changes from %d to %d", from, to)}
	}
	if err := compareHosts(was, is); err != nil {
		return nil, err
	}
	if err := compareBuffers(was, is); err != nil {
		return nil, err
	}
	d := &Difference{Nodes: []Node{}, Links: []Link{}, Plans: plans(was, is)}
	replaced := d.compareNodes(was, is)
	d.compareLinks(was, is, replaced)
	for _, l := range d.Links {
		if outside := l.Endpoints[0].External() || l.Endpoints[1].External(); outside && l.Action != Alter {
			done := map[Action]string{Add: "added", Remove: "removed", Replace: "made anew"}[l.Action]
			return nil, &RefusedError{fmt.Sprintf("the link %s - %s to outside of the lab is %s", l.Ends[0], l.Ends[1], done)}
		}
	}
	return d, nil
}

// All is the nodes and links of a lab that is not up as yet.
func All(is *topology.Topology) *Difference {
	none, d := new(topology.Topology), new(Difference)
	d.compareNodes(none, is)
	d.compareLinks(none, is, nil)
	return d
}

// compareHosts returns a *RefusedError if a node is to be on another host, or together with others, in one topology than in the
// other: a lab is placed when it is made.
func compareHosts(was, is *topology.Topology) error {
	before := make(map[string]*topology.Node, len(was.Nodes))
	for i := range was.Nodes {
		before[was.Nodes[i].Name] = &was.Nodes[i]
	}
	for i := range is.Nodes {
		n := &is.Nodes[i]
		old := before[n.Name]
		if old == nil {
			continue
		}
		for _, c := range []Change{{Key: "host", From: old.Host, To: n.Host}, {Key: "together", From: old.Together, To: n.Together}} {
			if c.From != c.To {
				return &RefusedError{fmt.Sprintf("%s of node %s changes from %s to %s", c.Key, n.Name, cmp.Or(c.From, "none"), cmp.Or(c.To, "none"))}
			}
		}
	}
	return nil
}
