package trial

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

// A LinkPlan is a link and its faults, which are the same in both directions.
type LinkPlan struct {
	A, B                              int // hosts by their numbers, or a switch, whose number follows theirs
	Delay                             time.Duration
	Rate                              float64 // bits per second
	Loss, Duplicate, Reorder, Corrupt float64
}

// Wire plans links between so many hosts: a star around a switch, or a tree of the hosts with a
// few links more. Without weather they have no faults.
func Wire(r *rand.Rand, hosts int, weather bool) (links []LinkPlan) {
	if r.IntN(2) == 0 {
		for i := range hosts {
			links = append(links, plan(r, i, hosts, 2, weather))
		}
		return links
	}
	for i := 1; i < hosts; i++ {
		links = append(links, plan(r, i, r.IntN(i), 3, weather))
	}
	for range r.IntN(hosts) {
		if a, b := r.IntN(hosts), r.IntN(hosts); a != b {
			links = append(links, plan(r, a, b, 3, weather))
		}
	}
	return links
}

// plan plans a link of which paths have up to so many hops: a path loses 20 % at most,
// or a little more on a long one.
func plan(r *rand.Rand, a, b, hops int, weather bool) LinkPlan {
	l := LinkPlan{
		A: a, B: b,
		Delay: []time.Duration{time.Microsecond, 10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}[r.IntN(5)],
		Rate:  []float64{100e6, 1e9, 10e9, 100e9}[r.IntN(4)],
	}
	l.Delay += time.Duration(r.Int64N(int64(l.Delay)))
	if !weather {
		return l
	}
	some := func(most float64) float64 {
		return most * []float64{0, 0.05, 0.3, 1}[r.IntN(4)] * r.Float64() / float64(hops)
	}
	l.Loss, l.Duplicate, l.Reorder, l.Corrupt = some(0.2), some(0.2), some(0.5), some(0.1)
	return l
}

// String describes the link, for the journal.
func (l LinkPlan) String() string {
	return fmt.Sprintf("link %d-%d: %v, %.0f Mbit/s, loss %.3f, duplicates %.3f, reordered %.3f, corrupted %.3f",
		l.A, l.B, l.Delay, l.Rate/1e6, l.Loss, l.Duplicate, l.Reorder, l.Corrupt)
}

// A Fabric is the links between hosts, with their faults. It implements
// sim.Path.
type Fabric struct {
	Links []*Link

	trial  *Trial
	rand   *rand.Rand
	hosts  map[netip.Addr]int
	routes [][][]hop // by the hosts' numbers
	calm   bool      // no faults any more
	losses map[[2]int]*losses
}

// A Link is one of the fabric's.
type Link struct {
	LinkPlan
	down bool
	busy [2]time.Duration // until when each direction is
}

// A hop is a link in one direction.
type hop struct {
	link      *Link
	direction int
}

// losses has the times at which packets between two hosts were last lost, in either
// direction: a ring.
type losses struct {
	at [16]time.Duration
	n  int
}

// NewFabric makes the links between so many hosts.
func NewFabric(t *Trial, rand *rand.Rand, hosts int, plans []LinkPlan) *Fabric {
	f := &Fabric{trial: t, rand: rand, hosts: map[netip.Addr]int{}, losses: map[[2]int]*losses{}}
	for _, l := range plans {
		f.Links = append(f.Links, &Link{LinkPlan: l})
	}
	for i := range hosts {
		f.routes = append(f.routes, f.routesFrom(i, hosts))
	}
	return f
}

// Attach has a host be found at an address.
func (f *Fabric) Attach(host int, at netip.Addr) { f.hosts[at] = host }

// HostAt returns the number of the host with an address.
func (f *Fabric) HostAt(a netip.Addr) int { return f.hosts[a] }

// routesFrom finds the shortest paths from a host to all others.
func (f *Fabric) routesFrom(from, hosts int) [][]hop {
	n := hosts + 1 // one may be a switch
	routes := make([][]hop, n)
	known := make([]bool, n)
	known[from] = true
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, l := range f.Links {
			for direction, way := range [2][2]int{{l.A, l.B}, {l.B, l.A}} {
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

// LongestLife bounds how much later than others a packet may come. A packet that
// comes later than connection management says it can (268 ms) might be taken for
// one of another connection.
const LongestLife = 100 * time.Millisecond

// Carry implements sim.Path.
func (f *Fabric) Carry(now time.Duration, from, to netip.Addr, packet []byte) []time.Duration {
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
		if l.down || !f.calm && f.rand.Float64() < l.Loss {
			f.lost(now, a, b, "lost")
			return nil
		}
		end := max(now+delay, l.busy[h.direction]) + time.Duration(float64(len(packet)*8)/l.Rate*float64(time.Second))
		l.busy[h.direction] = end
		delay = end - now + l.Delay
		if f.calm {
			continue
		}
		if f.rand.Float64() < l.Reorder {
			delay += time.Duration(f.rand.Int64N(int64(4*l.Delay) + 1))
		}
		if f.rand.Float64() < l.Corrupt {
			f.corrupt(packet)
			f.lost(now, a, b, "corrupted")
		}
		if f.rand.Float64() < l.Duplicate {
			f.trial.Coverage.Count("packets duplicated")
			copies = append(copies, time.Duration(f.rand.Int64N(int64(min(LongestLife, 50*l.Delay)))))
		}
	}
	for i := range copies {
		copies[i] += delay
	}
	return append(copies, delay)
}

// corrupt flips one to three bits anywhere, which a CRC of 32 bits notices for
// certain where it covers them. Bits that it does not cover mean nothing.
func (f *Fabric) corrupt(packet []byte) {
	for range 1 + f.rand.IntN(3) {
		bit := f.rand.IntN(len(packet) * 8)
		packet[bit/8] ^= 1 << (bit % 8)
	}
}

func (f *Fabric) lost(now time.Duration, a, b int, how string) {
	f.trial.Coverage.Count("packets " + how)
	key := [2]int{min(a, b), max(a, b)}
	l := f.losses[key]
	if l == nil {
		l = &losses{}
		f.losses[key] = l
	}
	l.at[l.n%len(l.at)] = now
	l.n++
}

// LossesSince returns how many packets between two hosts were lost since an instant, 16 at
// most.
func (f *Fabric) LossesSince(a, b int, since time.Duration) int {
	l := f.losses[[2]int{min(a, b), max(a, b)}]
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

// Cut takes a link down for a time.
func (f *Fabric) Cut(l *Link, d time.Duration) {
	if l.down {
		return
	}
	f.trial.Logf("link %d-%d is cut for %v", l.A, l.B, d)
	f.trial.Coverage.Count("link cut")
	l.down = true
	f.trial.Clock.AfterFunc(d, func() { l.down = false })
}

// Heal ends all faults for good.
func (f *Fabric) Heal() {
	f.calm = true
	for _, l := range f.Links {
		l.down = false
	}
}
