package report

import "time"

// An Event is something that happened in a lab.
type Event struct {
	Lab      string    `json:"lab"`
	Time     time.Time `json:"time"`
	Seconds  float64   `json:"seconds"` // since all nodes were ready; 0 before
	Kind     string    `json:"kind"`
	Node     string    `json:"node,omitempty"`
	Link     string    `json:"link,omitempty"` // one of its endpoints
	Workload string    `json:"workload,omitempty"`
	Lost     uint64    `json:"lost,omitempty"` // events between the last one and this
	QP       *QPError  `json:"qp,omitempty"`
	Text     string    `json:"text"`
}

// A QPError is what is known of a queue pair in error, or of how many more there are.
type QPError struct {
	QPN    uint32 `json:"qpn,omitempty"`
	Remote string `json:"remote,omitempty"` // the peer's address
	Reason string `json:"reason,omitempty"`
	More   uint64 `json:"more,omitempty"`
}
