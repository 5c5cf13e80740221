package simulate

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// Links on which answers wait behind more than a peer is waited for that says nothing: behind
// data that the peer itself sends, behind READs, and the answer to a connect behind 30 s of data.
var behindQueues = []uint64{555, 928, 1298, 1013}

var (
	soakLinks = flag.Uint64("links", 300, "how many random links TestCleanLinks tries")
	soakFirst = flag.Uint64("first", 1, "the seed of the first")
	soakSeed  = flag.Uint64("seed", 0, "try the link of this seed alone, and with -v show its topology and report")
)

const readDepth = 16 // READs that a queue pair may have outstanding

// TestCleanLinks: on links that lose nothing nothing is sent again, whatever their rate,
// delay and queue, whether the queue pairs are the first there or not, and though the
// rate changes by three orders of magnitude while they run; and what the links can carry
// is made use of. Where queues overflow, hardly anything is sent again but what is lost.
//
// No peer is given up there, whatever its answers wait behind.
//
// Where a queue overflows, retries may be used up, and an answer to a probe that was lost
// may be taken for the one to the next: 1 % of what is sent again may be spurious.
// Goodput is not judged there. goodput_test.go says where it is.
func TestCleanLinks(t *testing.T) {
	if *soakSeed != 0 {
		r, err := tryLink(*soakSeed)
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s", r.file)
		if r.run != nil {
			t.Logf("%s", lines(t, r.run))
		}
		return
	}
	var (
		next     atomic.Uint64
		failures atomic.Int32
		workers  sync.WaitGroup
		mu       sync.Mutex // guards total
		total    trial
	)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for failures.Load() < 40 {
				n := next.Add(1) - 1
				if n >= *soakLinks {
					return
				}
				r, err := tryLink(*soakFirst + n)
				if err != nil {
					failures.Add(1)
					t.Errorf("%v\nto replay:\n  go test ./internal/fabric/simulate -run TestCleanLinks -v -seed %d", err, *soakFirst+n)
				}
				mu.Lock()
				total.add(r)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("seeds from %d: %v", *soakFirst, &total)
	if 100*total.spurious > total.sentAgain {
		t.Error("more than one in a hundred packets that were sent again were not lost")
	}
	if total.clean == 0 || total.overflowed == 0 || len(total.goodput.judged) == 0 {
		t.Error("some kind of link has not been tried")
	}
}

// TestPeersBehindQueues: nor is a peer given up whose answers wait behind the data of others.
func TestPeersBehindQueues(t *testing.T) {
	for _, seed := range behindQueues {
		if _, err := tryLink(seed); err != nil {
			t.Error(err)
		}
	}
}

// A trial sums up runs over links.
type trial struct {
	clean, overflowed    int // links without and with packets dropped at a full queue
	packets              uint64
	retransmitted        uint64 // on clean links
	dropped, sentAgain   uint64 // on the others
	spurious, duplicates uint64
	timeouts             uint64
	gaveUp, cleanGaveUp  int // links on which a peer was given up, and the clean ones of them
	goodput              goodput

	file string
	run  *report.Run
}

func (a *trial) add(b *trial) {
	a.clean += b.clean
	a.overflowed += b.overflowed
	a.packets += b.packets
	a.retransmitted += b.retransmitted
	a.dropped += b.dropped
	a.sentAgain += b.sentAgain
	a.spurious += b.spurious
	a.duplicates += b.duplicates
	a.timeouts += b.timeouts
	a.gaveUp += b.gaveUp
	a.cleanGaveUp += b.cleanGaveUp
	a.goodput.add(&b.goodput)
}

func (a *trial) String() string {
	return fmt.Sprintf("%d clean links, on which %d packets were sent again; %d whose queue overflowed: %d packets dropped there, %d sent again; "+
		"on all of them %d packets, %d timeouts, %d spurious retransmissions, %d duplicates; %d links on which a peer was given up, %d of them clean; %v",
		a.clean, a.retransmitted, a.overflowed, a.dropped, a.sentAgain, a.packets, a.timeouts, a.spurious, a.duplicates, a.gaveUp, a.cleanGaveUp, &a.goodput)
}

// tryLink runs the workloads of a seed on its link. The error says what is wrong.
func tryLink(seed uint64) (*trial, error) {
	p := newLinkPlan(seed)
	result := &trial{file: p.file()}
	topo, err := topology.Parse("soak.ndklab.yaml", []byte(result.file))
	if err != nil {
		return result, fmt.Errorf("seed %d: %w", seed, err)
	}
	r, err := Run(context.Background(), topo.Draw(seed), Options{})
	if err != nil {
		return result, fmt.Errorf("seed %d: %w", seed, err)
	}
	result.run = r
	var again uint64
	for i := range r.Nodes {
		c := r.Nodes[i].Transport
		again += c["retransmitted"]
		result.spurious += c["spurious_retransmissions"]
		result.duplicates += c["duplicates"]
		result.timeouts += c["timeouts"]
		result.packets += c["packets_sent"]
	}
	failure := ""
	for i := range r.Workloads {
		if w := &r.Workloads[i]; w.Errors > 0 {
			result.gaveUp, failure = 1, w.Name+": "+w.Error
		}
	}
	for i := range r.Links[0].Directions {
		result.dropped += r.Links[0].Directions[i].Lost
	}
	switch {
	case len(r.Problems) > 0:
		err = fmt.Errorf("%s", strings.Join(r.Problems, "; "))
	case result.dropped == 0 && result.spurious+result.duplicates > 0:
		err = fmt.Errorf("%d spurious retransmissions, %d duplicates, where %d packets were dropped", result.spurious, result.duplicates, result.dropped)
	case result.dropped == 0 && again > 0:
		err = fmt.Errorf("%d packets sent again, nothing was lost", again)
	}
	if result.dropped > 0 {
		result.overflowed, result.sentAgain = 1, again
	} else {
		result.clean, result.retransmitted, result.cleanGaveUp = 1, again, result.gaveUp
		if err == nil && result.gaveUp > 0 {
			err = fmt.Errorf("a peer was given up on a link that loses nothing: %s", failure)
		}
	}
	if err != nil {
		return result, fmt.Errorf("seed %d: %w", seed, err)
	}
	if result.dropped > 0 {
		return result, nil
	}
	result.goodput = p.judge(r)
	for _, g := range result.goodput.judged {
		if g.share < leastGoodput {
			return result, fmt.Errorf("seed %d: %v", seed, g)
		}
	}
	return result, nil
}

// A linkPlan holds what a seed decides of a link, and its workloads.
type linkPlan struct {
	seed    uint64
	rate    float64 // bits per second
	delay   time.Duration
	queue   string
	mtu     int
	works   []workPlan
	changes []rateChange
}

type workPlan struct {
	from, to         string
	operation        string
	size, depth, qps int
	count            int // messages of all queue pairs
	start            float64
}

type rateChange struct {
	at   float64 // seconds
	rate float64
}

func newLinkPlan(seed uint64) *linkPlan {
	random := rand.New(rand.NewPCG(seed, 0x11A7))
	logarithmic := func(low, high float64) float64 { return low * math.Pow(high/low, random.Float64()) }
	pick := func(of ...int) int { return of[random.IntN(len(of))] }
	p := &linkPlan{
		seed: seed,
		rate: math.Round(logarithmic(1e6, 100e9)),
		mtu:  pick(1500, 2200, 4200, 4200),
	}
	if random.IntN(8) > 0 {
		p.delay = time.Duration(logarithmic(1e3, 200e6))
	}
	switch random.IntN(3) {
	case 0:
		p.queue = fmt.Sprintf(", queue: %dB", int(logarithmic(64<<10, 64<<20)))
	case 1:
		p.queue = fmt.Sprintf(", queue: %dpackets", int(logarithmic(16, 16384)))
	}
	start := 0.0
	for range 1 + random.IntN(3) {
		w := workPlan{
			from: "a", to: "b", operation: []string{"write", "write", "read", "send"}[random.IntN(4)],
			size: int(logarithmic(1, 1<<20)), depth: int(logarithmic(1, 65)), qps: pick(1, 1, 1, 2, 4, 16), start: start,
		}
		if random.IntN(4) == 0 {
			w.from, w.to = "b", "a"
		}
		const packets = 3000
		w.count = max(1, min(packets*rcPayload(p.mtu)/w.size, packets)/w.qps) * w.qps
		p.works = append(p.works, w)
		took := p.ideal(&w)
		if random.IntN(4) == 0 {
			start += random.Float64() * took // while this one runs
		} else {
			start += 1.2*took + 1
		}
	}
	if random.IntN(3) == 0 {
		for at := 0.0; len(p.changes) < 1+random.IntN(6); {
			at += random.Float64() * start / 4
			rate := min(max(p.rate*logarithmic(1e-3, 1e3), 1e6), 100e9)
			p.changes = append(p.changes, rateChange{at, math.Round(rate)})
		}
	}
	return p
}

// rcPayload is the payload of a full packet.
func rcPayload(mtu int) int {
	payload := 256
	for payload*2+96 <= mtu {
		payload *= 2
	}
	return payload
}

func (p *linkPlan) file() string {
	var b strings.Builder
	fmt.Fprintf(&b, "topology:\n  nodes: {a: , b: }\n  links:\n    - {endpoints: [\"a:eth0\", \"b:eth0\"], mtu: %d, delay: %dns, rate: %.0fbit%s}\nworkloads:\n",
		p.mtu, p.delay.Nanoseconds(), p.rate, p.queue)
	for i, w := range p.works {
		fmt.Fprintf(&b, "  - {name: w%d, operation: %s, from: %s, to: %s, size: %dB, depth: %d, qps: %d, count: %d, start: %dus}\n",
			i, w.operation, w.from, w.to, w.size, w.depth, w.qps, w.count, int(w.start*1e6))
	}
	if len(p.changes) > 0 {
		fmt.Fprintf(&b, "timeline:\n")
		for _, c := range p.changes {
			fmt.Fprintf(&b, "  - {at: %dus, link: \"a:eth0\", set: {rate: %.0fbit}}\n", int(c.at*1e6), c.rate)
		}
	}
	return b.String()
}

// roundTrip returns the shortest time that a message takes, in seconds, and the time for
// which it keeps the link busy, in the direction where that is longer.
func (p *linkPlan) roundTrip(w *workPlan) (took, busy float64) {
	const (
		headers = 14 + 20 + 8 + 12 + 4 // Ethernet, IPv4, UDP, BTH, ICRC
		reth    = 16                   // of the first packet of a WRITE, and of what asks for a READ
		aeth    = 4                    // of an acknowledgement, and of the first and last packet of a READ
	)
	payload := rcPayload(p.mtu)
	packets := (w.size + payload - 1) / payload
	last := (w.size - (packets-1)*payload + 3) &^ 3
	there, back := 0, impair.WireBytes(headers+aeth)
	switch w.operation {
	case "write":
		last += reth
	case "read":
		there, back = impair.WireBytes(headers+reth), 0
		last += aeth
	}
	wire := (packets-1)*impair.WireBytes(headers+payload) + impair.WireBytes(headers+last)
	perByte := 8 / p.rate
	took = float64(there+wire+back)*perByte + 2*p.delay.Seconds() + 2*(turnaround+wavering).Seconds()
	return took, float64(max(there, wire)) * perByte
}

// ideal returns the shortest time that a workload takes, in seconds: the link bounds it, or
// what it has outstanding in a round trip.
func (p *linkPlan) ideal(w *workPlan) float64 {
	roundTrip, busy := p.roundTrip(w)
	outstanding := w.depth
	if w.operation == "read" {
		outstanding = min(outstanding, readDepth)
	}
	return float64(w.count) * max(busy, roundTrip/float64(outstanding*w.qps))
}
