package cm

import (
	"testing"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A crowd is many connections that are asked for at once, from one host to
// another. Its consumers consent to everything.
type crowd struct {
	*network
	active, passive *host
	size            int
	connected       map[*host][]ID
	ended           int // ends of connections whose timewait is over
}

func newCrowd(t failer, size int) *crowd {
	n, active, passive := pair(t)
	c := &crowd{network: n, active: active, passive: passive, size: size, connected: map[*host][]ID{}}
	for _, h := range n.hosts {
		h.onEvent = func(ev Event) { c.answer(h, ev) }
	}
	return c
}

// answer is the consumers' event handler.
func (c *crowd) answer(h *host, ev Event) {
	h.events = h.events[:0] // looked at here
	switch ev := ev.(type) {
	case ConnectRequest:
		h.must(h.Accept(c.now(), ev.ID, acceptParams(ev.QPN)))
	case ConnectReply:
		h.must(h.CompleteConnect(c.now(), ev.ID))
		c.connected[h] = append(c.connected[h], ev.ID)
	case Established:
		c.connected[h] = append(c.connected[h], ev.ID)
	case Disconnected:
	case DisconnectDone:
		if ev.TimedOut {
			c.t.Errorf("%v: a disconnect timed out", h.addr)
		}
	case TimewaitOver:
		c.ended++
	default:
		c.t.Errorf("%v: unexpected %#v", h.addr, ev)
	}
}

// connect asks for all connections and waits until they are up.
func (c *crowd) connect() {
	for i := range uint32(c.size) {
		c.active.connect(c.passive, 0x100+i)
	}
	c.await("up", func() bool {
		return len(c.connected[c.active]) == c.size && len(c.connected[c.passive]) == c.size
	})
}

// disconnect ends all connections, a third by each side and a third by both at
// once, and waits for the end of their timewaits.
func (c *crowd) disconnect() {
	for i, id := range c.connected[c.active] {
		if i%3 != 0 {
			c.active.must(c.active.disconnect(id))
		}
		if i%3 != 1 {
			c.passive.must(c.passive.disconnect(ID(c.active.connections.byID[id].peerID)))
		}
	}
	clear(c.connected)
	c.await("over", func() bool { return c.ended == 2*c.size })
	c.ended = 0
}

func (c *crowd) await(what string, done func() bool) {
	if !c.clock.RunUntil(done, time.Minute) {
		c.t.Fatalf("%d connections: not all are %s within a minute", c.size, what)
	}
}

// TestThousands makes and ends 5,000 connections at once, with every twentieth
// datagram lost. All come about and nothing is left of them.
func TestThousands(t *testing.T) {
	const size = 5000
	c := newCrowd(t, size)
	c.loss = 0.05
	for round := range 2 {
		start := c.now()
		c.connect()
		up := c.now()
		t.Logf("round %d: all up after %v", round, up-start)
		c.disconnect()
		t.Logf("round %d: all over after %v", round, c.now()-up)
	}
	// Each of a connection's five messages is lost with 5 %, and then it or its
	// answer's asker is repeated.
	sent := len(c.active.sent) + len(c.passive.sent)
	if most := 2 * size * 7; sent > most {
		t.Errorf("%d datagrams, more than %d", sent, most)
	}
	for _, h := range c.hosts {
		if got := h.count(mad.AttributeREJ); got != 0 {
			t.Errorf("%v sent %d REJs", h.addr, got)
		}
	}
	c.empty()
}

// TestSizeOfConnection: with more the runtime takes 208 bytes, of which an idle connection of a device has one.
func TestSizeOfConnection(t *testing.T) {
	if size := unsafe.Sizeof(connection{}); size > 192 {
		t.Errorf("a connection is %d bytes, which may be 192", size)
	}
}
