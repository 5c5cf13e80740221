package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// A Need is memory that a simulation takes for something, in bytes.
type Need struct {
	What  string
	Bytes uint64
}

// Upper bounds of the memory that parts of a simulation take, in bytes. TestEstimate compares
// them with what they do take.
const (
	baseTakes = 4 << 20   // the program, and a topology
	nodeTakes = 160 << 10 // a host with its adapter, or a switch
	wireTakes = 24 << 10  // a direction of a link, and its figures
	flowTakes = 10 << 10  // both ends of a flow, and its results
	laneTakes = 9 << 10   // a connection of a flow
	slotTakes = 700       // a message that a connection has room for, without its payload
	collected = 1 + collectAt/100.

	packetTakes  = 320  // one under way, without its payload
	mostPayload  = 4096 // of a packet
	leastPayload = 64   // that, with its headers, counts in a queue

	// For each KiB that can enter a direction of a link in a window: what is logged of it at both ends, and the packets that wait
	// for the end of the window.
	loggedTakes = 350
)

// Garbage is collected when the memory in use has grown by collectAt percent, in a process
// that runs a simulation of large bytes at least, which makes little of it.
const (
	collectAt = 15
	large     = 256 << 20
)

// Estimate lists the memory that a simulation of a topology takes in so many shards, the most first. It errs
// on the side of too much.
func Estimate(t *topology.Topology, shards int) []Need {
	var flows, lanes, payload, scratch, patterns, underWay, queued, logged uint64
	for i := range t.Workloads {
		w := &t.Workloads[i]
		if len(w.Flows) == 0 {
			continue
		}
		s := workload.NewSpec(w, 0, 0)
		n := uint64(len(w.Flows))
		flows += n * flowTakes
		lanes += n * uint64(max(1, s.QPs)) * (laneTakes + slotTakes*s.SlotsOfChannel())
		ends, pattern := s.Memory()
		if patterns += pattern; s.Verify {
			payload += n * ends
		} else {
			scratch = max(scratch, ends)
		}
		each := min(s.Size, mostPayload)
		packets := n * uint64(max(1, s.QPs)) * uint64(max(1, s.Depth)) * max(1, min(s.Size, 8<<20)/mostPayload)
		queued += packets * max(leastPayload, each)
		underWay += packets * packetTakes
		if !s.FromPattern() {
			underWay += packets * each
		}
	}
	held, window := uint64(0), longestWindow(t)
	for i := range t.Nodes {
		if b := t.Nodes[i].Buffer; b != nil && b.Size != nil {
			held += *b.Size
		} else if b != nil {
			held += mmu.UsualSize
		}
		if t.Nodes[i].Kind == topology.Host {
			held += uint64(adapter.Config(&t.Nodes[i].Adapter).ReceiveBuffer)
		}
	}
	for i := range t.Links {
		for _, d := range t.Links[i].Directions {
			rate := d.Rate
			if rate == 0 {
				rate = dataplane.PlainRate
			}
			held += uint64(d.Delay.Seconds()*float64(rate)/8) + d.Queue.Bytes
			logged += uint64(window.Seconds()*float64(rate)/8/1024) * loggedTakes
		}
	}
	if shards == 1 {
		logged = 0
	}
	if queued > held { // the rest waits for them, or is lost
		underWay = uint64(float64(underWay) * float64(held) / float64(queued))
	}
	needs := []Need{
		{"hosts, switches and links", baseTakes + uint64(len(t.Nodes))*nodeTakes + uint64(2*len(t.Links))*wireTakes},
		{fmt.Sprintf("%d flows", countFlows(t)), flows + lanes},
		{"messages that are compared (verify)", payload},
		{"patterns of messages", patterns + uint64(shards)*scratch},
		{"packets under way", underWay + logged},
	}
	for i := range needs {
		needs[i].Bytes = uint64(collected * float64(needs[i].Bytes))
	}
	slices.SortStableFunc(needs, func(a, b Need) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return needs
}

func countFlows(t *topology.Topology) (n int) {
	for i := range t.Workloads {
		n += len(t.Workloads[i].Flows)
	}
	return n
}

func total(needs []Need) (sum uint64) {
	for _, n := range needs {
		sum += n.Bytes
	}
	return sum
}

// fits says why a simulation is not begun that takes more memory than there is; 0 is as
// much as one likes.
func fits(needs []Need, available uint64) error {
	sum := total(needs)
	if available == 0 || sum <= available {
		return nil
	}
	return &NoMemoryError{Need: sum, Available: available, Most: needs[0]}
}

// A NoMemoryError reports that a simulation takes more memory than there is.
type NoMemoryError struct {
	Need, Available uint64 // bytes
	Most            Need   // of Need
}

// Error says what takes most, and what to do.
func (e *NoMemoryError) Error() string {
	return fmt.Sprintf("the simulation would take about %s of memory, %s are available; %s take %s: fewer hosts or flows, a smaller size, depth or qps, or no verify take less",
		words.Size(e.Need), words.Size(e.Available), e.Most.What, words.Size(e.Most.Bytes))
}
