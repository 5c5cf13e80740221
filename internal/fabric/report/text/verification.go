package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// WriteVerification writes what probes found for people. It ends with a line that
// begins with PASS or FAIL.
func WriteVerification(w io.Writer, v *report.Verification) error {
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
		p.paragraph(v.Engine+": ", fmt.Sprintf("%s; %s of %d B, %d each second; 98 %% of the delays are within %s", settings, words.Plural(d.Sent, "probe"), d.Size, d.PerSecond, words.Duration(2*d.JitterUS)))
		if d.ClockErrorUS != nil {
			p.paragraph("", fmt.Sprintf("the ends are at two hosts, whose clocks measure the delays: these may be wrong by %s, and so much wider is what is expected of them", words.Duration(*d.ClockErrorUS)))
		}
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
