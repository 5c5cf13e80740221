package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// This file keeps what is asked of links and nodes in three layers. The lowest has what the lab's file says, the second
// what commands have asked by hand: these two last. The third has what the timeline and the chaos of a run have asked,
// which lasts until the next run begins: BeginRun then brings links and nodes back to the two that last.

// A nodeAsked is what is lastingly asked of a node, and whether a run has asked for something else.
type nodeAsked struct {
	state string // NodeIsReady, NodeIsDown or NodePaused; "": ready, as no command has said
	left  bool   // a run has acted on the node since
}

// note notes that a command was done.
func (n *node) note(r *nodeRequest) {
	switch {
	case r.action == "":
	case r.by == ByRun:
		n.lasting.left = true
	case r.action == topology.StopNode:
		n.lasting = nodeAsked{state: NodeIsDown}
	case r.action == topology.PauseNode:
		n.lasting = nodeAsked{state: NodeIsPaused}
	case r.action != topology.KillNode:
		n.lasting = nodeAsked{state: NodeIsReady}
	case n.down() && !n.spec.Restart: // else what becomes of it is its own affair
		n.lasting = nodeAsked{state: NodeIsDown}
	}
}

// A restore is a BeginRun on its way.
type restore struct {
	id    uint64 // of the Ask
	left  int    // links or nodes that are not as they were
	nodes bool   // it is at the nodes
	risen []*link
	err   error
}

// beginRun takes BeginRun.
func (l *Lab) beginRun(a Ask) {
	err := l.mayRun()
	if err != nil || !l.ran {
		l.running, l.ran = l.running || err == nil, l.ran || err == nil
		l.answer(Answer{ID: a.ID, Err: err})
		return
	}
	l.running = true
	// Links first: a node that is started connects them as they are asked to be.
	r := &restore{id: a.ID, left: len(l.links)}
	l.restoring = r
	for _, k := range l.links {
		l.restoreLink(r, k)
	}
}

// mayRun says why no run can begin.
func (l *Lab) mayRun() error {
	switch {
	case l.running || l.restoring != nil:
		return failure.Errorf(failure.Usage, "lab %s is running its workloads already", l.name)
	case l.applying != nil:
		return failure.Errorf(failure.Usage, "lab %s is being changed: run its workloads when that is done", l.name)
	case l.unfinished != "":
		return failure.Errorf(failure.Usage, "lab %s is changed in part (%s): `ndklab apply` does the rest", l.name, l.unfinished)
	}
	return nil
}

func (l *Lab) restoreLink(r *restore, k *link) {
	q := &linkRequest{by: ByRun, away: true}
	q.change = func(asked, lasting *linkAsked) error {
		if !asked.equal(lasting) {
			q.words = fmt.Sprintf("link %s is as it was before the last run", k.name())
		}
		*asked = *lasting
		return nil
	}
	q.done = func(rose bool, err error) {
		r.left--
		if err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("link %s is not as it was before the last run: %w", k.name(), err))
		}
		if rose {
			r.risen = append(r.risen, k)
		}
	}
	k.request(q)
}

// advanceRestore goes on to the nodes when the links are done, and ends.
func (l *Lab) advanceRestore() (advanced bool) {
	r := l.restoring
	switch {
	case r == nil || r.left > 0:
		return false
	case r.err != nil || r.nodes:
		l.restoring = nil
		l.running = l.running && r.err == nil
		l.answer(Answer{ID: r.id, Err: r.err, Restored: true})
		return true
	}
	r.nodes, r.left = true, len(l.nodes)+1
	slices.SortFunc(r.risen, func(a, b *link) int { return a.index - b.index })
	l.awaitTree(r.risen, func(err error) {
		r.left--
		r.err = errors.Join(r.err, err)
	})
	for _, n := range l.nodes {
		l.restoreNode(r, n)
	}
	return true
}

// restoreNode brings a node back to what is lastingly asked of it, which may take two steps.
func (l *Lab) restoreNode(r *restore, n *node) {
	n.request(&nodeRequest{by: ByRun, restore: true, done: func(_ *nodeRequest, err error) {
		if err == nil && n.lasting.left {
			l.restoreNode(r, n)
			return
		}
		r.left--
		if err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("node %s is not as it was before the last run: %w", n.spec.Name, err))
		}
	}})
}

// beginRestore takes a step back to what is lastingly asked of a node.
func (n *node) beginRestore(r *nodeRequest) {
	switch wanted := n.lasting.state; {
	case !n.lasting.left:
		n.finishRequest(r, nil)
	case wanted == NodeIsDown && !n.down():
		r.ending = true
		n.stop(stopped)
	case wanted != NodeIsDown && n.down():
		r.start = true
		n.start()
	case wanted == NodeIsPaused && !n.down() && !n.paused:
		n.pause(r)
	case wanted != NodeIsPaused && n.paused:
		n.resume(r)
	default:
		n.lasting.left = false
		n.finishRequest(r, nil)
	}
}

// SetByHand lists the settings and states that commands have made other than the file has them, in words such as
// "client:eth0 loss=5%".
func (l *Lab) SetByHand() (words []string) {
	for _, k := range l.links {
		var both [2][]string
		for d := range both {
			both[d] = topology.Difference(k.spec.Directions[d], k.lasting.impairments[d]).Settings()
		}
		if slices.Equal(both[0], both[1]) {
			for _, setting := range both[0] {
				words = append(words, k.name()+" "+setting)
			}
		} else {
			for d, e := range k.spec.Endpoints {
				for _, setting := range both[d] {
					words = append(words, k.name()+" "+inDirection(setting, e.Node))
				}
			}
		}
		switch {
		case k.lasting.down && !k.spec.Down:
			words = append(words, k.name()+" down")
		case !k.lasting.down && k.spec.Down:
			words = append(words, k.name()+" up")
		}
		if k.lasting.parted {
			words = append(words, k.name()+" down by a partition")
		}
	}
	for _, n := range l.nodes {
		if state := n.lasting.away(); state != "" {
			words = append(words, n.spec.Name+" "+state)
		}
	}
	return words
}

// away is the state that a command has brought the node to, if that is not ready; else "".
func (a *nodeAsked) away() string {
	if a.state == NodeIsReady {
		return ""
	}
	return a.state
}
