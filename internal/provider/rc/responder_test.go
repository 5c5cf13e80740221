package rc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A step of a script: a packet arrives, and the QP answers.
type step struct {
	packet roce.Header
	bytes  int // of payload
	want   string
	before func(e *end) // happens first, if not nil
}

// answers pulls what an end has to send and describes it: name, PSN, and what
// matters of the rest.
func (e *end) answers(now time.Duration) string {
	var all []string
	for e.qp.Next(now, &e.packet) {
		all = append(all, describePacket(&e.packet))
	}
	return strings.Join(all, ", ")
}

func describePacket(p *roce.Packet) string {
	h := &p.Header
	switch {
	case h.Opcode == roce.Acknowledge && h.Syndrome.IsACK():
		return fmt.Sprintf("ack %d msn %d", h.PSN, h.MSN)
	case h.Opcode == roce.Acknowledge:
		return fmt.Sprintf("nak%x %d msn %d", uint8(h.Syndrome), h.PSN, h.MSN)
	}
	name := strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(h.Opcode.String(), "RC "), "RDMA "))
	s := fmt.Sprintf("%s %d", name, h.PSN)
	if n := p.PayloadLen(); n > 0 {
		s += fmt.Sprintf(" (%d)", n)
	}
	if h.Opcode.HasAETH() {
		s += fmt.Sprintf(" msn %d", h.MSN)
	}
	switch {
	case h.Opcode.HasRETH():
		s += fmt.Sprintf(" %d@%x", h.DMALength, h.VA)
	case h.Opcode.IsAtomic():
		s += fmt.Sprintf(" %d,%d@%x", h.SwapAdd, h.Compare, h.VA)
	case h.Opcode == roce.AtomicAcknowledge:
		s += fmt.Sprintf(" was %d", h.Original)
	case h.Opcode.HasImmediate():
		s += fmt.Sprintf(" immediate %d", h.Immediate)
	}
	if h.AckReq {
		s += " ask"
	}
	if h.Solicited {
		s += " solicited"
	}
	return s
}

// newReady makes an end that is connected to nobody: MTU 256, expecting and
// sending from PSN 100. Its memory has tokens 1 to 4, of 4096 bytes each.
func newReady(t *testing.T, change func(*Connection)) *end {
	e := newEnd(t, testConfig)
	c := testConnection
	c.MTU, c.SendPSN, c.ReceivePSN = 256, 100, 100
	if change != nil {
		change(&c)
	}
	for token := uint32(1); token <= 4; token++ {
		e.memory.add(token, 4096)
		pattern(e.memory[token].bytes, int(token))
	}
	if err := e.qp.Connect(c); err != nil {
		t.Fatal(err)
	}
	return e
}

func packet(op roce.Opcode, psn uint32) roce.Header {
	return roce.Header{Opcode: op, PSN: psn, AckReq: op.Ends()}
}

// with makes h carry immediate data.
func with(h roce.Header, immediate uint32) roce.Header {
	h.Immediate = immediate
	return h
}

// to makes h address length bytes at offset of a token.
func to(h roce.Header, token uint32, offset uint64, length uint32) roce.Header {
	h.VA, h.RKey, h.DMALength = uint64(token)<<32+offset, token, length
	return h
}

// otherKey makes h use another token than its address is of.
func otherKey(h roce.Header, token uint32) roce.Header {
	h.RKey = token
	return h
}

func invalidating(h roce.Header, token uint32) roce.Header {
	h.InvalidateKey = token
	return h
}

// receiving posts receives of n bytes each in token 1 before the connection
// sees a packet.
func receiving(sizes ...int) func(e *end) {
	return func(e *end) {
		for i, n := range sizes {
			e.postReceive(Receive{Context: i, SGL: []SGE{piece(1, i*1000, n)}})
		}
	}
}

// TestResponder goes through roce.md 7 paragraph by paragraph.
func TestResponder(t *testing.T) {
	const mtu = 256
	tests := []struct {
		name    string
		change  func(*Connection)
		setup   func(e *end)
		steps   []step
		done    []string
		isError bool
	}{
		{
			name:  "5: MSN counts messages, not packets",
			setup: receiving(1000, 1000),
			steps: []step{
				{packet: packet(roce.SendFirst, 100), bytes: mtu, want: ""},
				{packet: packet(roce.SendMiddle, 101), bytes: mtu, want: ""},
				{packet: packet(roce.SendLast, 102), bytes: 1, want: "ack 102 msn 1"},
				{packet: to(packet(roce.WriteOnly, 103), 2, 0, 9), bytes: 9, want: "ack 103 msn 2"},
				{packet: packet(roce.SendOnly, 104), bytes: 0, want: "ack 104 msn 3"},
			},
			done: []string{"receive ok 0 513", "receive ok 1"},
		},
		{
			name:   "5: PSN wraps",
			change: func(c *Connection) { c.ReceivePSN = 0xFFFFFF },
			setup:  receiving(10, 10),
			steps: []step{
				{packet: packet(roce.SendOnly, 0xFFFFFF), bytes: 1, want: "ack 16777215 msn 1"},
				{packet: packet(roce.SendOnly, 0xFFFFFF), bytes: 1, want: "ack 16777215 msn 1"},
				{packet: packet(roce.SendOnly, 1), bytes: 1, want: "nak60 0 msn 1"},
				{packet: packet(roce.SendOnly, 0), bytes: 1, want: "ack 0 msn 2"},
			},
			done: []string{"receive ok 0 1", "receive ok 1 1"},
		},
		{
			name:  "7.1, 2: ahead draws one NAK per gap",
			setup: receiving(10, 10, 10),
			steps: []step{
				{packet: packet(roce.SendOnly, 102), bytes: 1, want: "nak60 100 msn 0"},
				{packet: packet(roce.SendOnly, 103), bytes: 1, want: ""},
				{packet: packet(roce.SendOnly, 99), bytes: 1, want: "ack 99 msn 0"},
				{packet: packet(roce.SendOnly, 103), bytes: 1, want: ""},
				{packet: packet(roce.SendOnly, 100), bytes: 1, want: "ack 100 msn 1"},
				{packet: packet(roce.SendOnly, 102), bytes: 1, want: "nak60 101 msn 1"},
			},
			done: []string{"receive ok 0 1"},
		},
		{
			name:    "7.1, 3: Middle outside a message",
			setup:   receiving(10),
			steps:   []step{{packet: packet(roce.SendMiddle, 100), bytes: mtu, want: "nak61 100 msn 0"}},
			done:    []string{"receive flushed 0"},
			isError: true,
		},
		{
			name:    "7.1, 3: WRITE Last outside a message",
			steps:   []step{{packet: packet(roce.WriteLast, 100), bytes: 1, want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name:  "7.1, 3: WRITE inside a SEND",
			setup: receiving(1000, 10),
			steps: []step{
				{packet: packet(roce.SendFirst, 100), bytes: mtu},
				{packet: packet(roce.WriteMiddle, 101), bytes: mtu, want: "nak61 101 msn 0"},
			},
			done:    []string{"receive remote-invalid 0", "receive flushed 1"},
			isError: true,
		},
		{
			name:  "7.1, 3: a new message inside a WRITE",
			setup: receiving(10),
			steps: []step{
				{packet: to(packet(roce.WriteFirst, 100), 2, 0, 300), bytes: mtu},
				{packet: packet(roce.SendOnly, 101), bytes: 1, want: "nak61 101 msn 0"},
			},
			done:    []string{"receive flushed 0"},
			isError: true,
		},
		{
			name: "7.1, 3: READ inside a WRITE",
			steps: []step{
				{packet: to(packet(roce.WriteFirst, 100), 2, 0, 300), bytes: mtu},
				{packet: to(packet(roce.ReadRequest, 101), 2, 0, 1), want: "nak61 101 msn 0"},
			},
			isError: true,
		},
		{
			name:    "7.1, 4: NDK has no atomics",
			steps:   []step{{packet: to(packet(roce.FetchAdd, 100), 2, 0, 0), want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name:    "3.1: nor an ATOMIC WRITE, which looks like a WRITE",
			steps:   []step{{packet: to(packet(roce.AtomicWrite, 100), 2, 0, 8), bytes: 8, want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name:    "3.1: nor a FLUSH",
			steps:   []step{{packet: to(packet(roce.Flush, 100), 2, 0, 0), want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name:    "7.1, 5: READ without resources",
			change:  func(c *Connection) { c.ResponderResources = 0 },
			steps:   []step{{packet: to(packet(roce.ReadRequest, 100), 2, 0, 1), want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name: "7.1, 5: RNR NAK, and nothing for what is behind",
			steps: []step{
				{packet: packet(roce.SendOnly, 100), bytes: 1, want: "nak2c 100 msn 0"},
				{packet: packet(roce.SendOnly, 101), bytes: 1, want: ""},
				{packet: packet(roce.SendOnly, 100), bytes: 1, want: "nak2c 100 msn 0"},
				{packet: packet(roce.SendOnly, 100), bytes: 1, want: "ack 100 msn 1", before: receiving(10)},
			},
			done: []string{"receive ok 0 1"},
		},
		{
			name: "7.1, 5: WRITE with immediate needs a receive with its last packet",
			steps: []step{
				{packet: to(packet(roce.WriteFirst, 100), 2, 0, 257), bytes: mtu},
				{packet: packet(roce.WriteLastImm, 101), bytes: 1, want: "nak2c 101 msn 0"},
				{packet: with(packet(roce.WriteLastImm, 101), 0xABCD0001), bytes: 1, want: "ack 101 msn 1", before: receiving(0)},
				{packet: to(packet(roce.WriteOnlyImm, 102), 2, 0, 5), bytes: 5, want: "nak2c 102 msn 1"},
				{packet: to(packet(roce.WriteOnlyImm, 102), 2, 0, 5), bytes: 5, want: "ack 102 msn 2", before: receiving(0)},
			},
			done: []string{"receivewrite ok 0 257 immediate 0xabcd0001", "receivewrite ok 0 5"},
		},
		{
			name:  "SEND with immediate",
			setup: receiving(1000, 10),
			steps: []step{
				{packet: packet(roce.SendFirst, 100), bytes: mtu},
				{packet: with(packet(roce.SendLastImm, 101), 7), bytes: 1, want: "ack 101 msn 1"},
				{packet: with(packet(roce.SendOnlyImm, 102), 8), bytes: 1, want: "ack 102 msn 2"},
			},
			done: []string{"receiveimm ok 0 257 immediate 0x7", "receiveimm ok 1 1 immediate 0x8"},
		},
		{
			name:    "7.1, 6: First shorter than the MTU",
			setup:   receiving(1000),
			steps:   []step{{packet: packet(roce.SendFirst, 100), bytes: mtu - 4, want: "nak61 100 msn 0"}},
			done:    []string{"receive remote-invalid 0"},
			isError: true,
		},
		{
			name:    "7.1, 6: Only longer than the MTU",
			setup:   receiving(1000),
			steps:   []step{{packet: packet(roce.SendOnly, 100), bytes: mtu + 4, want: "nak61 100 msn 0"}},
			done:    []string{"receive remote-invalid 0"},
			isError: true,
		},
		{
			name:  "7.1, 6: Last without data",
			setup: receiving(1000),
			steps: []step{
				{packet: packet(roce.SendFirst, 100), bytes: mtu},
				{packet: packet(roce.SendLast, 101), bytes: 0, want: "nak61 101 msn 0"},
			},
			done:    []string{"receive remote-invalid 0"},
			isError: true,
		},
		{
			name:    "7.1, 6: WRITE longer than a message can be",
			steps:   []step{{packet: to(packet(roce.WriteFirst, 100), 2, 0, MaxMessage+1), bytes: mtu, want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name:    "7.1, 6: READ longer than a message can be",
			steps:   []step{{packet: to(packet(roce.ReadRequest, 100), 2, 0, MaxMessage+1), want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name:    "7.1, 6: READ request with a payload",
			steps:   []step{{packet: to(packet(roce.ReadRequest, 100), 2, 0, 4), bytes: 4, want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name:    "7.1, 7: WRITE with an unknown token",
			steps:   []step{{packet: to(packet(roce.WriteOnly, 100), 77, 0, 4), bytes: 4, want: "nak62 100 msn 0"}},
			isError: true,
		},
		{
			name:    "7.1, 7: WRITE checks the whole message before it touches anything",
			steps:   []step{{packet: to(packet(roce.WriteFirst, 100), 2, 3600, 600), bytes: mtu, want: "nak62 100 msn 0"}},
			isError: true,
		},
		{
			name:    "7.1, 7: READ of what may not be read",
			setup:   func(e *end) { e.memory[2].deny[RemoteRead] = true },
			steps:   []step{{packet: to(packet(roce.ReadRequest, 100), 2, 0, 4), want: "nak62 100 msn 0"}},
			isError: true,
		},
		{
			name: "7.1, 7: nothing is checked for no bytes",
			steps: []step{
				{packet: to(packet(roce.WriteOnly, 100), 77, 0, 0), want: "ack 100 msn 1"},
				{packet: to(packet(roce.ReadRequest, 101), 77, 0, 0), want: "read response only 101 msn 2"},
			},
		},
		{
			name: "7.1, 7: WRITE ends before its length",
			steps: []step{
				{packet: to(packet(roce.WriteFirst, 100), 2, 0, 600), bytes: mtu},
				{packet: packet(roce.WriteLast, 101), bytes: mtu, want: "nak61 101 msn 0"},
			},
			isError: true,
		},
		{
			name: "7.1, 7: WRITE goes on after its length",
			steps: []step{
				{packet: to(packet(roce.WriteFirst, 100), 2, 0, 512), bytes: mtu},
				{packet: packet(roce.WriteMiddle, 101), bytes: mtu, want: "nak61 101 msn 0"},
			},
			isError: true,
		},
		{
			name:    "7.1, 7: WRITE Only of another length than its payload",
			steps:   []step{{packet: to(packet(roce.WriteOnly, 100), 2, 0, 8), bytes: 4, want: "nak61 100 msn 0"}},
			isError: true,
		},
		{
			name: "a token invalidated in the middle of a WRITE stops it",
			steps: []step{
				{packet: to(packet(roce.WriteFirst, 100), 2, 0, 600), bytes: mtu},
				{packet: packet(roce.WriteMiddle, 101), bytes: mtu, want: "nak62 101 msn 0",
					before: func(e *end) { delete(e.memory, 2) }},
			},
			isError: true,
		},
		{
			name:  "7.1, 8: SEND longer than the receive",
			setup: receiving(300, 300),
			steps: []step{
				{packet: packet(roce.SendFirst, 100), bytes: mtu},
				{packet: packet(roce.SendLast, 101), bytes: 45, want: "nak61 101 msn 0"},
			},
			done:    []string{"receive local-length 0", "receive flushed 1"},
			isError: true,
		},
		{
			name:    "7.1, 8: receive with a bad token",
			setup:   func(e *end) { e.postReceive(Receive{Context: 7, SGL: []SGE{piece(1, 0, 2), piece(77, 0, 10)}}) },
			steps:   []step{{packet: packet(roce.SendOnly, 100), bytes: 4, want: "nak63 100 msn 0"}},
			done:    []string{"receive local-protection 7"},
			isError: true,
		},
		{
			name:  "7.1, 8: a piece that no byte reaches is not checked",
			setup: func(e *end) { e.postReceive(Receive{Context: 7, SGL: []SGE{piece(1, 0, 4), piece(77, 0, 10)}}) },
			steps: []step{{packet: packet(roce.SendOnly, 100), bytes: 4, want: "ack 100 msn 1"}},
			done:  []string{"receive ok 7 4"},
		},
		{
			name: "7.2: no acknowledgement unless asked for",
			steps: []step{
				{packet: to(roce.Header{Opcode: roce.WriteOnly, PSN: 100}, 2, 0, 1), bytes: 1, want: ""},
				{packet: to(packet(roce.WriteOnly, 101), 2, 0, 1), bytes: 1, want: "ack 101 msn 2"},
			},
		},
		{
			name:  "7.2: READ Response in several packets",
			steps: []step{{packet: to(packet(roce.ReadRequest, 100), 2, 0, 600), want: "read response first 100 (256) msn 1, read response middle 101 (256), read response last 102 (88) msn 1"}},
		},
		{
			name:  "7.4: duplicates are acknowledged and not executed",
			setup: receiving(10, 10),
			steps: []step{
				{packet: packet(roce.SendOnly, 100), bytes: 1, want: "ack 100 msn 1"},
				{packet: packet(roce.SendOnly, 101), bytes: 1, want: "ack 101 msn 2"},
				{packet: roce.Header{Opcode: roce.SendOnly, PSN: 100}, bytes: 1, want: "ack 101 msn 2"},
			},
			done: []string{"receive ok 0 1", "receive ok 1 1"},
		},
		{
			name: "7.4: READs are executed again",
			steps: []step{
				{packet: to(packet(roce.ReadRequest, 100), 2, 8, 600), want: "read response first 100 (256) msn 1, read response middle 101 (256), read response last 102 (88) msn 1"},
				{packet: to(packet(roce.WriteOnly, 103), 2, 0, 1), bytes: 1, want: "ack 103 msn 2"},
				{packet: to(packet(roce.ReadRequest, 101), 2, 8+256, 344), want: "read response first 101 (256) msn 1, read response last 102 (88) msn 1"},
				{packet: to(packet(roce.ReadRequest, 102), 2, 8+512, 88), want: "read response only 102 (88) msn 1"},
				{packet: to(packet(roce.ReadRequest, 101), 2, 8+256, 20), want: "read response only 101 (20) msn 1"},
				{packet: to(packet(roce.ReadRequest, 104), 2, 0, 4), want: "read response only 104 (4) msn 3"},
			},
		},
		{
			name: "7.4: a repeated READ that differs is dropped",
			steps: []step{
				{packet: to(packet(roce.ReadRequest, 100), 2, 8, 600), want: "read response first 100 (256) msn 1, read response middle 101 (256), read response last 102 (88) msn 1"},
				{packet: otherKey(to(packet(roce.ReadRequest, 100), 2, 8, 600), 3), want: ""},
				{packet: to(packet(roce.ReadRequest, 100), 2, 9, 600), want: ""},
				{packet: to(packet(roce.ReadRequest, 100), 2, 8, 601), want: ""},
				{packet: to(packet(roce.ReadRequest, 99), 2, 8, 600), want: ""},
			},
		},
		{
			name: "7.4: a repeated READ whose token is gone is refused, and harms nobody",
			steps: []step{
				{packet: to(packet(roce.ReadRequest, 100), 2, 0, 4), want: "read response only 100 (4) msn 1"},
				{packet: to(packet(roce.ReadRequest, 100), 2, 0, 4), want: "nak62 100 msn 1", before: func(e *end) { delete(e.memory, 2) }},
				{packet: to(packet(roce.WriteOnly, 101), 3, 0, 1), bytes: 1, want: "ack 101 msn 2"},
			},
		},
		{
			name:   "7.4: as many READs are remembered as may be outstanding",
			change: func(c *Connection) { c.ResponderResources = 2 },
			steps: []step{
				{packet: to(packet(roce.ReadRequest, 100), 2, 0, 4), want: "read response only 100 (4) msn 1"},
				{packet: to(packet(roce.ReadRequest, 101), 2, 0, 4), want: "read response only 101 (4) msn 2"},
				{packet: to(packet(roce.ReadRequest, 102), 2, 0, 4), want: "read response only 102 (4) msn 3"},
				{packet: to(packet(roce.ReadRequest, 100), 2, 0, 4), want: ""},
				{packet: to(packet(roce.ReadRequest, 101), 2, 0, 4), want: "read response only 101 (4) msn 2"},
			},
		},
		{
			name: "7.6: solicited",
			setup: func(e *end) {
				receiving(10, 10)(e)
			},
			steps: []step{
				{packet: roce.Header{Opcode: roce.SendOnly, PSN: 100, Solicited: true}, bytes: 1},
				{packet: roce.Header{Opcode: roce.SendOnly, PSN: 101}, bytes: 1},
			},
			done: []string{"receive ok 0 1 solicited", "receive ok 1 1"},
		},
		{
			name:  "7.7: SEND with invalidate",
			setup: receiving(1000, 10),
			steps: []step{
				{packet: packet(roce.SendFirst, 100), bytes: mtu},
				{packet: invalidating(packet(roce.SendLastInv, 101), 3), bytes: 1, want: "ack 101 msn 1"},
				{packet: invalidating(packet(roce.SendOnlyInv, 102), 4), bytes: 1, want: "ack 102 msn 2"},
				{packet: to(packet(roce.WriteOnly, 103), 3, 0, 1), bytes: 1, want: "nak62 103 msn 2"},
			},
			done:    []string{"receiveinv ok 0 257 token 3", "receiveinv ok 1 1 token 4"},
			isError: true,
		},
		{
			name:    "7.7: SEND with invalidate of what is not valid",
			setup:   receiving(10, 10),
			steps:   []step{{packet: invalidating(packet(roce.SendOnlyInv, 100), 77), bytes: 1, want: "nak62 100 msn 0"}},
			done:    []string{"receive remote-invalid 0", "receive flushed 1"},
			isError: true,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := newReady(t, test.change)
			if test.setup != nil {
				test.setup(e)
			}
			for i, s := range test.steps {
				if s.before != nil {
					s.before(e)
				}
				payload := make([]byte, s.bytes)
				e.qp.Handle(0, &s.packet, payload)
				if got := e.answers(0); got != s.want {
					t.Errorf("step %d: answered %q, want %q", i, got, s.want)
				}
			}
			e.done = e.qp.Completions(nil)
			e.check(test.done...)
			if got := e.qp.State() == Error; got != test.isError {
				t.Errorf("state %v", e.qp.State())
			}
		})
	}
}

// TestLongestRead: a READ may be of as many bytes as a message, if the memory has
// them, and of no more.
func TestLongestRead(t *testing.T) {
	for length, want := range map[uint32]string{
		MaxMessage:     "nak62 100 msn 0", // no such memory
		MaxMessage + 1: "nak61 100 msn 0", // no such request
	} {
		e := newReady(t, nil)
		e.hear(roce.Header{Opcode: roce.ReadRequest, PSN: 100, RKey: 1, VA: 1 << 32, DMALength: length})
		e.at(0, want)
	}
}

// A message of which something could not be copied, before its last packet came, is refused.
func TestUnplacedIsRefused(t *testing.T) {
	for _, there := range []bool{true, false} {
		e := newReady(t, nil)
		e.qp.config.Place = func(ranges [][]byte, data []byte) bool { return true }
		e.qp.config.Placed = func() bool { return there }
		first, last := to(packet(roce.WriteFirst, 100), 3, 0, 300), packet(roce.WriteLast, 101)
		e.qp.Handle(0, &first, make([]byte, 256))
		e.qp.FinishPlacing()
		e.qp.config.Placed = func() bool { return true } // of what follows all is there
		e.qp.Handle(0, &last, make([]byte, 44))
		e.qp.FinishPlacing()
		if there {
			e.say("ack 101 msn 1")
		} else {
			e.say("nak62 101 msn 0")
		}
	}
}
