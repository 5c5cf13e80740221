package text

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// A Detail says how much of a report is written.
type Detail int

const (
	// Brief has totals, the worst rows and what failed, of a report whose rows would not fit a
	// screen. Of links that left their tolerance it tells how late packets left, and how much
	// waited there.
	Brief Detail = iota
	// Full has all rows, and tells that of every link.
	Full
)

const (
	screen = 30 // rows that a brief report may have; most take one or two lines
	few    = 5  // rows of each kind that a report has which does not fit
)

// fits reports whether the rows of a report fit a screen. Its events are not among them,
// which are bounded.
func fits(r *report.Run) bool {
	rows := len(r.Workloads) + len(r.Checks) + len(r.Problems)
	for i := range r.Workloads {
		w := &r.Workloads[i]
		if len(w.Flows) > 1 {
			rows += min(len(w.Flows), mostFlows)
		}
		rows += len(w.Steps)
	}
	buffers, _ := bufferRows(r)
	return rows+rowsOf(r.Nodes, r.Links)+buffers <= screen
}

// rowsOf returns how many rows nodes and links take: each direction of a link has one.
func rowsOf(nodes []report.Node, links []report.Link) int { return len(nodes) + 2*len(links) }

// worst returns the few of all that come first in an order.
func worst[T any](all []T, order func(a, b T) int) []T {
	sorted := slices.SortedStableFunc(slices.Values(all), order)
	return sorted[:min(few, len(all))]
}

// worstWorkloads returns those that failed, then the slowest.
func worstWorkloads(all []report.Workload) []report.Workload {
	return worst(all, func(a, b report.Workload) int {
		return cmp.Or(first(a.Failed(), b.Failed()), cmp.Compare(b.Errors, a.Errors), first(a.Moves(), b.Moves()), cmp.Compare(a.Gbps, b.Gbps))
	})
}

// worstNodes returns nodes of which something is to be said: those that are not as they
// should be, then those whose connections failed, then those whose packets did.
func worstNodes(all []report.Node) []report.Node {
	bad := slices.DeleteFunc(slices.Clone(all), func(n report.Node) bool {
		return !unwell(&n) && failures(&n) == 0 && troubles(&n) == 0
	})
	return worst(bad, func(a, b report.Node) int {
		return cmp.Or(first(unwell(&a), unwell(&b)), cmp.Compare(failures(&b), failures(&a)), cmp.Compare(troubles(&b), troubles(&a)))
	})
}

// unwell reports whether a node is not ready, or is not healthy.
func unwell(n *report.Node) bool {
	return n.State != "" && n.State != core.NodeIsReady || n.Reason != "" || n.Restarts > 0 || n.Health != nil && n.Health.State == "unhealthy"
}

// failureCounters are the counters of NDIS that count what failed.
var failureCounters = []string{"ConnectFailure", "ConnectionError", "CQError"}

// failures returns how many connections and queues of a node failed.
func failures(n *report.Node) (sum uint64) {
	for _, name := range failureCounters {
		sum += n.Counters[name]
	}
	return sum
}

// troubles returns how often something went wrong with the packets of a node.
func troubles(n *report.Node) (sum uint64) {
	for _, t := range transportTroubles {
		sum += n.Transport[t.name]
	}
	return sum
}

// A side is one direction of a link, of what endpoint end sends.
type side struct {
	*report.Link
	end int
}

// name names the direction by the ends of its link.
func (s side) name() string { return s.Endpoints[s.end] + " -> " + s.Endpoints[1-s.end] }

func (s side) direction() *report.Direction { return &s.Directions[s.end] }

// sides returns both directions of links.
func sides(links []report.Link) []side {
	var all []side
	for i := range links {
		all = append(all, side{&links[i], 0}, side{&links[i], 1})
	}
	return all
}

// worstSides returns directions of which something is to be said: those that left their
// tolerance, then those that are down, then those that lost most, for whatever reason or
// because they were asked to.
func worstSides(all []side) []side {
	bad := slices.DeleteFunc(slices.Clone(all), func(s side) bool {
		d := s.direction()
		return len(d.Overruns) == 0 && s.State == "up" && d.Lost == 0 && d.Dropped == 0
	})
	return worst(bad, func(a, b side) int {
		x, y := a.direction(), b.direction()
		return cmp.Or(cmp.Compare(len(y.Overruns), len(x.Overruns)), first(a.State != "up", b.State != "up"),
			cmp.Compare(y.Lost, x.Lost), cmp.Compare(y.Dropped, x.Dropped))
	})
}

// first orders what is so before what is not.
func first(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}

// workloadTotals sums workloads up.
func workloadTotals(all []report.Workload) string {
	failed, verified := 0, 0
	var messages, bytes, errors uint64
	slowest, fastest := -1.0, 0.0
	for i := range all {
		w := &all[i]
		messages, bytes, errors = messages+w.Messages, bytes+w.Bytes, errors+w.Errors
		if w.Failed() {
			failed++
		}
		if w.Verified {
			verified++
		}
		if w.Moves() {
			if slowest < 0 || w.Gbps < slowest {
				slowest = w.Gbps
			}
			fastest = max(fastest, w.Gbps)
		}
	}
	text := words.Plural(len(all), "workload") + ": "
	if failed == 0 {
		text += "none failed"
	} else {
		text += fmt.Sprintf("%d failed, with %s", failed, words.Plural(int(errors), "error"))
	}
	if verified > 0 {
		text += fmt.Sprintf(", %d verified", verified)
	}
	text += fmt.Sprintf("; %s, %s", words.Plural(int(messages), "message"), words.Size(bytes))
	if slowest >= 0 {
		text += fmt.Sprintf("; throughput of each %s to %s", words.Rate(slowest), words.Rate(fastest))
	}
	return text
}

// nodeTotals sums nodes up.
func nodeTotals(all []report.Node) string {
	ready, failed := 0, uint64(0)
	counted := map[string]uint64{}
	for i := range all {
		n := &all[i]
		if !unwell(n) {
			ready++
		}
		failed += failures(n)
		for name, value := range n.Transport {
			counted[name] += value
		}
	}
	text := fmt.Sprintf("%s: %d ready", words.Plural(len(all), "node"), ready)
	if ready < len(all) {
		text += fmt.Sprintf(", %d not, or started again", len(all)-ready)
	}
	connects, _ := report.Sum(all, "Connect")
	text += fmt.Sprintf("; %s", words.Plural(int(connects), "connection"))
	if failed > 0 {
		text += fmt.Sprintf(", %s of connections and queues", words.Plural(int(failed), "failure"))
	}
	parts := []string{words.Count(counted["packets_sent"]) + " packets sent"}
	return text + "; " + strings.Join(append(parts, packetTrouble(counted)...), ", ")
}

// linkTotals sums links up.
func linkTotals(links []report.Link) string {
	down, overran := 0, 0
	var packets, bytes, dropped, lost uint64
	for i := range links {
		if links[i].State != "up" {
			down++
		}
		for _, d := range links[i].Directions {
			packets, bytes, dropped, lost = packets+d.Packets, bytes+d.Bytes, dropped+d.Dropped, lost+d.Lost
			if len(d.Overruns) > 0 {
				overran++
			}
		}
	}
	text := words.Plural(len(links), "link") + ": "
	if down == 0 {
		text += "all up"
	} else {
		text += fmt.Sprintf("%d down", down)
	}
	text += fmt.Sprintf("; %s, %s; %s dropped as asked, %s lost", words.Plural(int(packets), "packet"), words.Size(bytes), words.Count(dropped), words.Count(lost))
	if overran > 0 {
		text += fmt.Sprintf("; %s out of tolerance", words.Plural(overran, "direction"))
	}
	return text
}

// checkTotals sums checks up.
func checkTotals(checks []report.Check) string {
	failed := 0
	for _, c := range checks {
		if !c.Passed {
			failed++
		}
	}
	if failed == 0 {
		return words.Plural(len(checks), "check") + ": all passed"
	}
	return fmt.Sprintf("%s: %d failed", words.Plural(len(checks), "check"), failed)
}

// hasAdapter reports whether a node has counters of an adapter.
func hasAdapter(n *report.Node) bool {
	return n.Kind != string(topology.Switch) && n.Kind != string(topology.Router)
}
