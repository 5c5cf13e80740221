package ud

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/rc/rctest"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

const (
	mtu    = 1024
	number = 0x123456
	qkey   = 0x11111111
)

var flow = roce.Flow{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2"), SourcePort: 0xC123}

// An end is one QP: it sends from region 1, and receives end up in region 3.
type end struct {
	t        testing.TB
	qp       *QP
	memory   rctest.Memory
	receives *rc.ReceiveQueue
}

func newEnd(t testing.TB) *end {
	e := &end{t: t, receives: rc.NewReceiveQueue(8, 3), memory: rctest.Memory{1: make([]byte, 4096), 3: make([]byte, 64<<10)}}
	for i := range e.memory[1] {
		e.memory[1][i] = byte(i*7 + i>>8)
	}
	e.qp = NewQP(rc.Config{SendDepth: 5, MaxSGE: 2, MaxInline: 300, Receives: e.receives, Memory: e.memory}, number, mtu)
	e.qp.SetQKey(qkey)
	if err := errors.Join(e.qp.Connect(), e.qp.ConnectToSend(0xFFFFFF)); err != nil {
		t.Fatal(err)
	}
	return e
}

// receive posts a receive of n bytes in three pieces, at an offset of 4096 times its context.
func (e *end) receive(context, n int) {
	cut := n / 3
	pieces := []rc.SGE{rctest.Piece(3, context*4096, cut), rctest.Piece(3, context*4096+cut, cut), rctest.Piece(3, context*4096+2*cut, n-2*cut)}
	if err := e.receives.Post(&rc.Receive{Context: context, SGL: pieces}); err != nil {
		e.t.Fatal(err)
	}
}

func send(context, n int) Request {
	return Request{Context: context, SGL: []rc.SGE{rctest.Piece(1, context, n)}, Flow: flow, QPN: 9, QKey: qkey}
}

// completed takes the completions and compares them: operation, status, context, bytes of a receive.
func (e *end) completed(want ...string) {
	e.t.Helper()
	var got []string
	for _, c := range e.qp.Completions(nil) {
		s := fmt.Sprint(map[rc.Op]string{
			rc.OpSend: "send", rc.OpSendImmediate: "sendimm", rc.OpReceive: "receive", rc.OpReceiveImmediate: "receiveimm",
		}[c.Op], " ", c.Status, " ", c.Context)
		if c.Op.IsReceive() && c.Status == rc.Success {
			s += fmt.Sprintf(" %d from %x", c.Bytes, c.SourceQPN)
			if c.IPv4 {
				s += " by IPv4"
			}
		}
		if c.Immediate != 0 {
			s += fmt.Sprint(" immediate ", c.Immediate)
		}
		if c.Solicited {
			s += " solicited"
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		e.t.Errorf("completed\n%q, want\n%q", got, want)
	}
}

// TestSend: what is on the wire, and to whom it goes.
func TestSend(t *testing.T) {
	e := newEnd(t)
	imm, own, silent, inlined := send(1, mtu), send(2, 0), send(3, 1), send(4, 1)
	imm.HasImmediate, imm.Immediate, imm.Solicited = true, 7, true
	own.QKey = 1<<31 | 5
	silent.Silent, silent.QKey = true, 5
	inlined.Inline = []byte("inlined")
	inlined.Flow.Remote = netip.MustParseAddr("10.0.0.77")
	for _, r := range []Request{imm, own, silent, inlined, send(5, 2)} {
		if err := e.qp.Post(&r); err != nil {
			t.Fatal(err)
		}
	}
	base := roce.Header{Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: 9, SourceQPN: number, QKey: qkey}
	var p roce.Packet
	for i, change := range []func(h *roce.Header){
		func(h *roce.Header) {
			h.Opcode, h.Immediate, h.Solicited, h.PSN = roce.UDSendOnlyImm, 7, true, 0xFFFFFF
		},
		func(h *roce.Header) {},
		func(h *roce.Header) { h.QKey, h.PSN = 5, 1 },
		func(h *roce.Header) { h.PSN = 2 },
		func(h *roce.Header) { h.PSN = 3 },
	} {
		want := base
		change(&want)
		to, ok := e.qp.Next(&p)
		if !ok || p.Header != want {
			t.Errorf("%d: %+v, want %+v", i, p.Header, want)
		}
		if other := to != flow; other != (i == 3) {
			t.Errorf("%d: to %v", i, to)
		}
		payload := bytes.Join(p.Payload, nil)
		expected := [][]byte{e.memory[1][1 : 1+mtu], nil, e.memory[1][3:4], []byte("inlined"), e.memory[1][5:7]}[i]
		if !bytes.Equal(payload, expected) {
			t.Errorf("%d: %x", i, payload)
		}
	}
	if _, ok := e.qp.Next(&p); ok || e.qp.Counters().Sent != 5 {
		t.Errorf("%+v", e.qp.Counters())
	}
	e.completed("sendimm 0 1", "send 0 2", "send 0 4", "send 0 5")
}

// TestReceive: a receive has the IP header before the data, wherever its pieces are.
func TestReceive(t *testing.T) {
	e := newEnd(t)
	e.receive(0, 40+5)
	e.receive(1, 40)
	from := roce.Flow{Local: flow.Local, Remote: flow.Remote, SourcePort: 0xC000}
	h := roce.Header{Opcode: roce.UDSendOnlyImm, QKey: qkey, SourceQPN: 0x77, Immediate: 3, Solicited: true}
	e.qp.Handle(&from, 0, &h, []byte("hello"))
	want := append(make([]byte, 20), 0x45, 0, 0, 20+8+12+8+4+5+3+4, 0, 0, 0x40, 0, 64, 17, 0x26, 0xAB, 10, 0, 0, 2, 10, 0, 0, 1)
	if got := e.memory[3][:45]; !bytes.Equal(got, append(want, "hello"...)) {
		t.Errorf("%x", got)
	}
	from.Local, from.Remote = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	h = roce.Header{Opcode: roce.UDSendOnly, QKey: qkey, SourceQPN: 0x78}
	e.qp.Handle(&from, 0, &h, nil)
	want = []byte{0x60, 0, 0, 0, 0, 8 + 12 + 8 + 4, 17, 64, 0xFD, 15: 0, 23: 2, 24: 0xFD, 39: 1}
	want[8+15], want[24+15] = 2, 1
	if got := e.memory[3][4096 : 4096+40]; !bytes.Equal(got, want) {
		t.Errorf("%x, want\n%x", got, want)
	}
	e.completed("receiveimm 0 0 45 from 77 by IPv4 immediate 3 solicited", "receive 0 1 40 from 78")
}

// TestDropped: what has another key or finds no receive that fits is dropped, and the receive is left.
func TestDropped(t *testing.T) {
	e := newEnd(t)
	h := roce.Header{Opcode: roce.UDSendOnly, QKey: qkey}
	e.qp.Handle(&flow, 0, &h, []byte("no receive"))
	e.receive(0, 40+5)
	e.qp.Handle(&flow, 0, &h, []byte("longer"))
	other := h
	other.QKey++
	e.qp.Handle(&flow, 0, &other, []byte("key"))
	e.completed()
	e.qp.Handle(&flow, 0, &h, []byte("fits"))
	e.completed("receive 0 0 44 from 0 by IPv4")
	if c := e.qp.Counters(); c.Received != 4 || c.Dropped != 3 {
		t.Errorf("%+v", c)
	}
}

// TestErrors: memory that is not there ends what the consumer has posted.
func TestErrors(t *testing.T) {
	e := newEnd(t)
	bad := send(1, 1)
	bad.SGL[0].Token = 77
	for _, r := range []Request{send(0, 1), bad, send(2, 1)} {
		if err := e.qp.Post(&r); err != nil {
			t.Fatal(err)
		}
	}
	var p roce.Packet
	for n := 0; n < 3; n++ {
		_, _ = e.qp.Next(&p)
	}
	e.completed("send 0 0", fmt.Sprintf("send %d 1 solicited", rc.LocalProtection), fmt.Sprintf("send %d 2 solicited", rc.Flushed))

	e = newEnd(t)
	if err := e.receives.Post(&rc.Receive{Context: 1, SGL: []rc.SGE{rctest.Piece(77, 0, 100)}}); err != nil {
		t.Fatal(err)
	}
	e.receive(2, 100)
	h := roce.Header{Opcode: roce.UDSendOnly, QKey: qkey}
	e.qp.Handle(&flow, 0, &h, nil)
	e.completed(fmt.Sprintf("receive %d 1 solicited", rc.LocalProtection), fmt.Sprintf("receive %d 2 solicited", rc.Flushed))

	e = newEnd(t)
	e.receive(1, 10)
	e.qp.Handle(&flow, 0, &h, nil) // too short, and waits
	e.qp.Flush()
	e.receive(2, 10)
	e.qp.Flush()
	e.completed(fmt.Sprintf("receive %d 1 solicited", rc.Flushed), fmt.Sprintf("receive %d 2 solicited", rc.Flushed))
	if e.qp.State() != rc.Error {
		t.Errorf("state %v", e.qp.State())
	}
}

// TestRefused: what cannot be posted or connected.
func TestRefused(t *testing.T) {
	e := newEnd(t)
	long, huge, pieces, inline, inlineLong := send(0, mtu+1), send(0, 0), send(0, 0), send(0, 0), send(0, 0)
	huge.SGL = []rc.SGE{{Length: 1<<32 - 1}, {Length: 2}}
	pieces.SGL = make([]rc.SGE, 3)
	inline.Inline = make([]byte, 301)
	inlineLong.Inline = make([]byte, mtu+1)
	for i, test := range []struct {
		r    Request
		want error
	}{{long, ErrTooLong}, {huge, ErrTooLong}, {pieces, rc.ErrSGL}, {inline, rc.ErrInline}, {inlineLong, rc.ErrInline}} {
		if err := e.qp.Post(&test.r); !errors.Is(err, test.want) {
			t.Errorf("%d: %v", i, err)
		}
	}
	q := NewQP(rc.Config{SendDepth: 1, MaxSGE: 1, Receives: rc.NewReceiveQueue(1, 1)}, number, mtu)
	r := Request{}
	h := roce.Header{Opcode: roce.UDSendOnly}
	q.Handle(&flow, 0, &h, nil)
	for _, test := range []struct {
		name string
		do   func() error
		want error
	}{
		{"send before it is connected", func() error { return q.ConnectToSend(0) }, rc.ErrState},
		{"connect", q.Connect, nil},
		{"connect again", q.Connect, rc.ErrState},
		{"post too early", func() error { return q.Post(&r) }, rc.ErrState},
		{"send", func() error { return q.ConnectToSend(0) }, nil},
		{"send again", func() error { return q.ConnectToSend(0) }, rc.ErrState},
		{"post", func() error { return q.Post(&r) }, nil},
		{"post too many", func() error { return q.Post(&r) }, rc.ErrFull},
	} {
		if err := test.do(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if c := q.Counters(); c.Received != 0 {
		t.Errorf("received in Init: %+v", c)
	}
}
