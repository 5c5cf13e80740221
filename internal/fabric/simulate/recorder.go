package simulate

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/series"
)

// A recorder takes down how queues, queue pairs and losses go over time.
type recorder struct {
	*series.Recorder
	network    *network
	queues     *dataplane.Queues[*frame]
	pairs      map[pairKey]*series.Pair // that were connected; those that are gone, too
	directions [][2]*series.Direction   // by link
}

// A pairKey tells queue pairs apart. One that a node has after it was started again, with the number and the peer of one
// before, goes on where that ended.
type pairKey struct {
	node, peer string
	number     uint32
}

// record begins to take down the queues of all buffers, the queue pairs of all adapters and what links lose, as often as a period says.
func (n *network) record(period time.Duration) {
	r := &recorder{Recorder: series.New(period), network: n, pairs: map[pairKey]*series.Pair{}}
	r.queues = n.plane.Record(r.Recorder)
	for _, l := range n.links {
		r.directions = append(r.directions, [2]*series.Direction{r.Direction(l.spec.Endpoints[0].String()), r.Direction(l.spec.Endpoints[1].String())})
	}
	n.recorder = r
	n.clock.AfterFunc(r.Due(), r.take)
}

// take takes a point down.
func (r *recorder) take() {
	now := r.network.clock.Now()
	r.queues.Set()
	for _, at := range r.network.nodes {
		if at.life != nil {
			r.takePairs(at)
		}
	}
	for i, l := range r.network.links {
		for end, d := range r.directions[i] {
			d.Set(l.wires[end].Losses())
		}
	}
	r.Next()
	r.network.clock.AfterFunc(r.Due()-now, r.take)
}

// takePairs takes down how the queue pairs of a host send.
func (r *recorder) takePairs(at *node) {
	for _, now := range at.life.device.SendStates() {
		key := pairKey{at.spec.Name, now.Remote.String(), now.QPN} // a program may name an address that no node has
		if peer := r.network.places[now.Remote].node; peer != nil {
			key.peer = peer.spec.Name
		}
		p := r.pairs[key]
		if p == nil {
			p = r.Pair(key.node, key.peer, key.number)
			r.pairs[key] = p
		}
		p.Set(series.Sending{Rate: uint64(now.Rate), Target: uint64(now.Target), Window: uint64(now.Window), CNPs: now.CNPs, Retransmitted: now.Retransmitted})
	}
}

// series returns what was taken down; nil if nothing was to be.
func (n *network) series() *report.Series {
	if n.recorder == nil {
		return nil
	}
	return n.recorder.Report()
}
