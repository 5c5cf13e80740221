package scenario

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// firstPort is the rdma_cm port of the first flow's server in a node, which is
// perftest's; the others follow.
const firstPort = 18515

// noticeTime is how long a client may take to notice that its server's node has
// gone down. Its adapter does so in 3.8 s if it was connected, and reports what a
// consumer would see; while it is connecting it would try for 30 s.
const noticeTime = 6 * time.Second

// A work is a workload as it is played: once, or as often as the timeline starts it.
// Play.mu guards it, as it does everything in this package.
type work struct {
	*Play
	spec  *topology.Workload
	flows []*flow // of Program: none

	state   workState
	start   *timer // while it is due
	under   int    // flows or programs of this round that are not over
	rounds  int    // how often it has begun
	tally   tally
	jobs    jobs          // of Program
	said    string        // how the last round ended, in words
	beganAt time.Duration // the first round, since the run began
	endedAt time.Duration // when the last round was
	pace    pace
	drops   string // what the links of a flow had lost when that had the first error
}

// A workState is how far a work is.
type workState int

const (
	resting workState = iota // until the timeline starts it
	due                      // until its time has come
	running
	ended
)

// A flow is one client of a work, and its server.
type flow struct {
	*work
	index    int
	from, to string
	local    netip.Addr
	at       netip.AddrPort // of the server
	apart    error          // why it cannot be: there is no way from the one to the other

	serving serveState
	ending  bool // the server is to end as soon as it serves
	wanted  bool // the client is to run as soon as there is a server

	// Of this round:
	client    bool          // it runs
	stopped   bool          // the timeline has stopped it
	began     time.Duration // when the client did
	completed uint64        // messages, when it is done
	lost      bool          // what the server had found is: its node went down
	progress  workload.Progress

	tally    tally
	unproven bool // in some round, what the server had found was lost
}

// A serveState is how far a flow's server is.
type serveState int

const (
	unserved serveState = iota
	asked               // the answer to Serve or Unserve is to come
	served
)

// makeWorks makes works of the topology's workloads.
func (p *Play) makeWorks() {
	ports := map[string]uint16{} // taken so far, by server
	for i := range p.topo.Workloads {
		w := &work{Play: p, spec: &p.topo.Workloads[i]}
		for j, f := range w.spec.Flows {
			n := &flow{work: w, index: j, from: f.From, to: f.To}
			if path, ok := p.topo.Path(f.From, f.To); ok {
				n.local = path.From.Address
				n.at = netip.AddrPortFrom(path.To.Address, firstPort+ports[f.To])
			} else {
				n.apart = fmt.Errorf("%s does not reach %s", f.From, f.To)
			}
			ports[f.To]++
			w.flows = append(w.flows, n)
		}
		p.works = append(p.works, w)
		p.byName[w.spec.Name] = w
	}
}

// schedule has the workload start at its time, unless it is the timeline that starts it.
func (w *work) schedule() {
	if w.spec.Manual {
		return
	}
	w.state = due
	w.start = w.after(w.spec.Start, w.begin)
}

// begin starts the workload.
func (w *work) begin() {
	w.state = running
	if w.rounds++; w.rounds == 1 {
		w.beganAt = w.now()
	}
	messages, bytes, _ := w.soFar()
	w.pace = pace{moved: w.now(), before: messages, told: w.now(), shown: bytes}
	w.publish(event.Event{Kind: event.WorkloadStarted, Node: w.place(), Workload: w.spec.Name, Text: w.announcement()})
	w.under = len(w.flows)
	for _, f := range w.flows {
		f.stopped, f.lost, f.wanted, f.completed = false, false, true, 0
		switch {
		case f.apart != nil:
			f.failed(f.apart)
			f.over()
		case f.serving == served:
			f.run()
		case f.serving == unserved:
			f.serve()
		}
	}
	if w.spec.Operation == topology.Program {
		w.runPrograms()
	}
	w.changed()
}

// over is called when a flow or a program of this round is.
func (w *work) over() {
	w.under--
	if w.under > 0 {
		return
	}
	w.state, w.endedAt = ended, w.now()
	w.tally.endRound()
	text := fmt.Sprintf("workload %s done: %s", w.spec.Name, w.outcome())
	if len(w.flows) > 0 && w.tally.messages == 0 && w.tally.err != "" {
		text = fmt.Sprintf("workload %s failed: %s", w.spec.Name, w.tally.err)
	}
	w.publish(event.Event{Kind: event.WorkloadDone, Node: w.place(), Workload: w.spec.Name, Text: text})
	w.said = text
	w.changed()
}

// stopRound ends the workload because the timeline says so, in good order.
func (w *work) stopRound() {
	switch w.state {
	case due:
		w.stop(w.start)
		w.state, w.said = ended, fmt.Sprintf("workload %s was stopped before it began", w.spec.Name)
		w.changed()
	case running:
		w.stopClients()
	}
}

// stopClients ends the clients and programs of a round in good order.
func (w *work) stopClients() {
	for _, f := range w.flows {
		if f.stopped = true; f.client {
			w.stage.Stop(f.from, w.spec.Name, f.index)
		}
	}
	w.stopPrograms()
}

// abort ends the workload at once.
func (w *work) abort(reason string) {
	for _, f := range w.flows {
		if f.client {
			w.stage.Abort(f.from, w.spec.Name, f.index, reason)
		}
	}
	w.stopPrograms()
}

// serveAll has every server listen.
func (w *work) serveAll() {
	for _, f := range w.flows {
		if f.apart == nil {
			f.serve()
		}
	}
}
