package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/internal/topology/diff"
	"github.com/ndklab/ndklab/topology"
)

// This file is what is asked of links. Of several at once for one link each waits for the one before.

// A linkRequest is a change of what is asked of a link.
type linkRequest struct {
	id    uint64 // of the Ask; 0: there is none
	by    Source
	begun bool
	// change changes what is asked, at present and, by hand, lastingly. The error says why it cannot be.
	change func(asked, lasting *linkAsked) error
	away   bool   // the nodes at its ends need not be up
	words  string // what everyone is told when it is done; "": nothing
	before linkAsked
	last   linkAsked // what lasts once it is done
	wasOff bool
	late   time.Duration // until when a command waits for the link to be plain
	// done is called once. rose says that the link came up.
	done func(rose bool, err error)
}

// linkOf returns the link of an index.
func (l *Lab) linkOf(index int) (*link, error) {
	if index < 0 || index >= len(l.links) {
		return nil, failure.Errorf(failure.Usage, "lab %s has no link %d", l.name, index)
	}
	return l.links[index], nil
}

// request puts a request behind the others.
func (k *link) request(r *linkRequest) {
	k.requests = append(k.requests, r)
	k.schedule()
}

// beginRequest begins what a request asks for.
func (k *link) beginRequest(r *linkRequest) {
	r.begun, r.before, r.wasOff = true, k.asked, k.off()
	asked, lasting := k.asked, k.lasting
	var err error
	if !r.away {
		err = k.checkEnds()
	}
	if err == nil {
		err = r.change(&asked, &lasting)
	}
	if err != nil {
		k.requests = k.requests[1:]
		r.done(false, err)
		k.schedule()
		return
	}
	k.asked, r.last, k.stuck, k.kept = asked, lasting, nil, false
}

// finishRequest ends the request under way, after which the link does what it is asked to.
func (k *link) finishRequest() {
	if len(k.requests) == 0 || !k.requests[0].begun {
		return
	}
	r := k.requests[0]
	k.requests = k.requests[1:]
	if r.by == ByHand {
		k.lasting = r.last
	}
	if r.words != "" {
		k.lab.tell(Tell{Kind: LinkChanged, Link: k.name(), Text: r.words})
	}
	if r.late > 0 && k.engine && !k.asked.impaired() && k.whole() {
		r.late = k.lab.now + plainTime
		k.plain = append(k.plain, r)
		k.lab.plain = append(k.lab.plain, k)
	} else {
		r.done(r.wasOff && !k.off(), nil)
	}
	k.schedule()
}

// finishPlain answers those who wait for a link to be plain.
func (k *link) finishPlain() {
	for _, r := range k.plain {
		r.done(false, nil)
	}
	k.plain = nil
}

// elapsePlain answers those who have waited for a link to be plain for long enough.
func (l *Lab) elapsePlain() {
	for _, k := range slices.Clone(l.plain) {
		if len(k.plain) == 0 || k.plain[0].late <= l.now {
			k.finishPlain()
			l.plain = slices.DeleteFunc(l.plain, func(p *link) bool { return p == k })
		}
	}
}

// abortRequest ends the request under way, which failed: what was asked before is asked again.
func (k *link) abortRequest(err error) {
	r := k.requests[0]
	k.requests = k.requests[1:]
	if k.checkEnds() != nil { // the end has vanished
		if r.by == ByHand {
			k.lasting = r.last
		}
		r.done(false, nil)
		return
	}
	k.asked = r.before
	r.done(false, err)
}

// setLink takes SetLink and ResetLink. to is what becomes of the settings of a direction.
func (l *Lab) setLink(a Ask, index int, from, words string, to func(k *link, direction int, i topology.Impairment) topology.Impairment) {
	fail := func(err error) { l.answer(Answer{ID: a.ID, Err: err}) }
	k, err := l.linkOf(index)
	if err != nil {
		fail(err)
		return
	}
	ends := k.spec.Endpoints
	if from != "" && from != ends[0].Node && from != ends[1].Node {
		fail(failure.Errorf(failure.Usage, "node %q is at neither end of the %s", from, linkTo(k.spec)))
		return
	}
	r := &linkRequest{id: a.ID, by: a.By, words: fmt.Sprintf("link %s: %s", k.name(), inDirection(words, from)),
		done: func(_ bool, err error) { fail(err) }}
	if a.By == ByHand {
		r.late = 1
	}
	r.change = func(asked, lasting *linkAsked) error {
		for d, e := range ends {
			if from != "" && from != e.Node {
				continue
			}
			now, then := &asked.impairments[d], &lasting.impairments[d]
			*now, *then = to(k, d, *now), to(k, d, *then)
			if err := now.Check(); err != nil {
				return failure.Errorf(failure.Usage, "link %s: packets from %s: %v", k.name(), e.Node, err)
			}
			if err := k.check(*now); err != nil {
				return err
			}
			if err := k.check(*then); a.By == ByHand && err != nil {
				return fmt.Errorf("%w, which would be so in the next run", err)
			}
		}
		return nil
	}
	k.request(r)
}

// check says what is wrong with an impairment, or what of it the link's engine cannot do.
func (k *link) check(i topology.Impairment) error {
	err := i.Check()
	if err == nil {
		err = k.spec.Engine.Check(i, k.spec.Offload)
	}
	if err == nil {
		err = k.spec.CheckQueue(i)
	}
	if err != nil {
		return failure.Errorf(failure.Usage, "link %s: %v", k.name(), err)
	}
	return nil
}

// inDirection says of which direction words are.
func inDirection(words, from string) string {
	if from == "" {
		return words
	}
	return words + " from " + from
}

// switchLink takes SwitchLink.
func (l *Lab) switchLink(a Ask, c SwitchLink) {
	k, err := l.linkOf(c.Link)
	if err != nil {
		l.answer(Answer{ID: a.ID, Err: err})
		return
	}
	r := &linkRequest{id: a.ID, by: a.By, words: fmt.Sprintf("link %s is down", k.name())}
	r.change = func(asked, lasting *linkAsked) error {
		asked.down, lasting.down = true, true
		return nil
	}
	if c.Up {
		r.words = fmt.Sprintf("link %s is up", k.name())
		r.change = func(asked, lasting *linkAsked) error {
			asked.down, asked.parted, lasting.down, lasting.parted = false, false, false, false
			return nil
		}
	}
	r.done = func(_ bool, err error) {
		if err != nil || !c.Up || a.By == ByRun {
			l.answer(Answer{ID: a.ID, Err: err})
			return
		}
		l.awaitTree([]*link{k}, func(err error) { l.answer(Answer{ID: a.ID, Err: err}) })
	}
	k.request(r)
}

// alter changes what a link does and how large its packets are, as a file says that has been changed. What the file
// leaves as it was stays as it is, also if a command has changed it.
func (k *link) alter(d diff.Link, done func(error)) {
	was, is := d.Was, d.Is
	k.spec = is
	k.request(&linkRequest{by: ByHand, away: true, words: d.String()[len("~ "):],
		change: func(asked, lasting *linkAsked) error {
			for direction := range asked.impairments {
				if to := is.Directions[direction]; !was.Directions[direction].Equal(to) {
					asked.impairments[direction], lasting.impairments[direction] = to, to
				}
			}
			if was.Down != is.Down {
				asked.down, lasting.down = is.Down, is.Down
			}
			return nil
		},
		done: func(_ bool, err error) {
			if err != nil {
				k.spec = was
			}
			done(err)
		}})
}

// A separation is a Partition or its end on its way.
type separation struct {
	begun  bool
	by     Source
	parted map[*link]bool
	words  func(up int) string
	left   int // links that have not been gone over
	risen  []*link
	err    error
	done   func(s *separation)
}

// partition takes Partition.
func (l *Lab) partition(a Ask, sets [][]string) {
	fail := func(err error) { l.answer(Answer{ID: a.ID, Err: err}) }
	if err := l.checkSets(sets); err != nil {
		fail(err)
		return
	}
	parted := map[*link]bool{}
	var links []*topology.Link
	for _, i := range l.topo.Between(sets) {
		parted[l.links[i]] = true
		links = append(links, l.links[i].spec)
	}
	if len(links) == 0 {
		fail(failure.Errorf(failure.Usage, "no link joins nodes of different sets"))
		return
	}
	var words []string
	for _, set := range sets {
		words = append(words, strings.Join(set, ","))
	}
	text := fmt.Sprintf("partition %s: links that are down: %d", strings.Join(words, " "), len(links))
	l.separations = append(l.separations, &separation{by: a.By, parted: parted, words: func(int) string { return text },
		done: func(s *separation) { l.answer(Answer{ID: a.ID, Err: s.err, Links: links}) }})
}

// heal takes Heal.
func (l *Lab) heal(a Ask) {
	words := func(up int) string { return fmt.Sprintf("the partition is over: links that are up again: %d", up) }
	l.separations = append(l.separations, &separation{by: a.By, words: words, done: func(s *separation) {
		answer := Answer{ID: a.ID, Err: s.err}
		for _, k := range s.risen {
			answer.Links = append(answer.Links, k.spec)
		}
		if s.err != nil || a.By == ByRun {
			l.answer(answer)
			return
		}
		l.awaitTree(s.risen, func(err error) {
			answer.Err = err
			l.answer(answer)
		})
	}})
}

// advanceSeparation begins the first separation, and ends it when every link has been gone over.
func (l *Lab) advanceSeparation() (advanced bool) {
	if len(l.separations) == 0 {
		return false
	}
	s := l.separations[0]
	switch {
	case !s.begun:
		s.begun, s.left = true, len(l.links)
		for _, k := range l.links {
			l.separate(s, k)
		}
		return true
	case s.left > 0:
		return false
	}
	l.separations = l.separations[1:]
	slices.SortFunc(s.risen, func(a, b *link) int { return a.index - b.index })
	l.tell(Tell{Kind: LinkChanged, Text: s.words(len(s.risen))})
	s.done(s)
	return true
}

// separate has a link be parted, or not any more.
func (l *Lab) separate(s *separation, k *link) {
	parted := s.parted[k]
	k.request(&linkRequest{by: s.by, away: true,
		change: func(asked, lasting *linkAsked) error {
			asked.parted, lasting.parted = parted, parted
			return nil
		},
		done: func(rose bool, err error) {
			s.left--
			s.err = errors.Join(s.err, err)
			if rose {
				s.risen = append(s.risen, k)
			}
		}})
}

// checkSets says what is wrong with the sets of a partition.
func (l *Lab) checkSets(sets [][]string) error {
	setOf := map[string]int{}
	for i, set := range sets {
		for _, name := range set {
			if l.topo.FindNode(name) == nil {
				return failure.Errorf(failure.Usage, "lab %s has no node %q", l.name, name)
			}
			if before, twice := setOf[name]; twice && before != i {
				return failure.Errorf(failure.Usage, "node %q is in two sets of the partition", name)
			}
			setOf[name] = i
		}
	}
	return nil
}
