package verbs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
)

// A polled carrier has consumers receive alone who poll.
type polled struct{ provider.Carrier }

func (polled) Poll(provider.Receiver) bool                        { return false }
func (polled) PollBeside(provider.Receiver) (arrived, alone bool) { return false, true }
func (polled) Resume()                                            {}
func (polled) CatchUp(provider.Receiver)                          {}

// Queues are a queue pair's work queues, and the consumer that writes to them as long as the queue pair watches.
type queues struct {
	*testing.T
	qp       *verbs.QP
	sends    []verbs.SendRequest
	receives []verbs.ReceiveRequest

	watched, receivesWatched bool
	room, receiveRoom        int // counted down as requests are written
}

func (q *queues) TakeSend() *verbs.SendRequest {
	if len(q.sends) == 0 {
		return nil
	}
	r := q.sends[0]
	q.sends = q.sends[1:]
	return &r
}

func (q *queues) TakeReceive() *verbs.ReceiveRequest {
	if len(q.receives) == 0 {
		return nil
	}
	r := q.receives[0]
	q.receives = q.receives[1:]
	return &r
}

func (q *queues) WatchSends(watch bool, room int) { q.watched, q.room = watch, room }

func (q *queues) WatchReceives(watch bool, room int) { q.receivesWatched, q.receiveRoom = watch, room }

// write writes a request if the queue pair watches and has room, else posts it by a call, and reports which.
func (q *queues) write(r verbs.SendRequest) (written bool) {
	q.Helper()
	if !q.watched || q.room == 0 {
		if _, err := q.qp.Post([]verbs.SendRequest{r}); err != nil {
			q.Fatal(err)
		}
		return false
	}
	q.room--
	q.sends = append(q.sends, r)
	return true
}

func (q *queues) writeReceive(r verbs.ReceiveRequest) (written bool) {
	q.Helper()
	if !q.receivesWatched || q.receiveRoom == 0 {
		if _, err := q.qp.Receive([]verbs.ReceiveRequest{r}); err != nil {
			q.Fatal(err)
		}
		return false
	}
	q.receiveRoom--
	q.receives = append(q.receives, r)
	return true
}

// queued makes a pair whose first has work queues, and whose consumers poll.
func queuedPair(t *testing.T) (w *world, qps [2]*verbs.QP, q *queues) {
	t.Helper()
	w = newWorldOver(t, 1, func(c provider.Carrier) provider.Carrier { return polled{c} })
	qps = w.pair(verbs.RC, nil)
	q = &queues{T: t, qp: qps[0]}
	qps[0].UseQueues(q)
	return w, qps, q
}

// numbers are "what first" to "what last".
func numbers(what string, first, last int, rest string) (all []string) {
	for i := first; i <= last; i++ {
		all = append(all, fmt.Sprint(what, " ", i, rest))
	}
	return all
}

// pipeline posts writes until the queue pair watches, and returns how many.
func (h *host) pipeline(q *queues) (n int) {
	h.world.t.Helper()
	var c [1]verbs.Completion
	for h.cq.Poll(c[:]); !q.watched; h.cq.Poll(c[:]) {
		if n++; n > 60 {
			h.world.t.Fatal("the queue pair does not watch")
		}
		q.write(h.request(rc.OpWrite, uint64(n), 0, 10, n*100))
	}
	return n
}

// TestWrittenSends: a queue pair whose consumer polls and does not wait for each request looks for more by itself, and
// sends them as the consumer polls, behind those that were posted.
func TestWrittenSends(t *testing.T) {
	w, qps, q := queuedPair(t)
	a, b := w.hosts[0], w.hosts[1]
	if q.watched {
		t.Fatal("watches before anything was posted")
	}
	n := a.pipeline(q)
	if want := 64 - n; q.room != want {
		t.Errorf("room for %d, want %d", q.room, want)
	}
	b.receive(qps[1], 1000, 500, 10)
	copy(a.memory, "0123456789")
	if !q.write(a.request(rc.OpSend, uint64(n+1), 0, 10, 0)) {
		t.Fatal("not written")
	}
	var c [1]verbs.Completion
	for i := range 3 {
		if a.cq.Poll(c[:]); len(q.sends) > 0 {
			t.Error("not looked for by a poll")
		}
		q.write(a.request(rc.OpWrite, uint64(n+2+i), 0, 10, 800))
	}
	w.post(qps[0], a.request(rc.OpWrite, uint64(n+5), 0, 10, 900)) // by a call
	a.completed(slices.Concat(numbers("write", 1, n, ""), numbers("send", n+1, n+1, ""), numbers("write", n+2, n+5, ""))...)
	b.completed("receive 1000 of 10")
	if string(b.memory[500:510]) != "0123456789" {
		t.Errorf("%q arrived", b.memory[500:510])
	}
	if q.watched {
		t.Error("watches though nothing is under way")
	}
}

// TestWrittenAndLeft: what is written is sent though the consumer polls no more.
func TestWrittenAndLeft(t *testing.T) {
	w, _, q := queuedPair(t)
	a := w.hosts[0]
	n := a.pipeline(q)
	for i := range 10 {
		if !q.write(a.request(rc.OpWrite, uint64(n+1+i), 0, 10, 0)) {
			t.Fatal("not written")
		}
	}
	w.run()
	if len(q.sends) > 0 || q.watched {
		t.Errorf("%d requests left, watched %t", len(q.sends), q.watched)
	}
	a.completed(numbers("write", 1, n+10, "")...)
}

// TestRoomIsShared: what is posted by a call leaves less room for what is written.
func TestRoomIsShared(t *testing.T) {
	w, qps, q := queuedPair(t)
	a := w.hosts[0]
	n := a.pipeline(q)
	const written = 40
	for range written {
		q.write(a.request(rc.OpWrite, 100, 0, 10, 0))
	}
	if _, err := qps[0].Post([]verbs.SendRequest{a.request(rc.OpWrite, 100, 0, 10, 0)}); err != nil {
		t.Fatal(err)
	}
	if want := 64 - n - written - 1; q.room != want {
		t.Errorf("room for %d, want %d", q.room, want)
	}
}

// TestRing: what was written just as the queue pair ceased to look is rung for.
func TestRing(t *testing.T) {
	w, qps, q := queuedPair(t)
	a := w.hosts[0]
	q.sends = []verbs.SendRequest{a.request(rc.OpWrite, 1, 0, 10, 0)}
	qps[0].Ring()
	a.completed("write 1")
}

// TestWrittenReceives are found when they are needed, behind those that were posted.
func TestWrittenReceives(t *testing.T) {
	w, qps, q := queuedPair(t)
	a, b := w.hosts[0], w.hosts[1]
	if !q.receivesWatched || q.receiveRoom != 64 {
		t.Fatalf("watches %t, room for %d", q.receivesWatched, q.receiveRoom)
	}
	a.receive(qps[0], 1, 0, 100)
	if q.receiveRoom != 63 {
		t.Errorf("room for %d beside one, want 63", q.receiveRoom)
	}
	for id := range uint64(62) {
		if !q.writeReceive(verbs.ReceiveRequest{ID: 2 + id, SGL: []rc.SGE{a.piece(0, 100)}}) {
			t.Fatal("not written")
		}
	}
	a.receive(qps[0], 64, 0, 100)
	if q.receiveRoom != 0 {
		t.Errorf("room for %d beside 64", q.receiveRoom)
	}
	for i := range 60 {
		w.post(qps[1], b.request(rc.OpSend, uint64(i), 0, i, 0))
	}
	w.run()
	for i := range 4 {
		w.post(qps[1], b.request(rc.OpSend, uint64(i), 0, 60+i, 0))
	}
	var want []string
	for i := range 64 {
		want = append(want, fmt.Sprint("receive ", 1+i, " of ", i))
	}
	a.completed(want...)
	a.receive(qps[0], 65, 0, 100)
	if q.receiveRoom != 63 {
		t.Errorf("room for %d beside one, want 63", q.receiveRoom)
	}
}

// TestWrittenInError: what was written is flushed, also right after the queue pair has failed; what was written before it is
// reset is forgotten.
func TestWrittenInError(t *testing.T) {
	w, qps, q := queuedPair(t)
	a := w.hosts[0]
	write := func() {
		q.receives = append(q.receives, verbs.ReceiveRequest{ID: 100, SGL: []rc.SGE{a.piece(0, 100)}})
		q.sends = append(q.sends, a.request(rc.OpWrite, 200, 0, 10, 0))
	}
	write()
	w.modify(qps[0], verbs.Attributes{State: verbs.Error}, 0)
	a.completed("write 200 status 5", "receive 100 status 5")
	if q.watched || q.receivesWatched {
		t.Errorf("watches %t, receives %t", q.watched, q.receivesWatched)
	}
	write()
	qps[0].Ring()
	a.completed("write 200 status 5", "receive 100 status 5")
	write()
	w.modify(qps[0], verbs.Attributes{State: verbs.Reset}, 0)
	a.completed()
	if len(q.sends)+len(q.receives) > 0 || q.receivesWatched {
		t.Errorf("left: %d, %d, watches receives %t", len(q.sends), len(q.receives), q.receivesWatched)
	}
	a.toInit(qps[0])
	if !q.receivesWatched {
		t.Error("does not watch receives again")
	}
	check(t, qps[0].Destroy())
}

// TestWrittenAndFailed: what was written is flushed when the peer does not answer any more.
func TestWrittenAndFailed(t *testing.T) {
	w, qps, q := queuedPair(t)
	a := w.hosts[0]
	q.writeReceive(verbs.ReceiveRequest{ID: 100, SGL: []rc.SGE{a.piece(0, 100)}})
	check(t, qps[1].Destroy())
	n := a.pipeline(q)
	q.write(a.request(rc.OpWrite, 200, 0, 10, 0))
	w.clock.Run(time.Minute)
	a.completed(slices.Concat([]string{"write 1 status 12"}, numbers("write", 2, n, " status 5"), []string{"receive 100 status 5", "write 200 status 5"})...)
	if q.watched || q.receivesWatched || len(q.sends)+len(q.receives) > 0 {
		t.Errorf("watches %t, receives %t; left %d, %d", q.watched, q.receivesWatched, len(q.sends), len(q.receives))
	}
}

// TestWrittenNonsense: who writes what posting would have refused has the queue pair in error, and nothing worse.
func TestWrittenNonsense(t *testing.T) {
	w, qps, q := queuedPair(t)
	a := w.hosts[0]
	r := a.request(rc.OpWrite, 1, 0, 10, 0)
	r.SGL = slices.Repeat(r.SGL, 5)
	q.sends = append(q.sends, r)
	qps[0].Ring()
	a.completed("write 1 status 1")
	if s, _ := qps[0].Query(); s.State != verbs.Error {
		t.Errorf("state %d", s.State)
	}
}
