package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// partitions are the Partitions and Heals that are under way or wait for their turn.
type partitions struct {
	lab   *Lab
	queue []*partition // the first goes on
}

// A partition is a Partition or a Heal: it goes over all links, and leaves those of a set partitioned and no others.
type partition struct {
	lab    *Lab
	by     Source
	links  map[*link]bool // that are to be partitioned
	begun  bool
	left   int // links that have not been gone over
	cameUp []*link
	err    error
	text   func() string // what everyone is told when it is done
	done   func()
}

// begin takes Partition.
func (q *partitions) begin(a Ask, sets [][]string) error {
	l := q.lab
	if err := q.check(sets); err != nil {
		return err
	}
	p := &partition{lab: l, by: a.By, links: map[*link]bool{}}
	var specs []*topology.Link
	for _, i := range l.topo.Between(sets) {
		p.links[l.links[i]] = true
		specs = append(specs, l.links[i].spec)
	}
	if len(specs) == 0 {
		return failure.Errorf(failure.Usage, "no link joins nodes of different sets")
	}
	var names []string
	for _, set := range sets {
		names = append(names, strings.Join(set, ","))
	}
	p.text = func() string {
		return fmt.Sprintf("partition %s: links that are down: %d", strings.Join(names, " "), len(specs))
	}
	p.done = func() { l.answer(Answer{ID: a.ID, Err: p.err, Links: specs}) }
	q.queue = append(q.queue, p)
	return nil
}

// check returns an error if sets cannot be those of a partition.
func (q *partitions) check(sets [][]string) error {
	setOf := map[string]int{}
	for i, set := range sets {
		for _, name := range set {
			if q.lab.topo.FindNode(name) == nil {
				return failure.Errorf(failure.Usage, "lab %s has no node %q", q.lab.name, name)
			}
			if before, twice := setOf[name]; twice && before != i {
				return failure.Errorf(failure.Usage, "node %q is in two sets of the partition", name)
			}
			setOf[name] = i
		}
	}
	return nil
}

// heal takes Heal.
func (q *partitions) heal(a Ask) {
	l := q.lab
	p := &partition{lab: l, by: a.By}
	p.text = func() string {
		return fmt.Sprintf("the partition is over: links that are up again: %d", len(p.cameUp))
	}
	p.done = func() {
		answer := Answer{ID: a.ID, Err: p.err}
		for _, k := range p.cameUp {
			answer.Links = append(answer.Links, k.spec)
		}
		if p.err != nil || a.By == ByRun {
			l.answer(answer)
			return
		}
		l.awaitSpanningTree(p.cameUp, func(err error) {
			answer.Err = err
			l.answer(answer)
		})
	}
	q.queue = append(q.queue, p)
}

// advance begins the first partition, and ends it when every link has been gone over. It reports whether it has done
// either.
func (q *partitions) advance() (advanced bool) {
	if len(q.queue) == 0 {
		return false
	}
	p := q.queue[0]
	switch {
	case !p.begun:
		p.begin()
		return true
	case p.left > 0:
		return false
	}
	q.queue = q.queue[1:]
	sortLinks(p.cameUp)
	q.lab.notify(Notify{Kind: event.LinkChanged, Text: p.text()})
	p.done()
	return true
}

// begin asks every link to be partitioned or not.
func (p *partition) begin() {
	p.begun, p.left = true, len(p.lab.links)
	for _, k := range p.lab.links {
		partitioned := p.links[k]
		k.request(&linkRequest{by: p.by, endsMayBeDown: true,
			change: changeBoth(func(asked *linkAsked) { asked.partitioned = partitioned }),
			done: func(cameUp bool, err error) {
				p.left--
				p.err = errors.Join(p.err, err)
				if cameUp {
					p.cameUp = append(p.cameUp, k)
				}
			}})
	}
}

// sortLinks sorts links in the order of the topology.
func sortLinks(links []*link) {
	slices.SortFunc(links, func(a, b *link) int { return cmp.Compare(a.index, b.index) })
}
