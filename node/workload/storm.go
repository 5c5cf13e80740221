package workload

import (
	"bytes"
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
// When as many as asked for are made, or the time has passed, all that stand end. A
// latency is that of one connection, from Connect until it is there.
//
// With Verify a connection has to carry a message of Size bytes to the server and back
// before it counts as made.
//
// A connection that fails ends the storm or, with Reconnect, is made once more a little
// later.
type storm struct {
	base
	pattern *pattern
	from    netip.Addr
	to      netip.AddrPort
	done    func(Result)
	source  *memory // the pattern, with Verify
	sink    *memory // where answers arrive, with Verify: a slot for each connection

	// Guarded by base.mu.
	tally
	begun    uint64        // connections that were begun, with those that failed
	making   int           // that are being made
	ending   int           // that are being ended in good order
	standing list.List     // of *attempt, from the oldest
	slots    []int         // of sink, that are free
	owed     uint64        // connections that are to be made once more
	fallen   uint64        // that were made, and lost before their time
	why      string        // the last one was
	pause    time.Duration // until when none is begun
	stopped  bool          // none is begun any more
	broken   bool          // and those that there are, are dropped
}

// retryDelay is how long after a failure a connection is made once more: a server that
// refuses is not to be asked as fast as it can refuse.
const retryDelay = 100 * time.Millisecond

// numberLen is the length of a connection's number, which the server is told with the
// request: it says which message the connection carries. Big-endian.
const numberLen = 8

func runStorm(m *provider.Miniport, c clock.Clock, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) (client, error) {
	w := &storm{base: base{spec: spec, clock: c, device: m}, from: from, to: to, done: done}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner = w
	if err := w.prepare(); err != nil {
		w.end(func() {})
		return nil, err
	}
	w.start(&w.spec, c.Now())
	c.Go(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.advance()
	})
	return w, nil
}

// prepare makes what all connections have in common.
func (w *storm) prepare() error {
	qps := w.spec.connections()
	needs := func(info provider.AdapterInfo) []need { return w.spec.stormNeeds(info, w.device, qps) }
	// Each connection has a send and a receive.
	if err := w.open(needs, 2*uint64(qps), func() { w.Abort(disabled) }); err != nil {
		return err
	}
	if !w.spec.Verify {
		return nil
	}
	w.pattern = newPattern(&w.spec)
	var err error
	if w.source, err = w.register(w.pattern.bytes, provider.MRAllowLocalRead); err != nil {
		return err
	}
	if w.sink, err = w.register(make([]byte, uint64(qps)*w.spec.Size), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	w.slots = free(qps)
	return nil
}

// free is the numbers below n, of which the last is the least.
func free(n int) []int {
	slots := make([]int, n)
	for i := range slots {
		slots[i] = n - 1 - i
	}
	return slots
}

// connections is how many connections a flow has.
func (s *Spec) connections() int { return max(1, s.QPs) }

// stormNeeds are the limits that either end of a storm needs, with so many connections.
func (s *Spec) stormNeeds(info provider.AdapterInfo, m *provider.Miniport, qps int) []need {
	needs := []need{
		{"MaxQpCount", uint64(s.connections()), uint64(m.Attributes().Capabilities.MaxQpCount)},
		{"MaxCallerData", numberLen, uint64(info.MaxCallerData)},
	}
	if s.Verify {
		needs = append(needs, need{"MaxTransferLength", s.Size, uint64(info.MaxTransferLength)},
			need{"MaxRegistrationSize", max(patternLen(s), uint64(qps)*s.Size), info.MaxRegistrationSize})
	}
	return needs
}

// wanted is how many connections are to be begun yet.
func (w *storm) wanted() uint64 {
	if w.stopped {
		return 0
	}
	return w.tally.wanted(w.clock.Now(), uint64(w.making), w.fallen)
}

// advance begins and ends connections, and ends the storm when all is done.
func (w *storm) advance() {
	switch {
	case w.over:
		return
	case w.broken:
		w.dropAll()
	default:
		for w.making+w.ending < w.spec.Depth && w.step() {
		}
	}
	if w.conns.Len() == 0 && w.wanted() == 0 {
		w.conclude()
	}
}

// step begins a connection, or ends one: for the next, or because all are made. It is
// false if there is nothing to do now.
func (w *storm) step() bool {
	wanted := w.wanted()
	leaving := uint64(w.conns.Len() - w.making - w.standing.Len()) // whose places will soon be free
	switch {
	case wanted > 0 && w.conns.Len() < w.spec.connections():
		if w.clock.Now() < w.pause {
			return false
		}
		w.begin()
	case wanted > leaving && w.standing.Len() > 0, wanted == 0 && w.making == 0 && w.standing.Len() > 0:
		w.finish()
	default:
		return false
	}
	return true
}

// conclude ends the storm.
func (w *storm) conclude() {
	if w.owed > 0 && !w.broken {
		w.failed(fmt.Sprintf("%d connections were lost and not made again: %s", w.owed, w.why))
	}
	result := w.tally.conclude()
	w.end(func() { w.done(result) })
}

// begin begins to make a connection.
func (w *storm) begin() {
	a := &attempt{storm: w, number: w.begun, begun: w.clock.Now()}
	w.begun++
	w.making++
	private := binary.BigEndian.AppendUint64(nil, a.number)
	c, err := w.newConn(a, room{receives: 1, requests: 1, sges: 1})
	if err == nil {
		err = c.connect(w.from, w.to, 0, 0, private)
	}
	if err != nil {
		w.lost(c, err.Error())
	}
}

// finish ends the oldest connection in good order.
func (w *storm) finish() {
	a := w.standing.Remove(w.standing.Front()).(*attempt)
	a.phase = leaving
	w.ending++
	a.conn.disconnect()
}

// lost: a connection was not made, or ended before its time.
func (w *storm) lost(c *conn, why string) {
	a := c.session.(*attempt)
	why = fmt.Sprintf("connection %d: %s", a.number, why)
	if a.phase == standing {
		w.standing.Remove(a.place)
		w.fallen++
	} else {
		w.making--
	}
	a.phase = left
	if !w.spec.Reconnect {
		w.failed(why)
		w.stopped, w.broken = true, true
		return
	}
	w.owed++
	w.why = why
	w.pause = w.clock.Now() + retryDelay
	w.clock.AfterFunc(retryDelay, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.advance()
	})
}

// gone: there is room for another connection.
func (w *storm) gone(c *conn) {
	switch c.session.(*attempt).phase {
	case beginning: // the storm is broken
		w.making--
	case leaving:
		w.ending--
	}
}

// made counts a connection.
func (w *storm) made(a *attempt) {
	a.phase = standing
	a.place = w.standing.PushBack(a)
	w.making--
	var payload uint64
	if w.spec.Verify {
		payload = w.spec.Size
	}
	w.count(w.clock.Now(), a.begun, payload)
	w.result.Connections++
	if w.owed > 0 {
		w.owed--
		w.result.Reconnects++
	}
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
	if w.over || w.broken {
		return
	}
	w.failed(reason)
	w.stopped, w.broken = true, true
	w.advance()
}

// Progress implements client.
func (w *storm) Progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress()
}

// An attempt is the storm's session on one connection.
type attempt struct {
	storm  *storm
	conn   *conn
	number uint64
	begun  time.Duration
	slot   int // of the storm's sink; -1: none
	phase  phase
	place  *list.Element // in storm.standing
}

// A phase is what an attempt counts as.
type phase uint8

const (
	beginning phase = iota // as being made
	standing
	leaving // as being ended
	left    // as nothing: it was lost
)

// prepare implements session.
func (a *attempt) prepare(c *conn) error {
	a.conn, a.slot = c, -1
	w := a.storm
	if !w.spec.Verify {
		return nil
	}
	last := len(w.slots) - 1
	a.slot, w.slots = w.slots[last], w.slots[:last]
	if status := c.qp.Receive(nil, []provider.SGE{a.answer()}); status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// answer is where the answer arrives.
func (a *attempt) answer() provider.SGE {
	size := a.storm.spec.Size
	return a.storm.sink.sge(uint64(a.slot)*size, size)
}

// begin implements session.
func (a *attempt) begin() {
	w := a.storm
	if !w.spec.Verify {
		w.made(a)
		return
	}
	message := w.source.sge(w.pattern.offset(a.number), w.spec.Size)
	if status := a.conn.qp.Send(nil, []provider.SGE{message}, provider.OpSilentSuccess); status != provider.StatusSuccess {
		a.conn.fail(fmt.Sprintf("send: %v", status))
	}
}

// handle implements session.
func (a *attempt) handle(r *provider.ResultEx) {
	w := a.storm
	switch {
	case r.Status == provider.StatusCancelled:
		// The connection is over, and the disconnect event tells.
	case r.Status != provider.StatusSuccess:
		a.conn.fail(fmt.Sprintf("message: %v", r.Status))
	case r.Type == provider.OperationTypeReceive:
		got := w.sink.bytes[uint64(a.slot)*w.spec.Size:][:r.BytesTransferred]
		if !bytes.Equal(got, w.pattern.message(a.number)) {
			a.conn.fail("the answer: " + w.pattern.mismatch(a.number, got))
			return
		}
		w.made(a)
	}
}

// objects implements session.
func (a *attempt) objects() []closer { return nil }

// closed implements session.
func (a *attempt) closed() {
	if a.slot >= 0 {
		a.storm.slots = append(a.storm.slots, a.slot)
	}
}
