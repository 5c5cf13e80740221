package scenario

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// progressInterval is the time, by the machine, between two reports of a play on the progress of its workloads.
const progressInterval = time.Second

// stallTime bounds how long a workload may go on without completing anything while the
// timeline has nothing more to do that could help it. A connection that has failed says
// so long before; a node that is paused for good never does.
const stallTime = 2 * time.Minute

// An advance notes how far a workload was at two instants of the run.
type advance struct {
	moved    time.Duration // when it last had completed something more, or began
	messages uint64        // completed then
	reported time.Duration // when its progress was published last, or it began
	bytes    uint64        // completed then
}

// reportProgress publishes from time to time how far the workloads are, and ends those
// that have stalled.
func (ws *workloads) reportProgress() {
	ws.loop.background(ws.loop.ofMachine(progressInterval), func() {
		ws.askProgress(nil, func() {
			for _, w := range ws.all {
				if w.state == running && w.spec.Operation != topology.Program {
					w.publishProgress()
				}
			}
		})
		ws.reportProgress()
	})
}

// askProgress asks the nodes how far the clients of works are, nil for all, except nodes
// of which an earlier answer is still to come. done is called when the last has answered.
func (ws *workloads) askProgress(of map[*workloadRun]bool, done func()) {
	var ask []string
	for _, w := range ws.all {
		for _, f := range w.flows {
			if f.client && !ws.asking[f.from] && (of == nil || of[w]) {
				ws.asking[f.from] = true
				ask = append(ask, f.from)
			}
		}
	}
	left := len(ask)
	if left == 0 {
		done()
	}
	for _, node := range ask {
		ws.stage.Progress(node, func(all []workload.Progress, err error) {
			ws.loop.enter(func() {
				delete(ws.asking, node)
				if err == nil { // else its clients have got nowhere, as far as anybody knows
					ws.takeProgress(all)
				}
				if left--; left == 0 && ws.loop.next != nil {
					done()
				}
			})
		})
	}
}

// takeProgress notes how far clients are.
func (ws *workloads) takeProgress(all []workload.Progress) {
	for _, n := range all {
		if w := ws.byName[n.Name]; w != nil && n.Flow >= 0 && n.Flow < len(w.flows) && w.flows[n.Flow].client {
			w.flows[n.Flow].progress = n
		}
	}
}

// soFar returns what the workload has completed, with what is known of clients that run,
// and whether it has had an error.
func (w *workloadRun) soFar() (messages, bytes uint64, failed bool) {
	messages, bytes, failed = w.totals.messages, w.totals.bytes, w.totals.errors > 0
	for _, f := range w.flows {
		messages += f.progress.Messages
		bytes += f.progress.Bytes
		failed = failed || f.progress.Errors > 0
	}
	return messages, bytes, failed
}

// publishProgress publishes how far the workload is, and ends it if it has stalled.
func (w *workloadRun) publishProgress() {
	now := w.loop.now()
	for _, f := range w.flows {
		if f.client && f.stopped { // it may not have begun when it was told
			w.stage.Stop(f.from, w.spec.Name, f.index)
		}
	}
	messages, bytes, _ := w.soFar()
	if w.rounds > 0 && now > w.advance.reported {
		rate := gbps(bytes-min(bytes, w.advance.bytes), (now - w.advance.reported).Seconds())
		w.journal.publish(event.Event{Kind: event.WorkloadProgress, Node: w.onlyClient(), Workload: w.spec.Name,
			Text: fmt.Sprintf("workload %s: messages: %d, %s", w.spec.Name, messages, words.Rate(rate))})
	}
	w.advance.reported, w.advance.bytes = now, bytes
	if messages != w.advance.messages || w.owner.busy() {
		w.advance.messages, w.advance.moved = messages, now
	}
	if now-w.advance.moved >= stallTime {
		w.advance.moved = now
		w.abortClients(fmt.Sprintf("it has completed nothing for %s", topology.FormatDuration(stallTime)))
	}
}
