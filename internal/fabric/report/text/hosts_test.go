package text

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// The report of a lab over several hosts has them, and what crosses; that of a lab on one has neither.
func TestHosts(t *testing.T) {
	r := &report.Run{
		Lab: "l", Passed: true, Links: []report.Link{{Hosts: &[2]string{"node1", "node2"}}, {}},
		Hosts: []report.RunHost{
			{Name: "node1", Nodes: 3, Cut: 1, CPUs: 1.5, TripUS: 76, OffsetUS: new(float64), OffsetErrorUS: new(4.0)},
			{Name: "node2", Nodes: 2, Cut: 1, CPUs: 64, TripUS: 90},
		},
	}
	var b bytes.Buffer
	if err := WriteRun(&b, r, Full); err != nil {
		t.Fatal(err)
	}
	const want = `host   nodes  cpus  links that cross  round trip      clock
node1      3   1.5                 1     76.0 us  +0 us ± 4
node2      2    64                 1     90.0 us          -
  links that cross hosts: 1 of 2
`
	if !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
	r.Hosts = r.Hosts[:1]
	b.Reset()
	if err := WriteRun(&b, r, Full); err != nil || strings.Contains(b.String(), "node1") {
		t.Errorf("on one host: %v\n%s", err, &b)
	}
}
