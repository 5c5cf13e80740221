// Package workload holds the consumers that a node's agent runs: RDMA traffic
// between two nodes, measured and verified.
//
// A workload has a server, which listens on one node, and a client, which
// connects from another and has something done. Both drive the adapter through its
// callbacks and take their time from a clock, so that they run unchanged in a
// simulation. They know nothing of namespaces and links.
//
// Every end is an endpoint (endpoint.go) with connections (connection.go), and a session on
// each of them. Servers are acceptors (acceptor.go). The clients whose connections stay are
// exchanges (exchange.go), which connect again where that is asked for: streams of sends,
// writes and reads (stream.go, target.go), and what is made of requests and answers
// (requests.go), storage (storage.go) and rping (rpingclient.go). Connection storms
// (storm.go) and all-reduce (ring.go) have clients of their own.
//
// Both ends derive the same pattern from the workload's seed; message i is the
// pattern from an offset that depends on i, so that a byte lost, stale or out of
// place shows. With Verify set every payload is compared, byte for byte, where it
// arrives: at the server for sends and writes, at the client for reads, at either end for
// storage. All-reduce and rping check what they get in any case. Of sends, writes and
// reads an end has memory for twice as many messages as are in flight, of the largest
// size; what nobody compares may lie on top of each other.
//
// A server learns of writes by a short send behind each, if it is to compare or to answer
// them. So the latency of a write, which is half of a round trip, has one in it: a consumer
// that is told of completions cannot look for the last byte in memory, as perftest does.
//
// Start reading at Host.
package workload

import (
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A Spec holds what both ends of one flow of a workload need to know. Where it is like
// topology.Workload, it means the same.
type Spec struct {
	Name      string
	Flow      int // index in topology.Workload's Flows
	Flows     int // how many those are
	Operation topology.Operation
	Measure   topology.Measure // "" is Bandwidth
	Size      uint64           // bytes per message, the largest of Sizes
	Sizes     []uint64         // of a sweep, one after the other, or of a mix; nil: Size alone
	Mixed     bool             // each message has a size drawn from Sizes
	Depth     int              // messages in flight on a QP
	QPs       int              // connections; 0 is 1
	Inline    bool
	SRQ       bool
	Polling   bool
	Rate      uint64        // bits of payload per second at most; 0: no limit
	Count     uint64        // messages; 0: until Duration has passed
	Duration  time.Duration // from when all connections are made
	WarmUp    time.Duration // before that, not measured
	Verify    bool
	Reconnect bool
	Seed      uint64
	// Rank is the place of the flow's client in the ring of an AllReduce, from 0, and Ranks
	// how many there are. Each rank serves for the one before it and runs to the one after it.
	Rank, Ranks int
}

// NewSpec returns the spec of a flow, by index, of a workload whose patterns and draws are to
// come from a seed.
func NewSpec(w *topology.Workload, flow int, seed uint64) Spec {
	s := Spec{
		Name: w.Name, Flow: flow, Flows: len(w.Flows), Operation: w.Operation, Measure: w.Measure,
		Size: w.Size, Sizes: w.Sizes, Mixed: w.Mixed, Depth: w.Depth, QPs: w.QPs,
		Inline: w.Inline, SRQ: w.SRQ, Polling: w.Polling, Rate: w.Rate,
		Count: w.Count, Duration: w.Duration, WarmUp: w.WarmUp,
		Verify: w.Verify, Reconnect: w.Reconnect, Seed: seed,
	}
	if w.Operation == topology.AllReduce {
		s.Rank, s.Ranks = flow, len(w.Flows)
	}
	return s
}

// Result holds what a client measured. Of a workload with WarmUp, Messages, Bytes, Seconds,
// Recovered and Latency are of the time after that.
type Result struct {
	Messages uint64 // completed with success
	Bytes    uint64 // payload of those
	Errors   uint64 // messages that failed, or arrived wrong at the client
	Error    string // the first failure, in words
	Seconds  float64

	// Completed is Messages and those of the warm-up: what the server has verified, if it
	// was asked to.
	Completed uint64

	Connections uint64 // made
	Reconnects  uint64 // of those, in place of failed ones
	Retried     uint64 // messages posted again after those
	// Recovered is the longest time, in seconds, in which nothing completed while there was
	// something to do.
	Recovered float64

	Latency

	// Series is the course of the workload, in pieces of 100 ms that follow each other from
	// when it was started. Of one that takes longer than 2,048 of them, or than the fewer that
	// a workload of more than 2,048 flows has, the pieces are twice as long, and so on.
	Series []Sample
	Steps  []Step // of a sweep: its sizes, as far as they were done
}

// A Sample holds what a client did in a piece of time. Messages of the warm-up count.
type Sample struct {
	At       float64 // seconds since the client was started, where the piece begins
	Seconds  float64 // of its length; the last one is shorter
	Messages uint64
	Bytes    uint64
	Errors   uint64
	P50, P99 float64 // of the latency, in microseconds; 0 if nothing completed
}

// A Step holds what a client measured of one size of a sweep.
type Step struct {
	Size     uint64 // bytes per message
	Messages uint64
	Errors   uint64
	Seconds  float64
	Latency
}

// Latency holds how long messages took from post to completion; if Measure is Latency, half
// of a round trip. Latencies adds up those of several clients and gives percentiles.
type Latency struct {
	LatencyMin, LatencyMax time.Duration
	Histogram              []byte // HDR histogram of nanoseconds, in Latencies' form; nil: no messages
}

// ServerResult holds what a server found.
type ServerResult struct {
	Verified   uint64 // messages compared and right
	Mismatches uint64 // messages compared and wrong
	Error      string // the first failure, in words
}
