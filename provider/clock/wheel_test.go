package clock_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// A planned function is one that the model of TestVirtualModel expects to run.
type planned struct {
	id    int
	at    time.Duration
	order int // in which they were asked for
}

// TestVirtualModel has functions asked for, stopped and set again at random, and run in parts, and compares each with a list that
// is sorted.
func TestVirtualModel(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		v := clock.NewVirtual()
		v.Advance(time.Duration(random.Uint64() >> (2 + random.IntN(62))))
		var want []planned
		var timers []clock.Timer
		order := 0
		plan := func(id int, d time.Duration) {
			want = append(want, planned{id, v.Now() + max(d, 0), order})
			order++
		}
		index := func(id int) int { return slices.IndexFunc(want, func(p planned) bool { return p.id == id }) }
		wait := func() time.Duration { return time.Duration(random.Uint64() >> random.IntN(64) >> 13) }
		ran := func(id int) {
			first := slices.MinFunc(want, func(a, b planned) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
			if first.id != id || v.Now() != first.at {
				t.Fatalf("seed %d: %d ran at %d, want %d at %d", seed, id, v.Now(), first.id, first.at)
			}
			want = slices.Delete(want, index(id), index(id)+1)
		}
		for range 300 {
			switch what := random.IntN(10); {
			case what < 4 || len(timers) == 0:
				id, d := len(timers), wait()
				plan(id, d)
				timers = append(timers, v.AfterFunc(d, func() { ran(id) }))
			case what < 5:
				id := random.IntN(len(timers))
				i := index(id)
				if timers[id].Stop() != (i >= 0) {
					t.Fatalf("seed %d: Stop of %d is not %v", seed, id, i >= 0)
				}
				if i >= 0 {
					want = slices.Delete(want, i, i+1)
				}
			case what < 7:
				id, d := random.IntN(len(timers)), wait()
				i := index(id)
				if timers[id].Reset(d) != (i >= 0) {
					t.Fatalf("seed %d: Reset of %d is not %v", seed, id, i >= 0)
				}
				if i >= 0 {
					want = slices.Delete(want, i, i+1)
				}
				plan(id, d)
			case what < 8:
				v.Step()
			default:
				v.Run(wait() >> 8)
			}
			next, ok := v.Next()
			if ok != (len(want) > 0) {
				t.Fatalf("seed %d: Next says %v, want %v", seed, ok, len(want) > 0)
			}
			for _, p := range want {
				if p.at < v.Now() || p.at < next {
					t.Fatalf("seed %d: %d is due at %d, it is %d, and next is what is due at %d", seed, p.id, p.at, v.Now(), next)
				}
			}
		}
	}
}

// TestVirtualTurn has timers take turns that were theirs before, at random, beside functions that were asked for.
func TestVirtualTurn(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		v := clock.NewVirtual()
		var ran []int // orders
		var due []time.Duration
		type kept struct {
			order int
			turn  clock.Turn
		}
		var turns []kept
		order := 0
		wait := func() time.Duration { return time.Duration(random.IntN(1 << random.IntN(12))) }
		var again func()
		again = func() {
			for range random.IntN(4) {
				own, d := order, wait()
				order++
				if random.IntN(2) == 0 {
					v.AfterFunc(d, func() { ran, due = append(ran, own), append(due, v.Now()); again() })
					continue
				}
				var turn clock.Turn
				turn.Take(v, d)
				turns = append(turns, kept{own, turn})
				// Is due right behind the turn.
				v.AfterFunc(d, func() {
					if i := slices.IndexFunc(turns, func(k kept) bool { return k.order == own }); i >= 0 && !v.Came(turns[i].turn) {
						t.Fatalf("seed %d: a turn has not come when the next one has", seed)
					}
				})
			}
			turns = slices.DeleteFunc(turns, func(k kept) bool {
				if random.IntN(2) == 0 {
					return false
				}
				if came := v.Came(k.turn); came {
					if k.turn.At() > v.Now() {
						t.Fatalf("seed %d: a turn has come before its time", seed)
					}
					return true
				}
				v.NewTimer(func() { ran, due = append(ran, k.order), append(due, v.Now()) }).ResetTo(k.turn)
				return true
			})
		}
		for range 20 {
			again()
			v.Run(wait())
			for _, k := range turns {
				if k.turn.At() <= v.Now() && !v.Came(k.turn) {
					t.Fatalf("seed %d: a turn at %d has not come by the end of Run, at %d", seed, k.turn.At(), v.Now())
				}
			}
		}
		for i := 1; i < len(ran); i++ {
			if due[i] < due[i-1] || due[i] == due[i-1] && ran[i] < ran[i-1] {
				t.Fatalf("seed %d: %d ran at %d behind %d at %d", seed, ran[i], due[i], ran[i-1], due[i-1])
			}
		}
	}
}

// BenchmarkVirtual has a thousand timers, each of which is set again when it has run, as those of packets on wires are.
func BenchmarkVirtual(b *testing.B) {
	v := clock.NewVirtual()
	random := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		var timer clock.Timer
		timer = v.AfterFunc(time.Duration(random.IntN(2000)), func() { timer.Reset(time.Duration(200 + random.IntN(1000))) })
	}
	b.ReportAllocs()
	for b.Loop() {
		v.Step()
	}
}
