package core

import (
	"errors"
	"fmt"

	"github.com/ndklab/ndklab/internal/failure"
)

// runs are the runs of the lab's workloads, of which there is one at a time.
type runs struct {
	lab       *Lab
	running   bool     // a run is under way, or its restore
	ran       bool     // there was a run
	restoring *restore // nil: none is under way
}

// A restore brings links and nodes back to what is lastingly asked of them, before a run begins.
type restore struct {
	id     uint64 // of the Ask
	left   int    // links, or nodes and spanning trees, that are not restored yet
	nodes  bool   // the links are done
	cameUp []*link
	err    error
}

// begin takes BeginRun.
func (s *runs) begin(a Ask) error {
	if err := s.check(); err != nil {
		return err
	}
	l := s.lab
	s.running = true
	if !s.ran {
		s.ran = true
		l.answer(Answer{ID: a.ID})
		return nil
	}
	// Links first: a node that is started connects them as they are asked to be.
	s.restoring = &restore{id: a.ID, left: len(l.links)}
	for _, k := range l.links {
		s.restoring.link(k)
	}
	return nil
}

// check returns an error if no run can begin.
func (s *runs) check() error {
	l := s.lab
	switch {
	case s.underWay():
		return failure.Errorf(failure.Usage, "lab %s is running its workloads already", l.name)
	case l.applying != nil:
		return failure.Errorf(failure.Usage, "lab %s is being changed: run its workloads when that is done", l.name)
	case l.unfinished != "":
		return failure.Errorf(failure.Usage, "lab %s is changed in part (%s): `ndklab apply` does the rest", l.name, l.unfinished)
	}
	return nil
}

// underWay reports whether there is a run, or the restore before one.
func (s *runs) underWay() bool { return s.running || s.restoring != nil }

// end takes EndRun.
func (s *runs) end(a Ask) {
	s.running = false
	s.lab.answer(Answer{ID: a.ID})
}

// advance goes on to the nodes when the links are done, and then ends the restore. It reports whether it has done either.
func (s *runs) advance() (advanced bool) {
	r, l := s.restoring, s.lab
	switch {
	case r == nil || r.left > 0 || r.nodes && l.routing.underWay():
		return false
	case r.err != nil || r.nodes:
		s.restoring = nil
		s.running = s.running && r.err == nil
		l.answer(Answer{ID: r.id, Err: r.err, Restored: true})
		return true
	}
	r.nodes, r.left = true, len(l.nodes)+len(l.switches)+1
	sortLinks(r.cameUp)
	l.awaitSpanningTree(r.cameUp, func(err error) {
		r.left--
		r.err = errors.Join(r.err, err)
	})
	for _, n := range l.nodes {
		r.node(n)
	}
	for _, b := range l.switches {
		b.request(&bridgeRequest{by: ByRun, done: func(_ *bridgeRequest, err error) { r.restored(b.spec.Name, err) }})
	}
	return true
}

// link restores a link.
func (r *restore) link(k *link) {
	q := &linkRequest{by: ByRun, endsMayBeDown: true}
	q.change = func(asked, lasting *linkAsked) error {
		if !asked.equal(lasting) {
			q.text = fmt.Sprintf("link %s is as it was before the last run", k.name())
		}
		*asked = *lasting
		return nil
	}
	q.done = func(cameUp bool, err error) {
		r.left--
		if err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("link %s is not as it was before the last run: %w", k.name(), err))
		}
		if cameUp {
			r.cameUp = append(r.cameUp, k)
		}
	}
	k.request(q)
}

// node restores a node, which may take several steps.
func (r *restore) node(n *node) {
	n.request(&nodeRequest{by: ByRun, restore: true, done: func(_ *nodeRequest, err error) {
		if err == nil && n.lasting.changed {
			r.node(n)
			return
		}
		r.restored(n.spec.Name, err)
	}})
}

// restored takes the end of the restore of a node.
func (r *restore) restored(name string, err error) {
	r.left--
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("node %s is not as it was before the last run: %w", name, err))
	}
}

// restoreStep takes one step towards what is lastingly asked of the node.
func (r *nodeRequest) restoreStep() {
	n := r.node
	switch wanted := n.lasting.state; {
	case !n.lasting.changed || n.lost != "":
		n.lasting.changed = false
		r.finish(nil)
	case wanted == NodeIsDown && !n.down():
		r.ending = true
		n.stop(stopped)
	case wanted != NodeIsDown && n.down():
		r.start = true
		n.start()
	case wanted == NodeIsPaused && !n.down() && !n.paused:
		r.pause()
	case wanted != NodeIsPaused && n.paused:
		r.resume()
	default:
		n.lasting.changed = false
		r.finish(nil)
	}
}
