package dataplane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A listener owns frames that are numbers, and notes when each arrives in its shard.
type listener struct {
	clock *clock.Virtual
	heard []string
}

func (*listener) Size(int) int            { return 60 }
func (*listener) TrafficClass(int) uint8  { return 0 }
func (*listener) MayBeMarked(int) bool    { return false }
func (*listener) Mark(int)                {}
func (*listener) Flip(int, *impair.Flip)  {}
func (*listener) Copy(f int) int          { return f }
func (*listener) Free(int)                {}
func (*listener) Obeyed(int, *Wire[int])  {}
func (*listener) Overflowed(*Buffer[int]) {}

func (*listener) Identify(_ int, p *impair.Packet, _ bool)                 { p.RoCE = new(impair.Identity) }
func (*listener) NewPause(*Wire[int], *mmu.PFC) int                        { panic("there are no pauses") }
func (*listener) Pause(int) (pause mmu.PFC, ok bool)                       { return pause, false }
func (*listener) Decided(*Wire[int], int, *impair.Packet, *impair.Verdict) {}
func (*listener) Deliver(int, *Buffer[int])                                {}
func (*listener) Deadlocked(bufferstats.Deadlock)                          {}
func (l *listener) Arrive(f int, by *Wire[int], _ Transit) {
	l.heard = append(l.heard, fmt.Sprintf("%d: frame %d of %d", l.clock.Now(), f, by.Link))
}

// speak has hosts send to a node at random, until an instant, by links whose faults hold frames back now and then. run runs the clocks.
func speak(t *testing.T, seed uint64, hosts int, end time.Duration, clocks []*clock.Virtual, run func(p *Plane[int], end time.Duration)) []string {
	t.Helper()
	topo := &topology.Topology{Nodes: []topology.Node{{Name: "to"}}}
	of := map[string]int{}
	for i := range hosts {
		name := fmt.Sprint("h", i)
		topo.Nodes = append(topo.Nodes, topology.Node{Name: name})
		topo.Links = append(topo.Links, topology.Link{Endpoints: [2]topology.Endpoint{{Node: name}, {Node: "to"}}})
		of[name] = i % len(clocks)
	}
	var shards []Shard[int]
	for _, c := range clocks {
		shards = append(shards, Shard[int]{c, &listener{clock: c}})
	}
	p := NewSharded(shards, of, topo, func(_, _ Owner[int], _ int) {})
	held := []topology.Fault{{Match: topology.Match{Probability: 0.1}, Action: topology.Postpone, Delay: 150}}
	for i := range hosts {
		w := p.AddWire(i, 0, impair.New(seed, fmt.Sprint("link", i), 0), new(linkstats.Collector))
		w.Set(topology.Impairment{Delay: 40, Rate: 400_000_000_000, Faults: held})
		random, c, sent := rand.New(rand.NewPCG(seed, uint64(i))), clocks[of[fmt.Sprint("h", i)]], 0
		var send func()
		send = func() {
			w.Enter(sent)
			sent++
			if wait := time.Duration(random.IntN(12)); c.Now()+wait < end {
				c.AfterFunc(wait, send)
			}
		}
		c.AfterFunc(0, send)
	}
	run(p, end)
	return shards[0].Owner.(*listener).heard
}

// Frames arrive in the same order in windows as with one clock, those of one instant, too, and though some are held back on the way.
func TestOrderInWindows(t *testing.T) {
	const hosts, end = 5, 5 * time.Microsecond
	for seed := range uint64(30) {
		v := clock.NewVirtual()
		want := speak(t, seed, hosts, end, []*clock.Virtual{v}, func(_ *Plane[int], end time.Duration) { v.Run(end + 1000) })
		for _, n := range []int{2, 3} {
			s := clock.NewShards(n)
			defer s.Close()
			var clocks []*clock.Virtual
			for i := range n {
				clocks = append(clocks, s.Shard(i))
			}
			random := rand.New(rand.NewPCG(seed, 99))
			got := speak(t, seed, hosts, end, clocks, func(p *Plane[int], end time.Duration) {
				for next, ok := s.Next(); ok; next, ok = s.Next() {
					if random.IntN(40) > 0 {
						s.Step()
						continue
					}
					p.BeginWindow()
					s.Window(next + p.Lookahead())
					p.EndWindow(s.Final)
				}
			})
			if !slices.Equal(got, want) {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				t.Fatalf("seed %d, %d shards: after %d of %d frames in order came %q, want %q", seed, n, at, len(want), got[at:min(at+3, len(got))], want[at:min(at+3, len(want))])
			}
		}
	}
}
