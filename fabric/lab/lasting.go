package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/topology"
)

// This file keeps the requests for links and nodes in three layers. The lowest has those of
// the lab's file, the second those of commands, by hand: these two last. The third has those
// of the timeline and the chaos of a run, which last until the next run begins: restore then
// brings links and nodes back to the two that last.

// A source names the layer that a request for a change belongs to.
type source int

const (
	byHand source = iota // a command
	byRun                // the timeline or the chaos of a run
)

// A request holds the settings and the state that are asked of a link.
type request struct {
	asked  [2]topology.Impairment
	down   bool // by LinkDown, or from the start
	parted bool // by Partition
}

// equal reports whether two requests ask for the same.
func (r *request) equal(other *request) bool {
	return r.down == other.down && r.parted == other.parted && r.asked[0].Equal(other.asked[0]) && r.asked[1].Equal(other.asked[1])
}

// last has the lasting request of the link changed, if a change is by hand. The caller has
// the right to change the link.
func (l *labLink) last(by source, change func(*request)) {
	if by != byHand {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.lasting)
}

// A nodeRequest holds the state that is lastingly asked of a node, and whether a run has
// asked for another.
type nodeRequest struct {
	state string // nodeReady, nodeDown or nodePaused; "": nodeReady, as no command has said
	left  bool   // a run has acted on the node since
}

// noteAction notes that an action was done to a node.
func (n *labNode) noteAction(by source, params changeParams) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if by == byRun {
		n.lasting.left = true
		return
	}
	switch params.Action {
	case StopNode:
		n.lasting = nodeRequest{state: nodeDown}
	case PauseNode:
		n.lasting = nodeRequest{state: nodePaused}
	case StartNode, RestartNode, ResumeNode:
		n.lasting = nodeRequest{state: nodeReady}
	case KillNode: // what becomes of it is its own, and its restart policy's, affair
		if isClosed(n.life.down) && !n.spec.Restart {
			n.lasting = nodeRequest{state: nodeDown}
		}
	}
}

// restore has links and nodes be as the file and commands by hand ask: it undoes what the
// timeline of an earlier run has left.
func (s *Supervisor) restore(ctx context.Context) error {
	// Links first: a node that is started connects them as they are asked to be.
	if err := s.restoreLinks(ctx); err != nil {
		return err
	}
	return parallel(ctx, requestsAtOnce, len(s.nodes), func(ctx context.Context, i int) error {
		if err := s.restoreNode(ctx, s.nodes[i]); err != nil {
			return fmt.Errorf("node %s is not as it was before the last run: %w", s.nodes[i].spec.Name, err)
		}
		return nil
	})
}

func (s *Supervisor) restoreLinks(ctx context.Context) error {
	var mu sync.Mutex
	var risen []int
	err := parallel(ctx, requestsAtOnce, len(s.links), func(ctx context.Context, i int) error {
		rose, err := s.restoreLink(ctx, s.links[i])
		if err != nil {
			return fmt.Errorf("link %s is not as it was before the last run: %w", s.links[i].name(), err)
		}
		if rose {
			mu.Lock()
			defer mu.Unlock()
			risen = append(risen, i)
		}
		return nil
	})
	return errors.Join(err, s.growTree(ctx, risen...))
}

// restoreLink says whether the link came up.
func (s *Supervisor) restoreLink(ctx context.Context, l *labLink) (rose bool, err error) {
	if err := l.lock(ctx); err != nil {
		return false, err
	}
	defer l.unlock()
	if l.request.equal(&l.lasting) {
		return false, nil
	}
	wasOff := l.off()
	before := l.asked
	l.ask(l.lasting.asked)
	if l.whole() {
		if err := s.enforce(context.WithoutCancel(ctx), l, before); err != nil {
			l.ask(before)
			return false, err
		}
		if l.carrier != nil && !l.impaired() {
			s.relieveLater(l)
		}
	}
	if err := s.switchLink(context.WithoutCancel(ctx), l, l.lasting.down, l.lasting.parted); err != nil {
		return false, err
	}
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: fmt.Sprintf("link %s is as it was before the last run", l.name())})
	return wasOff && !l.off(), nil
}

func (s *Supervisor) restoreNode(ctx context.Context, n *labNode) error {
	if err := n.lock(ctx); err != nil {
		return err
	}
	started, err := s.restoreLocked(ctx, n)
	n.unlock()
	if err == nil && started {
		err = n.settled(ctx)
	}
	return err
}

// restoreLocked says whether the node was started. The caller has the right to change it.
func (s *Supervisor) restoreLocked(ctx context.Context, n *labNode) (started bool, err error) {
	n.mu.Lock()
	wanted := n.lasting
	n.mu.Unlock()
	if !wanted.left {
		return false, nil
	}
	ctx = context.WithoutCancel(ctx) // half a node is none
	is := n.status().State
	if wanted.state == nodeDown && is != nodeDown {
		s.stop(n, stopped)
	}
	if wanted.state != nodeDown && is == nodeDown {
		started, is = true, nodeReady
		err = s.startAgain(ctx, n)
	}
	switch {
	case err != nil:
	case wanted.state == nodePaused && is == nodeReady:
		err = s.pause(ctx, n)
	case wanted.state != nodePaused && wanted.state != nodeDown && is == nodePaused:
		err = s.resume(ctx, n)
	}
	if err != nil {
		return started, err
	}
	n.mu.Lock()
	n.lasting.left = false
	n.mu.Unlock()
	return started, nil
}

// setByHand lists the settings and states that commands have made other than the file has
// them, in words such as "client:eth0 loss=5%".
func (s *Supervisor) setByHand() []string {
	var words []string
	for _, l := range s.links {
		l.mu.Lock()
		lasting := l.lasting
		l.mu.Unlock()
		var both [2][]string
		for d := range both {
			both[d] = topology.Difference(l.spec.Directions[d], lasting.asked[d]).Settings()
		}
		if slices.Equal(both[0], both[1]) {
			for _, setting := range both[0] {
				words = append(words, l.name()+" "+setting)
			}
		} else {
			for d, e := range l.spec.Endpoints {
				for _, setting := range both[d] {
					words = append(words, l.name()+" "+inDirection(setting, e.Node))
				}
			}
		}
		switch {
		case lasting.down && !l.spec.Down:
			words = append(words, l.name()+" down")
		case !lasting.down && l.spec.Down:
			words = append(words, l.name()+" up")
		}
		if lasting.parted {
			words = append(words, l.name()+" down by a partition")
		}
	}
	for _, n := range s.nodes {
		if state := n.awayByHand(); state != "" {
			words = append(words, n.spec.Name+" "+state)
		}
	}
	return words
}

// awayByHand is nodeDown or nodePaused if a command has made that of the node, else "".
func (n *labNode) awayByHand() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lasting.state == nodeReady {
		return ""
	}
	return n.lasting.state
}

// bringBack is the command that ends what a command has made of a node.
func (s *Supervisor) bringBack(n *labNode) string {
	action := "start"
	if n.awayByHand() == nodePaused {
		action = "resume"
	}
	return fmt.Sprintf("ndklab %s %s/%s", action, s.name, n.spec.Name)
}
