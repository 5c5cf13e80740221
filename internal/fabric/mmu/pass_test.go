package mmu

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// state returns all that decides on what a switch does, but for the memory of its queues.
func (s *Switch[P]) state() any {
	ports := append([]port[P](nil), s.ports...)
	for i := range ports {
		ports[i].config = nil
		for class := range Classes {
			in, q := &ports[i].ingress[class], &ports[i].queues[class]
			in.class, in.counters = nil, nil
			q.packets = fifo[entry[P]]{tail: uint(q.packets.len())}
		}
	}
	return []any{ports, append([]int64(nil), s.held...), s.used, s.queued, s.peak, s.deadline, s.woken.len(), s.discarded.len()}
}

// TestPass does anything to two switches of the same settings. Packets that may Pass one arrive at the other, and leave it at once: the
// switches are the same then, and where a packet may not pass, nothing has changed.
func TestPass(t *testing.T) {
	passed := 0
	check := func(t *rapid.T) {
		c := drawConfig(t)
		var both [2]*Switch[int]
		for i := range both {
			var err error
			if both[i], err = New[int](c); err != nil {
				t.Fatal(err)
			}
		}
		s, other := both[0], both[1]
		now := time.Duration(0)
		number := rapid.IntRange(0, 3) // one of which is none
		each := func(f func(s *Switch[int])) {
			for _, s := range both {
				f(s)
			}
		}
		// settle does what a driver does after each call. Woken ports wait for their wires.
		settle := func(s *Switch[int]) {
			for _, ok := s.Wake(); ok; _, ok = s.Wake() {
			}
			for _, ok := s.Discarded(); ok; _, ok = s.Discarded() {
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				in, out, class := number.Draw(t, "in"), number.Draw(t, "out"), rapid.SampledFrom([]int{0, 3, 5}).Draw(t, "class")
				bytes := rapid.IntRange(0, 1001).Draw(t, "bytes")
				if s.Pass(now, in, out, class, bytes) {
					passed++
					if v := other.Arrive(now, in, out, class, bytes, true, 1); v != Admitted {
						t.Fatalf("what may pass does not arrive: %v", v)
					}
					settle(other)
					if f, ok := other.Pause(now, out); ok {
						t.Fatalf("what may pass has a PFC frame before it: %v", f)
					}
					if d, ok := other.Next(now, out); !ok || d.Packet != 1 || d.Marked {
						t.Fatalf("what may pass does not leave: %v %v", d, ok)
					}
					each(func(s *Switch[int]) { s.Rest(out) })
					return
				}
				each(func(s *Switch[int]) { s.Arrive(now, in, out, class, bytes, true, 0) })
			},
			"leave": func(t *rapid.T) {
				port := number.Draw(t, "port")
				for range rapid.IntRange(1, 8).Draw(t, "packets") {
					each(func(s *Switch[int]) { s.Next(now, port) })
				}
			},
			"ask": func(t *rapid.T) {
				port := number.Draw(t, "port")
				each(func(s *Switch[int]) { s.Pause(now, port) })
			},
			"paused": func(t *rapid.T) {
				port, f := number.Draw(t, "port"), PFC{Enabled: rapid.Byte().Draw(t, "enabled")}
				for k := range f.Quanta {
					f.Quanta[k] = uint16(rapid.IntRange(0, 100).Draw(t, "quanta"))
				}
				each(func(s *Switch[int]) { s.Paused(now, port, f) })
			},
			"wait": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 4000).Draw(t, "time"))
				if rapid.Bool().Draw(t, "advance") {
					each(func(s *Switch[int]) { s.Advance(now) })
				}
			},
			"": func(t *rapid.T) {
				if a, b := s.state(), other.state(); !reflect.DeepEqual(a, b) {
					t.Fatalf("the switches differ:\n%+v\n%+v", a, b)
				}
				each(settle)
			},
		})
	}
	for range 10 {
		rapid.Check(t, check)
	}
	if passed == 0 {
		t.Error("no packet passed")
	}
}
