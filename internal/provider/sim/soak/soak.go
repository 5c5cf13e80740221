// Package soak plays random scenarios on a simulated network and checks whole
// adapters against a model after each event.
//
// A scenario is made of a seed and nothing else: hosts, links and their faults,
// what the consumers on the hosts do with the provider's public interface, and
// what befalls them: links are cut, hosts restart. In virtual time, a seed
// gives the same run, event for event, wherever and how often it is played. The model knows
// what each byte of memory may be, which requests are posted and how each may
// end; what contradicts it ends the run with a Failure.
//
// The package is about the wire: many adapters and connections, heavy faults.
// Misuse of the interface is tested by package provider's own model.
//
// The package checks these rules:
//
//   - after each event, no byte of memory has changed but to what a request that
//     is in progress brings there, whose token has not ended; when a request
//     succeeds all of it is there, and when its connection is over nothing
//     comes any more (memory.go);
//   - each request completes once and in order, with a status that something
//     explains; none succeeds that should not (judge.go, receive.go);
//   - on the wire, sequence numbers have no gaps, what is repeated is the same as
//     before, nothing is acknowledged that has not arrived (wire.go);
//   - when the faults are over every request comes to its end, what is still
//     connected works in both directions and agrees about sequence numbers, every
//     close completes, and nothing is left: no timer, no object, no read
//     credit (rest.go).
//
// Start reading at Run; run.go is the event loop, plan.go what a seed decides,
// host.go a host and its restarts, action.go what consumers do.
package soak

import (
	"io"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// Run plays a seed's scenario. journal, unless it is nil, is written a line for
// each thing that happens. The error is a *trial.Failure, or of the journal.
func Run(seed uint64, journal io.Writer) (trial.Report, error) {
	r := newRun(seed, journal)
	err := r.Attempt(r.play)
	return r.Report(), err
}
