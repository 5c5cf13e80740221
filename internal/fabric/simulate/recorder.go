package simulate

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/series"
)

// A recorder takes down how queues and rates go over time.
type recorder struct {
	*series.Recorder
	network *network
	queues  []recordedQueue
}

// A recordedQueue is a class at a port of a buffer.
type recordedQueue struct {
	*series.Queue
	buffer      *buffer
	port, class int
}

// record begins to take down the queues of all buffers, as often as a period says.
func (n *network) record(period time.Duration) {
	r := &recorder{Recorder: series.New(period), network: n}
	for _, at := range n.nodes {
		for i := range at.spec.Interfaces {
			for class := range mmu.Classes {
				if at.buffer == nil {
					continue
				}
				endpoint := at.spec.Name + ":" + at.spec.Interfaces[i].Name
				r.queues = append(r.queues, recordedQueue{r.Queue(endpoint, class), at.buffer, i, class})
			}
		}
	}
	n.recorder = r
	n.clock.AfterFunc(r.Due(), r.take)
}

// take takes a point down.
func (r *recorder) take() {
	now := r.network.clock.Now()
	for i := range r.queues {
		q := &r.queues[i]
		q.Set(uint64(q.buffer.model.Queued(q.port, q.class)), q.buffer.model.Counters(now, q.port, q.class).RxPauseTime)
	}
	r.Next()
	r.network.clock.AfterFunc(r.Due()-now, r.take)
}

// series returns what was taken down; nil if nothing was to be.
func (n *network) series() *report.Series {
	if n.recorder == nil {
		return nil
	}
	return n.recorder.Report()
}
