// Package verbsoak plays random programs of verbs objects on a simulated network and checks them against a model
// after each event, as package soak does with NDKPI.
//
// A scenario is made of a seed and nothing else: hosts, links and their faults, queue pairs of all kinds, what is posted to
// them, the states they are taken through, and what becomes of regions, windows and queues meanwhile. The model is
// written from IBTA Vol. 1, chapters 9 to 11, and knows nothing of how the provider does it. Anything that
// contradicts it ends the trial.
//
// The package checks these rules:
//
//   - after each event, no byte of memory has changed but to what a request that may write there brings; when a request
//     succeeds all of it is there, and when it is over nothing comes any more: its memory gets other contents at
//     once (memory.go);
//   - atomics are applied once each, and return what was there: the words' histories are serial (word.go);
//   - work requests complete once and in order, unsignaled ones not at all unless they fail, with a status that
//     something explains, and with nothing but flushes after the first that fails (judge.go);
//   - a message of a reliable connection is received once and in order; of the others, what arrives by the rules
//     for each packet, and nothing else (arrive.go);
//   - on the wire, sequence numbers have no gaps, what is repeated is the same as before, nothing is acknowledged that
//     has not arrived, and a send queue that drains begins nothing (wire.go);
//   - when the faults are over everything comes to its end, and nothing is left: no object, no timer. Where there
//     were no faults, nothing was lost or sent again (rest.go).
//
// Start reading at Run; run.go is the event loop, plan.go what a seed decides, end.go a queue pair and its states,
// post.go what it is asked for.
package verbsoak

import (
	"io"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// Run plays a seed's scenario. journal, unless it is nil, is written a line for each thing that happens. The error
// is a *trial.Failure, or of the journal.
func Run(seed uint64, journal io.Writer) (trial.Report, error) {
	r := newRun(seed, journal)
	err := r.Attempt(r.play)
	return r.Report(), err
}
