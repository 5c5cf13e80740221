// Package scenario plays what a topology says is to be done in a lab that is up: its
// workloads, its timeline and its random events. Then it holds what was measured
// against the topology's checks and makes the report.
//
// It plays on a Stage, which is a running lab (package lab) or a simulation of one
// (package simulate), and takes its time from the stage's clock. It starts no goroutine
// and waits for nothing: whatever takes time has a callback. So a scenario is the same
// on both, and in virtual time the same seed makes the same report.
//
// It does not make the lab or take it down, moves no packet, and writes no file. Package
// internal/node/workload connects and posts; package topology says what the words of a file
// mean.
//
// Start reading at Stage, which others implement, then at Begin.
package scenario

import (
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A Stage is a lab that is up, as far as a scenario needs it: every node is ready but those of Away.
// Nodes are called by their names, links by their indices in the topology.
//
// No method waits, since all are called with the scenario's lock held. A method that
// takes a callback calls it exactly once, later, never from within the call, from any
// goroutine. Nothing but Run and Exec may take long: a stage has a limit of some seconds
// for what a node that is stopped would never answer, and calls back with an error then.
type Stage interface {
	Clock() clock.Clock

	// Serve has a host listen for the client of a flow, until Unserve.
	Serve(node string, spec workload.Spec, at netip.AddrPort, done func(error))
	// Run runs the client of a flow on a host, and calls back when it is done. The error says
	// why it could not be started, or that the node went down; else the result has what
	// went wrong.
	Run(node string, spec workload.Spec, from netip.Addr, to netip.AddrPort, done func(workload.Result, error))
	// Stop ends a client early but in good order. Its result comes soon.
	Stop(node, name string, flow int)
	// Abort ends a client at once. It is Run's callback that tells that it has, with a
	// result or an error, also if the host does not answer.
	Abort(node, name string, flow int, reason string)
	// Unserve ends what Serve began and calls back with what the server found. There is an
	// error if the host was started again since, and what it had found is lost.
	Unserve(node, name string, flow int, done func(workload.ServerResult, error))
	// Progress tells how far the clients on a host are.
	Progress(node string, done func([]workload.Progress, error))

	// Change does to links or to a node what an event says: Set, Down, Up, Reset,
	// Partition, Heal or NodeAction. A node that was started is ready when it calls back.
	Change(e *topology.Event, done func(error))
	// Exec runs a program in a node until it ends by itself, at its timeout, or when
	// cancel is called. A simulation has no programs: it refuses the topology before.
	Exec(node string, c Command, done func(Exit, error)) (cancel func())

	// Nodes is the state and the counters of nodes; nil: of all, in the order of the
	// topology. One that is down or does not answer has the state that says so, and no
	// counters.
	Nodes(names []string, done func([]report.Node))
	// Away is the nodes that somebody has switched off or paused before the play, and wants
	// to stay so.
	Away() []string
	// Links is the state of all links, in the order of the topology.
	Links(done func([]report.Link, error))
	// Buffers has the figures of nodes that have a buffer, the deadlocks that came of pauses, and the course of
	// both over time; nil where nothing has a buffer, or no series was asked for.
	Buffers(done func([]report.Buffer, []report.Deadlock, *report.Series))
	// Adapters is the state of hosts' adapters; nil: of all.
	Adapters(names []string, done func([]report.NodeAdapter))

	// Watch has tell called for everything that happens in the lab from now on, whoever
	// has done it, but what was published here, in order and never from within another
	// method, with the time by the stage's clock. Of these kinds at least: event.LinkChanged,
	// NodeDown, NodeUp, NodePaused and NodeResumed, with Node or Link set.
	Watch(tell func(event.Event)) (stop func())
	// Publish tells those who follow the lab of what the scenario does.
	Publish(event.Event)
}

// A Command is a program to be run in a node.
type Command struct {
	Args    []string
	Env     []string      // NAME=VALUE, beside what every program in the node has
	Timeout time.Duration // after which it is ended, first by SIGTERM; 0: none
	// Ready, if not nil, is called like a callback of Stage, but once at most: when the
	// program is ready as Readiness says, unless it has ended before.
	Ready     func()
	Readiness topology.Readiness
}

// An Exit describes how a program ended.
type Exit struct {
	Status   int    // as shells have it: 128 and the signal's number if one ended it
	Output   string // the last of its standard output, mostOutput lines at most
	Errors   string // the last of its standard error
	TimedOut bool
}
