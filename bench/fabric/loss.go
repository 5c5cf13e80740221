package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ndklab/ndklab/topology"
)

const lossSize = 64 // bytes of payload

// confidence is the number of standard deviations of a normal distribution that
// 99.9 % of it are within, either way.
const confidence = 3.2905

// loss counts which of a million packets arrive.
func loss(ctx context.Context, b *bench) {
	packets := float64(b.pace.lossCount)
	for _, asked := range []float64{0.0001, 0.001, 0.01, 0.1} {
		within := confidence * math.Sqrt(packets*asked*(1-asked))
		low, high := max(0, packets*asked-within), packets*asked+within
		percent := topology.FormatPercent(asked)
		row := Row{
			Part: "loss", What: fmt.Sprintf("of %d packets", b.pace.lossCount), Asked: percent,
			Limit: fmt.Sprintf("%.0f..%.0f lost", math.Ceil(low), math.Floor(high)),
		}
		b.measure(row, func() (finding, error) {
			lost, err := b.lose(ctx, topology.Loss{Rate: asked})
			n := float64(len(lost))
			return finding{
				got:    fmt.Sprintf("%d lost, %.4g %%", len(lost), 100*n/packets),
				ok:     n >= low && n <= high,
				values: map[string]float64{"asked": asked, "lost": n, "packets": packets},
			}, err
		})
	}
}

// The bursts that are asked for.
const (
	burstRate   = 0.1
	burstLength = 5
)

// burst measures how many packets in a row are lost.
func burst(ctx context.Context, b *bench) {
	asked := topology.Loss{Rate: burstRate, Burst: burstLength}
	b.measure(Row{
		Part: "burst", What: "mean, Gilbert-Elliott, 10% lost", Asked: fmt.Sprintf("%d packets", burstLength),
		Limit: fmt.Sprintf("within %.0f %%", 100*b.pace.burstOff),
	}, func() (finding, error) {
		lost, err := b.lose(ctx, asked)
		if err != nil || len(lost) == 0 {
			return finding{got: "none lost"}, err
		}
		bursts := 1
		for i := 1; i < len(lost); i++ {
			if lost[i] != lost[i-1]+1 {
				bursts++
			}
		}
		mean := float64(len(lost)) / float64(bursts)
		return finding{
			got:    fmt.Sprintf("%.3f packets, %.3g %% lost", mean, 100*float64(len(lost))/float64(b.pace.lossCount)),
			ok:     math.Abs(mean/burstLength-1) <= b.pace.burstOff,
			values: map[string]float64{"asked_packets": burstLength, "mean_packets": mean, "lost": float64(len(lost)), "packets": float64(b.pace.lossCount)},
		}, nil
	})
}

// lose sends packets over a link with loss in one direction, and returns the
// numbers of those that did not arrive, ascending.
func (b *bench) lose(ctx context.Context, asked topology.Loss) (lost []int, err error) {
	topo := b.pairTopology(topology.Impairment{})
	topo.Links[0].Directions[0].Loss = asked
	p, err := startPair(ctx, topo)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	l, err := b.count(ctx, p.a, p.b, b.pace.lossCount, 0)
	if err != nil {
		return nil, err
	}
	in, err := p.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	// A loss that nobody asked for would be taken for one that was asked for.
	if d := in.Links[0].Directions[0]; d.Lost > 0 {
		return nil, fmt.Errorf("%d packets were lost otherwise", d.Lost)
	}
	return l.Lost, nil
}

// count sends packets from one place to another, between which there is a delay,
// and says which arrived.
func (b *bench) count(ctx context.Context, from, to place, packets int, delay time.Duration) (*Lost, error) {
	tap, err := to.start(ctx, "tap", "lost", probePort, packets)
	if err != nil {
		return nil, err
	}
	if err := tap.ready(); err != nil {
		return nil, err
	}
	sender, err := from.start(ctx, "send", addresses[1], lossSize, b.pace.lossSegments, packets, b.pace.lossPerSecond)
	if err != nil {
		return nil, err
	}
	if err := sender.wait(); err != nil {
		return nil, err
	}
	if err := pause(ctx, delay+b.pace.settle); err != nil {
		return nil, err
	}
	l := &Lost{}
	return l, tap.result(l)
}
