package replicate_test

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/examples/replicate"
	"github.com/ndklab/ndklab/fabric/labtest"
)

var (
	seeds = flag.Uint64("seeds", 40, "how many seeds TestPartitions runs with")
	first = flag.Uint64("first", 1, "the first of them")
)

const (
	port     = 7000
	entries  = 200
	patience = 200 * time.Millisecond
)

// TestPartitions has links between a primary and four replicas, of which two may be cut off at a time, lose packets and
// be cut. Everything is committed all the same, and what was committed a majority of the replicas has.
func TestPartitions(t *testing.T) {
	hosts := []string{"r1", "r2", "r3", "r4"}
	for seed := *first; seed < *first+*seeds; seed++ {
		b := labtest.Topology().Hosts("primary").Hosts(hosts...).Switch("s").
			Link("primary", "s", labtest.Delay(50*time.Microsecond), labtest.Rate(labtest.Gbit), labtest.Loss(0.01))
		logs := map[string][]byte{}
		var options []labtest.Option
		for i, name := range hosts {
			logs[name] = make([]byte, entries*replicate.EntrySize)
			b.Link(name, "s", labtest.Delay(time.Duration(i+1)*100*time.Microsecond), labtest.Jitter(20*time.Microsecond), labtest.Loss(0.02))
			options = append(options, labtest.Server(name, func(ctx context.Context, n *labtest.Simulated) error {
				return replicate.Replica(ctx, n.Adapter, netip.AddrPortFrom(n.Address(), port), logs[name])
			}))
		}
		// By the seed, another pair is apart for a while, while entries are appended.
		apart := []string{hosts[seed%4], hosts[(seed+1+seed/4%3)%4]}
		b.At(10*time.Millisecond, labtest.Set("partition", fmt.Sprintf("[[%s, %s]]", apart[0], apart[1]))).
			At(2*time.Second, labtest.Set("heal", "true"))

		var took, longest time.Duration
		options = append(options, labtest.Client("primary", func(ctx context.Context, n *labtest.Simulated) error {
			var at []netip.AddrPort
			for _, name := range hosts {
				_, to := n.PathTo(name)
				at = append(at, netip.AddrPortFrom(to, port))
			}
			began := time.Now()
			last := began
			log := make([]byte, entries*replicate.EntrySize)
			err := replicate.Primary(ctx, n.Adapter, n.Address(), at, log, values(seed), patience, func(committed int) {
				have := 1
				for _, name := range hosts {
					if slices.Equal(replicate.Entries(logs[name][:committed*replicate.EntrySize]), values(seed)[:committed]) {
						have++
					}
				}
				if have < 3 {
					t.Errorf("seed %d: %d of 5 have the %d entries that are committed", seed, have, committed)
				}
				longest = max(longest, time.Since(last))
				last = time.Now()
			})
			took = time.Since(began)
			return err
		}))
		labtest.Simulate(t, b, seed, options...)
		if longest > time.Second {
			t.Errorf("seed %d: an entry took %v, though a majority was never apart", seed, longest)
		}
		if took < entries*100*time.Microsecond {
			t.Errorf("seed %d: %v for %d entries, which is less than the links' delays", seed, took, entries)
		}
	}
}

// values are those that are appended.
func values(seed uint64) []uint64 {
	all := make([]uint64, entries)
	for i := range all {
		all[i] = seed*1000 + uint64(i)
	}
	return all
}
