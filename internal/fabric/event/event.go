// Package event has what happens in a lab: the one form of an event, which the core of labs
// makes, the lab keeps, scenarios make and look at, and `ndklab events` and reports show; and
// the list of the kinds of events.
//
// It neither passes events on nor keeps them. A change that the timeline of a file asks for is
// another thing, a topology.Event.
//
// Start reading at Event, then at Kinds.
package event

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// An Event is something that has happened in a lab.
type Event struct {
	Lab  string    `json:"lab,omitempty"` // "" in a report, which has it once
	Time time.Time `json:"time,omitzero"` // zero in a report, which is the same for the same seed
	// At is the time since all nodes were ready, 0 before: "seconds" in JSON. In a report it is the
	// time since the run began: "at_seconds".
	At       time.Duration     `json:"-"`
	Kind     string            `json:"kind"` // one of Kinds
	Node     string            `json:"node,omitempty"`
	Link     string            `json:"link,omitempty"` // one of its endpoints, node:interface
	Workload string            `json:"workload,omitempty"`
	Lost     uint64            `json:"lost,omitempty"`   // of EventsLost: events between the last one and this
	QP       *provider.QPError `json:"qp,omitempty"`     // of QPError
	Routes   *Routes           `json:"routes,omitempty"` // of RoutesConverged
	Text     string            `json:"text"`             // for people
}

// Routes says what comes of the links that carry packets.
type Routes struct {
	Changed    int `json:"changed_nodes"`      // hosts and routers with other routes
	OutOfReach int `json:"out_of_reach_hosts"` // that most of the others do not reach
}

// InReport returns the event as the report of a run has it, with the time since the run began.
func (e Event) InReport(at time.Duration) Event {
	e.Lab, e.Time, e.At = "", time.Time{}, at
	return e
}

// MarshalJSON implements json.Marshaler.
func (e Event) MarshalJSON() ([]byte, error) {
	type fields Event // without this method
	if e.Lab == "" {
		return json.Marshal(struct {
			Seconds float64 `json:"at_seconds"`
			fields
		}{e.At.Seconds(), fields(e)})
	}
	return json.Marshal(struct {
		Lab     string    `json:"lab"`
		Time    time.Time `json:"time"`
		Seconds float64   `json:"seconds"`
		fields
	}{e.Lab, e.Time, e.At.Seconds(), fields(e)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Event) UnmarshalJSON(data []byte) error {
	type fields Event // without this method
	in := struct {
		Seconds   float64 `json:"seconds"`
		AtSeconds float64 `json:"at_seconds"` // instead
		*fields
	}{fields: (*fields)(e)}
	err := json.Unmarshal(data, &in)
	e.At = time.Duration(math.Round((in.Seconds + in.AtSeconds) * 1e9))
	return err
}

// OfQPError returns the event of a queue pair in error.
func OfQPError(node string, err provider.QPError) Event {
	text := fmt.Sprintf("node %s: queue pair %d to %s is in error: %s", node, err.Number, err.Remote, err.Reason)
	if err.More > 0 {
		text = fmt.Sprintf("node %s: %d more queue pairs are in error", node, err.More)
	}
	return Event{Kind: QPError, Node: node, QP: &err, Text: text}
}
