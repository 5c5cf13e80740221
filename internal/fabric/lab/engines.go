package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
)

// joinHalves returns the statistics of a link between two hosts.
func joinHalves(a, b *[2]linkstats.Statistics) (both [2]linkstats.Statistics) {
	for d := range both {
		both[d] = linkstats.Join(&a[d], &b[d])
	}
	return both
}

// ofEngines returns the statistics of links that engines have, by the name of the link. Those of a link that two of them have
// are joined: the engine where packets enter counts those, and the one where they leave counts how late they are.
func ofEngines(ctx context.Context, of machines, ask func(context.Context, *linkem.Engine) (map[string][2]linkstats.Statistics, error)) (map[string][2]linkstats.Statistics, error) {
	engines := of.engines()
	answers := make([]map[string][2]linkstats.Statistics, len(engines))
	err := parallel(ctx, len(engines), len(engines), func(ctx context.Context, i int) (err error) {
		if answers[i], err = ask(ctx, engines[i]); err != nil && !of.failedWith(ctx, engines[i], err) {
			return fmt.Errorf("engine: %w", err)
		}
		return nil
	})
	if err != nil || len(answers) == 0 {
		return nil, err
	}
	all := map[string][2]linkstats.Statistics{}
	for _, more := range answers {
		for name, both := range more {
			if one, ok := all[name]; ok {
				both = joinHalves(&one, &both)
			}
			all[name] = both
		}
	}
	return all, nil
}
