package impair

import (
	"time"

	"github.com/ndklab/ndklab/topology"
)

// MaxDepth bounds how many packets one can overtake.
const MaxDepth = topology.MaxReorderDepth

// order decides the order in which packets leave. Those that leave at the same instant
// leave in the order in which they came.
//
// The latest departures so far, one more than the depth, are all that has to be
// known: a packet overtakes at most as many as the depth if it does not leave
// before the least of them. Packets that a fault postpones are not among them:
// all may overtake those.
type order struct {
	latest []time.Duration // ascending, never empty
}

// resize changes the depth. Until enough packets have left,
// a larger depth has no effect.
func (o *order) resize(depth int) {
	if len(o.latest) == depth+1 {
		return
	}
	latest := make([]time.Duration, depth+1)
	if len(o.latest) > 0 {
		for i := range latest {
			latest[depth-i] = o.latest[max(0, len(o.latest)-1-i)]
		}
	}
	o.latest = latest
}

// last returns the latest departure.
func (o *order) last() time.Duration { return o.latest[len(o.latest)-1] }

// insert adds a departure that is not before the least of the latest, and returns how many
// are later.
func (o *order) insert(departs time.Duration) (later uint16) {
	i := len(o.latest) - 1
	for o.latest[i] > departs {
		i--
		later++
	}
	copy(o.latest[:i], o.latest[1:i+1])
	o.latest[i] = departs
	return later
}

// follow returns when a packet leaves that stays behind all others: at own, or just after
// them.
func (o *order) follow(own time.Duration) (departs time.Duration) {
	departs = max(own, o.last())
	if len(o.latest) == 1 {
		o.latest[0] = departs
	} else {
		o.insert(departs)
	}
	return departs
}

// reorder returns when a packet leaves that was sent at an instant. One that hurries leaves
// just before as many as it can. One with jitter leaves at own, but before no more than the
// depth. Any other follows, an instant later than the last, so that there is room for others
// between them.
func (o *order) reorder(own, sent time.Duration, hurries, jittered bool) (departs time.Duration, overtakes uint16) {
	switch {
	case hurries && o.before(len(o.latest)-1, sent) > 0:
		departs = o.latest[len(o.latest)-o.before(len(o.latest)-1, sent)] - 1
	case jittered:
		departs = max(own, o.latest[0])
	default:
		departs = max(own, o.last()+1)
	}
	return departs, o.insert(departs)
}

// before returns how many packets, at most k, one that was sent at an instant can overtake:
// the first of them has not left by then, and the one ahead of it
// leaves earlier.
func (o *order) before(k int, sent time.Duration) int {
	n := len(o.latest)
	for ; k > 0; k-- {
		if first := o.latest[n-k]; first > sent && first > o.latest[n-k-1] {
			return k
		}
	}
	return 0
}

// apart is the time between the departures of a replayed packet and of others that
// could be overtaken, so that there is room between the two for those that were
// recorded there.
const apart = 128 * time.Nanosecond

// overtake has a packet leave as nearly as possible when it would by itself, but
// before k others: between those and the one ahead of them, at some distance from
// either. Instants that were recorded are not enough: packets that come closer
// to each other than they did then would leave at the same one, and none of the
// next could leave between them.
func (o *order) overtake(own, sent time.Duration, k int) (departs time.Duration, overtakes uint16) {
	n := len(o.latest)
	if n == 1 {
		return o.follow(own), 0
	}
	ahead := o.latest[n-1-k]
	departs = max(own, ahead+apart)
	if k > 0 {
		switch behind := o.latest[n-k]; {
		case behind <= sent || behind == ahead:
			departs = max(own, ahead)
		default:
			room := min(apart, (behind-ahead)/2)
			departs = max(min(own, behind-max(room, 1)), ahead+room)
		}
	}
	return departs, o.insert(departs)
}
