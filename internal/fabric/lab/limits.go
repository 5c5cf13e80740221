package lab

import (
	"fmt"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"github.com/ndklab/ndklab/topology"
)

// limitsOf are the limits of a node.
func limitsOf(n *topology.Node) cgroup.Limits {
	return cgroup.Limits{CPU: n.CPU, Memory: n.Memory, PIDs: n.PIDs}
}

// limitsOfAny has the limits that any node of a topology has, of whatever size.
func limitsOfAny(t *topology.Topology) (all cgroup.Limits) {
	for i := range t.Nodes {
		l := limitsOf(&t.Nodes[i])
		all = cgroup.Limits{CPU: max(all.CPU, l.CPU), Memory: max(all.Memory, l.Memory), PIDs: max(all.PIDs, l.PIDs)}
	}
	return all
}

// newKind reports whether a limit is there that was not, of whatever size.
func newKind(was, is cgroup.Limits) bool {
	return was.CPU == 0 && is.CPU != 0 || was.Memory == 0 && is.Memory != 0 || was.PIDs == 0 && is.PIDs != 0
}

// groupsOf returns the tree with the groups of nodes with limits, for a topology; nil if there are none. It warns once of
// limits that cannot be had.
func (d *nodeDriver) groupsOf(topo *topology.Topology) *cgroup.Tree {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limitsOf == topo {
		return d.groups
	}
	d.limitsOf = topo
	all := limitsOfAny(topo)
	if !newKind(d.limited, all) {
		return d.groups
	}
	d.limited, d.groups = all, cgroup.Open()
	if err := d.groups.Prepare(all); err != nil {
		d.publish(event.Event{Kind: event.Warning, Text: "limits of nodes have no effect on " + strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
	return d.groups
}

// limit gives a node that is about to start its group, if it has limits.
func (l *life) limit(lab string, groups *cgroup.Tree) error {
	limits := limitsOf(l.spec)
	if groups == nil || limits == (cgroup.Limits{}) {
		return nil
	}
	var err error
	if l.group, err = groups.Create(lab, l.Node, limits); err != nil || l.group == nil {
		return err
	}
	l.unwatch, err = l.group.KillWhole()
	return err
}

// isLimited reports whether the file limits the node.
func (l *life) isLimited() bool { return limitsOf(l.spec) != (cgroup.Limits{}) }

// limitReached says, of a node whose agent has ended, which limit was the reason for it; ""
// if none was.
func (l *life) limitReached() string {
	if l.group == nil {
		return ""
	}
	l.unwatch() // whose last words are needed
	if !l.group.OverMemory() {
		return ""
	}
	return fmt.Sprintf(": the node went over its memory limit of %s", topology.FormatSize(l.group.Limits().Memory))
}

// usage returns the limits of a node and what it has used; nil without limits in force.
func (l *life) usage() (*report.Limits, *report.Usage) {
	if l.usageOf != nil && l.isLimited() {
		u := l.usageOf()
		return u.Limits, u.Usage
	}
	if l.group == nil {
		return nil, nil
	}
	limits, u := l.group.Limits(), l.group.Usage()
	return &report.Limits{CPU: positive(limits.CPU), Memory: positive(limits.Memory), PIDs: positive(limits.PIDs)},
		&report.Usage{
			CPUSeconds: inSeconds(u.CPU), ThrottledSeconds: inSeconds(u.Throttled),
			Memory: u.Memory, MemoryPeak: u.MemoryPeak, OOMKills: u.OOMKills,
			PIDs: u.PIDs, PIDsRefused: u.PIDsRefused,
		}
}

// positive is a limit for reports, where null is none.
func positive[T uint64 | float64](limit T) *T {
	if limit == 0 {
		return nil
	}
	return &limit
}

func inSeconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	s := d.Seconds()
	return &s
}
