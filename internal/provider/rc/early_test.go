package rc

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

func selectively(c *Connection) { c.Selective = true }

// TestReports: what a responder says of packets that arrive early, and that it
// executes nothing before its turn.
func TestReports(t *testing.T) {
	e := newReady(t, selectively)
	target := e.memory[2].bytes
	clear(target)
	var got []string
	arrive := func(psn uint32, ask bool) {
		h := roce.Header{Opcode: roce.WriteOnly, PSN: psn, AckReq: ask, VA: 2<<32 + uint64(psn), RKey: 2, DMALength: 1}
		e.qp.Handle(0, &h, []byte{byte(psn)})
	}
	answers := func() {
		for e.qp.Next(0, &e.packet) {
			h := e.packet.Header
			s := describePacket(&e.packet)
			if h.Opcode == roce.SelectiveAcknowledge {
				s += fmt.Sprintf(" map %x", h.Original)
			}
			got = append(got, s)
		}
		got = append(got, fmt.Sprint(len(bytes.Trim(target, "\x00")), " written"))
	}
	for _, p := range []struct {
		psn uint32
		ask bool
	}{
		{100, false}, // in its turn
		{103, false}, // a gap
		{104, false}, // nothing new
		{105, true},  // asks
		{107, false}, // another gap
		{105, false}, // once more
		{102, false}, // into the first gap; no need to hurry
		{101, false}, // closes it
		{180, false}, // far away, and then all in one go:
	} {
		arrive(p.psn, p.ask)
		answers()
	}
	arrive(190, true)
	arrive(250, true)
	arrive(106, true)
	answers()
	want := []string{
		"1 written",
		"selective acknowledge 101 msn 103 map fffffffffffffffc", "1 written",
		"1 written",
		"selective acknowledge 101 msn 105 map fffffffffffffff3", "1 written",
		"selective acknowledge 101 msn 107 map ffffffffffffffce", "1 written",
		"selective acknowledge 101 msn 105 map fffffffffffffff3", "1 written",
		"1 written",
		"selective acknowledge 106 msn 107 map fffffffffffffffe", "6 written",
		"selective acknowledge 106 msn 180 map 0", "6 written",
		"selective acknowledge 108 msn 190 solicited map 200",
		"selective acknowledge 108 msn 250 map 800000000000000", "8 written",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for psn := 100; psn < 108; psn++ {
		if target[psn] != byte(psn) {
			t.Errorf("byte %d is %d", psn, target[psn])
		}
	}
}

// TestEarlyOutOfReach: what is too far ahead is dropped, whatever the peer sends.
func TestEarlyOutOfReach(t *testing.T) {
	e := newReady(t, selectively)
	far := uint32(maxEarlyDistance(256))
	for _, ahead := range []uint32{far, far + 1, 1 << 22} {
		h := packet(roce.SendOnly, 100+ahead)
		e.qp.Handle(0, &h, []byte{1})
	}
	e.quiet()
	if e.qp.responder.early != nil {
		t.Error("kept")
	}
	h := packet(roce.SendOnly, 100+far-1)
	e.qp.Handle(0, &h, []byte{1})
	if n := e.qp.responder.early.count; n != 1 {
		t.Errorf("%d kept", n)
	}
}

// TestEarlyReceiveIsLacking: a packet that was kept finds no receive when its
// turn comes. It is refused like any other, and sent again.
func TestEarlyReceiveIsLacking(t *testing.T) {
	c := testConnection
	c.Selective = true
	p := newPair(t, testConfig, c, path{delay: time.Millisecond}, 1)
	p.a.memory.add(1, 100)
	p.b.memory.add(3, 100)
	receive := Receive{SGL: []SGE{piece(3, 0, 100)}}
	p.b.postReceive(receive)
	p.a.out.down = true
	p.a.post(sends(0, 1))
	p.a.out.down = false
	p.a.post(sends(1, 2))
	p.a.post(sends(2, 3))
	p.await(t, p.a, 1, time.Second)
	p.clock.AfterFunc(time.Millisecond, func() { p.b.postReceive(receive); p.b.postReceive(receive) })
	p.await(t, p.a, 3, time.Second)
	p.a.check("send ok 0", "send ok 1", "send ok 2")
	p.b.check("receive ok <nil> 1", "receive ok <nil> 2", "receive ok <nil> 3")
	if got := p.b.qp.Counters().RNRsSent; got == 0 {
		t.Error("nothing was refused")
	}
}

// TestEarlyStoreLetsGo: the memory that a loss takes is given back.
func TestEarlyStoreLetsGo(t *testing.T) {
	e := newReady(t, selectively)
	arrive := func(psn uint32) {
		h := to(packet(roce.WriteOnly, psn), 2, 0, 1)
		e.qp.Handle(0, &h, []byte{1})
	}
	kept := func() int {
		if e.qp.responder.early == nil {
			return 0
		}
		return len(e.qp.responder.early.ring)
	}
	if kept() != 0 {
		t.Error("memory without loss")
	}
	arrive(110)
	arrive(100)
	slots := uint32(kept())
	for psn := uint32(101); psn <= 110+slots; psn++ {
		if kept() == 0 {
			t.Fatalf("given back at %d", psn)
		}
		arrive(psn)
	}
	arrive(111 + slots)
	if kept() != 0 {
		t.Error("never given back")
	}
}

// TestResponsesLetGo: nor is the memory kept that responses to READs took, when
// nothing has been missing for a while.
func TestResponsesLetGo(t *testing.T) {
	c := testConnection
	c.Selective, c.Credit = true, 1<<20
	p := newPair(t, testConfig, c, path{delay: time.Millisecond, rate: 1e9}, 1)
	p.a.memory.add(1, 64<<10)
	p.b.memory.add(2, 64<<10)
	read := Request{Op: OpRead, SGL: []SGE{piece(1, 0, 64<<10)}, VA: 2 << 32, Token: 2}
	p.b.out.drop = func(*roce.Header) bool { return len(p.b.out.sent) == 3 }
	p.a.post(read)
	p.await(t, p.a, 1, time.Second)
	r := &p.a.qp.requester
	if r.scoreboard != nil || r.spare == nil || len(r.spare.responses.idle) == 0 {
		t.Fatal("nothing was kept, or something is missing yet")
	}
	for done := 2; r.spare.responses.ring != nil; done++ {
		if done > 10 {
			t.Fatalf("%d packets are kept", len(r.spare.responses.idle))
		}
		p.a.post(read)
		p.await(t, p.a, done, time.Second)
	}
}

// TestForeignReport: from a responder that has not agreed to send reports it is none.
func TestForeignReport(t *testing.T) {
	e := newReady(t, nil)
	e.queue(sends(1, 1), sends(2, 1))
	e.answers(0)
	h := roce.Header{Opcode: roce.SelectiveAcknowledge, PSN: 100, Syndrome: roce.SyndromePSNSequence, MSN: 101}
	e.qp.Handle(0, &h, nil)
	e.completed()
	h = ack(101, roce.SyndromeACK)
	e.qp.Handle(0, &h, nil)
	e.completed("send ok 1", "send ok 2")
}
