package report

// Awaited is how waiting for a condition ended.
type Awaited struct {
	Lab     string  `json:"lab"`
	Node    string  `json:"node,omitempty"`
	For     string  `json:"for"`
	Reached bool    `json:"reached"`
	Failed  bool    `json:"failed"` // it is a workload that had errors
	Got     string  `json:"got"`
	Seconds float64 `json:"seconds"`
}
