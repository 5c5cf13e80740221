package linkem

import (
	"testing"
	"time"
)

func TestPacketsCloseTogetherAreGathered(t *testing.T) {
	type packets struct {
		frame   int
		departs []int // us
	}
	every := func(gap, from, to int) (all []int) {
		for at := from; at <= to; at += gap {
			all = append(all, at)
		}
		return all
	}
	for _, c := range []struct {
		name  string
		queue []packets
		want  int // us
	}{
		{"one", []packets{{1, []int{100}}}, 100},
		{"one behind, near", []packets{{1, []int{100, 125}}}, 125},
		{"one behind, not near", []packets{{1, []int{100, 126}}}, 100},
		{"some, then none near", []packets{{1, []int{100, 104, 108, 125, 151}}}, 125},
		{"a long frame", []packets{{1, every(10, 100, 500)}}, 160},
		{"slowly", []packets{{1, every(33, 100, 500)}}, 100},
		{"frames of one packet", []packets{{1, []int{100}}, {2, []int{120}}, {3, []int{140}}, {4, []int{160}}, {5, []int{161}}}, 160},
		{"a frame that would be cut", []packets{{1, []int{100}}, {2, every(5, 105, 150)}, {3, every(5, 155, 200)}}, 150},
		{"the end of a frame, and one that would be cut", []packets{{1, every(5, 100, 120)}, {2, every(5, 125, 200)}}, 120},
		{"a frame that is not cut", []packets{{1, []int{100}}, {2, every(5, 105, 150)}, {3, []int{155}}, {4, []int{180, 185}}}, 155},
		{"until all is gathered", []packets{{1, []int{100}}, {2, every(5, 105, 160)}, {3, []int{165}}}, 160},
		{"overtaken", []packets{{1, []int{300, 300}}, {2, []int{104}}, {3, []int{100}}, {4, []int{108}}, {5, []int{200}}}, 108},
	} {
		n := &line{}
		frames := map[int]*heldFrame{}
		for _, p := range c.queue {
			frames[p.frame] = &heldFrame{}
			for i, at := range p.departs {
				n.queue.push(run{held: frames[p.frame], first: int32(i), count: 1, departs: time.Duration(at) * time.Microsecond})
			}
		}
		n.schedule()
		if want := time.Duration(c.want) * time.Microsecond; n.release != want {
			t.Errorf("%s: released at %v, want %v", c.name, n.release, want)
		}
	}
}
