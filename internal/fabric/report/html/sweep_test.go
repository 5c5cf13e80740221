package html

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/chromium"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/sweep"
)

// swept is a sweep of a workload with a name, in a file with another, over three delays and values.
func swept(t *testing.T, file, workload, path string) *report.Sweep {
	t.Helper()
	s := &report.Sweep{File: file, Lab: "f", Simulated: true, Seed: 1, Repeat: 3, Vary: []report.Axis{
		{Path: "link.delay", Values: []string{"1ms", "10ms", "50ms"}}, {Path: path, Values: []string{"4KiB", "64KiB", "1MiB"}},
	}}
	if err := sweep.Plan(s, func(*report.SweepRun) string { return "ndklab run " + file }); err != nil {
		t.Fatal(err)
	}
	for i := range s.Runs[:len(s.Runs)-1] {
		x := float64(1 + i)
		sweep.Take(s, i, &report.Run{Passed: i != 4, Seconds: x, Workloads: []report.Workload{{
			Name: workload, Operation: "write", Messages: 10, Bytes: 1 << 20, Errors: uint64(i), Gbps: 10 / x, Latency: report.Latency{Min: x, P50: 10 * x, P99: 40 * x, P9999: 50 * x, Max: 60 * x},
		}}})
	}
	s.Runs[len(s.Runs)-1].Result, s.Runs[len(s.Runs)-1].Error = report.RunNotMade, file+": no room"
	sweep.Finish(s)
	return s
}

// A sweep's page is drawn with all of its plots, readable and within its width on a telephone and on a desk, light
// and dark; it asks the network for nothing, logs nothing, and runs nothing that names of files and workloads have.
func TestSweepPage(t *testing.T) {
	const bad = `</style></svg><img src=x onerror="document.title='run'"><script>document.title="run"</script>` + "\u202e"
	b := chromium.Start(t)
	for name, s := range map[string]*report.Sweep{
		"sweep": swept(t, "pair.ndklab.yaml", "bulk", "workload.size"), "hostile": swept(t, bad, bad, bad),
	} {
		plots := sweep.Plots(s)
		path := filepath.Join(t.TempDir(), "sweep.html")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteSweep(f, s, plots); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int{360, 1600} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, scheme, width), func(t *testing.T) {
					b.For(t)
					b.Look(width, 900, scheme)
					b.Open("file://" + path)
					b.Eval(`document.querySelectorAll("details").forEach(d => d.open = true)`, nil)
					b.Painted()
					var wrong []string
					b.Eval(inspect, &wrong)
					for _, w := range wrong {
						t.Error(w)
					}
					var page struct {
						Title          string
						Plots, Scripts int
						Drawn          bool
					}
					b.Eval(`(() => { const all = [...document.querySelectorAll("figure > svg")]; return {
						title: document.title, plots: all.length, scripts: document.querySelectorAll("script, img").length,
						drawn: all.every(s => s.getBBox().width > 300 && s.querySelectorAll("text").length > 5) }; })()`, &page)
					if !strings.HasPrefix(page.Title, "ndklab sweep: ") || page.Plots != len(plots) || page.Plots < 8 || page.Scripts != 0 || !page.Drawn {
						t.Errorf("%+v, want %d plots", page, len(plots))
					}
					quiet(t, b, path)
					keep(t, fmt.Sprintf("%s-%d.png", name+"-"+scheme, width), b.Picture)
				})
			}
		}
	}
	b.For(t)
}
