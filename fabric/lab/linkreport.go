package lab

import (
	"cmp"
	"context"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/fabric/linkreport"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// InspectLinks is the state of every link, in the order of the topology.
func (s *Supervisor) InspectLinks(ctx context.Context) ([]report.Link, error) {
	return s.linkFigures(ctx, nil)
}

// linkFigures is the state of every link, with figures from a beginning on, or from when
// the lab came up if that is nil.
func (s *Supervisor) linkFigures(ctx context.Context, began *beginning) ([]report.Link, error) {
	kernel, err := s.network.Counters()
	if err != nil {
		return nil, err
	}
	links := make([]report.Link, len(s.links))
	for i, l := range s.links {
		var before [2]link.Counters
		if began != nil {
			before = began.links[i]
		}
		links[i] = l.reportSince(kernel[l.spec.Number], before)
	}
	for _, c := range s.carriers() {
		measured, err := c.measure(ctx, began != nil)
		if err != nil {
			return nil, err
		}
		for i, l := range s.links {
			if both, ok := measured[l.name()]; ok {
				for d := range both {
					add(&links[i].Directions[d], &both[d])
				}
			}
		}
	}
	return links, nil
}

// byKernel returns what the kernel has counted in the times when it joined the link. kernel
// holds its counters now. l.mu is held.
func (l *labLink) byKernel(kernel [2]link.Counters) (plain [2]link.Counters) {
	for d := range plain {
		plain[d] = l.carried[d]
		if l.joined {
			l.seen[d] = l.seen[d].Latest(kernel[d]) // which is gone with a node
			plain[d] = plain[d].Add(l.seen[d].Sub(l.base[d]))
		}
	}
	return plain
}

// report returns a link's state and what the kernel has counted while it joined the link.
func (l *labLink) report(kernel [2]link.Counters) report.Link {
	return l.reportSince(kernel, [2]link.Counters{})
}

// reportSince returns the same, less what the kernel had counted before.
func (l *labLink) reportSince(kernel, before [2]link.Counters) report.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := report.Link{Engine: "plain", State: "up"}
	if l.carrier != nil || l.impaired() { // which it will be carried by once a node is back
		r.Engine = cmp.Or(string(l.spec.Engine), string(topology.Linkem))
	}
	if l.off() {
		r.State = "down"
	}
	counted := l.byKernel(kernel)
	for d, e := range l.spec.Endpoints {
		r.Endpoints[d] = e.String()
		plain := counted[d].Sub(before[d])
		r.Directions[d] = report.Direction{
			From: e.String(), Settings: l.asked[d].Settings(), Set: linkreport.Set(l.asked[d]), Packets: plain.Packets, Bytes: plain.Bytes,
			Lost: plain.Lost, LostBy: report.LostBy{Kernel: plain.Lost},
		}
		if l.spec.Engine == topology.Netem {
			l.reportNetem(&r.Directions[d], d, plain)
		}
	}
	return r
}

// add adds what a carrier knows of a direction.
func add(to, from *report.Direction) {
	to.Packets += from.Packets
	to.Bytes += from.Bytes
	to.Dropped += from.Dropped
	to.Lost += from.Lost
	from.LostBy.Kernel += to.LostBy.Kernel
	to.LostBy = from.LostBy
	to.Duplicated, to.Reordered, to.Corrupted, to.Marked, to.Faulted = from.Duplicated, from.Reordered, from.Corrupted, from.Marked, from.Faulted
	to.QueuePeak, to.Lateness, to.Delays, to.Replayed, to.Overruns = from.QueuePeak, from.Lateness, from.Delays, from.Replayed, from.Overruns
	to.Asked, to.Achieved = from.Asked, from.Achieved
}
