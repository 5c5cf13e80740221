package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

const delaySize = 1024 // bytes of payload

// clockSlew divides a time into the part by which the wall clock may be wrong, which
// stamps packets: Linux slews it by up to 500 ppm.
const clockSlew = 2000

// delayLimit returns the limits of delays as the table shows them.
func (p *pace) delayLimit() string {
	if p.p10Limit > 0 {
		return fmt.Sprintf("none early, p10 <= +%v", short(p.p10Limit))
	}
	return fmt.Sprintf("p50 0..+%v, p99 <= +%v", short(p.medianLimit), short(p.p99Limit))
}

// delay measures what time the link adds to each packet: between the kernel's
// timestamps as it is sent at one end and as it is received at the other. Of the
// rounds, the middle one counts.
func delay(ctx context.Context, b *bench) {
	for _, asked := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		row := Row{
			Part: "delay", What: fmt.Sprintf("added beyond it, %d packets/s", b.pace.delayPerSecond), Asked: topology.FormatDuration(asked),
			Limit: b.pace.delayLimit(),
		}
		b.measure(row, func() (f finding, err error) {
			topo := b.pairTopology(topology.Impairment{Delay: asked})
			// The engine has to tell by itself where the host kept it from that.
			topo.Links[0].Tolerance = topology.DefaultTolerance
			if t := &topo.Links[0].Tolerance; b.pace.p10Limit > 0 {
				t.DelayP10 = b.pace.p10Limit
			} else {
				t.Delay, t.DelayP99 = b.pace.medianLimit, b.pace.p99Limit
			}
			err = withPair(ctx, topo, func(p *pair) error {
				f, err = p.delay(ctx, &b.pace, asked)
				return err
			})
			return f, err
		})
	}
}

func (p *pair) delay(ctx context.Context, pace *pace, asked time.Duration) (finding, error) {
	var firsts, tenths, medians, p99s []time.Duration
	for range pace.delayRounds {
		added, err := p.addedDelays(ctx, pace, asked)
		if err != nil {
			return finding{}, err
		}
		for i := range added {
			added[i] -= asked
		}
		firsts, tenths = append(firsts, slices.Min(added)), append(tenths, quantile(added, 0.1))
		medians = append(medians, median(added))
		p99s = append(p99s, quantile(added, 0.99))
	}
	first, p10, p50, p99 := slices.Min(firsts), slices.Min(tenths), median(medians), median(p99s)
	f := finding{
		got: fmt.Sprintf("p50 %+.1fus, p99 %+.1fus", us(p50), us(p99)),
		// A packet that came early would be as wrong as a late one.
		ok:     p50 >= 0 && p50 <= pace.medianLimit && p99 <= pace.p99Limit,
		values: map[string]float64{"asked_us": us(asked), "min_us": us(first), "p10_us": us(p10), "p50_us": us(p50), "p99_us": us(p99)},
	}
	if pace.p10Limit > 0 {
		f.got = fmt.Sprintf("min %+.1fus, p10 %+.1fus", us(first), us(p10))
		f.ok = first >= -asked/clockSlew && p10 <= pace.p10Limit
	}
	in, err := p.Inspect(ctx)
	if err != nil {
		return finding{}, err
	}
	d := &in.Links[0].Directions[0]
	if got := d.Achieved.DelayUS; got != nil {
		f.note = fmt.Sprintf("the engine itself says: median %+.1fus", *got-us(asked))
		f.values["engine_p50_us"] = *got - us(asked)
	}
	if !f.ok && len(d.Overruns) > 0 {
		f.why, f.note = "overrun", f.note+"; "+words.Overrun(&d.Overruns[0])
	}
	return f, nil
}

// addedDelays returns how long each packet of a round took.
func (p *pair) addedDelays(ctx context.Context, pace *pace, asked time.Duration) ([]time.Duration, error) {
	taps := [2]*running{}
	for i, t := range []struct {
		at        place
		direction string
	}{{p.a, "out"}, {p.b, "in"}} {
		tap, err := t.at.start(ctx, "tap", "stamps", t.direction, probePort)
		if err != nil {
			return nil, err
		}
		taps[i] = tap
		if err := tap.ready(); err != nil {
			return nil, err
		}
	}
	sender, err := p.a.start(ctx, "send", addresses[1], delaySize, 1, pace.delayWarmUp+pace.delayCount, pace.delayPerSecond)
	if err != nil {
		return nil, err
	}
	if err := sender.wait(); err != nil {
		return nil, err
	}
	if err := pause(ctx, asked+pace.settle); err != nil {
		return nil, err
	}
	var stamps [2]Stamps
	for i, tap := range taps {
		if err := tap.result(&stamps[i]); err != nil {
			return nil, err
		}
	}
	sent := make(map[uint64]int64, len(stamps[0].Number))
	for i, n := range stamps[0].Number {
		sent[n] = stamps[0].Stamp[i]
	}
	added := make([]time.Duration, 0, pace.delayCount)
	for i, n := range stamps[1].Number {
		if at, ok := sent[n]; ok && n >= uint64(pace.delayWarmUp) {
			added = append(added, time.Duration(stamps[1].Stamp[i]-at))
		}
	}
	if len(added) != pace.delayCount {
		return nil, fmt.Errorf("of %d packets %d arrived", pace.delayCount, len(added))
	}
	return added, nil
}

// short returns a duration as tables have it.
func short(d time.Duration) string { return topology.FormatDuration(d) }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
