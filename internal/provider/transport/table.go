package transport

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A Pair is an entry of the table: a queue pair, of whatever kind.
type Pair struct {
	// Owner is the queue pair in its object model. It is set before Add.
	Owner Owner

	number uint32 // changed with the table's lock held
}

// Number returns the queue pair's number on the wire, of one that is never renumbered.
func (p *Pair) Number() uint32 { return p.number }

// An Owner takes packets that arrived together, addressed to its queue pair, which are lent.
type Owner interface {
	Receive(packets []roce.Received, how Mode)
}

// A table finds queue pairs by number, without a lock. Numbers are given out in
// a circle from a random start, so that a restarted adapter's peers do not take
// its QPs for the old ones (roce.md 11). The high bits of each say which process
// has the queue pair, of those that share the device.
type table struct {
	pages [tablePages]atomic.Pointer[tablePage]

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
	tablePages    = 1 << 12
	tablePageSize = 1 << 12
	reserved      = 16 // numbers below are not given out, as with rxe; 0 and 1 are special

	// A queue pair's number shifted right by ShareShift is the share that has it.
	ShareShift = 18
	// shareMask has the other bits. Each share has a QP 1, too.
	shareMask = 1<<ShareShift - 1
)

type tablePage [tablePageSize]atomic.Pointer[Pair]

// init sets up the table of a share.
func (t *table) init(share uint32, rand *rand.Rand) {
	t.first = share<<ShareShift + reserved
	t.last = (share+1)<<ShareShift - 2 // 0xFFFFFF is special
	t.next = t.first + rand.Uint32N(t.last-t.first+1)
	t.held = map[uint32]int{}
}

// get returns nil for a number that is not in use.
func (t *table) get(number uint32) *Pair {
	page := t.pages[number/tablePageSize%tablePages].Load()
	if page == nil {
		return nil
	}
	return page[number%tablePageSize].Load()
}

// place gives the queue pair a number, by which packets find it from then on; false if there are
// none left. t.mu is held.
func (t *table) place(p *Pair) bool {
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
		slot := &t.pages[number/tablePageSize]
		if slot.Load() == nil {
			slot.Store(new(tablePage))
		}
		if entry := &slot.Load()[number%tablePageSize]; entry.Load() == nil {
			p.number = number
			entry.Store(p)
			t.count++
			return true
		}
	}
	return false
}

// free has a number be in use no longer. t.mu is held.
func (t *table) free(number uint32) {
	t.pages[number/tablePageSize].Load()[number%tablePageSize].Store(nil)
	t.count--
}

// Add gives the queue pair a number, by which packets find it from then on; false if there are none
// left.
func (d *Device) Add(p *Pair) bool {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	return d.table.place(p)
}

// Remove has the queue pair's number be in use no longer.
func (d *Device) Remove(p *Pair) {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	d.table.free(p.number)
}

// Renumber gives a queue pair that is not connected another number; false if there is none left, and
// then it keeps its own.
func (d *Device) Renumber(p *Pair) bool {
	t := &d.table
	t.mu.Lock()
	defer t.mu.Unlock()
	old := p.number
	if !t.place(p) {
		return false
	}
	t.free(old)
	return true
}

// Number returns the queue pair's number on the wire. Renumber may change it.
func (d *Device) Number(p *Pair) uint32 {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	return p.number
}

// HoldNumber has a number not be given out again before as many calls of ReleaseNumber.
func (d *Device) HoldNumber(number uint32) {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	d.table.held[number]++
}

// ReleaseNumber ends a hold. Of a number that is not held, as those of other shares are
// not, it does nothing.
func (d *Device) ReleaseNumber(number uint32) {
	t := &d.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[number]--; t.held[number] <= 0 {
		delete(t.held, number)
	}
}

// Each calls f for every queue pair.
func (d *Device) Each(f func(*Pair)) {
	for i := range d.table.pages {
		page := d.table.pages[i].Load()
		if page == nil {
			continue
		}
		for j := range page {
			if p := page[j].Load(); p != nil {
				f(p)
			}
		}
	}
}
