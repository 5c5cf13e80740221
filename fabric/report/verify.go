package report

import (
	"fmt"
	"io"
	"strings"
)

// A Verification is what probes found out about a link.
type Verification struct {
	Lab        string    `json:"lab"`
	Endpoints  [2]string `json:"endpoints"`
	Engine     string    `json:"engine"`
	Passed     bool      `json:"passed"` // every finding has
	Directions [2]Probed `json:"directions"`
}

// Probed is what happened to the probes that one endpoint sent.
type Probed struct {
	From       string    `json:"from"`     // endpoint
	Settings   []string  `json:"settings"` // that the probes met, as "ndklab link set" takes them
	Size       int       `json:"size"`     // of a probe, bytes from the Ethernet header on
	PerSecond  int       `json:"per_second"`
	Sent       int       `json:"sent"`
	Received   int       `json:"received"` // once or more
	Lost       int       `json:"lost"`
	Duplicated int       `json:"duplicated"` // arrivals beyond a probe's first
	Reordered  int       `json:"reordered"`  // probes that arrived behind a later one
	Corrupted  int       `json:"corrupted"`
	Marked     int       `json:"marked"`    // with Congestion Experienced
	Delay      Latency   `json:"delay_us"`  // one way, from the kernel at one end to that at the other; 0 if nothing arrived
	JitterUS   float64   `json:"jitter_us"` // half the range between the 1st and 99th percentile of delay
	RateGbps   *float64  `json:"rate_gbps"` // of a burst, with Ethernet framing; null if there is no rate, or it was not measured
	Remark     string    `json:"remark,omitempty"`
	Findings   []Finding `json:"findings"`
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

// WriteVerification writes what probes found for people. It ends with a line that
// begins with PASS or FAIL.
func WriteVerification(w io.Writer, v *Verification) error {
	p := newPage(w)
	for end, d := range v.Directions {
		t := table{columns: []column{
			{title: v.Endpoints[end] + " -> " + v.Endpoints[1-end]}, {title: "expected", right: true}, {title: "got", right: true}, {title: "verdict"},
		}}
		for _, f := range d.Findings {
			verdict := "ok"
			if !f.Passed {
				verdict = "FAIL"
			}
			t.add(f.Figure, f.Expected, f.Found, verdict)
		}
		p.verdicts(&t)
		p.line("")
		settings := strings.Join(d.Settings, " ")
		if settings == "" {
			settings = "no impairment"
		}
		p.paragraph(v.Engine+": ", fmt.Sprintf("%s; %s of %d B, %d each second; 98 %% of the delays are within %s", settings, plural(d.Sent, "probe"), d.Size, d.PerSecond, Duration(2*d.JitterUS)))
		if d.Remark != "" {
			p.paragraph("", d.Remark)
		}
	}
	p.section()
	link := fmt.Sprintf("link %s to %s of lab %s", v.Endpoints[0], v.Endpoints[1], v.Lab)
	if v.Passed {
		p.line(p.paint.green("PASS") + ": " + link + " does what it is set to")
	} else {
		p.line(p.paint.red("FAIL") + ": " + link + " does not do what it is set to")
		for _, d := range v.Directions {
			for _, f := range d.Findings {
				if !f.Passed {
					p.paragraph("", fmt.Sprintf("of what %s sends: %s: %s, expected %s", d.From, f.Figure, f.Found, f.Expected))
				}
			}
		}
	}
	return p.flush()
}
