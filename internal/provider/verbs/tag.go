package verbs

import "github.com/ndklab/ndklab/internal/provider/rc"

// A tag is the ID of a work request while it is under way, as the context that package rc hands through.
type tag struct{ id uint64 }

// tags are those that are not in use. Their owner guards them.
type tags struct{ free []*tag }

// take returns a tag with an ID.
func (t *tags) take(id uint64) *tag {
	last := len(t.free) - 1
	if last < 0 {
		return &tag{id}
	}
	taken := t.free[last]
	t.free = t.free[:last]
	taken.id = id
	return taken
}

// give has a tag be used again, and returns its ID.
func (t *tags) give(of *tag) uint64 {
	t.free = append(t.free, of)
	return of.id
}

// A ReceiveRequest is a receive to be posted (ibv_recv_wr). Nothing of it is kept.
type ReceiveRequest struct {
	ID  uint64
	SGL []rc.SGE
}
