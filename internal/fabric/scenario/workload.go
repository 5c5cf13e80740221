package scenario

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// firstPort is the rdma_cm port of the first flow's server in a node, which is
// perftest's; the others follow.
const firstPort = 18515

// noticeTime bounds how long a client may take to notice that its server's node has
// gone down. The adapter of a connected client does so sooner, and reports what a
// consumer would see. One that is connecting would try for 30 s.
const noticeTime = 6 * time.Second

// workloads are those of the topology as they are played.
type workloads struct {
	shared
	all    []*workloadRun
	byName map[string]*workloadRun
	asking map[string]bool // nodes that have still to say how far their clients are

	// The timeline sets both.
	changed func(*workloadRun) // called when the state of a workload has changed
	busy    func() bool        // whether an event is under way or to come at a known time
}

// A workloadRun is a workload as it is played: once, or as often as the timeline starts it.
type workloadRun struct {
	shared
	owner *workloads
	spec  *topology.Workload
	flows []*flow // of Program: none

	state       workloadState
	start       *timer // while it is scheduled
	left        int    // flows or programs of this round that are not over
	rounds      int    // how often it has begun
	totals      totals
	jobs        jobs          // of Program
	lastOutcome string        // how the last round ended, in words
	beganAt     time.Duration // the first round, since the run began
	endedAt     time.Duration // when the last round was
	advance     advance
	losses      string // what the links of a flow had lost when that had the first error
}

// A workloadState tells how far a workload is.
type workloadState int

const (
	unstarted workloadState = iota // until the timeline starts it
	scheduled                      // until its time has come
	running
	ended
)

// A flow is one client of a workload, and its server.
type flow struct {
	*workloadRun
	index       int
	from, to    string
	local       netip.Addr
	at          netip.AddrPort // of the server
	unreachable error          // there is no path from the one to the other

	serving serveState
	ending  bool // the server is to end as soon as it serves
	wanted  bool // the client is to run as soon as there is a server

	// Of this round:
	client    bool          // it runs
	stopped   bool          // the timeline has stopped it
	began     time.Duration // when the client did
	completed uint64        // messages, when it is done
	lost      bool          // the server's node went down with what that had found
	progress  workload.Progress

	totals   totals
	unproven bool // in some round, what the server had found was lost
}

// A serveState tells how far a flow's server is.
type serveState int

const (
	unserved      serveState = iota
	answerPending            // to Serve or Unserve
	served
)

// newWorkloads returns the topology's workloads.
func newWorkloads(s shared) *workloads {
	all := &workloads{shared: s, byName: map[string]*workloadRun{}, asking: map[string]bool{}}
	ports := map[string]uint16{} // taken so far, by server
	for i := range s.topo.Workloads {
		w := &workloadRun{shared: s, owner: all, spec: &s.topo.Workloads[i]}
		for j, f := range w.spec.Flows {
			n := &flow{workloadRun: w, index: j, from: f.From, to: f.To}
			if path, ok := s.topo.Path(f.From, f.To); ok {
				n.local = path.From.Address
				n.at = netip.AddrPortFrom(path.To.Address, firstPort+ports[f.To])
			} else {
				n.unreachable = fmt.Errorf("%s does not reach %s", f.From, f.To)
			}
			ports[f.To]++
			w.flows = append(w.flows, n)
		}
		all.all = append(all.all, w)
		all.byName[w.spec.Name] = w
	}
	return all
}

// serve has the servers listen of workloads that start by themselves.
func (ws *workloads) serve() {
	for _, w := range ws.all {
		for _, f := range w.flows {
			if !w.spec.Manual && f.unreachable == nil {
				f.serve()
			}
		}
	}
}

// scheduleStarts has the workloads start at their times, but for those that the timeline starts.
func (ws *workloads) scheduleStarts() {
	for _, w := range ws.all {
		if !w.spec.Manual {
			w.state = scheduled
			w.start = w.loop.after(w.spec.Start, w.begin)
		}
	}
}

// stop ends all clients and programs in good order.
func (ws *workloads) stop() {
	for _, w := range ws.all {
		w.stopClients()
	}
}

// abort ends all clients and programs at once, since the play was interrupted.
func (ws *workloads) abort() {
	for _, w := range ws.all {
		w.abortClients(ErrInterrupted.Error())
	}
}

// dismiss ends servers that no client has come to.
func (ws *workloads) dismiss() {
	for _, w := range ws.all {
		for _, f := range w.flows {
			f.dismiss()
		}
	}
}

// report returns the results.
func (ws *workloads) report() []report.Workload {
	all := make([]report.Workload, len(ws.all))
	for i, w := range ws.all {
		all[i] = w.report()
	}
	return all
}

// begin starts the workload.
func (w *workloadRun) begin() {
	w.state = running
	if w.rounds++; w.rounds == 1 {
		w.beganAt = w.loop.now()
	}
	messages, bytes, _ := w.soFar()
	w.advance = advance{moved: w.loop.now(), messages: messages, reported: w.loop.now(), bytes: bytes}
	w.journal.publish(event.Event{Kind: event.WorkloadStarted, Node: w.onlyClient(), Workload: w.spec.Name, Text: w.describe()})
	w.left = len(w.flows)
	for _, f := range w.flows {
		f.stopped, f.lost, f.wanted, f.completed = false, false, true, 0
		switch {
		case f.unreachable != nil:
			f.failed(f.unreachable)
			f.endOne()
		case f.serving == served:
			f.run()
		case f.serving == unserved:
			f.serve()
		}
	}
	if w.spec.Operation == topology.Program {
		w.runPrograms()
	}
	w.owner.changed(w)
}

// endOne notes that a flow or a program of this round is over.
func (w *workloadRun) endOne() {
	w.left--
	if w.left > 0 {
		return
	}
	w.state, w.endedAt = ended, w.loop.now()
	w.totals.endRound()
	text := fmt.Sprintf("workload %s done: %s", w.spec.Name, w.outcome())
	if len(w.flows) > 0 && w.totals.messages == 0 && w.totals.err != "" {
		text = fmt.Sprintf("workload %s failed: %s", w.spec.Name, w.totals.err)
	}
	w.journal.publish(event.Event{Kind: event.WorkloadDone, Node: w.onlyClient(), Workload: w.spec.Name, Text: text})
	w.lastOutcome = text
	w.owner.changed(w)
}

// stopRound ends the workload because the timeline says so, in good order.
func (w *workloadRun) stopRound() {
	switch w.state {
	case scheduled:
		w.loop.stop(w.start)
		w.state, w.lastOutcome = ended, fmt.Sprintf("workload %s was stopped before it began", w.spec.Name)
		w.owner.changed(w)
	case running:
		w.stopClients()
	}
}

// stopClients ends the clients and programs of a round in good order.
func (w *workloadRun) stopClients() {
	for _, f := range w.flows {
		if f.stopped = true; f.client {
			w.stage.Stop(f.from, w.spec.Name, f.index)
		}
	}
	w.stopPrograms()
}

// abortClients ends the workload at once.
func (w *workloadRun) abortClients(reason string) {
	for _, f := range w.flows {
		if f.client {
			w.stage.Abort(f.from, w.spec.Name, f.index, reason)
		}
	}
	w.stopPrograms()
}
