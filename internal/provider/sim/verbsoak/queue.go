package verbsoak

import (
	"errors"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// A queue is a completion queue, which the program polls when it is notified, or after each event.
type queue struct {
	host   *host
	cq     *verbs.CQ
	depth  int
	wanted bool // it is armed
	over   bool // it has overrun
}

func newQueue(h *host, small bool) *queue {
	q := &queue{host: h, depth: ample(h.run.Rand.IntN(3))}
	if small {
		q.depth = 4 + h.run.Rand.IntN(20)
	}
	q.cq = made(h.context.CreateCQ(q.depth, q.notified))
	q.arm()
	return q
}

// ample returns a depth that suffices.
func ample(n int) int { return 2048 + 512*n }

func (q *queue) arm() {
	if !q.host.plan.eager {
		q.wanted = true
		q.cq.Arm(false)
	}
}

// notified follows a notification: the program polls a little later.
func (q *queue) notified() {
	if !q.wanted {
		q.host.run.Fail("one notification for each arm", "%v", q.host)
	}
	q.wanted = false
	q.host.run.Later(50*time.Microsecond, func() {
		q.arm()
		q.poll()
	})
}

// poll takes all that is there, one by one, since to judge one may mean to poll; n counts it.
func (q *queue) poll() (n int) {
	r := q.host.run
	var c [1]verbs.Completion
	for ; q.cq.Poll(c[:]) > 0; n++ {
		r.Note(uint64(r.Clock.Now()), c[0].ID, uint64(c[0].Status), uint64(c[0].Bytes))
		r.judge(q, &c[0])
	}
	return n
}

// overran follows EventCQError: the queue must be full, and is of no more use.
func (q *queue) overran() {
	r := q.host.run
	q.over = true
	for _, e := range q.host.ends {
		if e.sendQueue == q || e.receiveQueue == q {
			e.lossy = true
			e.expectError()
		}
	}
	r.Clock.AfterFunc(0, func() {
		if n := q.poll(); n > q.depth {
			r.Fail("a queue holds its depth", "%v: %d completions in a queue for %d", q.host, n, q.depth)
		}
	})
}

// resize changes the depth of a queue that has room in any case.
func (q *queue) resize() {
	r := q.host.run
	depth := ample(r.Rand.IntN(3))
	if q.over || q.depth < 1000 {
		return
	}
	q.poll()
	must(q.cq.Resize(depth))
	q.depth = depth
	r.Coverage.Count("CQ resized")
}

// A receives is a queue of receives, an end's own or a shared one: what the program has posted and what has not
// completed, in order.
type receives struct {
	host   *host
	srq    *verbs.SRQ // nil: an end's own
	end    *end       // whose own
	depth  int
	posted int
	queue  []*receive // posted and not known to be taken
	// promised are messages that are to find a receive and have not, where none may be missing.
	promised int
	// swallowed are, at most, those that ends had taken when they were reset or destroyed.
	swallowed int
	limit     int // of the event that is to come; 0 for none
}

// A receive is one work request.
type receive struct {
	id       uint64
	of       *receives
	slot     *claim
	before   []byte // content of the slot when it was posted
	capacity int
	over     bool
}

func newSharedReceives(h *host) *receives {
	s := &receives{host: h, depth: 32}
	s.srq = made(h.pd.CreateSRQ(s.depth, 3, 0))
	return s
}

// post posts up to n receives; room for a datagram's header is for any.
func (s *receives) post(n int) {
	r := s.host.run
	for range n {
		if len(s.queue)-s.swallowed >= s.depth/2 {
			return
		}
		size := s.host.memory.unit
		if s.end != nil && s.end.kind == verbs.UD && r.plan.scarce && r.Chance(0.2) {
			size = 40 + r.Rand.IntN(100)
		}
		slot := s.host.memory.claim("receive", min(size, s.host.memory.unit))
		if slot == nil {
			return
		}
		slot.any = true
		v := &receive{id: r.identify(nil), of: s, slot: slot, before: append([]byte(nil), slot.Content()...), capacity: slot.To - slot.From}
		r.receives[v.id] = v
		request := verbs.ReceiveRequest{ID: v.id, SGL: slot.pieces(3)}
		var err error
		if s.srq != nil {
			err = s.srq.Receive(request)
		} else {
			err = s.end.postReceive(request)
		}
		if err != nil {
			if s.swallowed > 0 && errors.Is(err, syscall.ENOMEM) {
				v.end()
				return
			}
			r.Fail("posts are taken", "%v: a receive: %v", s.host, err)
		}
		r.Coverage.Count("posted receive")
		s.queue = append(s.queue, v)
		s.posted++
	}
}

// take returns the oldest receive, which a message that arrives whole will complete; nil if there is none.
func (s *receives) take() *receive {
	if len(s.queue) == 0 {
		return nil
	}
	v := s.queue[0]
	s.promised--
	s.queue = s.queue[1:]
	return v
}

// drop has all receives be gone without a completion.
func (s *receives) drop() {
	for _, v := range s.queue {
		v.end()
	}
	s.queue = nil
}

func (v *receive) end() {
	v.over = true
	delete(v.of.host.run.receives, v.id)
	v.slot.release()
}

// setLimit asks for an event.
func (s *receives) setLimit() {
	s.limit = 1 + s.host.run.Rand.IntN(6)
	must(s.srq.SetLimit(s.limit))
}

// limitReached follows the event: each end may have taken one receive that is not complete.
func (s *receives) limitReached() {
	r, limit := s.host.run, s.limit
	if limit == 0 {
		r.Fail("events happen for a reason", "%v: an SRQ without a limit", s.host)
	}
	s.limit = 0
	posted := s.posted
	r.Clock.AfterFunc(0, func() {
		using := 0
		for _, e := range s.host.ends {
			if e.receives == s {
				using++
				e.receiveQueue.poll()
			}
		}
		if posted == s.posted && len(s.queue)-using-s.swallowed >= limit {
			r.Fail("events happen for a reason", "%v: limit %d of an SRQ with %d receives", s.host, limit, len(s.queue))
		}
	})
}

// resize changes the depth of a shared queue.
func (s *receives) resize() {
	depth := 32 + s.host.run.Rand.IntN(33)
	if err := s.srq.Resize(depth); err != nil && s.swallowed == 0 {
		s.host.run.Fail("posts are taken", "%v: SRQ resized: %v", s.host, err)
	} else if err != nil {
		return
	}
	s.depth = depth
	s.host.run.Coverage.Count("SRQ resized")
}
