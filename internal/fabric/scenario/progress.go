package scenario

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// progressInterval is how often a play says how far its workloads are.
const progressInterval = time.Second

// stallTime is how long a workload may go on without completing anything while the
// timeline has nothing more to do that could help it. A connection that has failed says
// so long before; a node that is paused for good never does.
const stallTime = 2 * time.Minute

// pace is how a workload gets on.
type pace struct {
	moved  time.Duration // when it last had completed something more, or began
	before uint64        // messages completed then
	told   time.Duration // when its progress was told of last, or it began
	shown  uint64        // bytes completed then
}

// reportProgress says from time to time how far the workloads are, and ends those that
// have stalled.
func (p *Play) reportProgress() {
	p.aside(progressInterval, func() {
		p.askProgress(nil, func() {
			for _, w := range p.works {
				if w.state == running && w.spec.Operation != topology.Program {
					w.tellProgress()
				}
			}
		})
		p.reportProgress()
	})
}

// askProgress asks the nodes how far the clients of works are, nil for all, except nodes
// of which an earlier answer is still to come. done is called when the last has answered.
func (p *Play) askProgress(of map[*work]bool, done func()) {
	var ask []string
	for _, w := range p.works {
		for _, f := range w.flows {
			if f.client && !p.asking[f.from] && (of == nil || of[w]) {
				p.asking[f.from] = true
				ask = append(ask, f.from)
			}
		}
	}
	left := len(ask)
	if left == 0 {
		done()
	}
	for _, node := range ask {
		p.stage.Progress(node, func(all []workload.Progress, err error) {
			p.enter(func() {
				delete(p.asking, node)
				if err == nil { // else its clients have got nowhere, as far as anybody knows
					p.takeProgress(all)
				}
				if left--; left == 0 && p.then != nil {
					done()
				}
			})
		})
	}
}

// takeProgress notes how far clients are.
func (p *Play) takeProgress(all []workload.Progress) {
	for _, n := range all {
		if w := p.byName[n.Name]; w != nil && n.Flow >= 0 && n.Flow < len(w.flows) && w.flows[n.Flow].client {
			w.flows[n.Flow].progress = n
		}
	}
}

// soFar is what the workload has completed, with what is known of clients that run, and
// whether it has had an error.
func (w *work) soFar() (messages, bytes uint64, failed bool) {
	messages, bytes, failed = w.tally.messages, w.tally.bytes, w.tally.errors > 0
	for _, f := range w.flows {
		messages += f.progress.Messages
		bytes += f.progress.Bytes
		failed = failed || f.progress.Errors > 0
	}
	return messages, bytes, failed
}

// tellProgress says how far the workload is, and ends it if it has stalled.
func (w *work) tellProgress() {
	now := w.now()
	for _, f := range w.flows {
		if f.client && f.stopped { // it may not have begun when it was told
			w.stage.Stop(f.from, w.spec.Name, f.index)
		}
	}
	messages, bytes, _ := w.soFar()
	if w.rounds > 0 && now > w.pace.told {
		rate := gbps(bytes-min(bytes, w.pace.shown), (now - w.pace.told).Seconds())
		w.publish(event.Event{Kind: event.WorkloadProgress, Node: w.place(), Workload: w.spec.Name,
			Text: fmt.Sprintf("workload %s: messages: %d, %s", w.spec.Name, messages, words.Rate(rate))})
	}
	w.pace.told, w.pace.shown = now, bytes
	if messages != w.pace.before || w.timeline.busy > 0 {
		w.pace.before, w.pace.moved = messages, now
	}
	if now-w.pace.moved >= stallTime {
		w.pace.moved = now
		w.abort(fmt.Sprintf("it has completed nothing for %s", topology.FormatDuration(stallTime)))
	}
}
