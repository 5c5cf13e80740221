package provider

import (
	"sync"
	"sync/atomic"
)

// qpTable finds queue pairs by number, without a lock. Numbers are given out in
// a circle from a random start, so that a restarted adapter's peers do not take
// its QPs for the old ones (roce.md 11).
type qpTable struct {
	pages [qpPages]atomic.Pointer[qpPage]

	mu    sync.Mutex // guards what follows
	next  uint32
	count int
}

const (
	qpPages    = 1 << 12
	qpPageSize = 1 << 12
	firstQPN   = 16 // as rxe; 0 and 1 are special
	lastQPN    = qpPages*qpPageSize - 2
)

type qpPage [qpPageSize]atomic.Pointer[QP]

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
	if t.count == lastQPN-firstQPN+1 {
		return false
	}
	for {
		number := t.next
		t.next++
		if t.next > lastQPN {
			t.next = firstQPN
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
}

func (t *qpTable) remove(qp *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pages[qp.number/qpPageSize].Load()[qp.number%qpPageSize].Store(nil)
	t.count--
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
