package rc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestUnfenced: what a peer sends behind a READ without a fence is carried out
// before the READ's responses are made, and they show it. The answers keep the
// order of the requests all the same (roce.md 6.2, 7.2).
func TestUnfenced(t *testing.T) {
	e := newReady(t, nil)
	receiving(10)(e)
	old := bytes.Clone(e.memory[2].bytes)
	e.hear(readOf(100, 0, 512))
	e.say("read response first 100 (256) msn 1")
	if !bytes.Equal(bytes.Join(e.packet.Payload, nil), old[:256]) {
		t.Error("the first response has other bytes than there were")
	}
	news := bytes.Repeat([]byte{0xAA}, 256)
	h := to(packet(roce.WriteOnly, 102), 2, 256, 256)
	e.qp.Handle(0, &h, news)
	h = packet(roce.SendOnly, 103)
	e.qp.Handle(0, &h, []byte("sent"))
	e.completed("receive ok 0 4")
	if !bytes.Equal(e.memory[2].bytes[256:512], news) {
		t.Error("the WRITE waits for the READ")
	}
	e.say("read response last 101 (256) msn 1")
	if !bytes.Equal(bytes.Join(e.packet.Payload, nil), news) {
		t.Error("the second response has other bytes than there are")
	}
	e.say("ack 103 msn 3")
	e.quiet()
}

// TestTurnsBehindARead: an acknowledgement that has to wait for the responses to
// a READ does not have our own requests wait, too.
func TestTurnsBehindARead(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Credit = 1 << 20 })
	e.memory.add(2, 100*256)
	for i := range 32 {
		e.queue(sends(i, 1))
	}
	e.hear(readOf(100, 0, 40*256), write(140))
	var kinds string
	for e.qp.Next(0, &e.packet) {
		switch op := e.packet.Header.Opcode; {
		case op.IsRequest():
			kinds += "q"
		case op.IsReadResponse():
			kinds += "r"
		default:
			kinds += "a"
		}
	}
	r, q := strings.Repeat("r", 16), strings.Repeat("q", 16)
	if want := r + q + r + q + r[:8] + "a"; kinds != want {
		t.Errorf("\n got %s\nwant %s", kinds, want)
	}
}
