package report

// A LogLine is a line of a lab's log.
type LogLine struct {
	Lab  string `json:"lab"`
	Text string `json:"text"`
}
