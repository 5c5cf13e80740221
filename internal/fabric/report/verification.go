package report

// A Verification holds what probes found out about a link.
type Verification struct {
	Lab        string    `json:"lab"`
	Endpoints  [2]string `json:"endpoints"`
	Engine     string    `json:"engine"`
	Passed     bool      `json:"passed"` // every finding has
	Directions [2]Probed `json:"directions"`
}

// Probed describes what happened to the probes that one endpoint sent.
type Probed struct {
	From       string   `json:"from"`     // endpoint
	Settings   []string `json:"settings"` // that the probes met, as "ndklab link set" takes them
	Size       int      `json:"size"`     // of a probe, bytes from the Ethernet header on
	PerSecond  int      `json:"per_second"`
	Sent       int      `json:"sent"`
	Received   int      `json:"received"` // once or more
	Lost       int      `json:"lost"`
	Duplicated int      `json:"duplicated"` // arrivals beyond a probe's first
	Reordered  int      `json:"reordered"`  // probes that arrived behind a later one
	Corrupted  int      `json:"corrupted"`
	Marked     int      `json:"marked"`    // with Congestion Experienced
	Delay      Latency  `json:"delay_us"`  // one way, from the kernel at one end to that at the other; 0 if nothing arrived
	JitterUS   float64  `json:"jitter_us"` // half the range between the 1st and 99th percentile of delay
	// ClockErrorUS is by how much delays may be wrong, either way, of a link between two hosts, whose clocks measure them. The bounds
	// in findings are as much wider. It is missing of a link within a host.
	ClockErrorUS *float64  `json:"clock_error_us,omitempty"`
	RateGbps     *float64  `json:"rate_gbps"` // of a burst, with Ethernet framing; null if there is no rate, or it was not measured
	Remark       string    `json:"remark,omitempty"`
	Findings     []Finding `json:"findings"`
}

// A Finding holds one figure against what the settings ask for.
type Finding struct {
	Figure   string  `json:"figure"`
	Low      float64 `json:"low"` // microseconds, packets or Gb/s, as is what follows
	High     float64 `json:"high"`
	Got      float64 `json:"got"`
	Passed   bool    `json:"passed"`
	Expected string  `json:"expected"` // Low to High in words
	Found    string  `json:"found"`    // Got in words
}
