package impair

import (
	"reflect"

	"github.com/ndklab/ndklab/topology"
)

// loss decides which packets do not arrive.
//
// Losses in bursts follow Gilbert's case of Gilbert and Elliott's model: a chain
// with a good state, in which nothing is lost, and a bad one, in which all is. A
// packet's state follows from the one before by a draw: good turns bad with
// probability p, bad turns good with r. A burst then lasts 1/r packets in the
// mean, and p/(p+r) of all are lost, which gives both from what was asked for.
// The first packet's state is drawn from the shares of the two.
type loss struct {
	topology.Loss
	p, r  float64
	bad   bool
	met   uint64 // packets
	place int    // in Packets, of the next
}

func newLoss(l topology.Loss) loss {
	n := loss{Loss: l}
	if l.Burst > 0 {
		n.p, n.r = gilbert(l.Rate, l.Burst)
	}
	return n
}

// gilbert returns the probabilities to turn bad and to turn good. p is above 1 if no
// chain has such bursts at such a rate, which is below 1.
func gilbert(rate, burst float64) (p, r float64) {
	return rate / (1 - rate) / burst, 1 / burst
}

func sameLoss(a, b topology.Loss) bool {
	return a.Rate == b.Rate && a.Burst == b.Burst && a.Every == b.Every && reflect.DeepEqual(a.Packets, b.Packets)
}

// lose returns the cause by which the present packet is lost; None if it is not.
func (d *Direction) lose() Cause {
	l := &d.loss
	l.met++
	cause := None
	if l.Rate > 0 {
		draw := uniform(d.draws.bits(ofLoss, d.place))
		switch {
		case l.Burst == 0:
			if draw < l.Rate {
				cause = Chance
			}
		case l.turn(draw):
			cause = Burst
		}
	}
	certain := None
	if l.Every > 0 && l.met%l.Every == 0 {
		certain = Every
	}
	if l.place < len(l.Packets) && l.Packets[l.place] == l.met {
		l.place++
		certain = Place
	}
	if certain != None {
		d.asked.certain++
		cause = certain
	}
	return cause
}

// turn returns the next state of the chain: whether it is bad.
func (l *loss) turn(draw float64) bool {
	switch {
	case l.met == 1:
		l.bad = draw < l.Rate
	case l.bad:
		l.bad = draw >= l.r
	default:
		l.bad = draw < l.p
	}
	return l.bad
}
