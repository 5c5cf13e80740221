package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// Rates are measured by what crosses in rateTime after the first rateWarmUp.
const (
	rateTime   = 2 * time.Second
	rateWarmUp = 500 * time.Millisecond
	rateOff    = 0.01
)

// rate measures how fast packets leave a link whose rate is the bottleneck of
// RDMA WRITE, in bytes on the wire.
func rate(ctx context.Context, b *bench) {
	for _, asked := range b.pace.rates {
		b.measureRate("rate", "wire rate of RDMA WRITE", asked, func() (*crossed, error) {
			topo := b.pairTopology(topology.Impairment{})
			topo.Links[0].Directions[0].Rate = asked
			topo.Workloads = []topology.Workload{{
				Name: "bulk", From: "a", To: "b", Operation: topology.Write, Size: writeSize, Depth: writeDepth(asked),
				Duration: rateWarmUp + rateTime + 500*time.Millisecond,
			}}
			return b.wire(ctx, topo, func(p *pair) error {
				report, err := p.Run(ctx)
				if err == nil && report.Workloads[0].Errors > 0 {
					err = fmt.Errorf("workload: %s", report.Workloads[0].Error)
				}
				return err
			})
		})
	}
}

// writeSize is the length of a message, bytes.
const writeSize = 64 << 10

// writeDepth returns how many messages are in flight: enough to keep a rate busy while
// the sender gets no processor for half a second, few enough not to wait for longer.
func writeDepth(rate uint64) int { return int(max(4, min(rate/2/8/writeSize, 32))) }

// tcp measures the rate of plain TCP.
func tcp(ctx context.Context, b *bench) {
	for _, asked := range b.pace.tcpRates {
		b.measureRate("tcp", "wire rate of TCP ("+tcpTool()+")", asked, func() (*crossed, error) {
			topo := b.pairTopology(topology.Impairment{})
			topo.Links[0].Directions[0].Rate = asked
			return b.wire(ctx, topo, func(p *pair) error {
				_, err := sendTCP(ctx, p.a, p.b, rateWarmUp+rateTime+500*time.Millisecond)
				return err
			})
		})
	}
}

func (b *bench) measureRate(part, what string, asked uint64, f func() (*crossed, error)) {
	text := topology.FormatRate(asked)
	limit := fmt.Sprintf("within %.0f %%", 100*rateOff)
	if b.pace.windows > 0 {
		limit = fmt.Sprintf("never above, best >= -%.0f %%", 100*rateOff)
	}
	b.measure(Row{Part: part, What: what, Asked: text, Limit: limit}, func() (finding, error) {
		w, err := f()
		if err != nil {
			return finding{}, err
		}
		if b.pace.windows > 0 {
			return w.holds(asked, b.pace.windows), nil
		}
		off := w.Rate/float64(asked) - 1
		found := finding{
			got:    fmt.Sprintf("%.6g Mb/s, %+.3f %%", w.Rate/1e6, 100*off),
			ok:     math.Abs(off) <= rateOff,
			values: map[string]float64{"asked_bps": float64(asked), "wire_bps": w.Rate, "packets": float64(w.Packets), "seconds": w.Seconds},
		}
		if off < -rateOff {
			found.why, found.note = blame(&w.left.Sent, &w.Sent, asked, w.Begin, w.End)
			if found.why == "" && w.overrun != "" {
				found.why, found.note = "overrun", found.note+"; "+w.overrun
			}
		}
		return found, nil
	})
}

// crossed describes what crossed a link from a to b.
type crossed struct {
	Wire           // at b
	left    Wire   // at a
	overrun string // what the engine itself reports; "": nothing
}

// holds holds a rate to bounds that it keeps on a busy machine.
func (w *crossed) holds(asked uint64, windows int) finding {
	ahead := excess(&w.left.Sent, &w.Sent, asked)
	most := best(&w.left.Sent, &w.Sent, asked, w.Begin, w.End, windows)
	f := finding{
		got:    fmt.Sprintf("best %+.3f %%, ahead by %.0f bytes", 100*(most/float64(asked)-1), ahead),
		ok:     ahead <= mtu && most >= (1-rateOff)*float64(asked),
		values: map[string]float64{"asked_bps": float64(asked), "best_bps": most, "ahead_bytes": ahead, "packets": float64(w.Packets), "seconds": w.Seconds},
	}
	if most == 0 {
		f.why, f.note = "not offered", fmt.Sprintf("the link had enough to send in none of %d parts of the time", windows)
	}
	return f
}

// wire measures what leaves a and arrives at b while traffic lasts.
func (b *bench) wire(ctx context.Context, topo *topology.Topology, traffic func(*pair) error) (*crossed, error) {
	topo.Links[0].Tolerance = topology.DefaultTolerance
	topo.Links[0].Tolerance.Rate = rateOff
	p, err := startPair(ctx, topo)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var taps [2]*running
	for i, at := range []place{p.a, p.b} {
		if taps[i], err = at.start(ctx, "tap", "wire", []string{"out", "in"}[i], rateWarmUp, rateTime); err != nil {
			return nil, err
		}
		if err := taps[i].ready(); err != nil {
			return nil, err
		}
	}
	if err := traffic(p); err != nil {
		return nil, err
	}
	in, err := p.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	w := &crossed{}
	for _, o := range in.Links[0].Directions[0].Overruns {
		w.overrun = words.Overrun(&o)
	}
	return w, errors.Join(taps[0].result(&w.left), taps[1].result(&w.Wire))
}

// tcpTool returns the program that sends TCP: iperf3 or, where there is none, one of our own.
func tcpTool() string {
	if _, err := exec.LookPath("iperf3"); err != nil {
		return "Go"
	}
	return "iperf3"
}
