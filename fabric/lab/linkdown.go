package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
)

// LinkDown takes a link down: the nodes lose the carrier, as when a cable is
// pulled, and keep their interfaces' state. Packets on their way are lost.
func (s *Supervisor) LinkDown(ctx context.Context, by source, index int) error {
	l := s.links[index]
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if err := s.checkEnds(l); err != nil {
		return err
	}
	if err := s.switchLink(context.WithoutCancel(ctx), l, true, l.parted); err != nil {
		return err
	}
	l.last(by, func(r *request) { r.down = true })
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: fmt.Sprintf("link %s is down", l.name())})
	return nil
}

// LinkUp brings a link back up, whatever took it down. At a switch with a spanning
// tree it carries packets when that has grown (growTree).
func (s *Supervisor) LinkUp(ctx context.Context, by source, index int) error {
	l := s.links[index]
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if err := s.checkEnds(l); err != nil {
		return err
	}
	if err := s.switchLink(context.WithoutCancel(ctx), l, false, false); err != nil {
		return err
	}
	l.last(by, func(r *request) { r.down, r.parted = false, false })
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: fmt.Sprintf("link %s is up", l.name())})
	return nil
}

// switchLink takes a link down or up, for either of two reasons. With a node that is
// down, the link stays down until that is back.
func (s *Supervisor) switchLink(ctx context.Context, l *labLink, down, parted bool) error {
	var err error
	switch off := down || parted || !l.whole(); {
	case off && !l.off():
		err = s.disconnect(l)
	case !off && l.off():
		err = s.reconnect(ctx, l)
	}
	if err != nil && s.checkEnds(l) == nil { // else the end has vanished, which unplug is about to note
		return fmt.Errorf("link %s: %w", l.name(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.parted = down, parted
	return nil
}

func (s *Supervisor) disconnect(l *labLink) error {
	// The kernel would log what it has for an interface that is down.
	if err := s.part(l); err != nil {
		return err
	}
	return s.network.Down(l.spec.Number)
}

func (s *Supervisor) reconnect(ctx context.Context, l *labLink) error {
	if err := s.network.Up(l.spec.Number); err != nil {
		return err
	}
	if err := s.settle(ctx, l.spec.Number); err != nil {
		return err
	}
	if l.joined || l.carrier != nil && !l.carrier.needsJoin() {
		return nil
	}
	return s.join(l)
}

// Partition takes down every link between nodes of different sets, where those in
// no set form one more, and brings up what an earlier partition took down, which is
// over. It returns the names of the links that are down because of it.
func (s *Supervisor) Partition(ctx context.Context, by source, sets [][]string) ([]string, error) {
	if err := checkSets(s.topo, sets); err != nil {
		return nil, err
	}
	parted := map[int]bool{}
	var names, words []string
	for _, i := range s.topo.Between(sets) {
		parted[i] = true
		names = append(names, s.links[i].name())
	}
	if len(names) == 0 {
		return nil, control.Errorf(control.Usage, "no link joins nodes of different sets")
	}
	for _, set := range sets {
		words = append(words, strings.Join(set, ","))
	}
	text := fmt.Sprintf("partition %s: links that are down: %d", strings.Join(words, " "), len(names))
	_, err := s.separate(ctx, by, parted, func(int) string { return text })
	return names, err
}

// Heal brings up what the last partition took down, but for links that LinkDown
// took down as well, and returns the indices of the links that came up.
func (s *Supervisor) Heal(ctx context.Context, by source) ([]int, error) {
	return s.separate(ctx, by, nil, func(up int) string { return fmt.Sprintf("the partition is over: links that are up again: %d", up) })
}

// separate has just those links parted, tells of it in words, and returns the
// indices of the links that came up.
func (s *Supervisor) separate(ctx context.Context, by source, parted map[int]bool, words func(up int) string) ([]int, error) {
	ctx = context.WithoutCancel(ctx) // half a partition is none
	s.parting.Lock()
	defer s.parting.Unlock()
	var problems error
	var risen []int
	for _, l := range s.links {
		rose, err := s.partLink(ctx, by, l, parted[l.index])
		if rose {
			risen = append(risen, l.index)
		}
		problems = errors.Join(problems, err)
	}
	s.Publish(Event{Kind: LinkChanged, Text: words(len(risen))})
	return risen, problems
}

// partLink says whether the link came up.
func (s *Supervisor) partLink(ctx context.Context, by source, l *labLink, parted bool) (rose bool, err error) {
	if err := l.lock(ctx); err != nil {
		return false, err
	}
	defer l.unlock()
	if l.parted == parted {
		l.last(by, func(r *request) { r.parted = parted })
		return false, nil
	}
	if err := s.switchLink(ctx, l, l.down, parted); err != nil {
		return false, err
	}
	l.last(by, func(r *request) { r.parted = parted })
	return !l.off(), nil
}

// checkSets says what is wrong with the sets of a partition.
func checkSets(topo *topology.Topology, sets [][]string) error {
	setOf := map[string]int{}
	for i, set := range sets {
		for _, name := range set {
			if topo.FindNode(name) == nil {
				return control.Errorf(control.Usage, "lab %s has no node %q", topo.Name, name)
			}
			if before, twice := setOf[name]; twice && before != i {
				return control.Errorf(control.Usage, "node %q is in two sets of the partition", name)
			}
			setOf[name] = i
		}
	}
	return nil
}
