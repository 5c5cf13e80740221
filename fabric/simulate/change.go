package simulate

import (
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/fabric/scenario"
	"github.com/ndklab/ndklab/topology"
)

// This file is what a timeline does to links and nodes. What it says of that is what a
// lab says.

// Change implements scenario.Stage.
func (l *lab) Change(e *topology.Event, done func(error)) {
	err := l.change(e)
	l.clock.Go(func() { done(err) })
}

func (l *lab) change(e *topology.Event) error {
	switch {
	case e.NodeAction != "":
		return l.act(e.Node, e.NodeAction)
	case len(e.Partition) > 0:
		l.partition(e.Partition)
		return nil
	case e.Heal:
		up := l.separate(nil)
		l.tell(scenario.Event{Kind: scenario.LinkChanged, Text: fmt.Sprintf("the partition is over: links that are up again: %d", up)})
		return nil
	}
	k := l.network.links[e.Link]
	for _, n := range k.nodes {
		if !n.up() {
			return fmt.Errorf("link %s: node %s is down: %s", k.name(), n.spec.Name, n.down)
		}
	}
	words, err := l.changeLink(k, e)
	if err == nil {
		l.tell(scenario.Event{Kind: scenario.LinkChanged, Link: k.name(), Text: fmt.Sprintf("link %s%s", k.name(), words)})
	}
	return err
}

// changeLink does to a link what an event says, and says in words what that was.
func (l *lab) changeLink(k *link, e *topology.Event) (words string, err error) {
	switch {
	case e.Down:
		k.down = true
		l.network.changed()
		return " is down", nil
	case e.Up:
		k.down, k.parted = false, false
		l.network.changed()
		return " is up", nil
	}
	words = ": reset"
	if !e.Reset {
		words = ": " + e.Set.String()
	}
	if e.From != "" {
		words += " from " + e.From
	}
	for d, w := range k.wires {
		if e.From != "" && e.From != k.nodes[d].spec.Name {
			continue
		}
		to := k.spec.Directions[d]
		if !e.Reset {
			to = e.Set.Apply(w.model.Settings())
		}
		err := to.Check()
		if err == nil {
			err = k.spec.CheckQueue(to)
		}
		if err != nil {
			return "", fmt.Errorf("link %s: packets from %s: %w", k.name(), k.nodes[d].spec.Name, err)
		}
		w.set(to)
	}
	return words, nil
}

// partition takes down the links between sets of nodes, and brings up what an earlier
// partition took down.
func (l *lab) partition(sets [][]string) {
	parted := map[int]bool{}
	for _, i := range l.topo.Between(sets) {
		parted[i] = true
	}
	l.separate(parted)
	var words []string
	for _, set := range sets {
		words = append(words, strings.Join(set, ","))
	}
	l.tell(scenario.Event{Kind: scenario.LinkChanged, Text: fmt.Sprintf("partition %s: links that are down: %d", strings.Join(words, " "), len(parted))})
}

// separate has just those links parted, and says how many came up.
func (l *lab) separate(parted map[int]bool) (up int) {
	for _, k := range l.network.links {
		was := k.off()
		k.parted = parted[k.index]
		if was && !k.off() {
			up++
		}
	}
	l.network.changed()
	return up
}

// stopped is the reason why a node is down that was stopped.
const stopped = "it was stopped"

// act does something to a node.
func (l *lab) act(name string, action topology.NodeAction) error {
	n := l.network.byName[name]
	switch {
	case n == nil:
		return fmt.Errorf("there is no node %q", name)
	case n.spec.Kind == topology.Switch:
		return fmt.Errorf("%s is a %s: it has no processes", name, topology.Switch)
	case action == topology.StopNode:
		l.stop(n, stopped)
		n.reviver.Cancel()
		return nil
	case action == topology.StartNode && n.paused:
		return fmt.Errorf("node %s is paused", name)
	case action == topology.StartNode:
		return l.startAgain(n)
	case action == topology.RestartNode:
		l.stop(n, stopped)
		return l.startAgain(n)
	case !n.up():
		return fmt.Errorf("node %s is down: %s", name, n.down)
	case action == topology.KillNode:
		why := "its agent was killed by SIGKILL"
		if n.spec.Restart {
			why += l.reviveLater(n)
		}
		l.stop(n, why)
		return nil
	case action == topology.PauseNode && n.paused:
		return fmt.Errorf("node %s is paused", name)
	case action == topology.PauseNode:
		n.pause()
		l.tell(scenario.Event{Kind: scenario.NodePaused, Node: name, Text: fmt.Sprintf("node %s is paused", name)})
		return nil
	case action == topology.ResumeNode && !n.paused:
		return fmt.Errorf("node %s is not paused", name)
	case action == topology.ResumeNode:
		n.resume()
		l.tell(scenario.Event{Kind: scenario.NodeResumed, Node: name, Text: fmt.Sprintf("node %s goes on", name)})
		return nil
	}
	return fmt.Errorf("unknown action %q", action)
}

// stop ends a node, if it is up.
func (l *lab) stop(n *node, why string) {
	if !n.up() {
		return
	}
	n.end(why)
	l.network.changed()
	l.tell(scenario.Event{Kind: scenario.NodeDown, Node: n.spec.Name, Text: fmt.Sprintf("node %s is down: %s", n.spec.Name, why)})
}

// startAgain starts a node, if it is down.
func (l *lab) startAgain(n *node) error {
	if n.up() {
		return nil
	}
	n.reviver.Cancel()
	n.restarts++
	if err := n.start(); err != nil {
		return err
	}
	l.network.changed()
	l.tell(scenario.Event{Kind: scenario.NodeUp, Node: n.spec.Name, Text: fmt.Sprintf("node %s is up again", n.spec.Name)})
	return nil
}

// reviveLater has a node started again that has died, and says in words when.
func (l *lab) reviveLater(n *node) string {
	delay := n.reviver.After(l.clock.Now()-n.began, func(wanted func() bool) {
		if !wanted() {
			return
		}
		if err := l.startAgain(n); err != nil { // which started before
			panic(err)
		}
	})
	return fmt.Sprintf("; it is started again in %v", delay)
}
