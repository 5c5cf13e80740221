package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// Bounds on the cost of an unimpaired pass through the engine.
const (
	passageRounds = 3
	pollingLimit  = 40 * time.Microsecond
	blockingLimit = 65 * time.Microsecond
	writeShare    = 0.75 // of a bare forwarder's RDMA WRITE
	tcpLimit      = 8e9  // payload bits per second
)

// passage measures what a pass through the engine costs that changes nothing. Each
// round has all carriers, so that a busy host is so for all; of the rounds, the
// middle one counts.
func passage(ctx context.Context, b *bench, r *rig) {
	unimpaired := byEngine(seed, topology.Impairment{})
	for _, ends := range []struct {
		how   string
		limit time.Duration
	}{{polling, pollingLimit}, {blocking, blockingLimit}} {
		b.measure(Row{
			Part: "passage", What: "added to a round trip, " + ends.how + " ends", Asked: "unimpaired",
			Limit: fmt.Sprintf("<= +%.0fus", us(ends.limit)),
		}, func() (finding, error) {
			trip := func() (time.Duration, error) { return r.roundTrip(ctx, ends.how) }
			plain, through, err := alternate(ctx, r, byKernel, unimpaired, trip)
			return finding{
				got:    fmt.Sprintf("%+.1fus, %.1fus of %.1fus", us(through-plain), us(plain), us(through)),
				ok:     through-plain <= ends.limit,
				values: map[string]float64{"plain_p50_us": us(plain), "engine_p50_us": us(through)},
			}, err
		})
	}
	b.measure(Row{
		Part: "passage", What: "RDMA WRITE, of a bare forwarder's", Asked: "unimpaired",
		Limit: fmt.Sprintf(">= %.2f", writeShare),
	}, func() (finding, error) {
		bare, through, err := alternate(ctx, r, byForwarder, unimpaired, func() (float64, error) { return r.writeRate(ctx) })
		if err != nil {
			return finding{}, err
		}
		return finding{
			got:    fmt.Sprintf("%.2f, %.1f of %.1f Gb/s", through/bare, through/1e9, bare/1e9),
			ok:     through/bare >= writeShare,
			values: map[string]float64{"forwarder_bps": bare, "engine_bps": through},
		}, nil
	})
	b.measure(Row{
		Part: "passage", What: "TCP (" + tcpTool() + ")", Asked: "unimpaired",
		Limit: fmt.Sprintf(">= %.0f Gb/s", tcpLimit/1e9),
	}, func() (finding, error) {
		bare, through, err := alternate(ctx, r, byForwarder, unimpaired, func() (float64, error) {
			return sendTCP(ctx, r.a, r.b, 2*time.Second)
		})
		return finding{
			got:    fmt.Sprintf("%.1f Gb/s, bare forwarder %.1f", through/1e9, bare/1e9),
			ok:     through >= tcpLimit,
			values: map[string]float64{"forwarder_bps": bare, "engine_bps": through},
		}, err
	})
}

// alternate measures with one carrier and another in turn, and returns the median
// of each.
func alternate[T time.Duration | float64](ctx context.Context, r *rig, one, other carrier, measure func() (T, error)) (T, T, error) {
	var got [2][]T
	for range passageRounds {
		for i, c := range []carrier{one, other} {
			v, err := with(ctx, r, c, measure)
			if err != nil {
				return 0, 0, err
			}
			got[i] = append(got[i], v)
		}
	}
	return median(got[0]), median(got[1]), nil
}

// with measures something while a carrier carries the packets.
func with[T any](ctx context.Context, r *rig, c carrier, measure func() (T, error)) (v T, err error) {
	end, err := c(ctx, r)
	if err != nil {
		return v, err
	}
	defer func() {
		if endErr := end(); err == nil {
			err = endErr
		}
	}()
	return measure()
}
