package soak

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// A stage is the progress of a connection at one of its ends.
type stage int

const (
	unconnected stage = iota
	connecting        // Connect is under way
	replied           // the peer has accepted, the consumer thinks
	requested         // a listener has delivered it, the consumer thinks
	accepting         // Accept is under way
	established
	failed // was never established
)

// An end is one end of a connection: a connector and a queue pair, from their
// making to their close.
type end struct {
	run      *run
	number   int
	instance *instance
	connection
	receiving
	qp  *provider.QP // nil until Accept, on the passive side
	qpn uint32
	out *trial.Stream

	requestQueue, receiveQueue *queue
	posted                     int
	pending                    []*request // that are not over, in order
	failed                     []*request // packets of which may still be under way
	sends                      []*request // all that were posted, in order
	incoming                   []*request // the peer's that bring something to our memory

	dooms   []*request // requests and receives that must fail, of both ends
	broken  bool       // a request has failed
	cause   bool       // a request or receive has, otherwise than by being cancelled: why the others were
	refused bool       // a request of the peer's, by our side
	tearing bool       // the consumer has begun to end it
	event   bool       // the disconnect event has been raised

	connectorClosed, qpClosed bool // or being closed
	gone                      int  // closes that have completed
}

// A connection has the stage of an end's connection, and what is known of it.
type connection struct {
	end               *end
	stage             stage
	active            bool
	target            *host // of an active end, and what follows
	destination       netip.AddrPort
	shares            bool // connects from the shared endpoint
	peer              *end // once each has heard of the other
	connector         *provider.Connector
	remote            netip.Addr // the peer's
	mtu               int64
	inbound, outbound uint32 // effective read limits
	begunAt           time.Duration
}

// receiving has the receives of an end, and how many messages it has received.
type receiving struct {
	end          *end
	receives     []*receive // of the queue pair's own queue, in order
	nextReceive  int        // the first of them that is not over
	received     int        // messages
	receivesOver bool       // a receive has failed
}

// String names the end.
func (e *end) String() string {
	if e == nil {
		return "nobody"
	}
	return fmt.Sprintf("%v end %d", e.instance, e.number)
}

func (l *instance) newEnd() *end {
	r := l.run
	e := &end{run: r, number: len(r.ends), instance: l}
	e.connection.end, e.receiving.end, e.begunAt = e, e, r.Clock.Now()
	e.out = r.NewStream(e)
	r.ends = append(r.ends, e)
	l.ends = append(l.ends, e)
	return e
}

const (
	initiatorDepth = 24
	receiveDepth   = 24
	maxPieces      = 4
	maxInline      = 256
)

// createQP gives the end a queue pair.
func (e *end) createQP() {
	l := e.instance
	e.requestQueue, e.receiveQueue = trial.Pick(e.run.Rand, l.queues), trial.Pick(e.run.Rand, l.queues)
	var status provider.Status
	if l.shared != nil && e.run.Chance(0.7) {
		e.qp, status = l.domain.CreateQPWithSRQ(e.receiveQueue.cq, e.requestQueue.cq, l.shared.srq, e,
			initiatorDepth, maxPieces, maxInline, nil, nil)
	} else {
		e.qp, status = l.domain.CreateQP(e.receiveQueue.cq, e.requestQueue.cq, e, receiveDepth, initiatorDepth,
			maxPieces, maxPieces, maxInline, nil, nil)
		e.receives = []*receive{}
	}
	must(e.qp, status)
	e.qpn = e.qp.Number()
	if e.run.Chance(0.5) {
		e.postReceivesAhead()
	}
}

// takesShared reports whether the end's receives come from an SRQ.
func (e *end) takesShared() bool { return e.qp != nil && e.receives == nil }

// paired reports whether both ends know each other.
func (e *end) paired() bool { return e.peer != nil && e.peer.peer == e && e.mtu > 0 }

// healthy reports whether nothing has happened by which the connection might
// end.
func (e *end) healthy() bool {
	return e.stage == established && !e.tearing && !e.broken && !e.receivesOver && !e.event && len(e.dooms) == 0 &&
		!e.instance.dead && !e.instance.closing
}

// usable reports whether the consumer, as far as it knows, can post requests.
func (e *end) usable() bool {
	return e.stage == established && !e.tearing && !e.event && !e.instance.dead && !e.instance.closing
}

// endNumbered returns the end with a queue pair number; nil if there is none.
func (l *instance) endNumbered(qpn uint32) *end {
	for _, e := range l.ends {
		if e.qp != nil && e.qpn == qpn {
			return e
		}
	}
	return nil
}

// tearDown ends the end as some consumer would, over a while.
func (e *end) tearDown() {
	if e.tearing {
		return
	}
	e.tearing = true
	r := e.run
	how := r.Rand.IntN(4)
	r.Logf("%v is torn down (%d)", e, how)
	switch {
	case how < 2 && e.stage == established:
		e.disconnect()
		return
	case how == 2 && e.qp != nil:
		r.Coverage.Count("teardown: Flush")
		e.qp.Flush()
	default:
		r.Coverage.Count("teardown: Close")
	}
	e.closeLater()
}

// closeLater closes what the end is made of, in any order.
func (e *end) closeLater() {
	const soon = 20 * time.Millisecond
	e.run.Later(soon, e.closeConnector)
	e.run.Later(soon, e.closeQP)
}

// closeAtOnce closes everything at once.
func (e *end) closeAtOnce() {
	e.tearing = true
	if e.run.Chance(0.5) {
		e.closeQP()
		e.closeConnector()
	} else {
		e.closeConnector()
		e.closeQP()
	}
}

func (e *end) disconnect() {
	r := e.run
	r.Coverage.Count("teardown: Disconnect")
	begun := r.Clock.Now()
	over := func(status provider.Status) {
		r.Logf("%v: Disconnect %v", e, status)
		r.Coverage.Count("Disconnect " + status.String())
		switch {
		case status == provider.StatusSuccess, status == provider.StatusCancelled && e.connectorClosed:
		case status == provider.StatusIOTimeout && e.mayBeSilent(begun):
		default:
			r.Fail("requests end as they should", "%v: Disconnect %v", e, status)
		}
		e.closeLater()
	}
	switch status := e.connector.Disconnect(func(_ any, status provider.Status) { over(status) }, nil); status {
	case provider.StatusPending:
	default:
		over(status)
	}
}

func (e *end) closeConnector() {
	if e.connectorClosed {
		return
	}
	e.connectorClosed = true
	e.instance.close(e.connector, e.closed)
	if e.qp == nil { // nor will there be one
		e.closeQP()
	}
}

func (e *end) closeQP() {
	if e.qpClosed {
		return
	}
	e.qpClosed = true
	if e.qp == nil {
		e.closed()
		return
	}
	e.instance.close(e.qp, func() {
		e.checkAllOver()
		e.closed()
	})
}

// closed follows the close of each of the end's two objects.
func (e *end) closed() {
	if e.gone++; e.gone < 2 {
		return
	}
	for i, o := range e.instance.ends {
		if o == e {
			e.instance.ends = append(e.instance.ends[:i], e.instance.ends[i+1:]...)
			break
		}
	}
}

// disconnected follows the connector's disconnect event.
func (e *end) disconnected(reason uint32) {
	r := e.run
	r.Logf("%v: disconnect event, reason %d", e, reason)
	r.Coverage.Count(fmt.Sprintf("disconnect event, reason %d", reason))
	if e.event {
		r.Fail("one disconnect event", "%v", e)
	}
	e.event = true
	if p := e.peer; !e.tearing && p.failureExplained() && e.failureExplained() && !e.mayBeSilent(r.Clock.Now()-silenceTime) {
		r.Fail("connections end for a reason", "%v: disconnect event with reason %d", e, reason)
	}
	if !e.instance.dead {
		r.Later(30*time.Millisecond, e.tearDown)
	}
}

// failureExplained reports whether there is nothing yet known of the end that explains
// that its connection is over.
func (e *end) failureExplained() bool {
	if e.qp != nil {
		e.requestQueue.poll()
		e.receiveQueue.poll()
	}
	doubtful := func(q *request) bool { return q.uncertain(e.instance) || q.uncertain(e.peer.instance) }
	return e.stage == established && !e.tearing && !e.broken && !e.receivesOver && len(e.dooms) == 0 &&
		!e.instance.dead && !e.instance.closing && !slices.ContainsFunc(slices.Concat(e.pending, e.failed), doubtful)
}

// silenceTime bounds the time until a silent peer is given up: a connection without
// answer after 7 times 537 ms, and more for what the peer did then to be noticed
// here.
const silenceTime = 10 * time.Second

// mayBeSilent reports whether the end's peer, or the host that is to be it, may have
// been silent for long since an instant: because packets were lost, or since it
// is not there any more.
func (e *end) mayBeSilent(since time.Duration) bool {
	since = min(since, e.run.Clock.Now()-silenceTime)
	to := e.target
	if e.peer != nil {
		to = e.peer.instance.host
	}
	return e.peer != nil && (e.peer.instance.dead || e.peer.instance.closing || e.peer.tearing || e.peer.broken || e.peer.receivesOver || len(e.peer.dooms) > 0 || e.peer.stage == failed) ||
		e.instance.dead || to.instance == nil || to.downAt >= since && to.born > 1 || e.run.Fabric.LossesSince(e.instance.host.number, to.number, since) >= 5
}
