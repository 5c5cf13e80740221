package verbsoak

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// A packetKey is a packet by its sender and PSN, and a fragment what it carries.
type packetKey struct {
	from *end
	psn  uint32
}

type fragment struct {
	request *request
	index   int
}

// arriving has the messages that arrive at an end, and the receive that they take.
type arriving struct {
	end        *end
	expected   uint32     // PSN, of an unreliable connection
	assembling *assembly  // likewise
	held       *receive   // taken, and not used up
	arrivals   []*arrival // that are to be completed
}

// An assembly is a message of an unreliable connection that is arriving.
type assembly struct {
	request *request
	next    int // index of the packet that is to come
}

// An arrival is a message that has arrived whole where a receive was waiting: it completes that receive.
type arrival struct {
	request *request
	receive *receive
}

// String names the arrival.
func (a *arrival) String() string { return fmt.Sprintf("%v in receive %d", a.request, a.receive.id) }

// hears reports whether the end takes packets: from RTR on (IBTA Vol. 1, 10.3.1).
func (v *arriving) hears() bool {
	e := v.end
	return !e.gone && (e.state == verbs.ReadyToReceive || e.state == verbs.ReadyToSend || e.state == verbs.SendQueueDrain) &&
		e.qp != nil && !e.inError()
}

// inError reports whether the end has gone to Error by itself, which the program can ask for.
func (v *arriving) inError() bool {
	e := v.end
	if !e.cause {
		return false
	}
	a, _ := e.qp.Query()
	return a.State == verbs.Error
}

// arrives follows a packet that comes to the end's number, before the provider gets it.
func (v *arriving) arrives(p *roce.Received) {
	e := v.end
	if !e.hears() || !p.Header.InDefaultPartition() {
		return
	}
	switch e.kind {
	case verbs.UD:
		e.expectDatagram(p)
	case verbs.UC:
		if p.Header.Opcode.IsUC() && p.Flow.Remote == e.peer.host.address {
			e.packetArrives(p)
		}
	default:
		if p.Flow.Remote == e.peer.host.address {
			e.peer.out.Arrived(&p.Header, int64(e.mtu))
		}
	}
}

// expectDatagram has a datagram with the right Q_Key take a receive, if there is one with room (IBTA Vol. 1,
// 9.8.3); nothing happens otherwise.
func (v *arriving) expectDatagram(p *roce.Received) {
	e := v.end
	h := &p.Header
	if h.Opcode != roce.UDSendOnly && h.Opcode != roce.UDSendOnlyImm || h.QKey != e.qkey {
		return
	}
	from := e.run.hosts[e.run.Fabric.HostAt(p.Flow.Remote)].numbered(h.SourceQPN)
	f, ok := e.run.flight[packetKey{from, h.PSN}]
	if !ok {
		e.run.Fail("what arrives was sent", "%v: PSN %#x from %v", e, h.PSN, from)
	}
	e.run.Coverage.Count("datagram arrived")
	if !e.take() || e.held.capacity < roce.GRHLen+len(p.Payload) {
		e.run.lose("datagram without a receive")
		return
	}
	e.expect(f.request)
}

// take has the end hold the oldest receive; false if there is none.
func (v *arriving) take() bool {
	e := v.end
	if e.held == nil {
		e.held = e.receives.take()
	}
	return e.held != nil
}

// expect has a message complete in the receive that the end holds.
func (v *arriving) expect(q *request) {
	e := v.end
	e.arrivals = append(e.arrivals, &arrival{q, e.held})
	e.held = nil
	q.received = true
}

// packetArrives has a packet of an unreliable connection be part of a message if it is the first, or follows the one
// before (IBTA Vol. 1, 9.8.2).
func (v *arriving) packetArrives(p *roce.Received) {
	e := v.end
	h := &p.Header
	f, ok := e.run.flight[packetKey{e.peer, h.PSN}]
	if !ok {
		e.run.Fail("what arrives was sent", "%v: PSN %#x", e, h.PSN)
	}
	q := f.request
	if h.PSN != e.expected {
		e.assembling = nil
	}
	e.expected = roce.PSNAdd(h.PSN, 1)
	if f.index == 0 {
		e.assembling = &assembly{request: q}
	}
	writes := q.op == rc.OpWrite || q.op == rc.OpWriteImmediate
	ends := f.index == int(q.packets)-1
	a := e.assembling
	ok = a != nil && a.request == q && a.next == f.index && (len(p.Payload) == e.mtu || ends && len(p.Payload) < e.mtu)
	switch {
	case !ok:
	case writes:
		ok = e.access&verbs.AccessRemoteWrite != 0 && (q.op == rc.OpWrite || !ends || e.take())
	case f.index == 0:
		ok = e.take()
	}
	if !ok {
		e.assembling = nil
		e.run.lose("part of a message of an unreliable connection")
		return
	}
	a.next++
	if !ends {
		return
	}
	e.assembling = nil
	e.run.Coverage.Count("message of an unreliable connection arrived")
	if q.op == rc.OpWrite {
		q.received = true
		return
	}
	e.expect(q)
}

// lose notes that something is lost that arrives: never where nothing may be.
func (r *run) lose(what string) {
	r.Coverage.Count("lost: " + what)
	if r.plan.faultless() {
		r.Fail("without faults nothing is lost", "%s", what)
	}
}
