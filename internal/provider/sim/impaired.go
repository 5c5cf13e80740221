package sim

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// Impaired is a Path with the faults of a bad network, the same between any two
// addresses. Its fields may be changed while the network runs.
type Impaired struct {
	Rand      *rand.Rand
	Delay     time.Duration // one way
	Loss      float64       // probability per packet
	Duplicate float64       // probability per packet
	Reorder   float64       // probability that a packet is held back by up to Delay/2 more
	Corrupt   float64       // probability that one bit is flipped
	Rate      float64       // bits per second of IP packets, per sender; 0 is unlimited
	Down      bool          // nothing passes

	busy map[netip.Addr]time.Duration // until when each sender's line is busy
}

// Carry implements Path.
func (p *Impaired) Carry(now time.Duration, from, _ netip.Addr, packet []byte) []time.Duration {
	delay := p.Delay + p.occupyLine(now, from, len(packet))
	if p.Down || p.Rand.Float64() < p.Loss {
		return nil
	}
	if p.Rand.Float64() < p.Corrupt {
		bit := p.Rand.IntN(len(packet) * 8)
		packet[bit/8] ^= 1 << (bit % 8)
	}
	if p.Rand.Float64() < p.Reorder {
		delay += time.Duration(p.Rand.Int64N(int64(p.Delay/2) + 1))
	}
	if p.Rand.Float64() < p.Duplicate {
		return []time.Duration{delay, delay + time.Duration(p.Rand.Int64N(int64(p.Delay)+1))}
	}
	return []time.Duration{delay}
}

// occupyLine returns how long a packet waits for the sender's line and is on it.
func (p *Impaired) occupyLine(now time.Duration, from netip.Addr, size int) time.Duration {
	if p.Rate == 0 {
		return 0
	}
	if p.busy == nil {
		p.busy = map[netip.Addr]time.Duration{}
	}
	end := max(now, p.busy[from]) + time.Duration(float64(size)*8/p.Rate*float64(time.Second))
	p.busy[from] = end
	return end - now
}
