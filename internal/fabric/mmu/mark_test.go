package mmu

import "testing"

// markOne marks from 1,000 bytes on up to half at 5,000 and all beyond, at dequeue or enqueue.
func markOne(t *testing.T, at bool, seed uint64, name string) *Switch[int] {
	return switchOf(t, 2, 1<<30, Class{Mark: WRED{Min: 1000, Max: 5000, Probability: 0.5, AtEnqueue: at}, Weight: 1},
		func(c *Config) { c.Seed, c.Name = seed, name })
}

// TestMarksAtTheEnds: none up to Min, all beyond Max. At enqueue what a packet finds counts, at
// dequeue what it leaves.
func TestMarksAtTheEnds(t *testing.T) {
	for _, enqueue := range []bool{false, true} {
		s := markOne(t, enqueue, 1, "s")
		const packets = 40
		s.arrive(t, 0, 0, 1, 0, packets, Admitted)
		marked := 0
		for i := range packets {
			d, _ := s.Next(0, 1)
			bytes := 1000 * (packets - 1 - i)
			if enqueue {
				bytes = 1000 * i
			}
			if d.Marked {
				marked++
			}
			if bytes <= 1000 && d.Marked || bytes > 5000 && !d.Marked {
				t.Errorf("enqueue %v: %d bytes in the queue: marked %v", enqueue, bytes, d.Marked)
			}
		}
		if c := s.Counters(0, 1, 0); c.Marked != uint64(marked) || c.Packets != packets || c.Bytes != 1000*packets {
			t.Errorf("counters %+v, %d marked", c, marked)
		}
	}
}

// pattern returns which of so many packets are marked that each leave so many bytes.
func pattern(t *testing.T, s *Switch[int], out, packets, left int) (marks []bool, count int) {
	s.arrive(t, 0, 0, out, 0, left/1000, Admitted)
	for range packets {
		s.arrive(t, 0, 0, out, 0, 1, Admitted)
		d, _ := s.Next(0, out)
		marks = append(marks, d.Marked)
		if d.Marked {
			count++
		}
	}
	return marks, count
}

// TestMarkProbability: it grows in proportion, and draws are those of the seed. Each count is
// within three standard deviations (150) of the expectation.
func TestMarkProbability(t *testing.T) {
	for _, c := range []struct{ left, expect int }{{1000, 0}, {2000, 1250}, {3000, 2500}, {4000, 3750}, {5000, 5000}, {6000, 10_000}} {
		_, count := pattern(t, markOne(t, false, 1, "s"), 1, 10_000, c.left)
		if d := count - c.expect; d < -150 || d > 150 {
			t.Errorf("%d bytes: %d of 10,000 marked, want %d", c.left, count, c.expect)
		}
	}
}

// TestDrawsArePlaces: the same for the same seed, name, port and place, whatever else the switch does;
// others otherwise.
func TestDrawsArePlaces(t *testing.T) {
	same := func(a, b []bool) bool {
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return true
	}
	first, _ := pattern(t, markOne(t, false, 1, "s"), 1, 100, 3000)
	s := markOne(t, false, 1, "s")
	other, _ := pattern(t, s, 0, 100, 3000)
	again, _ := pattern(t, s, 1, 100, 3000)
	if !same(first, again) {
		t.Error("another queue's packets change the draws")
	}
	seed, _ := pattern(t, markOne(t, false, 2, "s"), 1, 100, 3000)
	name, _ := pattern(t, markOne(t, false, 1, "r"), 1, 100, 3000)
	if same(first, other) || same(first, seed) || same(first, name) {
		t.Error("draws of another port, seed or name are the same")
	}
}

func TestNotCapableIsNotMarked(t *testing.T) {
	s := markOne(t, false, 1, "s")
	for range 20 {
		s.Arrive(0, 0, 1, 0, 1000, false, 0)
	}
	for d, ok := s.Next(0, 1); ok; d, ok = s.Next(0, 1) {
		if d.Marked {
			t.Fatal("marked")
		}
	}
}
