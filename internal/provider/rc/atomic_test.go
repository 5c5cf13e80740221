package rc

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

func allowAtomics(c *Connection) { c.Rights |= AllowAtomic | AllowAtomicWrite }

// addOf is a FetchAdd of n at an offset in token 2.
func addOf(psn uint32, offset, n uint64) roce.Header {
	return roce.Header{Opcode: roce.FetchAdd, PSN: psn, VA: 2<<32 + offset, RKey: 2, SwapAdd: n, AckReq: true}
}

// swapOf is a CompareSwap likewise, of n where compare is.
func swapOf(psn uint32, offset, n, compare uint64) roce.Header {
	h := addOf(psn, offset, n)
	h.Opcode, h.Compare = roce.CompareSwap, compare
	return h
}

// atomicWriteOf is an AtomicWrite likewise.
func atomicWriteOf(psn uint32, offset uint64) roce.Header {
	h := to(packet(roce.AtomicWrite, psn), 2, offset, atomicBytes)
	return h
}

// hearAt has a packet without payload arrive.
func (e *end) hearAt(now time.Duration, h roce.Header) { e.qp.Handle(now, &h, nil) }

// count is the number at an offset in token 2.
func (e *end) count(offset int) uint64 {
	return binary.NativeEndian.Uint64(e.memory[2].bytes[offset:])
}

// TestAtomicsOnce: each atomic is carried out once, and its duplicates are answered with what it
// found, as long as that is known (roce.md 7.3, 7.4).
func TestAtomicsOnce(t *testing.T) {
	for _, selective := range []bool{false, true} {
		e := newReady(t, func(c *Connection) {
			allowAtomics(c)
			c.ResponderResources, c.Selective = 2, selective
		})
		clear(e.memory[2].bytes)
		e.hear(addOf(100, 8, 5))
		e.say("atomic acknowledge 100 msn 1 was 0")
		e.hear(addOf(101, 8, 7))
		e.say("atomic acknowledge 101 msn 2 was 5")
		e.hear(addOf(100, 8, 5)) // once more
		e.say("atomic acknowledge 100 msn 1 was 0")
		e.hear(addOf(101, 8, 7))
		e.hear(addOf(101, 8, 7))
		if selective {
			e.say("atomic acknowledge 101 msn 2 was 5", "atomic acknowledge 101 msn 2 was 5")
		} else {
			e.say("atomic acknowledge 101 msn 2 was 5")
		}
		e.hear(swapOf(102, 8, 40, 13)) // no match
		e.say("atomic acknowledge 102 msn 3 was 12")
		e.hear(swapOf(103, 8, 41, 12))
		e.say("atomic acknowledge 103 msn 4 was 12")
		if n := e.count(8); n != 41 {
			t.Errorf("selective %t: %d", selective, n)
		}
		// Nobody has asked for a READ, or for another atomic, of that number.
		e.hear(readOf(103, 0, 1))
		e.hear(addOf(103, 8, 1))
		e.say()
		// With room for two, or for eight where both are ours, the first has been forgotten.
		for psn := uint32(104); psn < 112; psn++ {
			e.hear(addOf(psn, 16, 1))
			e.answers(0)
		}
		e.hear(addOf(100, 8, 5))
		e.say()
		if n := e.count(8); n != 41 || e.count(16) != 8 {
			t.Errorf("selective %t: %d and %d", selective, n, e.count(16))
		}
	}
}

// TestAtomicWrite: 8 bytes at once, acknowledged like a READ of nothing (roce.md 3.1).
func TestAtomicWrite(t *testing.T) {
	e := newReady(t, allowAtomics)
	payload := []byte("01234567")
	h := atomicWriteOf(100, 24)
	for range 2 { // the second is a duplicate, and changes nothing
		e.qp.Handle(0, &h, payload)
		e.say("read response only 100 msn 1")
		if got := string(e.memory[2].bytes[24:32]); got != "01234567" {
			t.Errorf("%q", got)
		}
		payload = []byte("abcdefgh")
	}
}

// TestAtomicsRefused is 7.1 of roce.md, in its order.
func TestAtomicsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Connection)
		h      roce.Header
		bytes  int
		want   string
	}{
		{"4: not allowed, before all else", func(c *Connection) { c.Rights &^= AllowAtomic }, addOf(100, 4091, 1), 0, "nak61 100 msn 0"},
		{"5: no resources", func(c *Connection) { c.ResponderResources = 0 }, addOf(100, 0, 1), 0, "nak61 100 msn 0"},
		{"6: with payload", nil, addOf(100, 4091, 1), 4, "nak61 100 msn 0"},
		{"6: ATOMIC WRITE without", nil, atomicWriteOf(100, 0), 0, "nak61 100 msn 0"},
		{"6: ATOMIC WRITE of another length", nil, to(packet(roce.AtomicWrite, 100), 2, 0, 4), 8, "nak61 100 msn 0"},
		{"7: no such token", nil, otherKey(addOf(100, 1, 1), 77), 0, "nak62 100 msn 0"},
		{"7: beyond the end", nil, addOf(100, 4091, 1), 0, "nak62 100 msn 0"},
		{"7: not at a multiple of 8", nil, addOf(100, 4, 1), 0, "nak61 100 msn 0"},
		{"FLUSH, whatever is allowed", nil, to(packet(roce.Flush, 100), 2, 0, 8), 0, "nak61 100 msn 0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := newReady(t, func(c *Connection) {
				allowAtomics(c)
				if test.change != nil {
					test.change(c)
				}
			})
			before := string(e.memory[2].bytes)
			e.qp.Handle(0, &test.h, make([]byte, test.bytes))
			e.say(test.want)
			if e.qp.State() != Error || string(e.memory[2].bytes) != before {
				t.Errorf("state %v; memory changed: %t", e.qp.State(), string(e.memory[2].bytes) != before)
			}
		})
	}
	e := newReady(t, func(c *Connection) { allowAtomics(c); c.ResponderResources = 2 })
	e.memory[2].deny[RemoteAtomic] = true
	h := atomicWriteOf(100, 0) // which memory has to be writable for
	e.qp.Handle(0, &h, make([]byte, atomicBytes))
	e.hear(addOf(101, 0, 1))
	e.say("read response only 100 msn 1", "nak62 101 msn 1")
	e = newReady(t, func(c *Connection) { allowAtomics(c); c.ResponderResources = 2 })
	clear(e.memory[2].bytes)
	for psn := uint32(100); psn < 103; psn++ { // with none answered
		e.hear(addOf(psn, 0, 1))
	}
	e.say("atomic acknowledge 100 msn 1 was 0", "atomic acknowledge 101 msn 2 was 1", "nak61 102 msn 2")
}

// TestRights: what the peer may not do is refused as an invalid request, whatever the memory
// would say (roce.md 7.1, 4).
func TestRights(t *testing.T) {
	for _, test := range []struct {
		rights Rights
		h      roce.Header
		bytes  int
	}{
		{AllowRead | AllowAtomic, write(100), 1},
		{AllowWrite | AllowAtomic, readOf(100, 0, 1), 0},
		{AllowRead | AllowWrite, addOf(100, 0, 1), 0},
		{AllowRead | AllowWrite | AllowAtomic, atomicWriteOf(100, 0), 8},
	} {
		for _, allowed := range []bool{false, true} {
			e := newReady(t, func(c *Connection) {
				if c.Rights = test.rights; allowed {
					c.Rights = AllowRead | AllowWrite | AllowAtomic | AllowAtomicWrite
				}
			})
			e.qp.Handle(0, &test.h, make([]byte, test.bytes))
			if got := e.answers(0); (got == "nak61 100 msn 0") == allowed {
				t.Errorf("%v, allowed %t: %q", test.h.Opcode, allowed, got)
			}
		}
	}
}

// atomically is a request for token 2 of the peer, whose answer goes to token 1, split in two.
func atomically(op Op, context int, operand, compare uint64) Request {
	return Request{
		Op: op, Context: context, VA: 2<<32 + 8, Token: 2, Operand: operand, Compare: compare,
		SGL: []SGE{piece(1, 0, 3), piece(1, 3, 9)},
	}
}

// TestAtomicRequests: what is on the wire, and where the answer goes.
func TestAtomicRequests(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.InitiatorDepth = 2 })
	e.queue(atomically(OpFetchAdd, 1, 5, 0), atomically(OpCompareSwap, 2, 6, 7), atomically(OpAtomicWrite, 3, 8, 0), sends(4, 1))
	// The third waits for one of the first two.
	e.say("fetch add 100 5,0@200000008 ask", "compare swap 101 6,7@200000008 ask")
	before := e.memory[1].bytes[8]
	e.hearAt(0, roce.Header{Opcode: roce.AtomicAcknowledge, PSN: 100, Syndrome: roce.SyndromeACK, Original: 0x0102030405060708})
	e.completed("add ok 1")
	if n := binary.NativeEndian.Uint64(e.memory[1].bytes); n != 0x0102030405060708 || e.memory[1].bytes[8] != before {
		t.Errorf("%#x", n)
	}
	e.say("atomic write 102 (8) 8@200000008 ask", "send only 103 (1) ask")
	if payload := binary.NativeEndian.Uint64(e.qp.requester.queue.operandsOf(e.qp.requester.queue.slot(2)).stored[:]); payload != 8 {
		t.Errorf("stores %d", payload)
	}
	e.hearAt(0, roce.Header{Opcode: roce.AtomicAcknowledge, PSN: 101, Syndrome: roce.SyndromeACK})
	e.hearAt(0, roce.Header{Opcode: roce.ReadResponseOnly, PSN: 102, Syndrome: roce.SyndromeACK})
	e.hearAt(0, roce.Header{Opcode: roce.Acknowledge, PSN: 103, Syndrome: roce.SyndromeACK})
	e.completed("swap ok 2", "atomicwrite ok 3", "send ok 4")
}

// TestAtomicAskedAgain: only its own answer completes an atomic, and it is sent again as it was.
func TestAtomicAskedAgain(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.InitiatorDepth = 1 })
	e.queue(atomically(OpFetchAdd, 1, 5, 0), sends(2, 1))
	e.say("fetch add 100 5,0@200000008 ask", "send only 101 (1) ask")
	e.hearAt(time.Millisecond, roce.Header{Opcode: roce.Acknowledge, PSN: 101, Syndrome: roce.SyndromeACK})
	e.at(time.Millisecond, "fetch add 100 5,0@200000008 ask, send only 101 (1) ask")
	e.hearAt(2*time.Millisecond, roce.Header{Opcode: roce.AtomicAcknowledge, PSN: 100, Syndrome: roce.SyndromeACK, Original: 3})
	e.hearAt(2*time.Millisecond, roce.Header{Opcode: roce.Acknowledge, PSN: 101, Syndrome: roce.SyndromeACK})
	e.completed("add ok 1", "send ok 2")
}

// TestAtomicAnswers: an answer that is another request's ends the connection.
func TestAtomicAnswers(t *testing.T) {
	for _, test := range []struct {
		request Request
		answer  roce.Opcode
		bytes   int
		done    string
	}{
		{atomically(OpFetchAdd, 1, 1, 1), roce.ReadResponseOnly, 0, "add bad-response 1"},
		{atomically(OpFetchAdd, 1, 1, 1), roce.ReadResponseOnly, 8, "add bad-response 1"},
		{atomically(OpAtomicWrite, 1, 1, 1), roce.AtomicAcknowledge, 0, "atomicwrite bad-response 1"},
		{atomically(OpAtomicWrite, 1, 1, 1), roce.ReadResponseFirst, 0, "atomicwrite bad-response 1"},
		{Request{Op: OpRead, Context: 1, VA: 2 << 32, Token: 2, SGL: []SGE{piece(1, 0, 8)}}, roce.AtomicAcknowledge, 0, "read bad-response 1"},
		{sends(1, 1), roce.AtomicAcknowledge, 0, "send bad-response 1"},
	} {
		for _, selective := range []bool{false, true} {
			e := newReady(t, func(c *Connection) { c.Selective = selective })
			e.queue(test.request)
			e.answers(0)
			h := roce.Header{Opcode: test.answer, PSN: 100, Syndrome: roce.SyndromeACK}
			e.qp.Handle(0, &h, make([]byte, test.bytes))
			e.completed(test.done)
		}
	}
	// And the memory that the answer is for may be gone.
	e := newReady(t, nil)
	e.queue(atomically(OpCompareSwap, 1, 1, 1))
	e.answers(0)
	e.memory[1].deny[ReadSink] = true
	e.hearAt(0, roce.Header{Opcode: roce.AtomicAcknowledge, PSN: 100, Syndrome: roce.SyndromeACK})
	e.completed("swap local-protection 1")
}

// TestAtomicPosts: what cannot be is refused.
func TestAtomicPosts(t *testing.T) {
	e := newReady(t, nil)
	odd, short, inlined := atomically(OpFetchAdd, 1, 1, 1), atomically(OpCompareSwap, 1, 1, 1), atomically(OpAtomicWrite, 1, 1, 1)
	odd.VA++
	short.SGL = short.SGL[:1]
	inlined.Inline = []byte("12345678")
	for i, test := range []struct {
		r    Request
		want error
	}{{odd, ErrAtomic}, {short, ErrAtomic}, {inlined, ErrInline}} {
		if err := e.qp.Post(&test.r); err != test.want {
			t.Errorf("%d: %v", i, err)
		}
	}
	e = newReady(t, func(c *Connection) { c.InitiatorDepth = 0 })
	r := atomically(OpFetchAdd, 1, 1, 1)
	if err := e.qp.Post(&r); err != ErrNoReads {
		t.Error(err)
	}
}

// TestImmediate: the last packet of a message has it, and may be solicited.
func TestImmediate(t *testing.T) {
	e := newReady(t, nil)
	long, short := sends(1, 257), sends(2, 3)
	long.Op, long.Immediate = OpSendImmediate, 7
	short.Op, short.Immediate, short.VA, short.Token, short.Solicited = OpWriteImmediate, 9, 2<<32, 2, true
	e.queue(long, short)
	e.say("send first 100 (256)", "send last immediate 101 (1) immediate 7 ask", "write only immediate 102 (3) 3@200000000 ask solicited")
	long.Op, long.Solicited = OpWriteImmediate, true
	e.queue(long)
	e.say("write first 103 (256) 257@0", "write last immediate 104 (1) immediate 7 ask solicited")
}

// TestReceiveOnly: such a QP answers, and sends nothing of its own before it is told from
// which number on.
func TestReceiveOnly(t *testing.T) {
	e := newEnd(t, testConfig)
	c := testConnection
	c.MTU, c.ReceivePSN, c.SendPSN, c.ReceiveOnly = 256, 100, 0, true
	for token := uint32(1); token <= 4; token++ {
		e.memory.add(token, 4096)
	}
	if err := e.qp.ConnectToSend(Sending{}); err != ErrState {
		t.Errorf("before it is connected: %v", err)
	}
	if err := e.qp.Connect(c); err != nil {
		t.Fatal(err)
	}
	r := sends(1, 1)
	if err := e.qp.Post(&r); err != ErrState {
		t.Errorf("post: %v", err)
	}
	e.hear(write(100))
	e.say("ack 100 msn 1")
	e.hearAt(0, roce.Header{Opcode: roce.Acknowledge, PSN: 0, Syndrome: roce.SyndromeInvalidRequest})
	e.hearAt(0, roce.Header{Opcode: roce.AtomicAcknowledge, PSN: 0, Syndrome: roce.SyndromeACK})
	e.qp.Probe(0) // with a sequence number that it does not have
	e.quiet()
	if at, ok := e.qp.Deadline(); ok || e.qp.State() != Ready {
		t.Errorf("deadline %v, %t; state %v", at, ok, e.qp.State())
	}
	s := Sending{SendPSN: 0xFFFFFF, InitiatorDepth: 1, AckTimeout: 10 * time.Millisecond, RetryCount: 1, RNRRetryCount: 0}
	if err := e.qp.ConnectToSend(s); err != nil {
		t.Fatal(err)
	}
	if err := e.qp.ConnectToSend(s); err != ErrState {
		t.Errorf("a second time: %v", err)
	}
	e.queue(sends(1, 1), atomically(OpFetchAdd, 2, 1, 1), atomically(OpFetchAdd, 3, 1, 1))
	e.say("send only 16777215 (1) ask", "fetch add 0 1,0@200000008 ask")
	e.hearAt(time.Millisecond, roce.Header{Opcode: roce.Acknowledge, PSN: 0xFFFFFF, Syndrome: roce.SyndromeRNR | 1})
	e.completed("send rnr-retry-exceeded 1", "add flushed 2", "add flushed 3")
}
