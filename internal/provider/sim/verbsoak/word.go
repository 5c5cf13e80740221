package verbsoak

import (
	"encoding/binary"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// A word is 8 bytes that atomics of several queue pairs change. One packet arrives with each event of the clock, so that
// no change is missed: its history is the serial order.
type word struct {
	memory  *memory
	at      int
	history []uint64
	waiting []*request // that may be applied yet
}

func newWord(m *memory, at int) *word {
	w := &word{memory: m, at: at}
	w.history = []uint64{w.value()}
	return w
}

func (w *word) value() uint64 { return binary.NativeEndian.Uint64(w.memory.Bytes[w.at:]) }

// look follows a change: exactly one request that has not been applied explains it.
func (w *word) look() {
	last, now := w.history[len(w.history)-1], w.value()
	if now == last {
		return
	}
	i := slices.IndexFunc(w.waiting, func(q *request) bool {
		switch {
		case q.applied:
			return false
		case q.op == rc.OpFetchAdd:
			return last+q.operand == now
		case q.op == rc.OpCompareSwap:
			return last == q.compare && now == q.operand
		}
		return now == q.operand
	})
	r := w.memory.host.run
	if i < 0 {
		r.Fail("atomics are applied once", "%v: word at %d goes from %#x to %#x, which nothing explains that has not been applied", w.memory.host, w.at, last, now)
	}
	q := w.waiting[i]
	q.applied, q.original = true, last
	w.history = append(w.history, now)
	copy(w.memory.Image[w.at:w.at+wordBytes], w.memory.Bytes[w.at:])
	r.Coverage.Count("atomic applied")
}

// atomic makes q an atomic of a random kind on one of the peer's words.
func (q *request) atomic() {
	r := q.end.run
	q.op = []rc.Op{rc.OpFetchAdd, rc.OpCompareSwap, rc.OpAtomicWrite}[r.Rand.IntN(3)]
	w := q.end.peer.host.memory.words[r.Rand.IntN(words)]
	q.word, q.operand, q.since = w, r.Rand.Uint64(), len(w.history)-1
	q.compare = w.history[len(w.history)-1]
	if r.Chance(0.3) {
		q.compare = r.Rand.Uint64()
	}
	w.waiting = append(w.waiting, q)
}

// returned checks what an atomic that has succeeded says was there.
func (q *request) returned() {
	q.word.look()
	r := q.end.run
	if !q.applied && q.op != rc.OpCompareSwap {
		r.Fail("atomics are applied once", "%v has succeeded, and has not been applied", q)
	}
	if q.op != rc.OpAtomicWrite {
		got := binary.NativeEndian.Uint64(q.local.Content())
		switch {
		case q.applied && got != q.original:
			r.Fail("atomics return what was there", "%v returns %#x, when %#x was there", q, got, q.original)
		case !q.applied && (got == q.compare || !slices.Contains(q.word.history[q.since:], got)):
			r.Fail("atomics return what was there", "%v returns %#x, which was not there since it was posted", q, got)
		}
	}
	q.word.forget(q)
}

func (w *word) forget(q *request) {
	w.waiting = slices.DeleteFunc(w.waiting, func(o *request) bool { return o == q })
}
