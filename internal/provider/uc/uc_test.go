package uc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/rc/rctest"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

const mtu = 256

// An end is one QP: it sends from region 1, the peer writes to region 2, and receives end up in region 3.
type end struct {
	t        testing.TB
	qp       *QP
	memory   rctest.Memory
	receives *rc.ReceiveQueue
}

func newEnd(t testing.TB, psn, expected uint32) *end {
	e := &end{t: t, receives: rc.NewReceiveQueue(64, 2), memory: rctest.Memory{1: make([]byte, 4096), 2: make([]byte, 4096), 3: make([]byte, 64<<10)}}
	for i := range e.memory[1] {
		e.memory[1][i] = byte(i*7 + i>>8)
	}
	e.qp = NewQP(rc.Config{SendDepth: 5, MaxSGE: 2, MaxInline: 300, Receives: e.receives, Memory: e.memory})
	if err := errors.Join(e.qp.Connect(Connection{RemoteQPN: 9, MTU: mtu, ReceivePSN: expected, Rights: rc.AllowWrite}), e.qp.ConnectToSend(psn)); err != nil {
		t.Fatal(err)
	}
	return e
}

// receive posts a receive of n bytes, at an offset of 4096 times its context.
func (e *end) receive(context, n int) {
	if err := e.receives.Post(&rc.Receive{Context: context, SGL: []rc.SGE{rctest.Piece(3, context*4096, n)}}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *end) post(requests ...rc.Request) {
	e.t.Helper()
	for i := range requests {
		if err := e.qp.Post(&requests[i]); err != nil {
			e.t.Fatal(err)
		}
	}
}

// A packet is one that was sent.
type packet struct {
	header  roce.Header
	payload []byte
}

// sent takes all that there is to send.
func (e *end) sent() (packets []packet) {
	var p roce.Packet
	for e.qp.Next(&p) {
		packets = append(packets, packet{p.Header, bytes.Join(p.Payload, nil)})
	}
	return packets
}

func (e *end) hear(packets ...packet) {
	for _, p := range packets {
		e.qp.Handle(&p.header, p.payload)
	}
}

// completed takes the completions and compares them: operation, status, context, bytes of a receive,
// and what else there is.
func (e *end) completed(want ...string) {
	e.t.Helper()
	var got []string
	for _, c := range e.qp.Completions(nil) {
		got = append(got, describe(c))
	}
	if !slices.Equal(got, want) {
		e.t.Errorf("completed\n%q, want\n%q", got, want)
	}
}

func describe(c rc.Completion) string {
	s := fmt.Sprint(map[rc.Op]string{
		rc.OpSend: "send", rc.OpSendImmediate: "sendimm", rc.OpWrite: "write", rc.OpWriteImmediate: "writeimm", rc.OpBind: "bind",
		rc.OpReceive: "receive", rc.OpReceiveImmediate: "receiveimm", rc.OpReceiveWrite: "receivewrite",
	}[c.Op], " ", c.Status, " ", c.Context)
	if c.Op.IsReceive() && c.Status == rc.Success {
		s += fmt.Sprint(" ", c.Bytes)
	}
	if c.Immediate != 0 {
		s += fmt.Sprint(" immediate ", c.Immediate)
	}
	if c.Solicited {
		s += " solicited"
	}
	return s
}

func send(context, n int) rc.Request {
	return rc.Request{Op: rc.OpSend, Context: context, SGL: []rc.SGE{rctest.Piece(1, context, n)}}
}

func write(context, n int) rc.Request {
	r := send(context, n)
	r.Op, r.VA, r.Token = rc.OpWrite, 2<<32+uint64(context), 2
	return r
}

// TestPackets: what is on the wire.
func TestPackets(t *testing.T) {
	e := newEnd(t, 0xFFFFFE, 0)
	imm, silent, inlined := send(2, 1), write(4, 2*mtu), send(5, 0)
	imm.Op, imm.Immediate, imm.Solicited = rc.OpSendImmediate, 7, true
	silent.Silent, silent.Op, silent.Immediate = true, rc.OpWriteImmediate, 8
	inlined.Inline = []byte("inlined")
	e.post(send(1, 2*mtu+1), imm, write(3, 1), silent, inlined)
	if over := send(6, 0); !errors.Is(e.qp.Post(&over), rc.ErrFull) {
		t.Error("the queue is not full")
	}
	var got []string
	for _, p := range e.sent() {
		h := p.header
		s := fmt.Sprintf("%s %d (%d)", strings.TrimPrefix(h.Opcode.String(), "UC "), h.PSN, len(p.payload))
		if h.Opcode.HasRETH() {
			s += fmt.Sprintf(" %d@%x", h.DMALength, h.VA)
		}
		if h.Solicited {
			s += " solicited"
		}
		if h.Opcode.HasImmediate() {
			s += fmt.Sprint(" immediate ", h.Immediate)
		}
		if h.AckReq || h.DestQPN != 9 || h.PKey != roce.DefaultPKey || !h.Opcode.IsUC() {
			t.Errorf("%+v", h)
		}
		got = append(got, s)
	}
	want := []string{
		"SEND First 16777214 (256)", "SEND Middle 16777215 (256)", "SEND Last 0 (1)", "SEND Only Immediate 1 (1) solicited immediate 7",
		"RDMA WRITE Only 2 (1) 1@200000003", "RDMA WRITE First 3 (256) 512@200000004", "RDMA WRITE Last Immediate 4 (256) immediate 8", "SEND Only 5 (7)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
	e.completed("send 0 1", "sendimm 0 2", "write 0 3", "send 0 5")
	if c := e.qp.Counters(); c.Sent != 8 {
		t.Errorf("%+v", c)
	}
}

// TestArrival: messages that are whole are received; those that are not leave the receive to the next.
func TestArrival(t *testing.T) {
	a, b := newEnd(t, 100, 0), newEnd(t, 0, 100)
	solicited, both := send(3, 3), write(4, mtu+1)
	solicited.Op, solicited.Immediate, solicited.Solicited = rc.OpSendImmediate, 9, true
	both.Op, both.Immediate = rc.OpWriteImmediate, 10
	a.post(send(1, 3*mtu), send(2, mtu), solicited, write(5, 2), both)
	packets := a.sent()
	for i := range 5 {
		b.receive(i, 1000)
	}
	// The Middle is lost; the Last, and a Middle of the same that comes again, are part of nothing.
	b.hear(packets[0], packets[2], packets[1])
	b.hear(packets[3:]...)
	b.completed("receive 0 0 256", "receiveimm 0 1 3 immediate 9 solicited", "receivewrite 0 2 257 immediate 10")
	for _, check := range []struct {
		token       uint32
		at, from, n int
	}{{3, 0, 2, mtu}, {3, 4096, 3, 3}, {2, 5, 5, 2}, {2, 4, 4, mtu + 1}} {
		if got := b.memory[check.token][check.at : check.at+check.n]; !bytes.Equal(got, a.memory[1][check.from:check.from+check.n]) {
			t.Errorf("%+v: %x", check, got)
		}
	}
	if c := b.qp.Counters(); c.Received != uint64(len(packets)) || c.OutOfSequence != 3 || c.Dropped != 2 {
		t.Errorf("%d packets: %+v", len(packets), c)
	}
}

// TestNotReceived: what cannot be received is dropped, and nothing is told or changed.
func TestNotReceived(t *testing.T) {
	other := write(1, 1)
	other.Token = 77
	beyond := write(1, 8)
	beyond.VA = 2<<32 + 4090
	imm := write(1, 0)
	imm.Op = rc.OpWriteImmediate
	for name, test := range map[string]struct {
		request rc.Request
		change  func(*packet)
		rights  rc.Rights
	}{
		"without a receive":           {request: send(1, 1)},
		"immediate without a receive": {request: imm},
		"no such token":               {request: other},
		"beyond the end":              {request: beyond},
		"no right to write":           {request: write(1, 1), rights: rc.AllowRead},
		"longer than announced":       {request: write(1, 1), change: func(p *packet) { p.payload = make([]byte, 2) }},
		"longer than the MTU":         {request: send(1, mtu), change: func(p *packet) { p.payload = make([]byte, mtu+1) }},
		"a Last alone":                {request: send(1, 1), change: func(p *packet) { p.header.Opcode = roce.SendLast.Unreliable() }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newEnd(t, 100, 0), newEnd(t, 0, 100)
			if test.rights != 0 {
				b.qp.SetRights(test.rights)
			}
			a.post(test.request)
			packets := a.sent()
			if test.change != nil {
				b.receive(0, 1000)
				test.change(&packets[0])
			}
			b.hear(packets...)
			b.completed()
			if slices.Max(b.memory[2]) != 0 || b.qp.Counters().Dropped != 1 || b.qp.State() != rc.Ready {
				t.Errorf("%+v, state %v", b.qp.Counters(), b.qp.State())
			}
		})
	}
}

// TestOtherPackets: what is of another class is nobody's.
func TestOtherPackets(t *testing.T) {
	b := newEnd(t, 0, 100)
	b.receive(0, 10)
	for _, op := range []roce.Opcode{roce.SendOnly, roce.UDSendOnly, roce.Acknowledge, roce.CNP} {
		b.hear(packet{header: roce.Header{Opcode: op, PSN: 100}})
	}
	b.completed()
	if c := b.qp.Counters(); c != (Counters{}) {
		t.Errorf("%+v", c)
	}
}

// TestErrors: memory that is not there, and a receive that is too short, end the connection of the end
// that has them.
func TestErrors(t *testing.T) {
	bad := send(1, 1)
	bad.SGL[0].Token = 77
	a, b := newEnd(t, 100, 0), newEnd(t, 0, 100)
	a.post(send(0, 1), bad, send(2, 1))
	b.receive(0, 1)
	b.hear(a.sent()...)
	a.completed("send 0 0", fmt.Sprintf("send %d 1 solicited", rc.LocalProtection), fmt.Sprintf("send %d 2 solicited", rc.Flushed))
	b.completed("receive 0 0 1")

	a = newEnd(t, 101, 0)
	a.post(send(0, 300))
	b.receive(1, 299)
	b.receive(2, 299)
	b.hear(a.sent()...)
	b.completed(fmt.Sprintf("receive %d 1 solicited", rc.LocalLength), fmt.Sprintf("receive %d 2 solicited", rc.Flushed))

	b = newEnd(t, 0, 100)
	if err := b.receives.Post(&rc.Receive{Context: 1, SGL: []rc.SGE{rctest.Piece(77, 0, 10)}}); err != nil {
		t.Fatal(err)
	}
	a = newEnd(t, 100, 0)
	a.post(send(0, 3))
	b.hear(a.sent()...)
	b.completed(fmt.Sprintf("receive %d 1 solicited", rc.LocalProtection))
	if b.receive(3, 1); true {
		b.qp.Flush()
	}
	b.completed(fmt.Sprintf("receive %d 3 solicited", rc.Flushed))
}

// performs is a local operation.
type performs struct {
	times  int
	status rc.Status
}

func (p *performs) Perform() rc.Status {
	p.times++
	return p.status
}

// TestLocalOperations: they are performed in their turn.
func TestLocalOperations(t *testing.T) {
	e := newEnd(t, 0, 0)
	good, bad := &performs{}, &performs{status: rc.BadOperation}
	e.post(send(0, 1), rc.Request{Op: rc.OpBind, Context: 1, Local: good}, rc.Request{Op: rc.OpBind, Context: 2, Local: bad}, send(3, 1))
	if n := len(e.sent()); n != 1 || good.times != 1 || bad.times != 1 {
		t.Errorf("%d packets, performed %d and %d times", n, good.times, bad.times)
	}
	e.completed("send 0 0", "bind 0 1", fmt.Sprintf("bind %d 2 solicited", rc.BadOperation), fmt.Sprintf("send %d 3 solicited", rc.Flushed))
}

// TestRefused: what cannot be posted or connected.
func TestRefused(t *testing.T) {
	e := newEnd(t, 0, 0)
	long, read, inline := send(0, 1), send(0, 1), send(0, 1)
	long.SGL = make([]rc.SGE, 3)
	read.Op = rc.OpRead
	inline.Inline = make([]byte, 301)
	huge := send(0, 0)
	huge.SGL = []rc.SGE{{Length: 1 << 31}, {Length: 1}}
	for _, test := range []struct {
		r    rc.Request
		want error
	}{
		{long, rc.ErrSGL}, {read, rc.ErrOperation}, {inline, rc.ErrInline}, {huge, rc.ErrTooLong},
		{rc.Request{Op: rc.OpBind}, rc.ErrOperation}, {rc.Request{Op: rc.OpBind, Local: &performs{}, Inline: []byte{1}}, rc.ErrInline},
	} {
		if err := e.qp.Post(&test.r); !errors.Is(err, test.want) {
			t.Errorf("%+v: %v, want %v", test.r, err, test.want)
		}
	}
	q := NewQP(rc.Config{SendDepth: 1, MaxSGE: 1, Receives: rc.NewReceiveQueue(1, 1)})
	r := rc.Request{Op: rc.OpSend}
	for _, test := range []struct {
		name string
		do   func() error
		want error
	}{
		{"send before it is connected", func() error { return q.ConnectToSend(0) }, rc.ErrState},
		{"an odd MTU", func() error { return q.Connect(Connection{MTU: 1000}) }, rc.ErrMTU},
		{"connect", func() error { return q.Connect(Connection{MTU: 1024}) }, nil},
		{"connect again", func() error { return q.Connect(Connection{MTU: 1024}) }, rc.ErrState},
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
}

// TestWholeMessages sends random messages over a path that loses, repeats and reorders packets. Only
// messages that were sent are received, whole; without any of that, all of them in order.
func TestWholeMessages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		psn := rapid.SampledFrom([]uint32{0, 0xFFFFF0}).Draw(rt, "psn")
		a, b := newEnd(t, psn, 0), newEnd(t, 0, psn)
		unruly := rapid.Bool().Draw(rt, "unruly")
		var want []string
		lengths := map[uint32]int{}
		for i := range 12 {
			b.receive(i, 4096)
			n := rapid.IntRange(0, 5*mtu).Draw(rt, "length")
			r := send(i, n)
			r.Op, r.Immediate = rc.OpSendImmediate, uint32(i+1)
			if rapid.Bool().Draw(rt, "write") {
				r = write(i, n)
				r.Op, r.Immediate = rc.OpWriteImmediate, uint32(i+1)
			}
			lengths[r.Immediate] = n
			a.post(r)
			packets := a.sent()
			for unruly && rapid.IntRange(0, 2).Draw(rt, "fault") == 0 && len(packets) > 0 {
				switch at := rapid.IntRange(0, len(packets)-1).Draw(rt, "which"); rapid.IntRange(0, 2).Draw(rt, "what") {
				case 0:
					packets = slices.Delete(packets, at, at+1)
				case 1:
					packets = slices.Insert(packets, at, packets[at])
				case 2:
					other := rapid.IntRange(0, len(packets)-1).Draw(rt, "with")
					packets[at], packets[other] = packets[other], packets[at]
				}
			}
			b.hear(packets...)
			op := map[rc.Op]rc.Op{rc.OpSendImmediate: rc.OpReceiveImmediate, rc.OpWriteImmediate: rc.OpReceiveWrite}[r.Op]
			want = append(want, describe(rc.Completion{Op: op, Context: i, Bytes: uint32(n), Immediate: r.Immediate}))
		}
		var got []string
		for _, c := range b.qp.Completions(nil) {
			got = append(got, describe(c))
			from := int(c.Immediate) - 1
			if int(c.Bytes) != lengths[c.Immediate] {
				rt.Fatalf("%s, of %d bytes", describe(c), lengths[c.Immediate])
			}
			received := b.memory[3][c.Context.(int)*4096:][:c.Bytes]
			if c.Op == rc.OpReceiveImmediate && !bytes.Equal(received, a.memory[1][from:from+int(c.Bytes)]) {
				rt.Fatalf("%s: other bytes", describe(c))
			}
		}
		if !unruly && !slices.Equal(got, want) {
			rt.Errorf("received\n%q, want\n%q", got, want)
		}
		if b.qp.State() != rc.Ready {
			rt.Errorf("state %v", b.qp.State())
		}
	})
}
