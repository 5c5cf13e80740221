package rc

import (
	"bytes"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestFence is roce.md 6.2 and NDK-POST-08.
func TestFence(t *testing.T) {
	e := newReady(t, nil)
	fenced := sends(3, 1)
	fenced.Fence = true
	e.queue(sends(1, 1), reads(2, 1), fenced, sends(4, 1))
	e.say("send only 100 (1) ask", "read request 101 1@1000 ask")
	e.hear(ack(100, roce.SyndromeACK))
	e.quiet()
	h := response(roce.ReadResponseOnly, 101)
	e.qp.Handle(0, &h, []byte{1})
	e.say("send only 102 (1) ask", "send only 103 (1) ask")
	// Earlier SENDs do not hold it.
	fenced.Context = 5
	e.queue(fenced)
	e.say("send only 104 (1) ask")
	e.quiet()
	e.hear(ack(104, roce.SyndromeACK))
	e.completed("send ok 1", "read ok 2", "send ok 3", "send ok 4", "send ok 5")
}

// TestFenceOfEveryKind is NDK-POST-08: not a packet of a fenced request is made
// while one byte of an earlier READ is missing.
func TestFenceOfEveryKind(t *testing.T) {
	for want, r := range map[string]Request{
		"send only 103 (1) ask":                       sends(3, 1),
		"send only invalidate 103 (1) ask":            {Op: OpSendInvalidate, Context: 3, SGL: []SGE{piece(1, 0, 1)}, Token: 2},
		"write only 103 (1) 1@1000 ask":               writes(3, 1),
		"write only 103 (2) 2@0 ask":                  {Op: OpWrite, Context: 3, Inline: []byte("ab")},
		"read request 103 1@1000 ask":                 reads(3, 1),
		"send first 103 (256), send last 104 (1) ask": sends(3, 257),
	} {
		t.Run(want, func(t *testing.T) {
			e := newReady(t, nil)
			e.queue(reads(1, 1), reads(2, 300), fenced(r))
			e.say("read request 100 1@1000 ask", "read request 101 300@1000 ask")
			for _, step := range []struct {
				op    roce.Opcode
				psn   uint32
				bytes int
			}{{roce.ReadResponseOnly, 100, 1}, {roce.ReadResponseFirst, 101, 256}, {roce.ReadResponseLast, 102, 44}} {
				e.quiet()
				h := response(step.op, step.psn)
				e.qp.Handle(0, &h, make([]byte, step.bytes))
			}
			e.at(0, want)
			e.completed("read ok 1", "read ok 2")
		})
	}
}

// TestFencedWriteAfterRead: what a fenced WRITE puts where a READ reads from is
// not in what the READ got, however often either is sent.
func TestFencedWriteAfterRead(t *testing.T) {
	const size, count = 3000, 20
	c := testConnection
	c.AckTimeout = 0
	p := newPair(t, testConfig, c, path{delay: time.Millisecond, jitter: 200 * time.Microsecond, loss: 0.1, dup: 0.1}, 1)
	source, sink := p.a.memory.add(1, size*(count+1)), p.a.memory.add(3, size*count)
	target := p.b.memory.add(2, size)
	for i := range count + 1 {
		copy(source.bytes[i*size:], bytes.Repeat([]byte{byte(i)}, size))
	}
	for i := range count { // the target holds i before, and i+1 after
		p.a.post(Request{Op: OpRead, Context: 2 * i, SGL: []SGE{piece(3, i*size, size)}, VA: 2 << 32, Token: 2})
		p.a.post(fenced(Request{Op: OpWrite, Context: 2*i + 1, SGL: []SGE{piece(1, (i+1)*size, size)}, VA: 2 << 32, Token: 2}))
	}
	p.await(t, p.a, 2*count, time.Minute)
	if !bytes.Equal(sink.bytes, source.bytes[:size*count]) {
		t.Error("a READ got what was written behind it")
	}
	if !bytes.Equal(target.bytes, source.bytes[size*count:]) {
		t.Error("the last WRITE is not in place")
	}
}
