package soak

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// A fabric is the links between the hosts, with their faults. It implements
// sim.Path.
type fabric struct {
	run    *run
	rand   *rand.Rand
	links  []*link
	hosts  map[netip.Addr]int
	routes [][][]hop // by the hosts' numbers
	calm   bool      // no faults any more
	losses map[[2]int]*losses
}

type link struct {
	linkPlan
	down bool
	busy [2]time.Duration // until when each direction is
}

// A hop is a link in one direction.
type hop struct {
	link      *link
	direction int
}

// losses are when packets between two hosts were last lost, in either direction:
// a ring.
type losses struct {
	at [16]time.Duration
	n  int
}

func newFabric(r *run, rand *rand.Rand) *fabric {
	f := &fabric{run: r, rand: rand, hosts: map[netip.Addr]int{}, losses: map[[2]int]*losses{}}
	for _, l := range r.plan.links {
		f.links = append(f.links, &link{linkPlan: l})
	}
	for i := range r.plan.hosts {
		f.routes = append(f.routes, f.routesFrom(i))
	}
	return f
}

func (f *fabric) attach(h *host) {
	for _, a := range h.addresses {
		f.hosts[a] = h.number
	}
}

// routesFrom finds the shortest paths from a host to all others.
func (f *fabric) routesFrom(from int) [][]hop {
	n := len(f.run.plan.hosts) + 1 // one may be a switch
	routes := make([][]hop, n)
	known := make([]bool, n)
	known[from] = true
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, l := range f.links {
			for direction, way := range [2][2]int{{l.a, l.b}, {l.b, l.a}} {
				if way[0] == at && !known[way[1]] {
					known[way[1]] = true
					routes[way[1]] = append(append([]hop(nil), routes[at]...), hop{l, direction})
					queue = append(queue, way[1])
				}
			}
		}
	}
	return routes
}

// longestLife bounds how much later than others a packet may come. What comes
// later than connection management says a packet can (268 ms) might be
// taken for one of another connection.
const longestLife = 100 * time.Millisecond

// Carry implements sim.Path.
func (f *fabric) Carry(now time.Duration, from, to netip.Addr, packet []byte) []time.Duration {
	a, known := f.hosts[from]
	b, alsoKnown := f.hosts[to]
	if !known || !alsoKnown {
		return nil
	}
	if a == b {
		return []time.Duration{time.Microsecond}
	}
	delay := time.Duration(0)
	var copies []time.Duration
	for _, h := range f.routes[a][b] {
		l := h.link
		if l.down || !f.calm && f.rand.Float64() < l.loss {
			f.lost(now, a, b, "lost")
			return nil
		}
		end := max(now+delay, l.busy[h.direction]) + time.Duration(float64(len(packet)*8)/l.rate*float64(time.Second))
		l.busy[h.direction] = end
		delay = end - now + l.delay
		if f.calm {
			continue
		}
		if f.rand.Float64() < l.reorder {
			delay += time.Duration(f.rand.Int64N(int64(4*l.delay) + 1))
		}
		if f.rand.Float64() < l.corrupt {
			f.corrupt(packet)
			f.lost(now, a, b, "corrupted")
		}
		if f.rand.Float64() < l.duplicate {
			f.run.coverage.count("packets duplicated")
			copies = append(copies, time.Duration(f.rand.Int64N(int64(min(longestLife, 50*l.delay)))))
		}
	}
	for i := range copies {
		copies[i] += delay
	}
	return append(copies, delay)
}

// corrupt flips one to three bits anywhere, which a CRC of 32 bits notices for
// certain where it covers them. What it does not cover means nothing.
func (f *fabric) corrupt(packet []byte) {
	for range 1 + f.rand.IntN(3) {
		bit := f.rand.IntN(len(packet) * 8)
		packet[bit/8] ^= 1 << (bit % 8)
	}
}

func (f *fabric) lost(now time.Duration, a, b int, how string) {
	f.run.coverage.count("packets " + how)
	key := [2]int{min(a, b), max(a, b)}
	l := f.losses[key]
	if l == nil {
		l = &losses{}
		f.losses[key] = l
	}
	l.at[l.n%len(l.at)] = now
	l.n++
}

// lossesSince is how many packets between two hosts were lost since an instant, 16 at
// most.
func (f *fabric) lossesSince(a, b *host, since time.Duration) int {
	l := f.losses[[2]int{min(a.number, b.number), max(a.number, b.number)}]
	if l == nil {
		return 0
	}
	n := 0
	for i := range min(l.n, len(l.at)) {
		if l.at[i] >= since {
			n++
		}
	}
	return n
}

// cut takes a link down for a time.
func (f *fabric) cut(l *link, d time.Duration) {
	if l.down {
		return
	}
	f.run.logf("link %d-%d is cut for %v", l.a, l.b, d)
	f.run.coverage.count("link cut")
	l.down = true
	f.run.clock.AfterFunc(d, func() { l.down = false })
}

// heal ends all faults for good.
func (f *fabric) heal() {
	f.calm = true
	for _, l := range f.links {
		l.down = false
	}
}
