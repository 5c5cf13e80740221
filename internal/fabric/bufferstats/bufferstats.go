// Package bufferstats has the figures of packet buffers: those of a switch whose ports share one, of queues in it, and
// of deadlocks among such queues.
//
// The driver of a buffer observes its queues and fills the figures in (package dataplane); reports have them as they are
// here. The package does no I/O and knows of neither.
//
// Start reading at Buffer; lengths.go has how long queues were.
package bufferstats

import (
	"fmt"
	"strings"
)

// A Buffer counts the packets that waited in a node: in a switch or router whose ports share a packet
// buffer, or in a host's adapter beside one.
type Buffer struct {
	Node  string `json:"node"`
	Size  uint64 `json:"size,omitempty"` // bytes; 0: of a host, which is not bounded
	Peak  uint64 `json:"peak"`           // bytes held at most
	Ports []Port `json:"ports"`
}

// A Port is a port of such a node. Classes in which nothing happened are not in it.
type Port struct {
	Interface string  `json:"interface"`
	Peer      string  `json:"peer"` // the endpoint at the other end of the link
	Classes   []Class `json:"classes"`
}

// A Class is a class at a port. Packets, queue and drops are of the direction that leaves by the port.
// Rx is about PFC frames that came in, and the pauses of that direction; Tx is about frames sent, and the
// pauses of the other direction.
type Class struct {
	Class         int               `json:"class"`
	Packets       uint64            `json:"packets"`
	Bytes         uint64            `json:"bytes"`            // of those, on the wire
	Marked        uint64            `json:"marked,omitempty"` // of those, with Congestion Experienced
	Dropped       map[string]uint64 `json:"dropped,omitempty"`
	RxPauses      uint64            `json:"rx_pauses,omitempty"` // PFC frames, those that end a pause included
	RxPauseUS     float64           `json:"rx_pause_us,omitempty"`
	RxTransitions uint64            `json:"rx_transitions,omitempty"` // pauses that ended
	TxPauses      uint64            `json:"tx_pauses,omitempty"`
	TxPauseUS     float64           `json:"tx_pause_us,omitempty"`
	TxTransitions uint64            `json:"tx_transitions,omitempty"`
	Storms        uint64            `json:"storms,omitempty"` // that the watchdog found
	Queue         QueueLength       `json:"queue"`
	IngressPeak   uint64            `json:"ingress_peak,omitempty"`  // bytes that had come in by the port, headroom included
	HeadroomPeak  uint64            `json:"headroom_peak,omitempty"` // of those, in the headroom
}

// A ClassPause says how long a class was paused so far, in microseconds.
type ClassPause struct {
	Class int    `json:"class"`
	US    uint64 `json:"us"`
}

// A QueueLength has percentiles of a queue's length, in bytes. Percentiles are over the time from its first
// packet to its last.
type QueueLength struct {
	P50  uint64 `json:"p50"`
	P99  uint64 `json:"p99"`
	Peak uint64 `json:"peak"`
}

// A Deadlock is queues of which each was paused until the next moved, and the last until the first did.
type Deadlock struct {
	AtUS   float64  `json:"at_us"` // since the run's beginning
	Class  int      `json:"class"`
	Queues []string `json:"queues"` // endpoints by which they leave, in the order in which each waits for the next
}

// Drops returns how many packets of the queue were dropped, for whatever reason.
func (c *Class) Drops() (sum uint64) {
	for _, n := range c.Dropped {
		sum += n
	}
	return sum
}

// String tells of the deadlock as it is found.
func (d *Deadlock) String() string {
	return fmt.Sprintf("deadlock in class %d: %s", d.Class, d.Cycle())
}

// Cycle names the queues in their order, the first again behind the last.
func (d *Deadlock) Cycle() string {
	text := strings.Join(d.Queues, " -> ")
	if len(d.Queues) > 0 {
		text += " -> " + d.Queues[0]
	}
	return text
}
