package html

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// mostRows bounds the rows of a table of queues, and of pauses: the worst.
const mostRows = 200

// buffers returns deadlocks, how full buffers were, the queues in them, and who paused whom.
func (s *sheet) buffers() group {
	if len(s.Buffers) == 0 {
		return nil
	}
	queues := report.Queues(s.Buffers)
	body := s.stalls(queues)
	t := &table{name: "Buffers", tall: true, columns: []column{{title: "buffer"}, {title: "size", number: true}, {title: "most held", number: true}}}
	for i := range s.Buffers {
		b := &s.Buffers[i]
		t.add(cell(text(bounded(b.Node, longName))), cell(text(words.BufferSize(b))), cell(text(words.BufferUse(b))))
	}
	body = append(body, t.element())
	if len(queues) > 0 {
		slices.SortStableFunc(queues, report.ByTrouble)
		body = append(body, heading("queue", len(queues)), queueTable(queues[:min(len(queues), mostRows)]))
	}
	if pauses := report.Pauses(s.Buffers); len(pauses) > 0 {
		t := &table{name: "Who paused whom", tall: true, columns: []column{{title: "who"}, {title: "paused"}, {title: "class", number: true}, {title: "how long", number: true}, {title: "frames", number: true}}}
		for _, p := range pauses[:min(len(pauses), mostRows)] {
			t.add(cell(s.at.linked(bounded(p.By, longName))...), cell(s.at.linked(bounded(p.Whom, longName))...), cell(number(p.Class)), cell(text(words.Duration(p.US))), cell(number(p.Frames)))
		}
		body = append(body, heading("pause", len(pauses)), t.element())
	}
	return body
}

// heading returns the heading of a table with the worst of all.
func heading(noun string, all int) *element {
	title := plural(all, noun)
	if all > mostRows {
		title = fmt.Sprintf("The worst %d of %s", mostRows, title)
	}
	return el("h4", text(title))
}

// queueTable returns queues, the worst first.
func queueTable(queues []report.Queue) *element {
	t := &table{name: "Queues", tall: true, columns: []column{{title: "queue"}, {title: "class", number: true}, {title: "packets", number: true}, {title: "bytes", number: true},
		{title: "marked", number: true}, {title: "dropped"}, {title: "length p50", number: true}, {title: "p99", number: true}, {title: "peak", number: true}}}
	for _, q := range queues {
		t.add(cell(text(bounded(q.Endpoint, longName))), cell(number(q.Class)), cell(number(q.Packets)), cell(text(words.Size(q.Bytes))), cell(text(words.Marked(q.BufferClass))),
			cell(text(bounded(words.Drops(q.BufferClass), longName))), cell(text(words.Size(q.Queue.P50))), cell(text(words.Size(q.Queue.P99))), cell(text(words.Size(q.Queue.Peak))))
	}
	return t.element()
}

// stalls returns what did not end by itself: deadlocks, and storms.
func (s *sheet) stalls(queues []report.Queue) group {
	var all group
	tell := func(what string) {
		if len(all) < mostRows {
			all = append(all, el("li", el("strong", class("bad"), text("✗ ")), el("span", s.at.linked(bounded(what, longText))...)))
		}
	}
	for i := range s.Deadlocks {
		tell(words.Deadlock(&s.Deadlocks[i]))
	}
	for _, q := range queues {
		if q.Storms > 0 {
			tell(words.Storms(q))
		}
	}
	if all == nil {
		return nil
	}
	return group{el("ul", append(group{class("failures")}, all...)...)}
}
