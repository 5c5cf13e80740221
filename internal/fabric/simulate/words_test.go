package simulate

import (
	"context"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/topology"
)

// overloaded is a write over a slow link with a small queue, that is then cut.
const overloaded = `
name: overloaded
seed: 1
topology:
  nodes: {a: , b: }
  links: [{endpoints: ["a:eth0", "b:eth0"], delay: 1ms, rate: 20mbit, queue: 20KiB}]
workloads:
  - {name: w, from: a, to: b, operation: write, size: 64KiB, depth: 16, qps: 4, duration: 2s}
timeline:
  - {at: 1500ms, link: "a:eth0", from: a, set: {cut: true, loss: 5%}}
`

// A failure says what the links have done to the packets; how long nothing completed
// comes with how long all of it took; and what is set comes beside the mean.
func TestReportOfAnOverload(t *testing.T) {
	topo, err := topology.Parse("overloaded.ndklab.yaml", []byte(overloaded))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), topo, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &r.Workloads[0]
	d := &r.Links[0].Directions[0]
	if d.LostBy.Queue == 0 || d.LostBy.Cut == 0 || w.Error == "" || w.Recovered < 2 {
		t.Fatalf("not what it is about: %+v, link %+v", w, d)
	}
	if want := "; until then, on the way: link a:eth0 to b:eth0: "; !strings.Contains(w.Error, want) ||
		!strings.Contains(w.Error, "lost to a full queue before the rate, ") || !strings.HasSuffix(w.Error, " lost while it was cut") {
		t.Errorf("%q lacks %q and why", w.Error, want)
	}
	var printed strings.Builder
	if err := text.WriteRun(&printed, r, text.Brief); err != nil {
		t.Fatal(err)
	}
	// 5 % is of the packets that met no cut.
	for _, want := range []string{" s from its start to its end", "set now", "mean asked"} {
		if !strings.Contains(strings.Join(strings.Fields(printed.String()), " "), want) {
			t.Errorf("%q is not in\n%s", want, &printed)
		}
	}
	if d.Set == nil || d.Set.Loss == nil || *d.Set.Loss != 0.05 || d.Asked.Loss != nil {
		t.Errorf("set %+v, asked %+v", d.Set, d.Asked)
	}
}
