package series

// A Series has queues, pauses and rates over time, in columns of as many numbers as there
// are points, one after each period; the first is about the time from the run's beginning. Queues in
// which nothing was, and queue pairs that had no rate, are not in it.
type Series struct {
	PeriodUS float64       `json:"period_us"`
	Points   int           `json:"points"`
	Queues   []QueueSeries `json:"queues,omitempty"`
	Rates    []RateSeries  `json:"rates,omitempty"`
}

// A QueueSeries is a queue over time: a class at an endpoint.
type QueueSeries struct {
	Endpoint string    `json:"endpoint"`
	Class    int       `json:"class"`
	Bytes    []uint64  `json:"bytes,omitempty"`  // that it held at the end of each period; absent: never any
	Paused   []float64 `json:"paused,omitempty"` // share of each period, 0 to 1, in which it was; absent: never
}

// A RateSeries is the congestion control of a queue pair over time, at the end of each period.
type RateSeries struct {
	Node   string   `json:"node"`
	Peer   string   `json:"peer"`
	QP     uint32   `json:"qp"`
	BPS    []uint64 `json:"bps"`                  // that it may send, in bits per second
	Target []uint64 `json:"target_bps,omitempty"` // that the rate recovers to; absent: none
}
