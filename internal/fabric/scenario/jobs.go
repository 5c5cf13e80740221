package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/figures"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file runs the programs of a workload: all at once or, of a server and its clients, the
// server first and the clients when it is ready.

// Bounds on the times of servers and clients by the machine, beside the timeout of every program.
const (
	// readyTime bounds how long a server may take until it is ready.
	readyTime = time.Minute
	// lingerTime bounds how long a server may go on after its last client has ended: one that
	// serves them alone ends by itself.
	lingerTime = 2 * time.Second
)

// A job is one of a workload's programs in a round.
type job struct {
	*workloadRun
	index   int      // among the workload's nodes
	program *program // nil before it has begun
	began   time.Duration
	// ended says why the play has ended it: then its status does not matter. "": it has not.
	ended   string
	exit    report.Program
	figures figures.Figures
	known   bool // it has printed figures
}

// jobs are the programs of a workload.
type jobs struct {
	all     []*job // of this round
	clients int    // of this round that run; of a server and its clients
	begun   bool   // the clients have, in this round

	over   int    // in all rounds: programs that have ended
	failed int    // of those
	status int    // the first that is not 0
	known  bool   // one has ended, so that there is a status
	output string // the last of what they printed
}

// runPrograms starts a round of the workload's programs.
func (w *workloadRun) runPrograms() {
	w.left = len(w.spec.Nodes)
	w.jobs.all, w.jobs.begun = nil, false
	for i, node := range w.spec.Nodes {
		j := &job{workloadRun: w, index: i}
		j.exit = report.Program{Node: node, Server: j.isServer(), Command: w.spec.CommandOf(i)}
		w.jobs.all = append(w.jobs.all, j)
	}
	if w.spec.Commands != nil {
		w.runServer()
		return
	}
	for _, j := range w.jobs.all {
		j.run(nil)
	}
}

// isServer reports whether the others are clients of the job.
func (j *job) isServer() bool { return j.spec.Commands != nil && j.index == 0 }

// runServer starts the server, and its clients when it is ready.
func (w *workloadRun) runServer() {
	server, round := w.jobs.all[0], w.rounds
	server.run(w.runClients)
	w.loop.background(w.loop.ofMachine(readyTime), func() {
		if w.rounds == round && !w.jobs.begun && server.runs() {
			server.failed(errors.New(w.notReady()))
			server.stop("since it was not ready")
		}
	})
}

// notReady returns the fault of a server that does not become ready.
func (w *workloadRun) notReady() string {
	where := ""
	if port := w.spec.Ready.Port; port != 0 {
		where = fmt.Sprintf(" at port %d", port)
	}
	return fmt.Sprintf("it did not listen%s within %s: a server that never does has `ready: started`", where, topology.FormatDuration(readyTime))
}

// runClients starts the clients of a server that is ready.
func (w *workloadRun) runClients() {
	x := &w.jobs
	if x.begun || x.all[0].ended != "" || w.loop.interrupted {
		return
	}
	x.begun, x.clients = true, len(x.all)-1
	for _, j := range x.all[1:] {
		j.run(nil)
	}
}

func (j *job) run(ready func()) {
	j.began = j.loop.now()
	c := Command{Args: j.exit.Command, Env: j.programs.environment(j.exit.Node, j.spec.Nodes), Timeout: j.spec.Timeout, Ready: ready, Readiness: j.spec.Ready}
	j.program = j.programs.run(j.exit.Node, c, func(e Exit, err error) {
		j.totals.longest = max(j.totals.longest, (j.loop.now() - j.began).Seconds())
		j.exited(&e, err)
		if j.spec.Commands != nil {
			j.endOthers()
		}
		j.endOne()
	})
}

// runs reports whether the job's program has begun and not ended.
func (j *job) runs() bool { return j.program != nil && j.programs.running[j.program] }

// stop ends the job's program, if it runs.
func (j *job) stop(why string) {
	if j.runs() && j.ended == "" {
		j.ended = why
		j.program.cancel()
	}
}

// exited takes how the job's program has ended.
func (j *job) exited(e *Exit, err error) {
	x := &j.jobs
	x.over++
	if err == nil {
		status := e.Status
		j.exit.ExitStatus, j.exit.Output, j.exit.Errors = &status, lastOf(e.Output), lastOf(e.Errors)
		if !x.known || x.status == 0 && j.ended == "" {
			x.status, x.known = e.Status, true
		}
		j.figures, j.known = figures.Parse(e.Output)
		err = e.problem(j.spec.Timeout)
		x.keepOutput(j, err != nil)
	}
	j.exit.Ended = j.ended
	switch {
	case errors.Is(err, ErrInterrupted) || j.ended != "":
	case err != nil:
		j.failed(err)
	case j.isServer() && !x.begun:
		j.failed(errors.New("it ended before it was ready for its clients"))
	}
}

// keepOutput keeps what a program has printed as that of the workload, unless it is a server's
// that did well and a client has printed something.
func (x *jobs) keepOutput(j *job, failed bool) {
	if j.isServer() && !failed && x.output != "" {
		return
	}
	for _, text := range []string{j.exit.Output, j.exit.Errors} {
		if text != "" {
			x.output = text
			return
		}
	}
}

// failed records why the job's program has failed.
func (j *job) failed(err error) {
	j.exit.Error = err.Error()
	j.jobs.failed++
	j.totals.errors++
	j.totals.note(fmt.Sprintf("node %s: %v", j.exit.Node, err))
}

// endOthers ends those whom the end of a server or of a client leaves without a purpose:
// clients that cannot begin, those whose server has failed, and a server that nobody needs.
func (j *job) endOthers() {
	x, round := &j.jobs, j.rounds
	switch {
	case j.isServer() && !x.begun:
		x.begun = true
		j.left -= len(x.all) - 1 // they do not begin
	case j.isServer() && j.exit.Error != "":
		j.loop.background(noticeTime, func() {
			for _, client := range x.all[1:] {
				if j.rounds == round {
					client.stop("after its server had failed")
				}
			}
		})
	case !j.isServer():
		if x.clients--; x.clients == 0 {
			j.loop.background(j.loop.ofMachine(lingerTime), func() {
				if j.rounds == round {
					x.all[0].stop("after its last client")
				}
			})
		}
	}
}

func (w *workloadRun) stopPrograms() {
	for _, j := range w.jobs.all {
		j.stop("with the workload")
	}
}

// mostOutput bounds the lines that a report has of what a program printed.
const mostOutput = 200

func lastOf(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-mostOutput):], "\n")
}

// result fills in how the programs ended and what they have measured.
func (x *jobs) result(r *report.Workload) {
	if x.known {
		status := x.status
		r.ExitStatus, r.Output = &status, x.output
	}
	for _, j := range x.all {
		r.Programs = append(r.Programs, j.exit)
	}
	if f := x.measured(); f != nil {
		r.Messages, r.Bytes, r.Gbps, r.MessageRate, r.Latency, r.Steps = f.Messages, f.Bytes, f.Gbps, f.MessageRate, f.Latency, f.Steps
	}
}

// measured returns the figures of the last round: of the clients together or, where they have
// printed none, of their server. It is nil if there are none.
func (x *jobs) measured() *figures.Figures {
	measured := slices.DeleteFunc(slices.Clone(x.all), func(j *job) bool { return !j.known })
	if len(measured) == 0 {
		return nil
	}
	if len(measured) > 1 && measured[0].isServer() {
		measured = measured[1:]
	}
	var sum figures.Figures
	for _, j := range measured {
		sum.Add(&j.figures)
	}
	return &sum
}
