package text

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// writeBuffers writes what befell packets in buffers: how full these were, the queues, who
// paused whom, and deadlocks. Unless the page has all, of many rows of a kind the worst.
func writeBuffers(p *page, r *report.Run) {
	if len(r.Buffers) == 0 {
		return
	}
	writeBufferTable(p, r.Buffers)
	queues := report.Queues(r.Buffers)
	writeQueues(p, queues)
	writePauses(p, report.Pauses(r.Buffers))
	writeStalls(p, queues, r.Deadlocks)
}

// bufferRows returns how many rows writeBuffers takes on a page that has not all of them, and
// whether it leaves some out there.
func bufferRows(r *report.Run) (rows int, leavesOut bool) {
	for _, all := range []int{len(r.Buffers), len(report.Queues(r.Buffers)), len(report.Pauses(r.Buffers)), len(r.Deadlocks)} {
		rows += min(all, few)
		leavesOut = leavesOut || all > few
	}
	return rows, leavesOut
}

// heading is the title of a table of nouns, of which it shows some.
func heading(noun string, shown, all int) string {
	if shown == all {
		return noun
	}
	return fmt.Sprintf("the worst %d\nof %s", shown, words.Plural(all, noun))
}

// worstUnlessFull returns the few of all that come first in an order or, on a full page, all.
func worstUnlessFull[T any](p *page, all []T, order func(a, b T) int) []T {
	if p.full || len(all) <= few {
		return all
	}
	return worst(all, order)
}

func writeBufferTable(p *page, all []report.Buffer) {
	shown := worstUnlessFull(p, all, func(a, b report.Buffer) int {
		return cmp.Or(first(a.Size > 0, b.Size > 0), cmp.Compare(b.Peak, a.Peak))
	})
	t := table{columns: []column{{title: heading("buffer", len(shown), len(all)), wraps: true}, {title: "size", right: true}, {title: "most held", right: true}}}
	for i := range shown {
		t.add(shown[i].Node, words.BufferSize(&shown[i]), words.BufferUse(&shown[i]))
	}
	p.table(&t)
}

func writeQueues(p *page, all []report.Queue) {
	if len(all) == 0 {
		return
	}
	shown := worstUnlessFull(p, all, report.ByTrouble)
	t := table{columns: []column{
		{title: heading("queue", len(shown), len(all)), wraps: true}, {title: "class", right: true}, {title: "packets", right: true}, {title: "marked", right: true},
		{title: "dropped", wraps: true}, {title: "length\np50", right: true}, {title: "p99", right: true}, {title: "peak", right: true},
	}}
	for _, q := range shown {
		t.add(q.Endpoint, strconv.Itoa(q.Class), words.Count(q.Packets), words.Marked(q.BufferClass), words.Drops(q.BufferClass),
			words.Size(q.Queue.P50), words.Size(q.Queue.P99), words.Size(q.Queue.Peak))
	}
	p.table(&t)
}

// writePauses writes who paused whom, the longest first.
func writePauses(p *page, all []report.Pause) {
	if len(all) == 0 {
		return
	}
	shown := all
	if !p.full {
		shown = all[:min(few, len(all))]
	}
	t := table{columns: []column{
		{title: heading("pause", len(shown), len(all)), wraps: true}, {title: "class", right: true}, {title: "how long", right: true}, {title: "frames", right: true},
	}}
	for _, s := range shown {
		t.add(s.By+" paused "+s.Whom, strconv.Itoa(s.Class), words.Duration(s.US), words.Count(s.Frames))
	}
	p.table(&t)
}

// writeStalls writes pauses that did not end by themselves: storms, and deadlocks.
func writeStalls(p *page, queues []report.Queue, deadlocks []report.Deadlock) {
	var lines []string
	for _, q := range queues {
		if q.Storms > 0 {
			lines = append(lines, words.Storms(q))
		}
	}
	for i := range deadlocks {
		lines = append(lines, words.Deadlock(&deadlocks[i]))
	}
	if len(lines) == 0 {
		return
	}
	p.line("")
	for i, text := range lines {
		if !p.full && i == few {
			p.paragraph("", fmt.Sprintf("and %d more", len(lines)-few))
			break
		}
		for _, line := range p.wrapped("", text) {
			p.line(p.paint.red(line))
		}
	}
}
