package workload

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A rank is the client of an AllReduce: one of a ring of nodes, each of which has a vector,
// and all of which have the sum in the end. In a round each rank sends a part of its vector
// to the next one and adds what it gets to its own, until each has the sum of one part
// (the reduce-scatter). Then the sums go round in the same way (the all-gather).
//
// Messages from the rank before arrive at the server of that one's flow, which is on the same
// host: the inbox. It posts as many receives as there are ranks. No rank can be that
// far ahead of the next one, since what it sends depends on what all others have sent.
//
// Vectors are made of numbers of 64 bits, which are added modulo 2^64. Every rank checks
// the whole sum in every round, which is what a message is here. Rank 0 decides which round
// is the last one, and says so in its messages; each rank passes that on. A rank that fails
// ends its connections, so that its neighbours fail, and so all.
type rank struct {
	initiator
	sum   sum
	slots *memory // of messages on their way to the next rank, in turn

	// Guarded by endpoint.mu, which is the inbox's, too.
	inbox     *inbox      // nil: there is none as yet, or any more
	conn      *connection // to the next rank
	vector    []uint64
	posted    uint64 // messages to the next rank
	delivered uint64 // of those
	round     uint64
	since     time.Duration // when the round began
	out, in   int           // its next steps, as to what is sent and as to what has come
	payload   uint64        // sent in it
	marks     marks         // of it
	broken    bool          // the connection that there was is dropped
	leaving   bool          // all is done
}

// marks travel with every message.
type marks uint32

const (
	last marks = 1 << iota // the round is the last one
	wish                   // a rank wants one to be: it was told to stop
)

// A message of an AllReduce has a part of a vector behind its header, which has the number
// of the message and its marks. The header is big-endian, and the numbers of the part are
// little-endian.
const ringHeader = 16

// ringSlots bounds how many messages a rank may have on their way.
const ringSlots = 4

// ringFits checks whether there are ranks enough for a ring.
func (s *Spec) ringFits() error {
	if s.Ranks < 2 {
		return fmt.Errorf("ranks: %d, a ring needs 2 at least", s.Ranks)
	}
	return nil
}

// runRing starts a rank. Its inbox may be nil, and come later.
func runRing(m *provider.Miniport, c clock.Clock, spec Spec, in *inbox, from netip.Addr, to netip.AddrPort, done func(Result)) (client, error) {
	w := &rank{initiator: newInitiator(m, c, &spec, from, to, done), sum: newSum(&spec)}
	if in != nil {
		w.mu = in.mu
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner = w
	if err := w.prepare(); err != nil {
		w.endpoint.end(func() {})
		if in != nil {
			in.refuse() // so that the others do not wait for this one
		}
		return nil, err
	}
	if in != nil {
		in.attach(w)
	}
	w.account = newAccount(w.spec, c.Now())
	w.startProbes()
	c.AfterFunc(patience, w.requireInflow)
	w.soon()
	return w, nil
}

func (w *rank) prepare() error {
	if err := w.open(w.needs, cqEntries(1, ringSlots), func() { w.Abort(disabled) }); err != nil {
		return err
	}
	w.vector = make([]uint64, w.sum.words)
	var err error
	w.await()
	w.slots, err = w.register(make([]byte, ringSlots*w.sum.messageLen()), provider.MRAllowLocalRead)
	return err
}

// messageLen returns the length of the longest message, in bytes.
func (a *sum) messageLen() int { return ringHeader + a.longest() }

func (w *rank) needs(info provider.AdapterInfo) []need {
	return []need{
		requestsFit(info, ringSlots),
		{"MaxTransferLength", uint64(w.sum.messageLen()), uint64(info.MaxTransferLength)},
		{"MaxRegistrationSize", uint64(ringSlots * w.sum.messageLen()), info.MaxRegistrationSize},
	}
}

// advance connects, goes on with the round, and ends the rank when all is done.
func (w *rank) advance() {
	if w.over {
		return
	}
	if w.conn == nil && !w.broken && !w.leaving {
		w.connect()
	}
	if w.conns.count == 0 && (w.broken || w.leaving) {
		if w.inbox != nil {
			w.inbox.rank, w.inbox = nil, nil
		}
		result := w.finish(w.clock.Now())
		w.endpoint.end(func() { w.done(result) })
	}
}

func (w *rank) connect() {
	var err error
	w.conn, err = w.newConnection(&outflow{rank: w}, probed(1, ringSlots))
	if err == nil {
		err = w.conn.connect(w.from, w.to, terms{})
	}
	if err != nil {
		w.fail("the next rank: " + err.Error())
	}
}

// beginRound begins a round.
func (w *rank) beginRound() {
	now := w.clock.Now()
	w.since, w.out, w.in, w.payload = now, 0, 0, 0
	if w.spec.Rank == 0 && (w.marks&wish != 0 || w.wanted(now) <= 1) {
		w.marks |= last
	}
	w.begun(now, now)
	w.sum.fill(w.vector, w.round, w.spec.Rank)
}

// proceed does what can be done in the round: it sends what is ready and takes what has
// come. b.mu is held.
func (w *rank) proceed() {
	if w.broken || w.leaving || w.conn == nil || w.conn.stage != up {
		return
	}
	for again := true; again && !w.broken && !w.leaving; {
		again = false
		for w.out < w.sum.steps() && w.out <= w.in && w.posted-w.delivered < ringSlots && !w.broken {
			w.send()
			again = true
		}
		if w.in < w.out && w.inbox != nil { // what comes is added to what has been sent
			if message, ok := w.inbox.next(); ok {
				w.take(message)
				w.inbox.release()
				again = true
			}
		}
		if w.out == w.sum.steps() && w.in == w.out {
			w.endRound()
			again = true
		}
	}
}

// send sends the next step's part of the vector.
func (w *rank) send() {
	slot := int(w.posted % ringSlots)
	message := w.slots.bytes[slot*w.sum.messageLen():][:w.sum.messageLen()]
	binary.BigEndian.PutUint64(message, w.posted)
	binary.BigEndian.PutUint32(message[8:], uint32(w.marks))
	from, to := w.sum.part(w.sum.out(w.spec.Rank, w.out))
	for i, number := range w.vector[from:to] {
		binary.LittleEndian.PutUint64(message[ringHeader+8*i:], number)
	}
	length := uint64(8 * (to - from))
	sge := w.slots.sge(uint64(slot*w.sum.messageLen()), ringHeader+length)
	if status := w.conn.qp.Send(nil, []provider.SGE{sge}, 0); status != provider.StatusSuccess {
		w.fail(fmt.Sprintf("send to the next rank: %v", status))
		return
	}
	w.posted++
	w.out++
	w.payload += length
}

// take takes the next step's message from the rank before.
func (w *rank) take(message []byte) {
	number := w.round*uint64(w.sum.steps()) + uint64(w.in)
	from, to := w.sum.part(w.sum.in(w.spec.Rank, w.in))
	if want := ringHeader + 8*(to-from); len(message) != want {
		w.fail(fmt.Sprintf("message %d from the rank before has %d bytes, not %d", number, len(message), want))
		return
	}
	if got := binary.BigEndian.Uint64(message); got != number {
		w.fail(fmt.Sprintf("message %d from the rank before came as number %d", got, number))
		return
	}
	w.marks |= marks(binary.BigEndian.Uint32(message[8:]))
	for i := range w.vector[from:to] {
		got := binary.LittleEndian.Uint64(message[ringHeader+8*i:])
		if w.sum.adds(w.in) {
			got += w.vector[from+i]
		}
		w.vector[from+i] = got
	}
	w.in++
}

// endRound checks the sum, and begins the next round unless this was the last.
func (w *rank) endRound() {
	now := w.clock.Now()
	w.ended(now)
	if why := w.sum.difference(w.vector, w.round); why != "" {
		w.failed(now, why)
	} else {
		w.completed(now, w.payload, now-w.since, false)
	}
	if w.marks&last != 0 {
		w.leaving = true
		w.setEnding()
		w.part()
		return
	}
	w.round++
	w.beginRound()
}

// requireInflow fails the rank if the rank before has not connected: that may not even have
// begun, and all would wait without end.
func (w *rank) requireInflow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && (w.inbox == nil || w.inbox.from == nil) {
		w.fail(fmt.Sprintf("the rank before has not connected for %v", patience))
	}
}

// part ends the connection to the next rank when that has everything.
func (w *rank) part() {
	if w.leaving && w.delivered == w.posted && w.conn.stage == up {
		w.conn.disconnect()
	}
}

// fail ends the rank: its neighbours find out by the end of their connections.
func (w *rank) fail(why string) {
	if w.broken || w.leaving {
		return
	}
	w.broken = true
	w.setEnding()
	w.failed(w.clock.Now(), why)
	w.giveUp(w.clock.Now())
	w.dropAll()
	if w.inbox != nil {
		w.inbox.refuse()
	}
	w.soon()
}

// lost implements owner.
func (w *rank) lost(_ *connection, why string) { w.fail("the next rank: " + why) }

// gone implements owner.
func (w *rank) gone(*connection) {}

// Stop implements client: there is one more round, since all others have to hear of it.
func (w *rank) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marks |= wish
}

// Abort implements client.
func (w *rank) Abort(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(reason)
}

// An outflow is a rank's session on the connection to the next one.
type outflow struct {
	bareSession
	rank *rank
}

func (o *outflow) begin() {
	w := o.rank
	w.result.Connections++
	w.account.begin(w.clock.Now(), w.spec.Size)
	w.beginRound()
	w.proceed()
}

func (o *outflow) handle(_ time.Duration, r provider.ResultEx) {
	w := o.rank
	switch {
	case r.Status != provider.StatusSuccess:
		w.conn.fail(r.Status.Error())
	default:
		w.delivered++
		w.proceed()
		w.part()
	}
}

// waits implements session: what the rank before sends depends on the next one.
func (o *outflow) waits() bool { return true }
