package workload

import (
	"container/list"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A storm is the client of Connect. It makes connections, Depth at once, and lets each
// stand until there are QPs of them; from then on the oldest one ends for every new one.
// When as many as asked for are made, or the time has passed, all that stand end.
//
// A connection is made when it has carried a message, its number, to the server and back:
// only then does either end know that the other can use it. So long is its latency, from
// Connect on. The first one that fails ends the storm.
type storm struct {
	initiator
	numbers *memory // of each connection a slot: its number as it goes, and as it comes back

	// Guarded by endpoint.mu.
	number   uint64    // connections that were begun
	ending   int       // that are being ended in good order
	standing list.List // of *attempt, from the oldest
	slots    []int     // of numbers, that are free
	broken   bool      // the connections that there are, are dropped
}

// numberLen is the length of a connection's number, big-endian.
const numberLen = 8

func runStorm(m *provider.Miniport, c clock.Clock, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) (client, error) {
	w := &storm{initiator: newInitiator(m, c, &spec, from, to, done)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner = w
	if err := w.prepare(); err != nil {
		w.end(func() {})
		return nil, err
	}
	w.account = newAccount(w.spec, c.Now())
	w.begin(c.Now(), 0)
	w.startProbes()
	w.setEnding() // connections end all the time
	w.soon()
	return w, nil
}

// prepare makes what all connections have in common.
func (w *storm) prepare() error {
	qps := w.spec.channels()
	if err := w.open(w.stormNeeds(2*numberLen*qps), cqEntries(qps, stormEntries), func() { w.Abort(disabled) }); err != nil {
		return err
	}
	w.await()
	w.slots = free(qps)
	var err error
	w.numbers, err = w.register(make([]byte, qps*2*numberLen), provider.MRAllowLocalWrite)
	return err
}

// stormEntries bounds how many entries of the CQ a connection of a storm may take at either
// end: it has a send and a receive.
const stormEntries = 2

// stormNeeds returns the limits that an end of a storm needs with so many bytes of memory.
func (e *endpoint) stormNeeds(bytes int) func(provider.AdapterInfo) []need {
	return func(info provider.AdapterInfo) []need {
		return []need{
			{"MaxQpCount", uint64(e.spec.channels()), uint64(e.device.Attributes().Capabilities.MaxQpCount)},
			{"MaxRegistrationSize", uint64(bytes), info.MaxRegistrationSize},
		}
	}
}

// free returns the numbers below n in descending order.
func free(n int) []int {
	slots := make([]int, n)
	for i := range slots {
		slots[i] = n - 1 - i
	}
	return slots
}

// advance begins and ends connections, and ends the storm when all is done.
func (w *storm) advance() {
	if w.over {
		return
	}
	for !w.broken && w.underWay+w.ending < w.spec.Depth && w.step() {
	}
	if now := w.clock.Now(); w.conns.count == 0 && (w.broken || w.wanted(now) == 0) {
		result := w.finish(now)
		w.end(func() { w.done(result) })
	}
}

// step begins a connection, or ends one: for the next, or because all are made. It is
// false if there is nothing to do now.
func (w *storm) step() bool {
	wanted := w.wanted(w.clock.Now())
	leaving := uint64(w.conns.count - w.underWay - w.standing.Len()) // whose places will soon be free
	switch {
	case wanted > 0 && w.conns.count < w.spec.channels():
		w.attempt()
	case w.standing.Len() > 0 && (wanted > leaving || wanted == 0 && w.underWay == 0):
		w.endOldest()
	default:
		return false
	}
	return true
}

// attempt begins to make a connection.
func (w *storm) attempt() {
	a := &attempt{storm: w, number: w.number, asked: w.clock.Now(), slot: -1}
	w.number++
	w.begun(a.asked, a.asked)
	c, err := w.newConnection(a, probed(1, 1))
	if err == nil {
		err = c.connect(w.from, w.to, terms{})
	}
	if err != nil {
		w.lost(c, err.Error())
	}
}

// endOldest ends the oldest connection in good order.
func (w *storm) endOldest() {
	a := w.standing.Remove(w.standing.Front()).(*attempt)
	a.ends = true
	w.ending++
	a.conn.disconnect()
}

// lost: a connection was not made, or ended before its time.
func (w *storm) lost(c *connection, why string) {
	w.fail(fmt.Sprintf("connection %d: %s", c.session.(*attempt).number, why))
}

// fail ends the storm.
func (w *storm) fail(why string) {
	if w.over || w.broken {
		return
	}
	w.broken = true
	w.failed(w.clock.Now(), why)
	w.giveUp(w.clock.Now())
	w.dropAll()
}

// gone: there is room for another connection.
func (w *storm) gone(c *connection) {
	if a := c.session.(*attempt); a.ends {
		w.ending--
	}
}

// made counts a connection.
func (w *storm) made(a *attempt) {
	a.made = true
	w.standing.PushBack(a)
	now := w.clock.Now()
	w.ended(now)
	w.completed(now, 0, now-a.asked, false)
	w.result.Connections++
}

// Stop implements client.
func (w *storm) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.advance()
}

// Abort implements client.
func (w *storm) Abort(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(reason)
	w.advance()
}

// An attempt is the storm's session on one connection.
type attempt struct {
	bareSession
	storm  *storm
	conn   *connection
	number uint64
	asked  time.Duration // when
	slot   int           // of the storm's numbers; -1: none as yet
	made   bool          // it is there
	ends   bool          // in good order
}

// prepare implements session.
func (a *attempt) prepare(c *connection) error {
	a.conn = c
	last := len(a.storm.slots) - 1
	a.slot, a.storm.slots = a.storm.slots[last], a.storm.slots[:last]
	_, answer := a.numbers()
	return c.postReceive(answer, nil)
}

// numbers returns the memory that the number is sent from, and that it comes back to.
func (a *attempt) numbers() (message, answer provider.SGE) {
	at := uint64(a.slot) * 2 * numberLen
	return a.storm.numbers.sge(at, numberLen), a.storm.numbers.sge(at+numberLen, numberLen)
}

// begin implements session.
func (a *attempt) begin() {
	message, _ := a.numbers()
	binary.BigEndian.PutUint64(a.storm.numbers.bytes[message.VirtualAddress:], a.number)
	if status := a.conn.qp.Send(nil, []provider.SGE{message}, provider.OpSilentSuccess); status != provider.StatusSuccess {
		a.conn.fail(fmt.Sprintf("send: %v", status))
	}
}

// handle implements session.
func (a *attempt) handle(_ time.Duration, r provider.ResultEx) {
	switch {
	case r.Status != provider.StatusSuccess:
		a.conn.fail(fmt.Sprintf("message: %v", r.Status))
	case r.Type == provider.OperationTypeReceive:
		_, answer := a.numbers()
		if got := binary.BigEndian.Uint64(a.storm.numbers.bytes[answer.VirtualAddress:]); got != a.number {
			a.conn.fail(fmt.Sprintf("it was answered as %d", got))
			return
		}
		a.storm.made(a)
	}
}

// waits implements session.
func (a *attempt) waits() bool { return !a.made }

// closed implements session.
func (a *attempt) closed() {
	if a.slot >= 0 {
		a.storm.slots = append(a.storm.slots, a.slot)
	}
}
