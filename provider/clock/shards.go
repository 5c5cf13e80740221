package clock

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Shards are virtual clocks that stand at one instant: that of the control, and others whose events can run on several
// processors. Every clock's events run in the order that they would have on one clock.
//
// Step runs the next event of any clock, and that may concern all of them. Window runs events of the shards side by side: an
// event in a window may do what concerns its own shard alone, and nothing with the control. The caller keeps what it does to
// other shards, which takes effect after the window.
//
// Events for the same instant run in the order of their numbers. In a window no shard knows how many numbers the others take, so
// it numbers its events provisionally. When the window is over they get the numbers that they would have had on one clock: the
// logs of the shards say which events ran, and how many numbers each took.
//
// Shards are not for concurrent use.
type Shards struct {
	common  moment // of all clocks, but in windows
	control Virtual
	shards  []*shard

	end     time.Duration  // of the window
	running atomic.Int32   // shards that are not at its end yet, but for the first
	wait    sync.WaitGroup // for those
}

// A shard is a clock that has windows. It belongs to its goroutine in a window, and else to the caller's of Shards. The first
// shard's goroutine is the caller's.
type shard struct {
	Virtual
	logged log
	window atomic.Uint64 // the number of the last window that was begun
	parked atomic.Bool   // its goroutine waits for begun
	begun  chan struct{} // closed by Close
}

// A log has what a shard does in a window.
type log struct {
	ran    []ran     // events that took numbers
	places []*uint64 // where numbers are kept that were given
	final  []uint64  // by provisional number

	// While logs are joined:
	head  ran // the event that is next, with its final number
	next  int // its index in ran
	known int // numbers in final that are
}

// provisional is the first of the numbers that a shard gives in a window. All numbers of before are smaller.
const provisional = 1 << 63

// A ran is an event that has run in a window.
type ran struct {
	at    time.Duration
	seq   uint64
	until uint64 // the provisional number that came next when it was over
}

// NewShards returns so many clocks, beside that of the control, which stand at zero. Close ends their goroutines.
func NewShards(n int) *Shards {
	s := new(Shards)
	s.control.at = &s.common
	for i := range n {
		one := new(shard)
		one.at = &s.common
		s.shards = append(s.shards, one)
		if i > 0 {
			one.begun = make(chan struct{})
			go s.serve(one)
		}
	}
	return s
}

// Close ends the goroutines of the shards. None of the clocks is to be used any more.
func (s *Shards) Close() {
	for _, one := range s.shards[1:] {
		close(one.begun)
	}
}

// Control returns the clock of the control.
func (s *Shards) Control() *Virtual { return &s.control }

// Shard returns a clock by its number, from 0.
func (s *Shards) Shard(i int) *Virtual { return &s.shards[i].Virtual }

// Step runs the next event, moving time forward to it; false if there is none.
func (s *Shards) Step() bool {
	next, head := &s.control, s.control.queue.peek()
	for _, one := range s.shards {
		if e := one.queue.peek(); e != nil && (head == nil || e.precedes(head)) {
			next, head = &one.Virtual, e
		}
	}
	return next.Step()
}

// Next returns the instant of the next event; false if there is none.
func (s *Shards) Next() (at time.Duration, ok bool) {
	at, ok = s.control.Next()
	for _, one := range s.shards {
		if next, some := one.Next(); some && (!ok || next < at) {
			at, ok = next, true
		}
	}
	return at, ok
}

// Window runs all events of the shards that are due before an instant, before which the control has none, and moves time to just
// before it. It returns how many events took numbers. Timers and turns have their final numbers then; Final returns that of a turn which was copied.
func (s *Shards) Window(end time.Duration) (events int) {
	s.end = end
	s.running.Store(int32(len(s.shards) - 1))
	s.wait.Add(len(s.shards) - 1)
	for i, one := range s.shards {
		one.begin(&s.common)
		if i > 0 {
			one.wake()
		}
	}
	s.shards[0].run(end)
	spin(func() bool { return s.running.Load() == 0 })
	s.wait.Wait()
	return s.join()
}

// wake has the goroutine of a shard run a window.
func (s *shard) wake() {
	s.window.Add(1)
	if s.parked.CompareAndSwap(true, false) {
		s.begun <- struct{}{}
	}
}

// serve runs the windows of a shard.
func (s *Shards) serve(one *shard) {
	for number := uint64(1); ; number++ {
		began := func() bool { return one.window.Load() == number }
		for !spin(began) {
			one.parked.Store(true)
			if began() && one.parked.CompareAndSwap(true, false) {
				break
			}
			// The beginning of a window sends, and so may that of the window before, if it was slow.
			if _, ok := <-one.begun; !ok {
				return
			}
		}
		one.run(s.end)
		s.running.Add(-1)
		s.wait.Done()
	}
}

// Spinning ends after soon, which is longer than it takes to wake a thread on a virtual processor that has halted, and after so
// many rounds where time does not move, as in a bubble of testing/synctest.
const (
	soon       = 200 * time.Microsecond
	spinRounds = 1 << 12
	asksARound = 64
)

// spin asks whether something is so until it is, and reports whether that was soon.
func spin(so func() bool) bool {
	began := time.Now()
	for range spinRounds {
		for range asksARound {
			if so() {
				return true
			}
		}
		if time.Since(began) > soon {
			break
		}
	}
	return so()
}

// begin begins a window.
func (s *shard) begin(common *moment) {
	s.own = *common
	s.own.seq = provisional
	s.at, s.log = &s.own, &s.logged
	s.logged.ran, s.logged.places = s.logged.ran[:0], s.logged.places[:0]
}

// run runs the events that are due before an instant.
func (s *shard) run(end time.Duration) {
	for {
		e := s.queue.take(end - 1)
		if e == nil {
			return
		}
		one, before := ran{at: e.at, seq: e.seq}, s.own.seq
		s.own.now, s.own.passed = e.at, e.seq+1
		e.expirer.Expire()
		if one.until = s.own.seq; one.until != before {
			s.logged.ran = append(s.logged.ran, one)
		}
	}
}

// join gives what was numbered in a window the numbers that it would have if the events had run one after the other.
func (s *Shards) join() (events int) {
	for _, one := range s.shards {
		events += len(one.logged.ran)
		one.logged.rewind(one.own.seq)
	}
	for {
		first, second := &s.shards[0].logged, &noneRan
		for _, one := range s.shards[1:] {
			switch l := &one.logged; {
			case l.head.precedes(&first.head):
				first, second = l, &first.head
			case l.head.precedes(second):
				second = &l.head
			}
		}
		if first.head == noneRan {
			break
		}
		s.common.seq = first.give(s.common.seq, second)
	}
	for _, one := range s.shards {
		for _, place := range one.logged.places {
			*place = one.logged.numbered(*place)
		}
		one.at, one.log = &s.common, nil
	}
	s.common.now, s.common.passed = s.end-1, s.common.seq
	return events
}

// noneRan stands behind all events that have run.
var noneRan = ran{at: math.MaxInt64, seq: math.MaxUint64}

func (e *ran) precedes(other *ran) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

// rewind goes to the first event of a window in which a shard has given the numbers from provisional to end.
func (l *log) rewind(end uint64) {
	n := int(end - provisional)
	l.final, l.known = slices.Grow(l.final[:0], n)[:n], 0
	l.advance(0)
}

// advance goes to an event. Its number is known: the event that asked for it has run before.
func (l *log) advance(to int) {
	l.next, l.head = to, noneRan
	if to < len(l.ran) {
		l.head = l.ran[to]
		l.head.seq = l.numbered(l.head.seq)
	}
}

// give gives numbers, from seq on, to what the events took that ran before one of another shard. It returns the number that is
// next.
func (l *log) give(seq uint64, before *ran) uint64 {
	for l.head.precedes(before) {
		for n := int(l.head.until - provisional); l.known < n; l.known++ {
			l.final[l.known] = seq
			seq++
		}
		l.advance(l.next + 1)
	}
	return seq
}

// numbered returns the final number for one that the shard has given.
func (l *log) numbered(n uint64) uint64 {
	if n < provisional {
		return n
	}
	return l.final[n-provisional]
}

// Final returns a turn that a shard has given in the window that is over, with its final number.
func (s *Shards) Final(shard int, t Turn) Turn {
	t.seq = s.shards[shard].logged.numbered(t.seq)
	return t
}
