package scenario

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// This file takes a flow through a round: its server listens, its client runs, its server
// ends and says what it has found.

// serve has the flow's server listen. A client that waits for that runs then.
func (f *flow) serve() {
	f.serving = answerPending
	callback := f.loop.awaited()
	f.stage.Serve(f.to, f.workloadSpec(), f.at, func(err error) {
		callback(func() {
			f.serving = served
			if err != nil {
				f.serving = unserved
			}
			f.answered(err)
		})
	})
}

// answered goes on when it is known whether the flow is served.
func (f *flow) answered(err error) {
	switch {
	case f.ending:
		f.ending = false
		f.unserve()
	case f.client: // which reconnects, to a node that has started again
		if err != nil {
			f.failed(fmt.Errorf("node %s has started again, but does not serve: %w", f.to, err))
		}
	case !f.wanted: // ahead of its time; if that went wrong it is tried again then
	case err != nil:
		f.wanted = false
		f.failed(err)
		f.endOne()
	default:
		f.run()
	}
}

func (f *flow) workloadSpec() workload.Spec {
	return workload.NewSpec(f.spec, f.index, f.topo.SeedOf("workload "+f.spec.Name))
}

// run runs the flow's client.
func (f *flow) run() {
	f.wanted = false
	if f.loop.interrupted || f.stopped {
		f.unserve()
		return
	}
	f.client, f.began = true, f.loop.now()
	callback := f.loop.awaited()
	f.stage.Run(f.from, f.workloadSpec(), f.local, f.at, func(result workload.Result, err error) {
		callback(func() {
			f.client, f.progress = false, workload.Progress{}
			if err != nil {
				f.failed(err)
			} else {
				f.completed = result.Completed
				f.totals.add(&result, f.began)
				f.workloadRun.totals.add(&result, f.began)
				f.note(result.Error)
			}
			f.unserve()
		})
	})
}

// failed records why the flow could not do what it was to do.
func (f *flow) failed(err error) {
	f.totals.errors++
	f.workloadRun.totals.errors++
	f.note(err.Error())
}

// note keeps what went wrong first, for the flow and for the workload.
func (f *flow) note(text string) {
	if text == "" {
		return
	}
	if f.workloadRun.totals.err == "" {
		f.explain()
	}
	f.totals.note(text)
	f.workloadRun.totals.note(f.qualified(text))
}

// explain asks what links have lost until now, since something went wrong.
func (f *flow) explain() {
	callback := f.loop.awaited()
	f.stage.Links(func(all []report.Link, err error) {
		callback(func() {
			if err == nil { // else there is nothing to say, and gather meets the same
				f.losses = lossesBetween(f.topo, all, []string{f.from, f.to})
			}
		})
	})
}

// noteServer keeps what went wrong at the server, behind what its client knows of: that
// may be no more than that the server is gone.
func (f *flow) noteServer(text string) {
	text = "at the server: " + text
	before := f.totals.err
	if before == "" {
		f.note(text)
		return
	}
	f.totals.err += "; " + text
	if f.workloadRun.totals.err == f.qualified(before) {
		f.workloadRun.totals.err = f.qualified(f.totals.err)
	}
}

// qualified returns what went wrong with the flow as its workload says it.
func (f *flow) qualified(text string) string {
	if len(f.flows) > 1 {
		return fmt.Sprintf("%s to %s: %s", f.from, f.to, text)
	}
	return text
}

// unserve ends the flow's server, and with that the flow's round.
func (f *flow) unserve() {
	switch f.serving {
	case unserved: // its node went down
		f.found(workload.ServerResult{}, nil)
		return
	case answerPending: // again, after its node had gone down
		f.ending = true
		return
	}
	f.serving = answerPending
	callback := f.loop.awaited()
	f.stage.Unserve(f.to, f.spec.Name, f.index, func(result workload.ServerResult, err error) {
		callback(func() {
			f.serving = unserved
			f.found(result, err)
		})
	})
}

// found adds what the server has found in this round: sends and writes are verified
// where they arrive.
func (f *flow) found(r workload.ServerResult, err error) {
	defer f.endOne()
	atServer := f.spec.Verify && (f.spec.Operation == topology.Send || f.spec.Operation == topology.Write)
	switch {
	case f.lost && f.spec.Reconnect: // the workload is to get over that
		f.unproven = f.unproven || atServer
	case err != nil:
		f.unproven = true
		f.failed(err)
		return
	case f.lost && atServer:
		f.unproven = true
		f.failed(fmt.Errorf("node %s went down, and what its server had found is lost", f.to))
		return
	}
	f.totals.errors += r.Mismatches
	f.workloadRun.totals.errors += r.Mismatches
	if r.Error != "" {
		f.noteServer(r.Error)
	}
	if short := f.completed - min(r.Verified, f.completed); atServer && !f.unproven && short > 0 && f.totals.errors == 0 {
		f.totals.errors += short
		f.workloadRun.totals.errors += short
		f.note(fmt.Sprintf("%d of %d messages were not verified", short, f.completed))
	}
}

// dismiss ends the flow's server if no client has come to it.
func (f *flow) dismiss() {
	if f.serving != served {
		return
	}
	f.serving = answerPending
	callback := f.loop.awaited()
	f.stage.Unserve(f.to, f.spec.Name, f.index, func(workload.ServerResult, error) {
		callback(func() { f.serving = unserved })
	})
}

// nodeDown takes the end of a node: its servers have gone. Clients of these that do not
// connect again have a while to notice that. The node's own clients call back by themselves.
func (ws *workloads) nodeDown(name string) {
	for _, w := range ws.all {
		for _, f := range w.flows {
			if f.to == name {
				f.serverDown()
			}
		}
	}
}

// serverDown takes the end of the server's node.
func (f *flow) serverDown() {
	if f.serving == unserved {
		return
	}
	if f.serving == served {
		f.serving = unserved
	}
	if !f.client {
		return
	}
	f.lost = true
	if round := f.rounds; !f.spec.Reconnect {
		f.loop.background(noticeTime, func() {
			if f.client && f.rounds == round {
				f.stage.Abort(f.from, f.spec.Name, f.index, fmt.Sprintf("node %s went down", f.to))
			}
		})
	}
}

// nodeUp has a node that has started again serve what it is still needed for.
func (ws *workloads) nodeUp(name string) {
	for _, w := range ws.all {
		for _, f := range w.flows {
			if f.to == name && f.serving == unserved && !ws.loop.interrupted && (f.client && w.spec.Reconnect || w.state == scheduled) {
				f.serve()
			}
		}
	}
}
