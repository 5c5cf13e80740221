package simulate

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/series"
)

// A recorder takes down how queues and rates go over time.
type recorder struct {
	*series.Recorder
	network *network
	queues  *dataplane.Queues[*frame]
	pairs   map[pairKey]*series.Pair // that have had a rate; those that are gone, too
}

// A pairKey tells queue pairs apart. One that a node has after it was started again, with the number and the peer of one
// before, goes on where that ended.
type pairKey struct {
	node, peer string
	number     uint32
}

// record begins to take down the queues of all buffers and the rates of all adapters, as often as a period says.
func (n *network) record(period time.Duration) {
	r := &recorder{Recorder: series.New(period), network: n, pairs: map[pairKey]*series.Pair{}}
	r.queues = n.plane.Record(r.Recorder)
	n.recorder = r
	n.clock.AfterFunc(r.Due(), r.take)
}

// take takes a point down.
func (r *recorder) take() {
	now := r.network.clock.Now()
	r.queues.Set()
	for _, at := range r.network.nodes {
		if at.life != nil {
			r.takeRates(at)
		}
	}
	r.Next()
	r.network.clock.AfterFunc(r.Due()-now, r.take)
}

// takeRates takes down how fast the queue pairs of a host may send.
func (r *recorder) takeRates(at *node) {
	for _, rate := range at.life.device.SendRates() {
		key := pairKey{at.spec.Name, rate.Remote.String(), rate.QPN} // a program may name an address that no node has
		if peer := r.network.places[rate.Remote].node; peer != nil {
			key.peer = peer.spec.Name
		}
		p := r.pairs[key]
		if p == nil {
			p = r.Pair(key.node, key.peer, key.number)
			r.pairs[key] = p
		}
		p.Set(uint64(rate.Rate), uint64(rate.Target))
	}
}

// series returns what was taken down; nil if nothing was to be.
func (n *network) series() *report.Series {
	if n.recorder == nil {
		return nil
	}
	return n.recorder.Report()
}
