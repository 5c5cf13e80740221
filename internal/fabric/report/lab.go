package report

// A Lab is one that is up, in a list of those.
type Lab struct {
	Lab   string
	Seed  uint64
	State string
	Nodes int
	Links int
	Up    float64 // seconds since all nodes were ready; 0 before
	// Dilation is the factor by which the lab is slower than its file says; 0: it is not.
	Dilation int
	// Of the nodes, those that are down and those that are paused.
	Down   int
	Paused int
	Labels map[string]string
}

// Awaited tells how waiting for a condition ended.
type Awaited struct {
	Lab     string  `json:"lab"`
	Node    string  `json:"node,omitempty"`
	For     string  `json:"for"`
	Reached bool    `json:"reached"`
	Failed  bool    `json:"failed"` // it is a workload that had errors
	Got     string  `json:"got"`
	Seconds float64 `json:"seconds"`
}

// A LogLine is a line of a lab's log.
type LogLine struct {
	Lab  string `json:"lab"`
	Text string `json:"text"`
}
