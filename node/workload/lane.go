package workload

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A lane is one QP's worth of a client: messages with numbers of their own, posted in
// order over one connection or, with Reconnect, one after the other. The stream's mutex
// guards it.
type lane struct {
	stream   *stream
	index    int
	link     *connection // nil: none is up or being made
	messages []message   // by slot
	posted   uint64      // messages that were posted
	next     uint64      // the message to post next; below posted where it is posted again
	finished uint64      // messages that have completed, either way
	counted  uint64      // messages that have completed for the first time
	released uint64      // messages whose slots at the server are free again
	queued   bool        // it is in the stream's queue
	met      bool        // it has been connected

	lost  time.Duration // since when it has no connection
	why   string        // it was lost, or could not be made
	timer clock.Timer   // for the next attempt to connect, or the end of one; nil before there is need
}

// A connection is a lane's.
type connection struct {
	lane      *lane
	qp        *provider.QP
	connector *provider.Connector
	grant     grant
	up        bool
	arrived   uint64 // receives that have completed
}

// With Reconnect:
const (
	// connectPause is from an attempt that has failed to the next.
	connectPause = 100 * time.Millisecond
	// connectTime is how long an attempt may take. The adapter would repeat its request for
	// longer, but at ever longer intervals, so that a network that works again would be
	// noticed late.
	connectTime = 2 * time.Second
	// patience is how long a connection may be missing when nothing else is wanted but that
	// messages which were in flight be completed, or while the first ones are made.
	patience = 30 * time.Second
)

// connect asks for a connection.
func (l *lane) connect() error {
	w := l.stream
	c := &connection{lane: l}
	if err := l.ask(c); err != nil {
		closeEach(w.clock, c.objects(), func() {})
		return err
	}
	l.link = c
	if w.spec.Reconnect {
		l.after(connectTime, l.tookTooLong)
	}
	return nil
}

func (l *lane) ask(c *connection) error {
	w := l.stream
	var status provider.Status
	slots := uint32(w.spec.slots())
	if c.qp, status = w.pd.CreateQP(w.cq, w.cq, c, slots, 2*slots, 1, 1, w.spec.inline(), nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create QP: %w", status)
	}
	for slot := range uint64(w.spec.clientReceives()) {
		if err := l.postReceive(c, slot); err != nil {
			return err
		}
	}
	if c.connector, status = w.adapter.CreateConnector(nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create connector: %w", status)
	}
	h := hello{lane: uint32(l.index), next: l.next}
	if w.sink != nil {
		h.address, h.token = w.spec.laneRoom()*uint64(l.index), w.sink.mr.RemoteToken()
	}
	inbound, outbound := w.adapter.reads()
	status = c.connector.Connect(c.qp, netip.AddrPortFrom(w.from, 0), w.to, inbound, outbound, h.encode(), c.replied, nil)
	if !status.Succeeded() {
		return status
	}
	return nil
}

// postReceive posts the receive of a slot: for an answer, or for a notice.
func (l *lane) postReceive(c *connection, slot uint64) error {
	w := l.stream
	sge := [1]provider.SGE{w.notices.sge((uint64(l.index*w.spec.slots())+slot)*noticeLen, noticeLen)}
	if w.spec.answersBySend() {
		sge[0] = w.sink.sge(w.spec.place(l.index, slot), w.spec.Size)
	}
	if status := c.qp.Receive(nil, sge[:]); status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// replied is the completion of Connect.
func (c *connection) replied(_ any, status provider.Status) {
	l := c.lane
	w := l.stream
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending || l.link != c {
		return
	}
	var err error
	if status != provider.StatusSuccess {
		err = status
	} else {
		err = c.establish()
	}
	if err != nil {
		w.lose(c, fmt.Sprintf("connect: %v", err))
		return
	}
	l.established()
}

func (c *connection) establish() error {
	private, err := privateData(c.connector, grantLen)
	if err != nil {
		return err
	}
	c.grant = decodeGrant(private)
	if status := c.connector.CompleteConnect(c.disconnected, nil, nil, nil); status != provider.StatusSuccess {
		return status
	}
	c.up = true
	return nil
}

// established is when the lane has a connection.
func (l *lane) established() {
	w := l.stream
	if l.timer != nil {
		l.timer.Stop()
	}
	w.result.Connections++
	if l.met {
		w.result.Reconnects++
	} else {
		l.met = true
		w.connected++
	}
	switch {
	case w.started:
		w.ready.push(l)
		w.pump()
	case w.connected == len(w.lanes):
		w.begin()
	case w.attempted < len(w.lanes):
		if err := w.attemptNext(); err != nil {
			w.fail(fmt.Sprintf("connect: %v", err))
		}
	}
}

// disconnected is the peer's doing: the server's node is gone.
func (c *connection) disconnected(any) {
	w := c.lane.stream
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ending && c.lane.link == c {
		w.lose(c, "the server disconnected")
	}
}

// lose gives up a connection: to make another or, without Reconnect, to end. w.mu is held.
func (w *stream) lose(c *connection, why string) {
	if !w.spec.Reconnect {
		w.fail(why)
		return
	}
	l := c.lane
	if c.up {
		l.lost = w.clock.Now()
	}
	l.why = why
	l.link = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	closeEach(w.clock, c.objects(), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ending {
			return
		}
		w.drain() // so that the CQ has room for what the next connection completes
		l.rewind()
		if c.up {
			l.again()
		} else {
			l.after(connectPause, l.again)
		}
		w.pump()
	})
}

// rewind has the lane post again what may not have arrived.
func (l *lane) rewind() {
	w := l.stream
	l.next = l.finished
	if !w.spec.announces() {
		return
	}
	// That a write is complete does not mean that the server has heard of it, nor the other
	// way round.
	l.next = min(l.finished, l.released)
	w.unfinished += l.finished - l.next
	w.unreleased += l.released - l.next
	l.finished, l.released = l.next, l.next
}

// again attempts to connect, unless it has been tried for too long. w.mu is held.
func (l *lane) again() {
	w := l.stream
	if w.ending || l.link != nil {
		return
	}
	now := w.clock.Now()
	until := l.lost
	if w.started && w.spec.Count == 0 && !w.stopped {
		until = max(until, w.step.from+w.spec.Duration)
	}
	if now-until >= patience {
		w.fail(fmt.Sprintf("no connection could be made for %v: %s", (now - l.lost).Round(time.Second), l.why))
		return
	}
	if err := l.connect(); err != nil {
		l.putOff(err)
	}
}

// putOff attempts to connect a little later, after an attempt that could not be made.
func (l *lane) putOff(err error) {
	l.why = err.Error()
	l.after(connectPause, l.again)
}

// tookTooLong is when an attempt to connect has not come to an end in time. w.mu is held.
func (l *lane) tookTooLong() {
	if c := l.link; c != nil && !c.up {
		l.stream.lose(c, "connect: no answer")
	}
}

// after has f run later with the mutex held, in place of what was to run so before.
func (l *lane) after(d time.Duration, f func()) {
	w := l.stream
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timer = w.clock.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.ending {
			f()
		}
	})
}

// objects are those that are to be closed.
func (c *connection) objects() []closer {
	var open []closer
	if c.connector != nil {
		open = append(open, c.connector)
	}
	if c.qp != nil {
		open = append(open, c.qp)
	}
	return open
}
