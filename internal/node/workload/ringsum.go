package workload

import "fmt"

// A sum makes the vectors of an AllReduce, and checks them. The number at a place of a round's
// vector is the product of a random number, which is the same for all ranks, and one of the
// rank, so that the sum over the ranks is known without adding anything up.
type sum struct {
	seed    uint64
	factors []uint64 // by rank
	total   uint64   // their sum
	words   int      // of a vector
}

func newSum(s *Spec) sum {
	a := sum{seed: s.Seed, factors: make([]uint64, s.Ranks), words: int((s.Size + 7) / 8)}
	for i := range a.factors {
		a.factors[i] = scrambled(s.Seed^uint64(i+1)*golden) | 1
		a.total += a.factors[i]
	}
	return a
}

// number returns the factor that the numbers of all ranks at a place of a round share.
func (a *sum) number(round uint64, place int) uint64 {
	return scrambled(a.seed + (round<<32+uint64(place))*golden)
}

// fill makes a rank's vector of a round.
func (a *sum) fill(vector []uint64, round uint64, rank int) {
	for i := range vector {
		vector[i] = a.number(round, i) * a.factors[rank]
	}
}

// difference returns where a vector differs from the sum of the round's; "" if it does not.
func (a *sum) difference(vector []uint64, round uint64) string {
	for i, got := range vector {
		if want := a.number(round, i) * a.total; got != want {
			return fmt.Sprintf("round %d: number %d of %d is %#x, the sum is %#x", round, i, len(vector), got, want)
		}
	}
	return ""
}

// part returns a piece of a vector, one for each rank: from one place to before another.
func (a *sum) part(i int) (from, to int) {
	n := len(a.factors)
	i = (i%n + n) % n
	return i * a.words / n, (i + 1) * a.words / n
}

// longest returns the length of the longest part, in bytes.
func (a *sum) longest() int { return 8 * ((a.words + len(a.factors) - 1) / len(a.factors)) }

// steps returns how many messages a rank sends in a round.
func (a *sum) steps() int { return 2 * (len(a.factors) - 1) }

// out and in are the parts that a rank sends, and gets, in a step. In the first half of
// them it adds what it gets to what it has.
func (a *sum) out(rank, step int) int {
	if n := len(a.factors); step >= n-1 {
		return rank + 1 - (step - (n - 1))
	}
	return rank - step
}

func (a *sum) in(rank, step int) int { return a.out(rank-1, step) }

func (a *sum) adds(step int) bool { return step < len(a.factors)-1 }
