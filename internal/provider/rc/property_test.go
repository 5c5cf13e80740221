package rc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Tokens of each end in the property test.
const (
	sourceToken = 1 // what is sent and written
	targetToken = 2 // where the peer writes
	shelfToken  = 3 // what the peer reads; never changes
	sinkToken   = 4 // where READs end up
	inboxToken  = 5 // where receives end up
	countsToken = 6 // what the peer's atomics change
	victimToken = 100
	aliasToken  = 1000 // and those above are registered and invalidated as it goes
	areaSize    = 64 << 10
	countsSize  = 4 * atomicBytes
	slotSize    = 8 << 10
)

// A model holds all that one end should see in the end.
type model struct {
	target   []byte
	counts   []byte
	inbox    []byte
	sink     []byte
	requests []string // completions
	receives []string

	locals, performed []int    // local operations, by context
	ended             []uint32 // tokens invalid in the end
}

// alias registers the memory of one token under another as well; false if that
// is in use.
func (m fakeMemory) alias(token, original uint32) bool {
	if m[token] != nil {
		return false
	}
	m[token] = &region{base: uint64(token) << 32, bytes: m[original].bytes}
	return true
}

// draw makes requests for from, and notes in the models what they should do.
// Local operations are real: they register and invalidate tokens that the
// requests around them use, so one that is performed too early or too late makes
// a request fail, perhaps only when it is sent again.
func draw(t *rapid.T, name string, from *end, mine, theirs *model, count int, peer *end) []Request {
	var requests []Request
	source := from.memory[sourceToken].bytes
	shelf := peer.memory[shelfToken].bytes
	sources := []uint32{sourceToken} // that are valid when the next request's turn comes
	var sinks []uint32               // likewise, beside sinkToken; for one READ each
	reads, sent := 0, 0
	for i := range count {
		label := fmt.Sprintf("%s %d", name, i)
		r := Request{
			Op: rapid.SampledFrom([]Op{OpSend, OpSendInvalidate, OpSendImmediate, OpWrite, OpWrite, OpWriteImmediate, OpRead, OpRead,
				OpFetchAdd, OpFetchAdd, OpCompareSwap, OpAtomicWrite, OpBind, OpFastRegister, OpFastRegister, OpInvalidate}).Draw(t, label+" op"),
			Context: i,
			Silent:  rapid.IntRange(0, 4).Draw(t, label+" silent") == 0,
			Fence:   rapid.IntRange(0, 4).Draw(t, label+" fence") == 0,
		}
		if r.Op == OpInvalidate && len(sources) == 1 {
			r.Op = OpFastRegister
		}
		if r.Op.isLocal() {
			effect := func() bool { return true }
			switch token := aliasToken + uint32(i); r.Op {
			case OpFastRegister:
				original := rapid.SampledFrom([]uint32{sourceToken, sinkToken}).Draw(t, label+" original")
				if original == sourceToken {
					sources = append(sources, token)
				} else {
					sinks = append(sinks, token)
				}
				effect = func() bool { return from.memory.alias(token, original) }
			case OpInvalidate:
				token = sources[len(sources)-1]
				sources = sources[:len(sources)-1]
				mine.ended = append(mine.ended, token)
				effect = func() bool { return from.memory.Invalidate(token) }
			}
			j := &journal{}
			j.effect = func() {
				mine.performed = append(mine.performed, i)
				if !effect() {
					j.status = BadOperation
				}
			}
			r.Local = j
			mine.locals = append(mine.locals, i)
			if !r.Silent {
				mine.requests = append(mine.requests, describe(Completion{Op: r.Op, Context: i}))
			}
			requests = append(requests, r)
			continue
		}
		if r.Op.isAtomic() && reads == areaSize/slotSize {
			r.Op = OpSend
		}
		if r.Op.isAtomic() {
			at := rapid.IntRange(0, countsSize/atomicBytes-1).Draw(t, label+" count") * atomicBytes
			r.VA, r.Token = countsToken<<32+uint64(at), countsToken
			r.Operand, r.Compare = rapid.Uint64Range(0, 2).Draw(t, label+" operand"), rapid.Uint64Range(0, 2).Draw(t, label+" compare")
			r.SGL = []SGE{piece(sinkToken, reads*slotSize, 3), piece(sinkToken, reads*slotSize+3, 5)}
			original := changeBytes(r.Op, theirs.counts[at:], r.Operand, r.Compare)
			if r.Op != OpAtomicWrite {
				binary.NativeEndian.PutUint64(mine.sink[reads*slotSize:], original)
			}
			reads++
			if !r.Silent {
				mine.requests = append(mine.requests, describe(Completion{Op: r.Op, Context: i}))
			}
			requests = append(requests, r)
			continue
		}
		r.Solicited = rapid.Bool().Draw(t, label+" solicited")
		n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, slotSize)).Draw(t, label+" length")
		if r.Op == OpRead && reads == areaSize/slotSize {
			r.Op = OpWrite
		}
		token, base := rapid.SampledFrom(sources).Draw(t, label+" source"), rapid.IntRange(0, areaSize-n).Draw(t, label+" local")
		if r.Op == OpRead {
			token, base = sinkToken, reads*slotSize
			reads++
			if len(sinks) > 0 {
				token, sinks = sinks[0], sinks[1:]
				r.InvalidateLocal = true
				mine.ended = append(mine.ended, token)
			}
		}
		cut := rapid.IntRange(0, n).Draw(t, label+" cut")
		data := source[base : base+n]
		if n <= testConfig.MaxInline && r.Op != OpRead && rapid.Bool().Draw(t, label+" inline") {
			r.Inline = append([]byte{}, data...)
		} else {
			r.SGL = []SGE{piece(token, base, cut), piece(token, base+cut, n-cut)}
		}
		c := Completion{Context: sent, Bytes: uint32(n), Solicited: r.Solicited}
		switch r.Op {
		case OpSend:
			c.Op = OpReceive
		case OpSendInvalidate:
			c.Op, c.Token = OpReceiveInvalidate, victimToken+uint32(i)
			r.Token = c.Token
			peer.memory.add(r.Token, 1)
		case OpSendImmediate, OpWriteImmediate:
			c.Op, c.Immediate = OpReceiveImmediate, rapid.Uint32().Draw(t, label+" immediate")
			r.Immediate = c.Immediate
		}
		switch at := uint64(rapid.IntRange(0, areaSize-n).Draw(t, label+" remote")); r.Op {
		case OpWriteImmediate:
			c.Op = OpReceiveWrite
			fallthrough
		case OpWrite:
			r.VA, r.Token = targetToken<<32+at, targetToken
			copy(theirs.target[at:], data)
		case OpRead:
			r.VA, r.Token = shelfToken<<32+at, shelfToken
			copy(mine.sink[base:], shelf[at:at+uint64(n)])
		default:
			copy(theirs.inbox[sent*slotSize:], data)
		}
		if c.Op.IsReceive() {
			theirs.receives = append(theirs.receives, describe(c))
			sent++
		}
		if !r.Silent {
			mine.requests = append(mine.requests, describe(Completion{Op: r.Op, Context: i}))
		}
		requests = append(requests, r)
	}
	return requests
}

// TestAnythingArrivesOnceInOrder posts random requests at both ends of random
// paths, which lose, repeat and reorder packets, to receivers that may be late.
func TestAnythingArrivesOnceInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const most = 30
		c := testConnection
		c.MTU = rapid.SampledFrom([]int{256, 1024, 4096}).Draw(rt, "mtu")
		c.SendPSN = rapid.SampledFrom([]uint32{0, 1 << 23, 0xFFFFF0}).Draw(rt, "psn")
		c.ReceivePSN = rapid.Uint32Range(0, 0xFFFFFF).Draw(rt, "their psn")
		c.InitiatorDepth = rapid.IntRange(1, 4).Draw(rt, "depth")
		c.ResponderResources = c.InitiatorDepth
		c.AckTimeout, c.RNRRetryCount = 0, 7
		c.Rights = AllowRead | AllowWrite | AllowAtomic | AllowAtomicWrite
		c.Selective = rapid.Bool().Draw(rt, "selective")
		c.Credit = rapid.SampledFrom([]int{1, 10_000, 200_000}).Draw(rt, "credit")
		percent := func(most int, name string) float64 {
			return float64(rapid.IntRange(0, most).Draw(rt, name)) / 100
		}
		milliseconds := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(0, 5000).Draw(rt, name)) * time.Microsecond
		}
		route := path{
			delay: milliseconds("delay"), jitter: milliseconds("jitter") / 5,
			loss: percent(30, "loss"), dup: percent(20, "dup"),
			rate: float64(rapid.SampledFrom([]int{0, 100e6, 10e9}).Draw(rt, "rate")),
		}
		config := testConfig
		config.SendDepth = rapid.IntRange(1, 20).Draw(rt, "send depth")
		p := newPair(t, config, c, route, rapid.Uint64().Draw(rt, "seed"))

		ends := [2]*end{p.a, p.b}
		p.a.gathers = rapid.Bool().Draw(rt, "gathers")
		p.b.idle = rapid.SampledFrom([]time.Duration{0, 100 * time.Microsecond, time.Millisecond}).Draw(rt, "batch")
		var models [2]*model
		for i, e := range ends {
			for token := uint32(sourceToken); token <= inboxToken; token++ {
				size := areaSize
				if token == inboxToken {
					size = most * slotSize
				}
				pattern(e.memory.add(token, size).bytes, int(token)+i*10)
			}
			e.memory.add(countsToken, countsSize)
			models[i] = &model{
				counts: make([]byte, countsSize),
				target: bytes.Clone(e.memory[targetToken].bytes),
				inbox:  bytes.Clone(e.memory[inboxToken].bytes),
				sink:   bytes.Clone(e.memory[sinkToken].bytes),
			}
		}
		late := rapid.Bool().Draw(rt, "receives are late")
		for i, e := range ends {
			peer := ends[1-i]
			requests := draw(rt, string(rune('a'+i)), e, models[i], models[1-i], rapid.IntRange(0, most).Draw(rt, "count"), peer)
			// Requests follow as completions make room: silent ones make none,
			// so try again from time to time.
			var post func()
			post = func() {
				for len(requests) > 0 && e.qp.Post(&requests[0]) == nil {
					requests = requests[1:]
				}
				e.pump()
				if len(requests) > 0 {
					p.clock.AfterFunc(5*time.Millisecond, post)
				}
			}
			post()
			receives := 0
			var receive func()
			receive = func() {
				e.postReceive(Receive{Context: receives, SGL: []SGE{piece(inboxToken, receives*slotSize, slotSize)}})
				if receives++; receives == most {
					return
				}
				if late {
					p.clock.AfterFunc(time.Millisecond, receive)
				} else {
					receive()
				}
			}
			receive()
		}
		total := func(i int) int { return len(models[i].requests) + len(models[i].receives) }
		quiet := func() bool {
			return len(p.a.done) >= total(0) && len(p.b.done) >= total(1) &&
				p.a.qp.requester.queue.head == p.a.qp.requester.queue.tail && p.b.qp.requester.queue.head == p.b.qp.requester.queue.tail
		}
		if !p.clock.RunUntil(quiet, 10*time.Minute) {
			rt.Fatalf("not done after 10 minutes: %d of %d and %d of %d completions\n%+v\n%+v",
				len(p.a.done), total(0), len(p.b.done), total(1), p.a.qp.Counters(), p.b.qp.Counters())
		}
		p.clock.Run(time.Minute) // whatever is still on its way arrives and changes nothing
		for i, e := range ends {
			m := models[i]
			var requests, receives []string
			for _, c := range e.done {
				if c.Op.IsReceive() {
					receives = append(receives, describe(c))
				} else {
					requests = append(requests, describe(c))
				}
			}
			if diff := cmp.Diff(m.requests, requests); diff != "" {
				rt.Errorf("end %d: requests (-want +got):\n%s", i, diff)
			}
			if diff := cmp.Diff(m.receives, receives); diff != "" {
				rt.Errorf("end %d: receives (-want +got):\n%s", i, diff)
			}
			for token, want := range map[uint32][]byte{targetToken: m.target, countsToken: m.counts, inboxToken: m.inbox, sinkToken: m.sink} {
				if !bytes.Equal(e.memory[token].bytes, want) {
					rt.Errorf("end %d: memory %d differs", i, token)
				}
			}
			if diff := cmp.Diff(m.locals, m.performed); diff != "" {
				rt.Errorf("end %d: local operations performed (-want +got):\n%s", i, diff)
			}
			for _, token := range m.ended {
				if e.memory[token] != nil {
					rt.Errorf("end %d: token %d is still valid", i, token)
				}
			}
			checkCounters(rt, e, ends[1-i], route)
			if e.qp.State() != Ready {
				rt.Errorf("end %d: state %v", i, e.qp.State())
			}
			if r := &e.qp.requester; r.window.inFlight != 0 || r.queue.readsOnWire != 0 || r.scoreboard != nil {
				rt.Errorf("end %d: something is left: %d bytes and %d reads in flight; scoreboard %+v", i, r.window.inFlight, r.queue.readsOnWire, r.scoreboard)
			}
			if r := &e.qp.responder; r.early != nil && r.early.count != 0 || r.replies.acknowledgementPending() {
				rt.Errorf("end %d: something is left: %+v", i, r.early)
			}
			if at, ok := e.qp.Deadline(); ok {
				rt.Errorf("end %d: deadline %v with nothing outstanding", i, at)
			}
		}
	})
}

// checkCounters checks what must hold between the counters of two ends when
// nothing is on its way any more.
func checkCounters(t *rapid.T, e, peer *end, route path) {
	mine, theirs := e.qp.Counters(), peer.qp.Counters()
	if int(mine.Sent) != len(e.out.sent) {
		t.Errorf("sent %d packets, counted %d", len(e.out.sent), mine.Sent)
	}
	if route.dup == 0 && (theirs.NAKsReceived > mine.NAKsSent || theirs.RNRsReceived > mine.RNRsSent ||
		theirs.AcknowledgementsReceived > mine.AcknowledgementsSent || theirs.Received > mine.Sent) {
		t.Errorf("received more than was sent:\n%+v\n%+v", mine, theirs)
	}
	if route.loss == 0 && theirs.Received < mine.Sent {
		t.Errorf("%d of %d packets received without loss", theirs.Received, mine.Sent)
	}
	if route.loss == 0 && route.dup == 0 && route.jitter == 0 && mine.RNRsReceived == 0 {
		if mine.NAKsReceived+mine.NAKsSent != 0 || mine.Retransmitted > mine.Timeouts {
			t.Errorf("repairs on a path that was perfect: %+v", mine)
		}
	}
}

// TestEndsInOrder ends a connection that is busy: a request fails, or the QP is
// flushed, whichever comes first. Every request completes once, in order: with
// success up to the end, flushed from there on but for the one that failed. Silent
// ones may be missing before the end. Local operations are performed once each, in
// order, as far as the end lets them, and none thereafter.
func TestEndsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := testConnection
		c.AckTimeout = 0 // loss alone ends nothing
		c.Selective = rapid.Bool().Draw(rt, "selective")
		c.Credit = rapid.SampledFrom([]int{1, 10_000, 200_000}).Draw(rt, "credit")
		p := newPair(t, testConfig, c, path{
			delay: 100 * time.Microsecond, jitter: time.Duration(rapid.IntRange(0, 100).Draw(rt, "jitter")) * time.Microsecond,
			loss: float64(rapid.IntRange(0, 20).Draw(rt, "loss")) / 100,
		}, rapid.Uint64().Draw(rt, "seed"))
		p.b.out.loss = 0 // a NAK that ends the connection is sent once
		a := p.a
		a.memory.add(1, slotSize)
		p.b.memory.add(2, slotSize)
		ended := func() bool { return a.qp.State() == Error }
		var performed, locals []int
		count := rapid.IntRange(1, 25).Draw(rt, "count")
		failing := rapid.IntRange(-1, count-1).Draw(rt, "failing")
		requests := make([]Request, count)
		for i := range requests {
			label := fmt.Sprint(i)
			n := rapid.IntRange(0, slotSize).Draw(rt, label+" length")
			r := Request{
				Op: rapid.SampledFrom([]Op{OpWrite, OpRead, OpBind, OpFastRegister, OpInvalidate}).Draw(rt, label+" op"), Context: i,
				SGL: []SGE{piece(1, 0, n)}, VA: 2 << 32, Token: 2,
				Silent: rapid.IntRange(0, 3).Draw(rt, label+" silent") == 0,
				Fence:  rapid.IntRange(0, 3).Draw(rt, label+" fence") == 0,
			}
			if r.Op.isLocal() {
				j := &journal{}
				j.effect = func() {
					if ended() {
						rt.Errorf("operation %d performed after the end", i)
					}
					performed = append(performed, i)
				}
				if i == failing {
					j.status = BadOperation
				}
				r.SGL, r.Local = nil, j
				locals = append(locals, i)
			} else if i == failing {
				r.SGL, r.Token = []SGE{piece(1, 0, 1)}, 77
			}
			requests[i] = r
		}
		half := rapid.IntRange(0, count).Draw(rt, "posted at once")
		a.queue(requests[:half]...)
		a.pump()
		rest := func() {
			if !ended() {
				a.queue(requests[half:]...)
				a.pump()
				half = count
			}
		}
		p.clock.AfterFunc(300*time.Microsecond, rest)
		if flushAt := rapid.IntRange(-1, 30).Draw(rt, "flushed"); flushAt >= 0 {
			p.clock.AfterFunc(time.Duration(flushAt)*100*time.Microsecond, func() {
				a.qp.Flush()
				a.pump()
			})
		}
		p.clock.Run(time.Minute)
		if !ended() && (failing >= 0 || len(performed) < len(locals)) {
			rt.Fatalf("request %d should have failed; %d of %d operations performed", failing, len(performed), len(locals))
		}
		if len(performed) > len(locals) || !slices.Equal(performed, locals[:len(performed)]) {
			rt.Fatalf("performed %v of %v", performed, locals)
		}
		next, over := 0, false
		for _, done := range a.done {
			i := done.Context.(int)
			for ; next < i; next++ {
				if over || !requests[next].Silent {
					rt.Fatalf("request %d did not complete in its turn", next)
				}
			}
			next++
			switch {
			case done.Status == Success && (over || requests[i].Silent || i == failing):
				rt.Fatalf("request %d: success", i)
			case done.Status == Success && requests[i].Op.isLocal() && !slices.Contains(performed, i):
				rt.Fatalf("operation %d: success, though not performed", i)
			case done.Status != Success && done.Status != Flushed && i != failing:
				rt.Fatalf("request %d: %v", i, describe(done))
			}
			over = over || done.Status != Success
		}
		for ; next < half; next++ {
			if over || !requests[next].Silent {
				rt.Fatalf("request %d never completed", next)
			}
		}
	})
}
