package scenario

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// spuriousCounter is the counter that a default check is about.
const spuriousCounter = "spurious_retransmissions"

// mostSpurious is the share of packets that may be sent again for nothing where nothing
// was lost in a real lab: a process that does not get a processor in time may cause some.
// A transport that is wrong about a path repeats itself far more often. In virtual time
// every process has its processor, and none may be.
const mostSpurious = 0.001

// spurious describes packets that were sent again although they had arrived, if a run has
// too many of them; "" if not, or if links, hosts or shared buffers lost anything, or checks of the file say
// how many there may be.
func spurious(topo *topology.Topology, r *report.Run) string {
	for i := range r.Links {
		for d := range r.Links[i].Directions {
			if x := &r.Links[i].Directions[d]; x.Dropped+x.Lost+x.Duplicated+x.Reordered+x.Corrupted+x.Faulted > 0 {
				return ""
			}
		}
	}
	if drops, _ := inBuffer(r.Buffers, topology.BufferDrops); drops > 0 {
		return ""
	}
	var sent, again uint64
	for i := range r.Nodes {
		t := r.Nodes[i].Transport
		if t["receive_overflow"]+t["send_dropped"]+t["icrc_errors"] > 0 || r.Nodes[i].Restarts > 0 {
			return ""
		}
		if !bounded(topo, r.Nodes[i].Name) {
			sent += t["packets_sent"]
			again += t[spuriousCounter]
		}
	}
	most := mostSpurious * float64(sent)
	if r.Simulated {
		most = 0
	}
	if float64(again) <= most {
		return ""
	}
	return fmt.Sprintf("spurious retransmissions: %d of %d packets were sent again though they had arrived, and nothing was lost on any link; a check of the counter %s allows some", again, sent, spuriousCounter)
}

// bounded reports whether a check has a bound of its own for the node's spurious
// retransmissions at the end, or for those of all.
func bounded(topo *topology.Topology, node string) bool {
	return slices.ContainsFunc(topo.Checks, func(c topology.Check) bool {
		return c.Counter == spuriousCounter && (c.Node == "" || c.Node == node) && c.Snapshot == "" && c.At == 0
	})
}
