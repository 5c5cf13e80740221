package core

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/internal/topology/diff"
	"github.com/ndklab/ndklab/topology"
)

// Links are asked for something by commands, by a run, by a partition, and by Apply. Of several requests for one link each
// waits for the one before.

// A linkRequest is a change of what is asked of a link.
type linkRequest struct {
	id    uint64 // of the Ask; 0: there is none
	by    Source
	begun bool
	// change changes what is asked, at present and, by hand, lastingly. The error says why it cannot be.
	change        func(asked, lasting *linkAsked) error
	endsMayBeDown bool   // the nodes at the link's ends need not be up
	text          string // what everyone is told when it is done; "": nothing
	before        linkAsked
	last          linkAsked // what lasts once it is done
	wasOff        bool
	awaitsPlain   bool // it waits for the engine to release a link that is not impaired any more
	// done is called once. cameUp says that the link came up.
	done func(cameUp bool, err error)
}

// changeBoth returns a change that changes what is asked at present and lastingly alike.
func changeBoth(change func(*linkAsked)) func(asked, lasting *linkAsked) error {
	return func(asked, lasting *linkAsked) error {
		change(asked)
		change(lasting)
		return nil
	}
}

// request puts a request behind the others. A link that is removed refuses it.
func (k *link) request(r *linkRequest) {
	if k.removed {
		r.done(false, k.leftLab())
		return
	}
	k.requests = append(k.requests, r)
	k.schedule()
}

// leftLab returns why nothing can be asked of a link that an Apply has removed.
func (k *link) leftLab() error {
	return failure.Errorf(failure.Usage, "link %s is in the lab no more", k.name())
}

// beginRequest changes what is asked of the link as the request says, or ends the request with an error.
func (k *link) beginRequest(r *linkRequest) {
	r.begun, r.before, r.wasOff = true, k.asked, k.off()
	asked, lasting := k.asked, k.lasting
	var err error
	if !r.endsMayBeDown {
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
	k.asked, r.last, k.stuck, k.releaseFails = asked, lasting, nil, false
}

// finishRequest ends the request under way, if there is one: the link does what is asked of it.
func (k *link) finishRequest() {
	if len(k.requests) == 0 || !k.requests[0].begun {
		return
	}
	r := k.requests[0]
	k.requests = k.requests[1:]
	if r.by == ByHand {
		k.lasting = r.last
	}
	if r.text != "" {
		k.notify(event.LinkChanged, "%s", r.text)
	}
	if r.awaitsPlain && k.engine && !k.asked.impaired() && k.whole() {
		if len(k.plain) == 0 {
			k.lab.timers.set(&k.plainTimer, k.lab.now+plainTime)
		}
		k.plain = append(k.plain, r)
	} else {
		r.done(r.wasOff && !k.off(), nil)
	}
	k.schedule()
}

// answerPlain answers the requests that wait for the link to be plain.
func (k *link) answerPlain() {
	for _, r := range k.plain {
		r.done(false, nil)
	}
	k.plain = nil
	k.plainTimer.stop()
}

// abortRequest ends the request under way by the failure of an action, and asks again for what was asked before it.
func (k *link) abortRequest(err error) {
	r := k.requests[0]
	k.requests = k.requests[1:]
	if k.checkEnds() != nil { // the node has ended, which explains the failure
		if r.by == ByHand {
			k.lasting = r.last
		}
		r.done(false, nil)
		return
	}
	k.asked = r.before
	r.done(false, err)
}

// set takes SetLink and ResetLink. to returns the new settings of a direction, whose old ones it gets.
func (k *link) set(a Ask, from, text string, to func(direction int, i topology.Impairment) topology.Impairment) error {
	ends := k.spec.Endpoints
	if from != "" && from != ends[0].Node && from != ends[1].Node {
		return failure.Errorf(failure.Usage, "node %q is at neither end of the %s", from, linkTo(k.spec))
	}
	r := &linkRequest{id: a.ID, by: a.By, awaitsPlain: a.By == ByHand, text: fmt.Sprintf("link %s: %s", k.name(), inDirection(text, from)),
		done: func(_ bool, err error) { k.lab.answer(Answer{ID: a.ID, Err: err}) }}
	r.change = func(asked, lasting *linkAsked) error {
		for d, e := range ends {
			if from != "" && from != e.Node {
				continue
			}
			now, then := &asked.impairments[d], &lasting.impairments[d]
			*now, *then = to(d, *now), to(d, *then)
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
	return nil
}

// check returns an error if an impairment is invalid, or if the link's engine cannot do it.
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

// inDirection adds the direction to a text; "" is both.
func inDirection(text, from string) string {
	if from == "" {
		return text
	}
	return text + " from " + from
}

// switchTo takes SwitchLink.
func (k *link) switchTo(a Ask, up bool) {
	r := &linkRequest{id: a.ID, by: a.By, text: fmt.Sprintf("link %s is down", k.name())}
	if up {
		r.text = fmt.Sprintf("link %s is up", k.name())
	}
	r.change = changeBoth(func(asked *linkAsked) {
		asked.down = !up
		asked.partitioned = asked.partitioned && !up
	})
	answer := func(err error) { k.lab.answer(Answer{ID: a.ID, Err: err}) }
	r.done = func(_ bool, err error) {
		if err != nil || !up || a.By == ByRun {
			answer(err)
			return
		}
		k.lab.awaitSpanningTree([]*link{k}, answer)
	}
	k.request(r)
}

// alter changes the impairments, the state and the MTU of the link as a changed file says. It leaves alone what the
// file has not changed, also if a command has changed it.
func (k *link) alter(d diff.Link, done func(error)) {
	was, is := d.Was, d.Is
	k.spec = is
	k.request(&linkRequest{by: ByHand, endsMayBeDown: true, text: d.String()[len("~ "):],
		change: changeBoth(func(asked *linkAsked) {
			for direction, to := range is.Directions {
				if !was.Directions[direction].Equal(to) {
					asked.impairments[direction] = to
				}
			}
			if was.Down != is.Down {
				asked.down = is.Down
			}
		}),
		done: func(_ bool, err error) {
			if err != nil {
				k.spec = was
			}
			done(err)
		}})
}
