package series

// A Series has what goes on in a run over time, in columns of as many numbers as there are points, one after each period; the
// first is about the time from the run's beginning. It has nothing of queues, queue pairs and links that never had anything, and no columns of zeros alone.
type Series struct {
	PeriodUS float64           `json:"period_us"`
	Points   int               `json:"points"`
	Queues   []QueueSeries     `json:"queues,omitempty"`
	Pairs    []PairSeries      `json:"rates,omitempty"` // named when it had rates alone
	Links    []DirectionSeries `json:"links,omitempty"`
	// Watched has the queue pairs and links of a lab, whose nodes are asked for them: its period is longer. It is null in a
	// simulation, which has all by one period.
	Watched *Series `json:"watched,omitempty"`
}

// Parts returns the series and what it has by another period.
func (s *Series) Parts() []*Series {
	switch {
	case s == nil:
		return nil
	case s.Watched == nil:
		return []*Series{s}
	}
	return []*Series{s, s.Watched}
}

// A QueueSeries is a queue over time: a class at an endpoint.
type QueueSeries struct {
	Endpoint string    `json:"endpoint"`
	Class    int       `json:"class"`
	Bytes    []uint64  `json:"bytes,omitempty"`  // that it held at the end of each period
	Paused   []float64 `json:"paused,omitempty"` // share of each period, 0 to 1, in which it was
}

// A PairSeries says how a queue pair sent over time.
type PairSeries struct {
	Node string `json:"node"`
	Peer string `json:"peer"`
	QP   uint32 `json:"qp"`
	// At the end of each period: what its congestion control lets it send, in bits per second, what that recovers to, and what
	// may be in flight, in bytes.
	BPS    []uint64 `json:"bps,omitempty"`
	Target []uint64 `json:"target_bps,omitempty"`
	Window []uint64 `json:"window_bytes,omitempty"`
	// In each period: congestion notifications that it was sent, and packets that it sent again.
	CNPs          []uint64 `json:"cnps,omitempty"`
	Retransmitted []uint64 `json:"retransmitted,omitempty"`
}

// A DirectionSeries is the packets over time that one endpoint of a link sent and that did not arrive.
type DirectionSeries struct {
	From    string   `json:"from"`
	Dropped []uint64 `json:"dropped,omitempty"` // in each period, by asked-for loss
	Lost    []uint64 `json:"lost,omitempty"`    // in each period, for any other reason
}
