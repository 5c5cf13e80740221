package mmu

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// check expects the accounts of a switch to be sound.
func (s *Switch[P]) check(t *rapid.T) {
	var queued, used, heldAll int64
	for i := range s.ports {
		p := &s.ports[i]
		for class := range Classes {
			q, in, c := &p.queues[class], &p.ingress[class], &p.config.Classes[class]
			bit := uint8(1) << class
			var bytes int64
			for k := q.packets.head; k != q.packets.tail; k++ {
				bytes += int64(q.packets.ring[k&uint(len(q.packets.ring)-1)].bytes)
			}
			if q.bytes != bytes || (p.filled&bit != 0) != (bytes > 0) {
				t.Fatalf("queue %d.%d has %d bytes, counts %d, filled %v", i, class, bytes, q.bytes, p.filled&bit != 0)
			}
			queued += bytes
			if in.held < 0 || in.headroom < 0 || in.headroom > c.Headroom {
				t.Fatalf("ingress %d.%d: held %d, headroom %d", i, class, in.held, in.headroom)
			}
			used += max(0, in.held-c.Reserve)
			var held int64
			for out := range s.ports {
				h := s.Held(i, out, class)
				if h < 0 {
					t.Fatalf("%d held from %d to %d", h, i, out)
				}
				held += h
			}
			heldAll += held
			if held != in.held+in.headroom {
				t.Fatalf("ingress %d.%d: held %d + %d, but %d wait", i, class, in.held, in.headroom, held)
			}
			if !c.Lossless && (in.xoff || in.headroom != 0) {
				t.Fatalf("lossy ingress %d.%d asks for a pause", i, class)
			}
			if in.xoff && held == 0 {
				t.Fatalf("ingress %d.%d is empty and still asks for a pause", i, class)
			}
			if told := p.told&bit != 0; in.xoff != told && p.changed&bit == 0 {
				t.Fatalf("ingress %d.%d: nobody will be told", i, class)
			}
		}
	}
	if queued != s.queued || heldAll != queued || used != s.used || s.used > s.shared {
		t.Fatalf("queued %d, counted %d, held %d; used %d, counted %d of %d", queued, s.queued, heldAll, used, s.used, s.shared)
	}
}

// drawConfig draws any settings of a switch with three ports.
func drawConfig(t *rapid.T) Config {
	c := Config{Name: "s", Seed: 1, Ports: make([]Port, 3)}
	if rapid.Bool().Draw(t, "watchdog") {
		c.Watchdog = Watchdog{Detect: 3000, Restore: 2000, Forward: rapid.Bool().Draw(t, "forward")}
	}
	for i := range c.Ports {
		p := &c.Ports[i]
		p.Rate, p.MaxFrame = 10e9, 1000
		for k := range Classes {
			class := &p.Classes[k]
			class.Reserve = rapid.Int64Range(0, 1500).Draw(t, "reserve")
			class.EgressAlpha = rapid.Float64Range(0, 2).Draw(t, "egress")
			class.Weight = rapid.IntRange(0, 3).Draw(t, "weight")
			class.Mark = WRED{Max: 4000, Probability: 0.5, AtEnqueue: k&1 == 0}
			if class.Lossless = k < 4; class.Lossless {
				class.Headroom = rapid.Int64Range(0, 4000).Draw(t, "headroom")
				class.Gap = rapid.Int64Range(0, 2000).Draw(t, "gap")
				class.Alpha = rapid.Float64Range(0.01, 8).Draw(t, "alpha")
			}
		}
	}
	c.Size = -c.Shared() + rapid.Int64Range(1, 30_000).Draw(t, "shared")
	return c
}

// TestAccounts does anything to a switch with any settings: bytes are conserved, accounts are sound,
// and once all has left no pause is left.
func TestAccounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		s, err := New[int](c)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		var in, out int64
		number := rapid.IntRange(0, 2)
		classes := rapid.SampledFrom([]int{0, 3, 5})
		drain := func() {
			for d, ok := s.Discarded(); ok; d, ok = s.Discarded() {
				out += int64(d.Bytes)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				from, to, class := number.Draw(t, "in"), number.Draw(t, "out"), classes.Draw(t, "class")
				for range rapid.IntRange(1, 8).Draw(t, "packets") {
					bytes := rapid.IntRange(1, 1000).Draw(t, "bytes")
					if s.Arrive(now, from, to, class, bytes, true, 0) == Admitted {
						in += int64(bytes)
					}
				}
			},
			"leave": func(t *rapid.T) {
				port := number.Draw(t, "port")
				for range rapid.IntRange(1, 8).Draw(t, "packets") {
					if d, ok := s.Next(now, port); ok {
						out += int64(d.Bytes)
					}
				}
			},
			"ask": func(t *rapid.T) { s.Pause(now, number.Draw(t, "port")) },
			"paused": func(t *rapid.T) {
				var f PFC
				f.Enabled = rapid.Byte().Draw(t, "enabled")
				for k := range f.Quanta {
					f.Quanta[k] = uint16(rapid.IntRange(0, 100).Draw(t, "quanta"))
				}
				s.Paused(now, number.Draw(t, "port"), f)
			},
			"wait": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 4000).Draw(t, "time"))
				s.Advance(now)
			},
			"": func(t *rapid.T) {
				drain()
				s.check(t)
				if in-out != s.queued {
					t.Fatalf("%d came, %d left, %d wait", in, out, s.queued)
				}
			},
		})
		// All pauses run out, and all leaves.
		now += time.Second
		for port := range c.Ports {
			for d, ok := s.Next(now, port); ok; d, ok = s.Next(now, port) {
				out += int64(d.Bytes)
			}
			drain()
		}
		s.check(t)
		if in != out || s.used != 0 {
			t.Fatalf("%d came, %d left, %d used", in, out, s.used)
		}
		for port := range c.Ports {
			s.Pause(now, port)
			if p := &s.ports[port]; p.told != 0 {
				t.Fatalf("port %d is still told to pause", port)
			}
		}
	})
}
