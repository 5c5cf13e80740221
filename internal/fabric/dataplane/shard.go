package dataplane

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// This file is a plane whose nodes are on several processors.

// A Shard is some of the nodes of a Plane, with the beginnings of the wires that leave them and the ends of those that lead
// there. In a window of clock.Shards all of that belongs to the goroutine that runs the shard's clock; frames that leave it are
// kept until the window is over.
type Shard[F any] struct {
	Clock *clock.Virtual
	Owner Owner[F]
}

// A shard is a Shard with what its goroutine needs.
type shard[F any] struct {
	plane  *Plane[F]
	clock  *clock.Virtual
	owner  Owner[F]
	kept   []crossing[F] // frames that have left it in this window
	obeyed bool          // a pause has begun in this window

	packet  impair.Packet  // that a wire decides on
	verdict impair.Verdict // on it
	pause   mmu.PFC        // that enters a wire
}

// A crossing is a frame on a wire to another shard.
type crossing[F any] struct {
	wire *Wire[F]
	transit[F]
	turn clock.Turn // that the wire's timer would have if this frame were the first to leave
}

// NewSharded is New with nodes that are in shards: of has the number of each node's, by name; others are in the first. The owner of
// the first is told of deadlocks. handed is told of each frame that has left its shard, between windows.
func NewSharded[F any](shards []Shard[F], of map[string]int, t *topology.Topology, handed func(from, to Owner[F], f F)) *Plane[F] {
	p := &Plane[F]{of: of, topology: t, handed: handed, buffers: map[string]*Buffer[F]{}, wires: make([][2]*Wire[F], len(t.Links))}
	for _, s := range shards {
		p.shards = append(p.shards, &shard[F]{plane: p, clock: s.Clock, owner: s.Owner})
	}
	return p
}

// shardOf returns the shard of a node.
func (p *Plane[F]) shardOf(node string) *shard[F] { return p.shards[p.of[node]] }

// now returns the present instant, between windows.
func (p *Plane[F]) now() time.Duration { return p.shards[0].clock.Now() }

// Lookahead returns how long it takes at least until something in one shard comes of what happens in another: the least delay of
// the wires between shards.
func (p *Plane[F]) Lookahead() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, w := range p.crossing {
		least = min(least, w.model.LeastDelay())
	}
	return least
}

// BeginWindow has frames that leave a shard be kept until EndWindow. Then shards have nothing in common in a window of
// clock.Shards that is no longer than Lookahead, but for what the owners have.
func (p *Plane[F]) BeginWindow() { p.windowed = true }

// EndWindow hands over the frames that have left their shards since BeginWindow. final returns the final turn for one that a
// shard has given. It reports whether a deadlock has come, of which the owner has not been told.
func (p *Plane[F]) EndWindow(final func(shard int, t clock.Turn) clock.Turn) (deadlocked bool) {
	p.windowed = false
	obeyed := false
	for i, s := range p.shards {
		for j := range s.kept {
			c := &s.kept[j]
			p.handed(s.owner, c.wire.end.owner, c.frame)
			c.wire.hand(c.transit, final(i, c.turn))
		}
		clear(s.kept) // of frames
		s.kept = s.kept[:0]
		obeyed = obeyed || s.obeyed
		s.obeyed = false
	}
	return obeyed && p.cycle() != nil
}

// keep keeps a frame that has entered a wire to another shard.
func (s *shard[F]) keep(w *Wire[F], t transit[F]) {
	s.kept = append(s.kept, crossing[F]{wire: w, transit: t})
	last := &s.kept[len(s.kept)-1]
	last.turn.Take(s.clock, 0)
}

// crosses reports whether the wire leads from one shard to another.
func (w *Wire[F]) crosses() bool { return w.begin != w.end }

// hand is push for a frame that entered in a window, and had the turn of the timer that would have been set then if the frame was
// the first to leave. If frames that are first were on the wire and left it only after that, the timer would have been set for this
// one in the turn in which they did (expired).
func (w *Wire[F]) hand(t transit[F], entered clock.Turn) {
	if !w.inserted(t) {
		return
	}
	turn := entered
	if entered.Earlier(w.expired) {
		turn = w.expired
	}
	first := w.transit.first()
	w.timer.ResetTo(turn.Moved(max(first.Departs, w.free)))
}
