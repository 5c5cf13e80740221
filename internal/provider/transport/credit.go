package transport

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// turnPackets is the number of full packets that a turn is worth: as many as one READ
// on the wire may ask for, since the answer to that cannot be stopped half-way, and
// enough for two super-packets.
const turnPackets = 32

// A creditPool bounds the bytes that all queue pairs of a device together have in
// flight beyond what their paths hold, to what fits a receive buffer. All ends are stocked
// alike, so what our own was granted is the best guess at what the peers' were; and
// all queue pairs share one pool, since they may all lead to one peer, or READ into
// our own buffer.
//
// A queue pair takes credit for what it is about to send, and gives it back when
// that is acknowledged or given up for lost. As long as there is enough for all, that
// is all. When the pool is empty they wait in line, and each in turn gets enough for
// a good batch, however many they are. To share the pool out evenly would be simpler,
// but of 1,000 queue pairs each could have one packet in flight, so that every packet
// would cost two system calls; and it would still be more than the receive buffer
// holds, as everyone has to have one.
//
// Credit given back goes to the head of the line, whose queue pair is then resumed
// by itself: its lock cannot be taken while that of the one that gives is held. The
// goroutine that handles packets does that when it is through with them; where no
// such is at work another is started.
//
// A queue pair that waits and has nothing in flight runs no timer, and one that is
// idle holds nothing.
type creditPool struct {
	size, turn     int64          // bytes, fixed; at least one packet fits a turn
	start          func(f func()) // has f run soon, on a goroutine of its own
	free           atomic.Int64   // bytes
	needed         atomic.Int64   // what must be free for the head of the line to have its turn; 0: nobody waits
	receiving      atomic.Int64   // goroutines that will call resume
	resumableCount atomic.Int64   // queue pairs in resumable
	mu             sync.Mutex     // guards what follows
	waiting        creditQueue    // those who wait
	resumable      creditQueue    // those who have been given credit, and are to be told
}

// A creditRequest is a queue pair's place in the line, and how many bytes it can use.
type creditRequest struct {
	channel *Channel
	bytes   int64
}

// A creditQueue is first in, first out.
type creditQueue struct {
	ring     []creditRequest // of a power of 2
	first, n int
}

func (q *creditQueue) push(r creditRequest) {
	if q.n == len(q.ring) {
		ring := make([]creditRequest, max(16, 2*q.n))
		copy(ring[copy(ring, q.ring[q.first:]):], q.ring[:q.first])
		q.ring, q.first = ring, 0
	}
	q.ring[(q.first+q.n)&(len(q.ring)-1)] = r
	q.n++
}

func (q *creditQueue) head() *creditRequest { return &q.ring[q.first] }

func (q *creditQueue) pop() creditRequest {
	r := q.ring[q.first]
	q.ring[q.first] = creditRequest{}
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.n--
	return r
}

func (p *creditPool) init(receiveBuffer int, start func(f func())) {
	const packet = 4096 + rc.PacketOverhead
	p.size = max(int64(receiveBuffer), 2*packet)
	p.turn = min(turnPackets*packet, p.size/2)
	p.start = start
	p.free.Store(p.size)
}

// take gets up to so many bytes, unless others wait.
func (p *creditPool) take(bytes int64) int64 {
	for p.needed.Load() == 0 {
		free := p.free.Load()
		n := min(free, bytes)
		if n <= 0 {
			break
		}
		if p.free.CompareAndSwap(free, free-n) {
			return n
		}
	}
	return 0
}

// put gives back what take or a turn gave.
func (p *creditPool) put(bytes int64) {
	p.free.Add(bytes)
	p.serve()
}

// isWholePool reports whether somebody who has so many bytes has all, and nobody wants any.
func (p *creditPool) isWholePool(bytes int64) bool { return bytes == p.size && p.needed.Load() == 0 }

// wait puts a queue pair that can use so many bytes at the end of the line. It will be
// resumed.
func (p *creditPool) wait(c *Channel, bytes int64) {
	p.mu.Lock()
	p.waiting.push(creditRequest{c, bytes})
	p.updateNeeded()
	p.mu.Unlock()
	p.serve() // something may have been given back just before
}

// updateNeeded keeps needed. p.mu is held.
func (p *creditPool) updateNeeded() {
	needed := int64(0)
	if p.waiting.n > 0 {
		needed = min(p.turn, p.waiting.head().bytes)
	}
	p.needed.Store(needed)
}

// serve gives those at the head of the line their turns, as far as what is free
// goes. The last one gets all that it can use.
func (p *creditPool) serve() {
	if !p.mayServe() {
		return
	}
	for p.mayServe() {
		p.serveSome()
	}
	if p.resumableCount.Load() > 0 && p.receiving.Load() == 0 {
		p.start(p.resume)
	}
}

// mayServe reports whether there is enough for the first in the line. Others that give something back while serveSome runs see the
// needs of the one before it, so that serve looks again.
func (p *creditPool) mayServe() bool {
	needed := p.needed.Load()
	return needed > 0 && p.free.Load() >= needed
}

func (p *creditPool) serveSome() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.waiting.n > 0 {
		wanted := p.waiting.head().bytes
		free := p.free.Load()
		if free < min(p.turn, wanted) {
			break
		}
		most := p.turn
		if p.waiting.n == 1 {
			most = free
		}
		bytes := min(most, wanted)
		if !p.free.CompareAndSwap(free, free-bytes) {
			continue
		}
		p.resumable.push(creditRequest{p.waiting.pop().channel, bytes})
		p.resumableCount.Add(1)
	}
	p.updateNeeded()
}

// beginReceiving announces endReceiving, which resumes the queue pairs that have been
// given credit in between. No lock of a queue pair may be held.
func (p *creditPool) beginReceiving() { p.receiving.Add(1) }

func (p *creditPool) endReceiving() {
	p.receiving.Add(-1)
	p.resume()
}

// resume resumes those who have been given credit, until there are none.
func (p *creditPool) resume() {
	for p.resumableCount.Load() > 0 {
		p.mu.Lock()
		if p.resumable.n == 0 {
			p.mu.Unlock()
			return // somebody else was quicker
		}
		r := p.resumable.pop()
		p.resumableCount.Add(-1)
		p.mu.Unlock()
		r.channel.resumeWith(r.bytes)
	}
}

// resumeWith resumes a queue pair that waited for credit.
func (c *Channel) resumeWith(credit int64) {
	c.Lock()
	defer c.Unlock()
	c.creditQueued, c.turn = false, credit
	c.Progress(c.device.Clock.Now())
}

// takeCredit gets credit for what there is to be sent: what its turn brought, or what
// is there if nobody waits for it. It first gives back the credit of what has been
// acknowledged, if somebody does, lest it be used again at once. The lock is held.
func (c *Channel) takeCredit() {
	pool := &c.device.credit
	if c.credit > 0 && pool.needed.Load() > 0 {
		c.returnUnused(pool)
	}
	c.credit += c.turn
	c.turn = 0
	if c.path == nil {
		return // there was never a connection, or it was reset while it waited in line
	}
	if wanted := c.QP.CreditWanted(); wanted > c.credit && !c.creditQueued && !c.halted {
		c.credit += pool.take(wanted - c.credit)
	}
	c.QP.SetCredit(c.credit)
	found := c.QP.PathEstimate()
	if roundTrip := int64(found.RoundTrip); roundTrip != c.roundTrip {
		c.path.roundTrip.CompareAndSwap(c.roundTrip, roundTrip)
	}
	c.path.noteAnswered(found.Answered)
	if slow := int64(found.Slow); slow != c.slow {
		c.slow = slow
		c.path.slow.Store(slow)
	}
	c.roundTrip = c.path.roundTrip.Load()
	c.QP.SetRoundTrip(time.Duration(c.roundTrip), pool.free.Load()+c.credit < pool.size)
}

// settleCredit gives back the credit that is not in use, and waits in line for more
// if it was used up. It follows whatever may have changed that. The lock is held.
func (c *Channel) settleCredit() {
	starved := c.QP.CreditLimited() && !c.halted
	if c.credit == 0 && !starved {
		return
	}
	pool := &c.device.credit
	if starved && pool.isWholePool(c.credit) {
		return // only acknowledgements make room
	}
	c.returnUnused(pool)
	if lacking := c.QP.CreditWanted() - c.credit; starved && !c.creditQueued && lacking > 0 {
		c.creditQueued = true
		pool.wait(c, lacking)
	}
}

// returnUnused gives back the credit that is not in use. The lock is held.
func (c *Channel) returnUnused(pool *creditPool) {
	used := int64(0)
	if !c.halted {
		used = min(c.credit, c.QP.CreditInUse())
	}
	if unused := c.credit - used; unused > 0 {
		c.credit = used
		pool.put(unused)
	}
}
