package rc

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A watchedMemory tells of each token that is to be invalidated.
type watchedMemory struct {
	fakeMemory
	remote, local func(token uint32)
}

func (m *watchedMemory) Invalidate(token uint32) bool {
	m.remote(token)
	return m.fakeMemory.Invalidate(token)
}

func (m *watchedMemory) InvalidateLocal(token uint32) bool {
	m.local(token)
	return m.fakeMemory.InvalidateLocal(token)
}

// TestReadWithLocalInvalidate is NDK-INV-07.
func TestReadWithLocalInvalidate(t *testing.T) {
	invalidating := func(sgl ...SGE) Request {
		return Request{Op: OpRead, Context: 1, SGL: sgl, VA: 0x1000, Token: 2, InvalidateLocal: true}
	}
	first := response(roce.ReadResponseFirst, 100)
	last := response(roce.ReadResponseLast, 101)
	only := response(roce.ReadResponseOnly, 100)
	for _, c := range []struct {
		name  string
		read  Request
		hear  []roce.Header
		bytes []int
		ended []uint32
		done  []string
	}{
		{"the first piece's token ends", invalidating(piece(3, 0, 200), piece(4, 0, 100)), []roce.Header{first, last}, []int{256, 44}, []uint32{3}, []string{"read ok 1"}},
		{"not before the last byte", invalidating(piece(3, 0, 300)), []roce.Header{first}, []int{256}, nil, nil},
		{"once, though answered twice", invalidating(piece(3, 0, 300)), []roce.Header{first, last, first, last}, []int{256, 44, 256, 44}, []uint32{3}, []string{"read ok 1"}},
		{"an empty piece has a token", invalidating(piece(3, 0, 0), piece(3, 0, 1)), []roce.Header{only}, []int{1}, []uint32{3}, []string{"read ok 1"}},
		{"no piece, no token", invalidating(), []roce.Header{only}, []int{0}, nil, []string{"read ok 1"}},
		{"the token is not to be ended", invalidating(piece(77, 0, 0), piece(3, 0, 1)), []roce.Header{only}, []int{1}, []uint32{77}, []string{"read local-protection 1"}},
		{"a READ that fails ends nothing", invalidating(piece(3, 0, 1)), []roce.Header{ack(100, roce.SyndromeRemoteAccess)}, []int{0}, nil, []string{"read remote-access 1"}},
		{"not asked for", Request{Op: OpRead, Context: 1, SGL: []SGE{piece(3, 0, 1)}}, []roce.Header{only}, []int{1}, nil, []string{"read ok 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newReady(t, nil)
			watched := &watchedMemory{fakeMemory: e.memory}
			e.qp.config.Memory = watched
			var ended []uint32
			watched.local = func(token uint32) {
				ended = append(ended, token)
				if len(e.qp.completions) > 0 {
					t.Error("completed before")
				}
				if e.memory[3].bytes[0] != 0xEE {
					t.Error("data missing")
				}
			}
			e.queue(c.read)
			e.answers(0)
			for i := range c.hear {
				e.qp.Handle(0, &c.hear[i], bytes.Repeat([]byte{0xEE}, c.bytes[i]))
			}
			e.completed(c.done...)
			if !slices.Equal(ended, c.ended) {
				t.Errorf("ended %v, want %v", ended, c.ended)
			}
		})
	}
}

// TestReadThenRegisterAgain: fenced, the same region may be registered anew right
// behind a READ that ends it.
func TestReadThenRegisterAgain(t *testing.T) {
	p := newPair(t, testConfig, testConnection, path{delay: time.Millisecond}, 1)
	p.a.memory.add(1, 100)
	p.b.memory.add(2, 100)
	register := journal{}
	register.effect = func() {
		if p.a.memory[1] != nil {
			register.status = BadOperation
		}
		p.a.memory.add(1, 100)
	}
	read := Request{Op: OpRead, Context: 1, SGL: []SGE{piece(1, 0, 100)}, VA: 2 << 32, Token: 2, InvalidateLocal: true}
	again := read
	again.Context = 3
	p.a.post(read)
	p.a.post(fenced(local(OpFastRegister, 2, &register)))
	p.a.post(again)
	p.await(t, p.a, 3, time.Second)
	p.a.check("read ok 1", "register ok 2", "read ok 3")
}

// TestSendWithInvalidate is roce.md 7.7, NDK-INV-04: the data is in place and
// no receive complete when the token ends, once.
func TestSendWithInvalidate(t *testing.T) {
	e := newReady(t, nil)
	receiving(1000, 10)(e)
	clear(e.memory[1].bytes)
	ended := 0
	e.qp.config.Memory = &watchedMemory{fakeMemory: e.memory, remote: func(token uint32) {
		ended++
		if token != 3 || e.memory[1].bytes[256] != 7 || len(e.qp.completions) != 0 {
			t.Errorf("token %d, %d completions, last byte %d", token, len(e.qp.completions), e.memory[1].bytes[256])
		}
	}}
	first := packet(roce.SendFirst, 100)
	last := invalidating(packet(roce.SendLastInv, 101), 3)
	e.qp.Handle(0, &first, make([]byte, 256))
	if ended != 0 {
		t.Error("ended before the message did")
	}
	e.qp.Handle(0, &last, []byte{7})
	e.say("ack 101 msn 1")
	e.completed("receiveinv ok 0 257 token 3")
	// The packet comes again, the token having been given out again (7.4).
	e.memory.add(3, 100)
	e.qp.Handle(0, &last, []byte{7})
	e.say("ack 101 msn 1")
	if ended != 1 || e.memory[3] == nil {
		t.Errorf("ended %d times", ended)
	}
	e.completed()
}

// TestSendWithInvalidateOfWhatIsNot is NDK-INV-05: both ends fail, each with the
// request concerned.
func TestSendWithInvalidateOfWhatIsNot(t *testing.T) {
	p := newPair(t, testConfig, testConnection, path{delay: time.Millisecond}, 1)
	p.b.memory.add(1, 10)
	p.b.postReceive(Receive{Context: 7, SGL: []SGE{piece(1, 0, 10)}})
	p.b.postReceive(Receive{Context: 8, SGL: []SGE{piece(1, 0, 10)}})
	p.a.post(Request{Op: OpSend, Context: 1, Inline: []byte{1}})
	p.a.post(Request{Op: OpSendInvalidate, Context: 2, Inline: []byte{2}, Token: 77})
	p.a.post(Request{Op: OpSend, Context: 3, Inline: []byte{3}})
	p.await(t, p.a, 3, time.Second)
	p.a.check("send ok 1", "sendinv remote-access 2", "send flushed 3")
	p.b.check("receive ok 7 1", "receive remote-invalid 8")
	if p.a.qp.State() != Error || p.b.qp.State() != Error {
		t.Error("the connection lives on")
	}
}
