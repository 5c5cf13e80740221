package provider

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// qpTable finds queue pairs by number, without a lock. Numbers are given out in
// a circle from a random start, so that a restarted adapter's peers do not take
// its QPs for the old ones (roce.md 11). The high bits of each say which process
// has the queue pair, of those that share the device.
type qpTable struct {
	pages [qpPages]atomic.Pointer[qpPage]

	mu          sync.Mutex // guards what follows
	first, last uint32     // of this process
	next        uint32
	count       uint32
	// held says how many connections the connection manager knows by a number, of
	// a queue pair that may be gone: until their timewaits are over, packets for it
	// may be under way.
	held map[uint32]int
}

const (
	qpPages    = 1 << 12
	qpPageSize = 1 << 12
	reserved   = 16 // numbers below are not given out, as with rxe; 0 and 1 are special

	// ShareShift is how far a queue pair's number is to be shifted right to be
	// that of the share that has it.
	ShareShift = 18
)

type qpPage [qpPageSize]atomic.Pointer[QP]

// init is for the table of a share.
func (t *qpTable) init(share uint32, rand *rand.Rand) {
	t.first = share<<ShareShift + reserved
	t.last = (share+1)<<ShareShift - 2 // 0xFFFFFF is special
	t.next = t.first + rand.Uint32N(t.last-t.first+1)
	t.held = map[uint32]int{}
}

// get is nil for a number that is not in use.
func (t *qpTable) get(number uint32) *QP {
	page := t.pages[number/qpPageSize%qpPages].Load()
	if page == nil {
		return nil
	}
	return page[number%qpPageSize].Load()
}

// add gives the queue pair a number, by which packets find it from then on;
// false if there are none left.
func (t *qpTable) add(qp *QP) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.place(qp)
}

// place is add with t.mu held.
func (t *qpTable) place(qp *QP) bool {
	size := t.last - t.first + 1
	if t.count == size {
		return false
	}
	for range size {
		number := t.next
		t.next++
		if t.next > t.last {
			t.next = t.first
		}
		if t.held[number] > 0 {
			continue
		}
		slot := &t.pages[number/qpPageSize]
		if slot.Load() == nil {
			slot.Store(new(qpPage))
		}
		if entry := &slot.Load()[number%qpPageSize]; entry.Load() == nil {
			qp.number = number
			entry.Store(qp)
			t.count++
			return true
		}
	}
	return false
}

// hold has a number not be given out again before as many calls of release.
func (t *qpTable) hold(number uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held[number]++
}

// release ends a hold. Of a number that is not held, as those of other shares are
// not, it does nothing.
func (t *qpTable) release(number uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[number]--; t.held[number] <= 0 {
		delete(t.held, number)
	}
}

func (t *qpTable) remove(qp *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free(qp.number)
}

// free has a number be in use no longer. t.mu is held.
func (t *qpTable) free(number uint32) {
	t.pages[number/qpPageSize].Load()[number%qpPageSize].Store(nil)
	t.count--
}

// renumber gives a queue pair that is not connected another number; false if
// there is none left, and then it keeps its own.
func (t *qpTable) renumber(qp *QP) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := qp.number
	if !t.place(qp) {
		return false
	}
	t.free(old)
	return true
}

func (t *qpTable) numberOf(qp *QP) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return qp.number
}

// each calls f for every queue pair.
func (t *qpTable) each(f func(*QP)) {
	for i := range t.pages {
		page := t.pages[i].Load()
		if page == nil {
			continue
		}
		for j := range page {
			if qp := page[j].Load(); qp != nil {
				f(qp)
			}
		}
	}
}
