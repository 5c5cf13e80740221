package cm

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A fuzzed input is a string of steps, of a byte that says which and, for most, a
// datagram.
const (
	fuzzToActive  = iota // a datagram from the passive host's address
	fuzzToPassive        // and the reverse
	fuzzAstray           // a datagram to the active host, from an address that is nobody's
	fuzzPause            // half a second goes by
	fuzzCall             // a call of the consumer: which, the next byte says
	fuzzSteps
)

// stage brings connections of every state about between two hosts, which then
// hear only what the fuzzer has them hear.
func stage(t failer) (n *network, active, passive *host) {
	n, active, passive = pair(t)
	establish(active, passive, 0x21, 0x22)
	a, _ := establish(active, passive, 0x31, 0x32)
	active.connect(passive, 0x41)
	passive.must(passive.accept(wait[ConnectRequest](passive).ID, 0x42))
	wait[ConnectReply](active)
	active.connect(passive, 0x51)
	passive.must(passive.reject(wait[ConnectRequest](passive).ID, ""))
	wait[Rejected](active)
	active.connect(passive, 0x61)
	wait[ConnectRequest](passive)
	n.drop = func(mad.Attribute) bool { return true }
	active.must(active.disconnect(a))
	active.connect(passive, 0x71)
	return n, active, passive
}

// FuzzHandle has an Endpoint hear datagrams of any contents while it has
// connections in every state. It must not fail, say anything twice to its
// consumer, or keep anything when all is over.
func FuzzHandle(f *testing.F) {
	step := func(which byte, m interface{ Append([]byte) []byte }) []byte { return m.Append([]byte{which}) }
	_, active, passive := stage(f)
	var all []byte
	for _, d := range active.sent {
		f.Add(step(fuzzToPassive, raw(d.MAD[:])))
		all = append(all, step(fuzzToPassive, raw(d.MAD[:]))...)
	}
	for _, d := range passive.sent {
		f.Add(append([]byte{fuzzPause}, step(fuzzToActive, raw(d.MAD[:]))...))
		f.Add(step(fuzzAstray, raw(d.MAD[:])))
		all = append(all, step(fuzzToActive, raw(d.MAD[:]))...)
	}
	f.Add(all)
	for _, id := range active.ids() {
		c := active.connections.byID[id]
		for _, m := range messages {
			at := meeting{active, passive, c.id, ID(c.peerID), c.qpn, c.peerQPN}
			f.Add(append(step(fuzzToActive, m.make(&at)), fuzzCall, 1, fuzzCall, 3))
		}
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		n, active, passive := stage(t)
		seen := map[*host]map[Event]bool{active: {}, passive: {}}
		for _, h := range n.hosts {
			h.onEvent = func(ev Event) {
				h.events = h.events[:0]
				if seen[h][ev] {
					t.Fatalf("%v: %#v comes twice", h.addr, ev)
				}
				seen[h][ev] = true
			}
		}
		hear := func(h, from *host) {
			size := min(len(input), mad.Size)
			h.Handle(n.now(), h.addr, from.addr, input[:size])
			h.settle()
			input = input[size:]
		}
		nobody := &host{addr: passive.addr.Next()}
		for len(input) > 0 {
			which := input[0] % fuzzSteps
			input = input[1:]
			switch which {
			case fuzzToActive:
				hear(active, passive)
			case fuzzToPassive:
				hear(passive, active)
			case fuzzAstray:
				hear(active, nobody)
			case fuzzPause:
				n.clock.Run(500 * time.Millisecond)
			case fuzzCall:
				if len(input) > 0 {
					callAll(active, input[0])
					callAll(passive, input[0])
					input = input[1:]
				}
			}
		}
		for _, h := range n.hosts {
			for _, id := range h.ids() {
				h.abandon(id)
			}
		}
		n.empty()
	})
}

// callAll makes one call of the consumer for all connections, where it fits.
func callAll(h *host, which byte) {
	now := h.net.now()
	for _, id := range h.ids() {
		// Each is refused with ErrState where it does not fit.
		switch which % 5 {
		case 0:
			_ = h.Accept(now, id, acceptParams(0x99))
		case 1:
			_ = h.CompleteConnect(now, id)
		case 2:
			_ = h.Reject(now, id, mad.ReasonConsumer, nil)
		case 3:
			_ = h.Disconnect(now, id)
		case 4:
			h.NoteTraffic(now, id)
		}
		h.settle()
	}
}

// ids are those of the host's connections, in order.
func (h *host) ids() []ID { return slices.Sorted(maps.Keys(h.connections.byID)) }
