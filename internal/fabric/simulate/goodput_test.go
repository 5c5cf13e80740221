package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/provider"
)

// This file says which share of a link's capacity the workloads of a linkPlan get. The capacity
// is known of
//   - a workload that runs alone: the link, what the workload has outstanding, or at first the
//     window, which grows with each round trip, bounds it;
//   - workloads that run at the same time, whose data goes the same direction, and each of which
//     has enough outstanding to fill the link alone: the link is full from the first to the last.

// leastGoodput is the share that each must get, but for one round trip: the last answer finds
// nothing to be sent any more.
const leastGoodput = 0.95

// Reasons for which the capacity of a link is not known.
const (
	rateChanged  = "the rate changed"
	bothWays     = "data went both ways, and acknowledgements with it"
	notFilling   = "one that cannot fill the link shared it"
	linkWasEmpty = "one connected while the link was empty"
	creditShared = "its queue pairs waited for credit"
)

// A goodput holds what has been judged.
type goodput struct {
	judged   []judgement
	shared   int            // of the judged, that several workloads shared the link
	unjudged map[string]int // workloads, by the reason
}

// A judgement is of workloads that ran at the same time.
type judgement struct {
	plan        *linkPlan // with the rate that the link had
	works       []int
	share       float64
	took, least float64 // seconds
}

func (j judgement) String() string {
	s := fmt.Sprintf("mtu %d, delay %v, rate %.0f: took %.6f s for what takes %.6f s:", j.plan.mtu, j.plan.delay, j.plan.rate, j.took, j.least)
	for _, i := range j.works {
		s += fmt.Sprintf(" %+v", j.plan.works[i])
	}
	return s
}

func (g *goodput) add(o *goodput) {
	g.judged = append(g.judged, o.judged...)
	g.shared += o.shared
	for reason, n := range o.unjudged {
		g.leave(reason, n)
	}
}

func (g *goodput) leave(reason string, works int) {
	if g.unjudged == nil {
		g.unjudged = map[string]int{}
	}
	g.unjudged[reason] += works
}

func (g *goodput) String() string {
	if len(g.judged) == 0 {
		return "no goodput judged"
	}
	worst := slices.MinFunc(g.judged, func(a, b judgement) int {
		if a.share < b.share {
			return -1
		}
		return 1
	})
	works := 0
	for i := range g.judged {
		works += len(g.judged[i].works)
	}
	s := fmt.Sprintf("%d workloads, in %d cases several together, got %.3f of what their link carries at least (seed %d); not judged",
		works, g.shared, worst.share, worst.plan.seed)
	var reasons []string
	for reason, n := range g.unjudged {
		reasons = append(reasons, fmt.Sprintf(" %d: %s", n, reason))
	}
	slices.Sort(reasons)
	return s + strings.Join(reasons, ",")
}

// judge judges what has run, all of it without an error.
func (p *linkPlan) judge(r *report.Run) (g goodput) {
	var together []int
	end := 0.0
	done := func() {
		if len(together) > 0 {
			p.judgeTogether(&g, r, together)
		}
		together = nil
	}
	for _, i := range p.inOrder(r) {
		w := &r.Workloads[i]
		if w.Began >= end {
			done()
		}
		together = append(together, i)
		end = max(end, w.Ended)
	}
	done()
	return g
}

// inOrder is the workloads in the order in which they began.
func (p *linkPlan) inOrder(r *report.Run) []int {
	order := make([]int, len(p.works))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if r.Workloads[a].Began < r.Workloads[b].Began {
			return -1
		}
		return 1
	})
	return order
}

// judgeTogether judges workloads that ran at the same time, in the order in which they began.
func (p *linkPlan) judgeTogether(g *goodput, r *report.Run, works []int) {
	first := &r.Workloads[works[0]]
	start, end := first.Ended-first.Seconds, first.Ended
	link := *p
	for _, c := range p.changes {
		if c.at <= first.Began {
			link.rate = c.rate
		}
	}
	least, _ := link.least(&p.works[works[0]])
	for n, i := range works {
		w, plan := &r.Workloads[i], &p.works[i]
		_, fills := link.least(plan)
		switch {
		case plan.qps > 1 && link.outstanding(plan) > provider.DefaultReceiveBuffer:
			g.leave(creditShared, len(works))
			return
		case len(works) == 1:
		case plan.dataFrom() != p.works[works[0]].dataFrom():
			g.leave(bothWays, len(works))
			return
		case !fills:
			g.leave(notFilling, len(works))
			return
		case w.Ended-w.Seconds > end:
			g.leave(linkWasEmpty, len(works))
			return
		}
		if n > 0 {
			_, busy := link.roundTrip(plan)
			least += float64(plan.count) * busy
		}
		end = max(end, w.Ended)
	}
	for _, c := range p.changes {
		if c.at > first.Began && c.at < end {
			g.leave(rateChanged, len(works))
			return
		}
	}
	roundTrip, _ := link.roundTrip(&p.works[works[0]])
	took := end - start
	g.judged = append(g.judged, judgement{&link, works, least / max(took-roundTrip, least/100), took, least})
	if len(works) > 1 {
		g.shared++
	}
}

// dataFrom is the node that a workload's data comes from.
func (w *workPlan) dataFrom() string {
	if w.operation == "read" {
		return w.to
	}
	return w.from
}

// cost returns what a message counts in the window, in bytes.
func (p *linkPlan) cost(w *workPlan) float64 {
	return float64(w.size + p.packets(w)*rc.PacketOverhead)
}

// packets returns the number of packets that a message takes.
func (p *linkPlan) packets(w *workPlan) int {
	payload := rcPayload(p.mtu)
	return (w.size + payload - 1) / payload
}

// outstanding returns what a workload may have in flight at the most, likewise.
func (p *linkPlan) outstanding(w *workPlan) float64 {
	const chunk = 32 // packets that a READ on the wire asks for, of which there are 4 for each READ
	depth := float64(min(w.depth, w.count/w.qps))
	if w.operation == "read" {
		onWire := float64((p.packets(w) + chunk - 1) / chunk)
		depth = min(depth, readDepth, 4*readDepth/onWire)
	}
	return p.cost(w) * depth * float64(w.qps)
}

// least returns the least time that a workload takes alone, in seconds, and whether it fills the
// link. The bytes that may be in flight grow with each round trip, from a few packets on a path of
// which nothing is known (rc, window.go), up to what the workload has outstanding.
func (p *linkPlan) least(w *workPlan) (took float64, fills bool) {
	const (
		few    = 4       // packets
		queue  = 1 << 20 // bytes of a queue pair that wait where the path is short
		credit = provider.DefaultReceiveBuffer
		crowd  = credit * 1e-9 // seconds: several queue pairs take a shorter path for a queue
	)
	roundTrip, busy := p.roundTrip(w)
	payload := rcPayload(p.mtu)
	cost, qps := p.cost(w), float64(w.qps)
	outstanding, left := p.outstanding(w), cost*float64(w.count)
	perByte := busy / cost
	window := few * float64(payload+rc.PacketOverhead) * qps
	for round := 0; left > 0; round++ {
		flight := min(window, outstanding, left)
		if flight*perByte >= roundTrip {
			return took + roundTrip + left*perByte - busy, true
		}
		if flight == left {
			return took + roundTrip + max(0, flight*perByte-busy), false
		}
		if flight == outstanding {
			return took + math.Ceil(left/outstanding)*roundTrip, false
		}
		took += roundTrip
		left -= flight
		switch {
		case round == 0:
			window = min(credit, queue*qps)
		case w.qps == 1 || roundTrip > crowd:
			window += min(credit, max(queue*qps, window))
		}
	}
	return took, false
}
