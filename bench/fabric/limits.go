package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/bench/internal/process"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/topology"
)

// Bounds, in bytes, on what a delay line holds (package linkem), and on what the process
// of the engine needs beside it.
const (
	lineBudget  = 256 << 20
	processNeed = 64 << 20
	lineDelay   = time.Second
)

// enginePart is the name of the link engine's process.
const enginePart = "ndklab-linkem"

// memory has a link asked to hold far more than its engine has memory for.
func memory(ctx context.Context, b *bench) {
	b.measure(Row{
		Part: "memory", What: "a delay line given too much", Asked: "1 GB in flight",
		Limit: "<= 256 MiB, overrun, alive",
	}, func() (f finding, err error) {
		err = withPair(ctx, b.pairTopology(topology.Impairment{Delay: lineDelay}), func(p *pair) error {
			f, err = b.memory(ctx, p)
			return err
		})
		return f, err
	})
}

func (b *bench) memory(ctx context.Context, p *pair) (finding, error) {
	if err := overfill(ctx, p); err != nil {
		return finding{}, err
	}
	if err := pause(ctx, lineDelay+b.pace.settle); err != nil {
		return finding{}, err
	}
	in, err := p.Inspect(ctx)
	if err != nil {
		return finding{}, fmt.Errorf("after too much: %w", err)
	}
	all, err := process.OfLab(in.Lab)
	if err != nil {
		return finding{}, err
	}
	var most uint64 // bytes
	for _, p := range all.Of(enginePart) {
		kib, err := p.Resident()
		if err != nil {
			return finding{}, err
		}
		most = uint64(kib) << 10
	}
	d := in.Links[0].Directions[0]
	lost := d.LostBy.Overrun
	told := "no overrun"
	if len(d.Overruns) > 0 {
		told = "overrun"
	}
	// It goes on as before.
	l, err := b.count(ctx, p.a, p.b, 1000, lineDelay)
	if err != nil {
		return finding{}, err
	}
	return finding{
		got:    fmt.Sprintf("%d MiB, %d lost, %s, then %d", most>>20, lost, told, len(l.Lost)),
		ok:     most > 0 && most <= lineBudget+processNeed && lost > 0 && len(d.Overruns) > 0 && len(l.Lost) == 0,
		note:   fmt.Sprintf("memory is that of the engine's process, of which %d MiB may be no delay line", processNeed>>20),
		values: map[string]float64{"resident_bytes": float64(most), "lost": float64(lost), "lost_afterwards": float64(len(l.Lost))},
	}, nil
}

// overfill sends 1 GB, in a second if the machine can. The port is held, lest the
// answer that it is closed ends a sender that takes longer.
func overfill(ctx context.Context, p *pair) error {
	holder, err := p.b.start(ctx, "hold", probePort)
	if err != nil {
		return err
	}
	if err := holder.ready(); err != nil {
		return err
	}
	defer holder.stop()
	sender, err := p.a.start(ctx, "send", addresses[1], 4096, 15, 1<<18, 1<<18)
	if err != nil {
		return err
	}
	return sender.wait()
}

// Bounds on what many links use together when nothing happens.
const (
	idleLinks = 500
	idleShare = 0.10 // of a core
	idleTime  = 4 * time.Second
)

// idle measures what a lab of many links uses when nothing happens.
func idle(ctx context.Context, b *bench) {
	b.measure(Row{
		Part: "idle", What: fmt.Sprintf("%d links of 1ms, all processes", idleLinks), Asked: "nothing",
		Limit: fmt.Sprintf("< %.0f %% of a core", 100*idleShare),
	}, func() (finding, error) { return b.idle(ctx) })
}

func (b *bench) idle(ctx context.Context) (finding, error) {
	topo := &topology.Topology{Name: labName(), Seed: seed, HasSeed: true}
	for i := range idleLinks {
		b.join(topo, fmt.Sprint("n", i), fmt.Sprint("n", (i+1)%idleLinks), topology.Impairment{Delay: time.Millisecond})
	}
	l, err := lab.Start(ctx, topo, lab.Options{})
	if err != nil {
		return finding{}, err
	}
	defer l.Close()
	if err := pause(ctx, idleTime/2); err != nil { // what follows a start has passed
		return finding{}, err
	}
	all, err := process.OfLab(topo.Name)
	if err != nil {
		return finding{}, err
	}
	used := func() (engine, total time.Duration, err error) {
		if engine, err = all.Of(enginePart).CPU(); err == nil {
			total, err = all.CPU()
		}
		return engine, total, err
	}
	engine, total, err := used()
	if err != nil {
		return finding{}, err
	}
	begin := time.Now()
	if err := pause(ctx, idleTime); err != nil {
		return finding{}, err
	}
	engine2, total2, err := used()
	if err != nil {
		return finding{}, err
	}
	length := time.Since(begin).Seconds()
	of, alone := (total2-total).Seconds()/length, (engine2-engine).Seconds()/length
	return finding{
		got:    fmt.Sprintf("%.2f %%, the engine %.2f %%", 100*of, 100*alone),
		ok:     of < idleShare,
		values: map[string]float64{"since_start_seconds": total2.Seconds(), "cores": of, "engine_cores": alone, "links": idleLinks},
	}, nil
}
