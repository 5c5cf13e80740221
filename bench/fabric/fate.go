package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/topology"
)

// fatePackets is the number of packets in the sequence whose fate is compared.
const fatePackets = 200_000

// fated says what may happen to each.
var fated = topology.Impairment{Loss: topology.Loss{Rate: 0.01}, Duplicate: 0.01}

// fate has the same packets cross in the same order several times, and compares
// which of them were lost and doubled.
func fate(ctx context.Context, b *bench, r *rig) {
	run := func(seed uint64) (*Lost, error) {
		return with(ctx, r, byEngine(seed, fated), func() (*Lost, error) {
			return b.count(ctx, r.a, r.b, fatePackets, 0)
		})
	}
	b.measure(Row{
		Part: "fate", What: fmt.Sprintf("of %d packets, three times", fatePackets), Asked: "seed 42, 42, 43",
		Limit: "same, same, other",
	}, func() (finding, error) {
		var runs [3]*Lost
		for i, s := range []uint64{seed, seed, seed + 1} {
			var err error
			if runs[i], err = run(s); err != nil {
				return finding{}, err
			}
		}
		same := slices.Equal(runs[0].Lost, runs[1].Lost) && slices.Equal(runs[0].Twice, runs[1].Twice)
		other := !slices.Equal(runs[0].Lost, runs[2].Lost)
		word := map[bool]string{true: "same", false: "other"}
		return finding{
			got:  fmt.Sprintf("same, %s, %s", word[same], word[!other]),
			ok:   same && other && len(runs[0].Lost) > 0 && len(runs[0].Twice) > 0,
			note: fmt.Sprintf("lost %d, %d, %d; doubled %d, %d, %d", len(runs[0].Lost), len(runs[1].Lost), len(runs[2].Lost), len(runs[0].Twice), len(runs[1].Twice), len(runs[2].Twice)),
		}, nil
	})
}
