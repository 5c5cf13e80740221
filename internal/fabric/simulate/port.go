package simulate

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// The time that a packet takes from the end of its last wire to the adapter, unless a topology has another: what a
// machine does about it. All that come in that time are handed over together, as an
// interrupt does. Part of it is random, as on a machine: without, flows that share a
// queue would keep in step, and the same one would always find it full.
const (
	turnaround = 8 * time.Microsecond
	wavering   = turnaround / 2 // at most, beyond that
)

// A port is the place of one life of a host's adapter on the network. It implements
// provider.Carrier.
type port struct {
	network  *network
	shard    *shard
	node     *node
	clock    clock.Clock // the life's
	rand     *rand.Rand
	receiver provider.Receiver
	closed   bool
	class    uint8 // the traffic class of packets with data
	buffer   int   // bytes of packets that may wait for the adapter; more is lost
	inbox    line
	waiting  int           // bytes in the inbox
	timer    clock.Timer   // runs deliver; nil before the first packet
	delivers time.Duration // when it does, if there is something in the inbox
	turns    []*turn
	recent   [recentWays]recentWay // by source port

	sent, received, dropped, tooBig, overflowed, wrong, malformed uint64
}

var _ provider.Carrier = (*port)(nil)

// Listen implements provider.Carrier.
func (p *port) Listen(r provider.Receiver) { p.receiver = r }

// Send implements provider.Carrier.
func (p *port) Send(flow roce.Flow, packets []roce.Packet) error {
	if p.closed {
		return errors.New("simulate: carrier is closed")
	}
	way := p.way(&flow)
	if way == nil {
		p.dropped += uint64(len(packets))
		return nil
	}
	for i := range packets {
		payload := packets[i].Payload
		f := p.shard.frames.get(payload, len(payload) == 1 && p.shard.payloads.Constant(payload[0]))
		f.header, f.way, f.class = packets[i].Header, way, packets[i].Class
		f.measure()
		if f.size() > way.mtu {
			p.tooBig++
			p.shard.frames.put(f)
			continue
		}
		p.sent++
		p.shard.forward(f, nil)
	}
	return nil
}

// A recentWay is the way of a flow as it was when the links and routes had changed so many times.
type recentWay struct {
	flow    roce.Flow
	way     *way
	changes int
}

// recentWays bounds how many ways a port knows without a look at the network's. It is a power of two.
const recentWays = 16

// way returns the way of a flow; nil if its packets do not arrive anywhere.
func (p *port) way(flow *roce.Flow) *way {
	r := &p.recent[flow.SourcePort%recentWays]
	if r.changes != p.network.changes || r.flow != *flow {
		*r = recentWay{*flow, p.network.way(p.node, *flow), p.network.changes}
	}
	return r.way
}

// A turn is that of a queue pair on the line at an address.
type turn struct {
	port  *port
	local netip.Addr
	wire  *dataplane.Wire[*frame] // that packets from there enter; nil if there is none
	timer clock.Timer             // calls f; nil before the first
	f     func()
}

// Turns implements transport.Line: so queue pairs take turns on the wire, and their packets do not queue before it.
func (p *port) Turns(local netip.Addr) transport.Turns { return p.turnAt(local) }

// turnAt returns the turn at a local address.
func (p *port) turnAt(local netip.Addr) *turn {
	for _, t := range p.turns {
		if t.local == local {
			return t
		}
	}
	t := &turn{port: p, local: local}
	if at, ok := p.network.places[local]; ok && at.node == p.node {
		l := p.network.links[at.face.Link]
		t.wire = l.wires[1]
		if l.nodes[0] == p.node {
			t.wire = l.wires[0]
		}
	}
	p.turns = append(p.turns, t)
	return t
}

// Room implements transport.Turns.
func (t *turn) Room() bool {
	w := t.wire
	return t.port.closed || w == nil || w.FreeAt() <= t.port.shard.clock.Now() && !t.isPaused()
}

// isPaused reports whether a switch has paused packets with data on the wire.
func (t *turn) isPaused() bool {
	return t.wire.From != nil && t.wire.From.Pauses(t.wire.Out, t.port.class)
}

// WhenRoom implements transport.Turns.
func (t *turn) WhenRoom(f func()) {
	t.f = f
	w := t.wire
	if w != nil && t.isPaused() {
		w.From.WhenResumed(w.Out, t.port.class, func() {
			if !t.port.closed && t.f != nil {
				t.WhenRoom(t.f)
			}
		})
		return
	}
	wait := time.Duration(0)
	if w != nil {
		wait = max(0, w.FreeAt()-t.port.shard.clock.Now())
	}
	if t.timer == nil {
		t.timer = t.port.clock.AfterFunc(wait, func() { t.f() })
	} else {
		t.timer.Reset(wait)
	}
}

// take puts a frame that has arrived into the inbox.
func (p *port) take(f *frame) {
	if p.closed {
		p.shard.frames.put(f)
		return
	}
	if p.waiting += f.size(); p.waiting > p.buffer {
		p.waiting -= f.size()
		p.overflowed++
		p.shard.frames.put(f)
		return
	}
	p.inbox.push(f)
	if p.inbox.first != f {
		return
	}
	wait := p.turnaround()
	p.delivers = p.shard.clock.Now() + wait
	if p.timer == nil {
		p.timer = p.clock.AfterFunc(wait, p.deliver)
	} else {
		p.timer.Reset(wait)
	}
}

// quietUntil returns until when nothing is handed over to the adapter, if nothing happens before an instant.
func (p *port) quietUntil(now time.Duration) time.Duration {
	if p.inbox.first != nil {
		return p.delivers
	}
	return now + leastTurnaround(p.node.spec)
}

// leastTurnaround returns the least time that a packet takes to the adapter of a host.
func leastTurnaround(n *topology.Node) time.Duration {
	if set := n.Adapter.Turnaround; set != nil {
		return *set
	}
	return turnaround
}

func (p *port) turnaround() time.Duration {
	least := leastTurnaround(p.node.spec)
	return least + time.Duration(p.rand.Int64N(int64(least/2)+1))
}

// deliver hands over what is in the inbox. Packets that others send because of it arrive later.
func (p *port) deliver() {
	taken := p.inbox
	p.inbox, p.waiting = line{}, 0
	batch := p.shard.batch[:0]
	for f := taken.first; f != nil; f = f.next {
		batch = append(batch, roce.Received{})
		r := &batch[len(batch)-1]
		if f.whole == nil {
			flow := &f.way.flow
			r.Flow.Local, r.Flow.Remote, r.Flow.SourcePort = flow.Remote, flow.Local, flow.SourcePort
			r.Header, r.Payload, r.Class = f.header, f.payload, f.class
		} else if !p.decode(f, r) {
			batch = batch[:len(batch)-1]
		}
	}
	p.shard.batch = batch
	if len(batch) > 0 && p.receiver != nil {
		p.received += uint64(len(batch))
		p.receiver.Receive(batch)
	}
	p.drop(taken)
}

// drop takes frames back.
func (p *port) drop(taken line) {
	for f := taken.first; f != nil; {
		next := f.next
		p.shard.frames.put(f)
		f = next
	}
}

// decode takes a packet apart some bits of which have flipped, as the kernel and a
// carrier on sockets would.
func (p *port) decode(f *frame, r *roce.Received) bool {
	if !f.intact() {
		return false // it is for another host, or not for IP
	}
	err := p.shard.verifier.DecodeIP(f.whole[ethernetLen:], r)
	switch {
	case err == nil:
		return true // what has flipped means nothing
	case errors.Is(err, roce.ErrChecksum), errors.Is(err, roce.ErrNotRoCE):
		// The kernel drops it.
	case errors.Is(err, roce.ErrICRC):
		p.wrong++
	default:
		p.malformed++
	}
	return false
}

// SourcePort implements provider.Carrier.
func (p *port) SourcePort(_ netip.Addr, hash uint32) uint16 { return 0xC000 | uint16(hash) }

// Addresses implements provider.Carrier.
func (p *port) Addresses() []netip.Addr { return p.node.addresses }

// MTU implements provider.Carrier.
func (p *port) MTU(local netip.Addr) int {
	at, ok := p.network.places[local]
	if !ok || at.node != p.node {
		return 0
	}
	return p.network.links[at.face.Link].spec.MTU
}

// Reach implements provider.Carrier.
func (p *port) Reach(_, remote netip.Addr) provider.Status {
	if _, _, ok := p.network.next(p.node, remote, roce.Flow{}); !ok {
		return provider.StatusNetworkUnreachable
	}
	return provider.StatusSuccess
}

// ReceiveBuffer implements provider.Carrier.
func (p *port) ReceiveBuffer() int { return p.buffer }

// Counters implements provider.Carrier. The names are those of package udp, and those of the priorities of an adapter's pfc.
func (p *port) Counters() map[string]uint64 {
	counters := map[string]uint64{
		"packets_sent": p.sent, "super_packets_sent": 0, "send_dropped": p.dropped, "send_too_big": p.tooBig, "segmentation_refused": 0,
		"packets_received": p.received, "super_packets_received": 0, "receive_overflow": p.overflowed,
		"icrc_errors": p.wrong, "malformed": p.malformed,
	}
	if pfc := p.node.spec.Adapter.PFC; pfc != nil && p.node.buffer() != nil {
		for _, class := range *pfc {
			p.node.buffer().CountPauses(counters, class)
		}
	}
	return counters
}

// Close implements provider.Carrier.
func (p *port) Close() error {
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, t := range p.turns {
		if t.timer != nil {
			t.timer.Stop()
		}
	}
	p.drop(p.inbox)
	p.inbox = line{}
	return nil
}
