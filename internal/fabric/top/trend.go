package top

import (
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/live"
)

// trends are the last rates of nodes, links and workloads, by table and key.
type trends map[tab]map[string]*trend

// A trend is the last values of a rate, in a ring.
type trend struct {
	values [keptValues]float32
	next   int // the place of the next value
	count  int
	seen   bool // by the last sample
}

// keptValues is the number of samples that a trend has.
const keptValues = 40

// add adds the rates of a sample, and forgets what is gone.
func (t trends) add(of *live.Map, s *live.Sample) {
	for _, table := range []tab{nodesTab, linksTab, flowsTab} {
		if t[table] == nil {
			t[table] = make(map[string]*trend)
		}
		shown := model{of: of, sample: s}
		for _, r := range shown.all(table) {
			one := t[table][r.key]
			if one == nil {
				one = &trend{}
				t[table][r.key] = one
			}
			one.values[one.next] = float32(r.rate)
			one.next = (one.next + 1) % keptValues
			one.count = min(one.count+1, keptValues)
			one.seen = true
		}
		for key, one := range t[table] {
			if !one.seen {
				delete(t[table], key)
			}
			one.seen = false
		}
	}
}

// bars are the heights of a sparkline.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// line returns the last values as a sparkline of a width, up to the largest of them.
func (t *trend) line(width int) string {
	if t == nil {
		return ""
	}
	n := min(width, t.count)
	last := make([]float32, n)
	highest := float32(0)
	for i := range last {
		last[i] = t.values[(t.next-n+i+keptValues)%keptValues]
		highest = max(highest, last[i])
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-n))
	for _, v := range last {
		at := 0
		if v > 0 { // also the least is seen
			at = max(1, int(v/highest*float32(len(bars)-1)+0.5))
		}
		b.WriteRune(bars[at])
	}
	return b.String()
}
