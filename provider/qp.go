package provider

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/rc"
	"github.com/ndklab/ndklab/provider/roce"
)

// batchSize is how many packets are gathered before they are handed to the
// carrier, at most: four super-packets of 15 full-sized packets each (design: 64
// KiB is the most that one system call's segments may add up to).
const batchSize = 60

// A QP is a queue pair.
type QP struct {
	object
	Dispatch    QPDispatch // as Adapter.Dispatch
	pd          *PD
	receiveCQ   *CQ
	initiatorCQ *CQ
	srq         *SRQ // nil: receives has the queue pair's own
	context     any
	number      uint32 // changed with Miniport.cmMu and the table's lock held, by renumber
	maxSend     int    // pieces per request
	maxReceive  int
	maxInline   int

	owing atomic.Bool // among Miniport.delivery's, and not taken from there yet

	mu       sync.Mutex // guards what follows
	rc       *rc.QP
	receives *rc.ReceiveQueue // nil with an SRQ
	flow     roce.Flow
	// connected says that the consumer has been told so: only then may it post
	// initiator requests (ndkpi.md T57). The connection itself may carry
	// packets earlier.
	connected bool
	// listening says that the peer's first request is to be reported to the
	// connector: it stands in for a lost RTU (roce.md 11). It is the one with
	// firstPSN: others may be of an earlier connection with the same numbers.
	listening bool
	firstPSN  uint32
	// unacknowledged is how many bytes came since an acknowledgement is put off.
	unacknowledged int
	delivery       *delivery  // that the packets are part of which are being handled; nil for none
	path           *path      // to the peer; nil before there is one
	roundTrip      int64      // that path had when progress last began
	slow           int64      // that path was last told
	credit         int64      // bytes of Miniport.credit that it has
	turn           int64      // bytes of it that its turn in line has brought
	inLine         bool       // for more of it
	halted         bool       // the peer has ended the connection
	timedOut       bool       // the error is that the peer did not answer
	failed         bool       // the connector knows of the error, or need not
	broken         bool       // the error came by itself, from no flush
	connector      *Connector // the connector this QP is used with, nil if none
	timer          clock.Timer
	timerAt        time.Duration // when the timer will run; 0: it is not pending
	sgl            []rc.SGE      // scratch of posts
	inline         []byte        // scratch of posts
	memory         view
	changes        []*change       // posted by this queue pair and not performed
	draining       int             // ended tokens whose memory is still in use
	heldBack       []rc.Completion // what is not to be told while draining
}

// Close flushes what is pending and closes the queue pair.
func (qp *QP) Close(completion CloseCompletion, context any) Status {
	return qp.close(qp.Flush, func() {
		qp.mu.Lock()
		if qp.timer != nil {
			qp.timer.Stop()
		}
		if qp.path != nil {
			qp.path.heardBy.CompareAndSwap(qp, nil)
		}
		counted := qp.rc.Counters() // the last: in Error it counts nothing
		qp.mu.Unlock()
		qp.pd.adapter.miniport.retire(qp, counted)
	}, completion, context)
}

// Number is the queue pair's number on the wire. While a Connect is pending it
// may change.
func (qp *QP) Number() uint32 { return qp.pd.adapter.miniport.qps.numberOf(qp) }

// Flush cancels every pending request of both queues; they complete with
// StatusCancelled. On a queue pair that was connected it is the beginning of
// the end: it carries nothing any more (ndkpi.md T48).
func (qp *QP) Flush() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.flush()
}

// flush is Flush with qp.mu held.
func (qp *QP) flush() {
	if qp.rc.State() == rc.Init {
		var r rc.Receive
		for qp.srq == nil && qp.receives.Take(&r) {
			qp.complete(&rc.Completion{Op: rc.OpReceive, Status: rc.Flushed, Context: r.Context, Solicited: true})
		}
		return
	}
	qp.failed = true // nobody needs to be told
	qp.rc.Flush()
	qp.progress(qp.clock.Now())
}

// established lets the consumer post. handshake is how long the peer took to
// answer when the connection was made.
func (qp *QP) established(handshake time.Duration) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.listening = false
	qp.connected = qp.rc.State() == rc.Ready
	qp.rc.ExpectRoundTrip(handshake)
}

// receive handles packets that arrived together for this queue pair.
func (qp *QP) receive(packets []roce.Received, how manner) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if how == deferred {
		qp.delivery = &qp.pd.adapter.miniport.delivery
		defer func() { qp.delivery = nil }()
	}
	now := qp.clock.Now()
	// An acknowledgement is put off once: a consumer that answers each of its peer's messages
	// need not have room for many of its own.
	// That it is owed for a lot of data is another matter.
	if !qp.rc.OwesAcknowledgement() {
		qp.unacknowledged = 0
	}
	hold := how != atOnce && (!qp.rc.OwesAcknowledgement() || qp.unacknowledged >= bulk)
	counters := &qp.pd.adapter.miniport.counters
	frames, octets := 0, 0
	requested := false
	for i := range packets {
		p := &packets[i]
		// roce.md 7.1 (1): what is not from the peer, or not of a reliable connection,
		// is nobody's.
		op := p.Header.Opcode
		switch fromPeer := p.Flow.Remote == qp.flow.Remote && p.Flow.Local == qp.flow.Local; {
		case fromPeer && op == roce.CNP:
			counters.cnps.Add(1)
			continue
		case !fromPeer, !p.Header.InDefaultPartition(), !op.IsRequest() && !op.IsResponse():
			counters.misdirected.Add(1)
			continue
		}
		frames++
		octets += frameOctets(&p.Flow, op, len(p.Payload))
		requested = requested || op.IsRequest() && p.Header.PSN == qp.firstPSN
		qp.rc.Handle(now, &p.Header, p.Payload)
	}
	counters.inOctets.Add(uint64(octets))
	counters.inFrames.Add(uint64(frames))
	if qp.path != nil && frames > 0 {
		qp.path.hear(now, qp)
	}
	if qp.listening && requested {
		qp.listening = false
		qp.clock.Go(qp.connector.noteTraffic)
	}
	qp.rc.HoldAcknowledgement(hold)
	qp.progress(now)
	qp.rc.HoldAcknowledgement(false)
	if qp.rc.OwesAcknowledgement() {
		qp.unacknowledged += octets
		qp.pd.adapter.miniport.delivery.owe(qp, octets, now)
	}
}

// acknowledge sends the acknowledgement that was put off, unless it went out with
// something else since.
func (qp *QP) acknowledge() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.rc.OwesAcknowledgement() {
		qp.progress(qp.clock.Now())
	}
}

// A scratch is what progress needs while it runs. Queue pairs share them, since
// hundreds of thousands may have to say something now and then, and few at once.
type scratch struct {
	batch       [batchSize]roce.Packet
	completions []rc.Completion
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// progress moves what the state machine has to say: packets to the carrier,
// completions to the CQs, its deadline to the timer, its failure to the
// connector. qp.mu is held.
func (qp *QP) progress(now time.Duration) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	qp.takeCredit()
	for {
		n, octets := 0, 0
		for n < batchSize {
			if !qp.rc.Next(now, &s.batch[n]) {
				break
			}
			octets += frameOctets(&qp.flow, s.batch[n].Header.Opcode, s.batch[n].PayloadLen())
			n++
		}
		if n == 0 {
			break
		}
		qp.pd.adapter.miniport.counters.outOctets.Add(uint64(octets))
		qp.pd.adapter.miniport.counters.outFrames.Add(uint64(n))
		if err := qp.pd.adapter.miniport.carrier.Send(qp.flow, s.batch[:n]); err != nil {
			qp.rc.Flush() // the carrier is closed: nothing will ever be answered
		}
		qp.memory.done()
	}
	qp.memory.done()
	if qp.rc.State() == rc.Error {
		qp.abandon()
	}
	s.completions = qp.rc.Completions(s.completions[:0])
	if qp.rc.State() == rc.Error && !qp.failed {
		qp.tellError(causeOf(s.completions))
	}
	if qp.draining > 0 {
		qp.heldBack = append(qp.heldBack, s.completions...)
	} else {
		for i := range s.completions {
			qp.complete(&s.completions[i])
		}
	}
	clear(s.completions) // lets go of the consumer's contexts
	if qp.rc.State() == rc.Error {
		if !qp.failed && qp.connector != nil {
			qp.broken = true
			qp.clock.Go(qp.connector.lost)
		}
		qp.failed = true
	}
	qp.settleCredit()
	qp.setTimer(now)
}

// failure is why the queue pair is in error, as a DisconnectReason.
func (qp *QP) failure() uint32 {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.timedOut {
		return DisconnectReasonTimeout
	}
	return DisconnectReasonError
}

// isBroken reports whether the queue pair is in error, but not because of a flush.
func (qp *QP) isBroken() bool {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.broken
}

// halt has the queue pair no longer wait for the peer, which has ended the
// connection: nothing is sent again, nothing fails for want of an answer, and
// requests stay pending until they are flushed (NDK-DISC-03).
func (qp *QP) halt() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.halted = true
	qp.settleCredit()
}

// setTimer has the timer run at the state machine's deadline or earlier. One that is
// pending and earlier stays until it has little time left: moving it with each packet would
// cost more. While there is progress it does not run. Its goroutine would have to
// wait for qp.mu, which whoever receives a stream has nearly always, and after a
// millisecond sync.Mutex has the two take turns: some thousand threads a second were woken for
// that, on the peer's processor if there are but two. Without, WRITEs of 1 MiB go from
// 44.4 to 47.3 Gb/s there, READs from 40.7 to 42.9.
func (qp *QP) setTimer(now time.Duration) {
	deadline, ok := qp.rc.Deadline()
	if !ok || qp.timerAt != 0 && qp.timerAt <= deadline && qp.timerAt-now > (deadline-now)/4 {
		return
	}
	qp.timerAt = max(deadline, 1)
	if qp.timer == nil {
		qp.timer = qp.clock.AfterFunc(deadline-now, qp.timeout)
	} else {
		qp.timer.Reset(deadline - now)
	}
}

// absence is how late the timer is of a process that was stopped, or that waits for a
// processor. It has not read what its peer has sent meanwhile, and is given as long again
// to do so.
const absence = 100 * time.Millisecond

func (qp *QP) timeout() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	now := qp.clock.Now()
	if qp.path != nil {
		qp.rc.SetPath(qp.path.known())
	}
	if late := now - qp.timerAt; late > absence && qp.timerAt > 0 {
		qp.rc.Absent(late + absence)
	}
	qp.timerAt = 0
	if qp.halted {
		return
	}
	if deadline, ok := qp.rc.Deadline(); ok && deadline <= now {
		qp.rc.HandleTimeout(now)
		if qp.path != nil && qp.rc.NeedsAnswerElsewhere(now) {
			qp.path.askOnAnother(qp)
		}
		qp.progress(now)
		return
	}
	qp.setTimer(now)
}

// ask has the queue pair ask its peer for the sake of others on the path.
func (qp *QP) ask() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if !qp.halted {
		now := qp.clock.Now()
		qp.rc.Ask(now)
		qp.progress(now)
	}
}
