package verbs_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
)

// A socket is a carrier with a receive buffer, out of which a packet is taken now and then. Packets that find no room are
// lost.
type socket struct {
	provider.Carrier
	world    *world
	receiver provider.Receiver
	each     time.Duration // from one packet to the next
	queue    []roce.Received
	bytes    int // in queue
	dropped  int
	taken    int         // packets of queue pairs
	dead     func() bool // loses a management datagram that is received or sent
}

func (s *socket) Listen(r provider.Receiver) {
	s.receiver = r
	s.Carrier.Listen(s)
}

// Receive implements provider.Receiver.
func (s *socket) Receive(packets []roce.Received) {
	for _, p := range packets {
		if p.Header.DestQPN == mad.QPN && s.dead != nil && s.dead() {
			continue
		}
		n := len(p.Payload) + rc.PacketOverhead
		if s.bytes+n > s.ReceiveBuffer() {
			s.dropped++
			continue
		}
		p.Payload = slices.Clone(p.Payload)
		s.queue = append(s.queue, p)
		if s.bytes += n; len(s.queue) == 1 {
			s.world.clock.AfterFunc(s.each, s.take)
		}
	}
}

// take gives the device the oldest packet.
func (s *socket) take() {
	p := s.queue[0]
	if s.queue = s.queue[1:]; len(s.queue) > 0 {
		s.world.clock.AfterFunc(s.each, s.take)
	}
	s.bytes -= len(p.Payload) + rc.PacketOverhead
	if p.Header.DestQPN != mad.QPN {
		s.taken++
	}
	s.receiver.Receive([]roce.Received{p})
}

// Send implements provider.Carrier.
func (s *socket) Send(flow roce.Flow, packets []roce.Packet) error {
	if packets[0].Header.DestQPN == mad.QPN && s.dead != nil && s.dead() {
		return nil
	}
	return s.Carrier.Send(flow, packets)
}

// newSockets is a world whose second host takes a packet in so long.
func newSockets(t *testing.T, each time.Duration) (*world, [2]*socket) {
	var sockets []*socket
	w := newWorldOver(t, 1, func(c provider.Carrier) provider.Carrier {
		sockets = append(sockets, &socket{Carrier: c, each: time.Microsecond})
		return sockets[len(sockets)-1]
	})
	for _, s := range sockets {
		s.world = w
	}
	sockets[1].each = each
	return w, [2]*socket(sockets)
}

const (
	flood      = 60     // messages, of
	floodBytes = 64_000 // bytes, in
	perMessage = 63     // packets
)

// flood posts writes of several megabytes.
func (w *world) flood(qp *verbs.QP) {
	for i := range uint64(flood) {
		r := w.hosts[0].request(rc.OpWrite, i, 0, floodBytes, 0)
		w.post(qp, r)
	}
}

// finished counts the requests of the host that have completed, all with success.
func (h *host) finished() (n int) {
	var c [100]verbs.Completion
	for k := h.cq.Poll(c[:]); k > 0; k = h.cq.Poll(c[:]) {
		for _, c := range c[:k] {
			if c.Status != verbs.Success {
				h.world.t.Errorf("request %d: status %v", c.ID, c.Status)
			}
		}
		n += k
	}
	return n
}

// TestSlowReceiver: nothing is lost at a peer that takes packets more slowly than they come.
func TestSlowReceiver(t *testing.T) {
	for _, each := range []time.Duration{3 * time.Microsecond, 50 * time.Microsecond} {
		w, sockets := newSockets(t, each)
		w.flood(w.pair(verbs.UC, nil)[0])
		w.run()
		if n := w.hosts[0].finished(); n != flood || sockets[1].taken != flood*perMessage || sockets[1].dropped != 0 {
			t.Errorf("%v each: %d requests complete, %d packets taken and %d dropped, want %d, %d and 0",
				each, n, sockets[1].taken, sockets[1].dropped, flood, flood*perMessage)
		}
	}
}

// TestSlowReceiverOfDatagrams is TestSlowReceiver of several queue pairs of datagrams, which take turns.
func TestSlowReceiverOfDatagrams(t *testing.T) {
	w, sockets := newSockets(t, 5*time.Microsecond)
	deep := func(cfg *verbs.QPConfig) { cfg.Capacity.SendDepth, cfg.Capacity.ReceiveDepth = 300, 300 }
	to := w.pair(verbs.UD, deep)[1]
	for i := range uint64(300) {
		w.hosts[1].receive(to, i, 0, 1100)
	}
	ah, err := w.hosts[0].pd.CreateAH(verbs.Address{Remote: w.hosts[1].address, Port: 1})
	check(t, err)
	for range 3 {
		qp := w.hosts[0].create(verbs.UD, deep)
		w.hosts[0].toInit(qp)
		w.hosts[0].toReceive(qp, to)
		w.hosts[0].toSend(qp)
		for i := range uint64(300) {
			r := w.hosts[0].request(rc.OpSend, i, 0, 1000, 0)
			r.AH, r.RemoteQPN, r.QKey = ah, to.Number(), qkey
			w.post(qp, r)
		}
	}
	w.run()
	if n := w.hosts[0].finished(); n != 900 || sockets[1].taken != 900 || sockets[1].dropped != 0 {
		t.Errorf("%d requests complete, %d packets taken and %d dropped, want 900, 900 and 0", n, sockets[1].taken, sockets[1].dropped)
	}
	if n := w.hosts[1].finished(); n != 300 {
		t.Errorf("%d receives complete, want 300", n)
	}
}

// TestPacedLoss: what a link loses stays lost, and is not waited for.
func TestPacedLoss(t *testing.T) {
	w, sockets := newSockets(t, 3*time.Microsecond)
	w.path.Loss = 0.1
	qps := w.pair(verbs.UC, nil)
	w.flood(qps[0])
	w.run()
	if n := w.hosts[0].finished(); n != flood || sockets[1].dropped != 0 {
		t.Errorf("%d requests complete, and %d packets dropped, want %d and 0", n, sockets[1].dropped, flood)
	}
	const sent = flood * perMessage
	if lost := sent - sockets[1].taken; lost < sent/20 || lost > sent/5 {
		t.Errorf("%d packets of %d lost, want a tenth", lost, sent)
	}
}

// TestForeignPeer: one that knows nothing of pacing is waited for once, for 300 ms.
func TestForeignPeer(t *testing.T) {
	w, sockets := newSockets(t, 100*time.Nanosecond)
	sockets[1].dead = func() bool { return true }
	qps := w.pair(verbs.UC, nil)
	w.flood(qps[0])
	for _, until := range []struct {
		at       time.Duration
		finished int
	}{{299 * time.Millisecond, 0}, {300 * time.Millisecond, flood}} {
		w.clock.Run(until.at - w.clock.Now())
		if n := w.hosts[0].finished(); n != until.finished {
			t.Errorf("at %v %d more requests are complete, want %d", until.at, n, until.finished)
		}
	}
	w.flood(qps[0])
	if n := w.hosts[0].finished(); n != flood {
		t.Errorf("%d requests complete when they are posted, want %d", n, flood)
	}
	w.run()
	if sockets[1].taken != 2*flood*perMessage {
		t.Errorf("%d packets arrived, want %d", sockets[1].taken, 2*flood*perMessage)
	}
	sockets[1].dead = nil
	w.flood(qps[0])
	w.run() // it answers now
	w.hosts[0].finished()
	sockets[1].each = 50 * time.Microsecond
	w.flood(qps[0])
	w.run()
	if n := w.hosts[0].finished(); n != flood || sockets[1].dropped != 0 {
		t.Errorf("%d requests complete and %d packets dropped, want %d and 0", n, sockets[1].dropped, flood)
	}
}

// TestLostAnswers: while management datagrams are lost now and then, whichever, nothing is lost at the receiver, and
// nobody waits for longer than it takes to ask again.
func TestLostAnswers(t *testing.T) {
	for n := range 6 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w, sockets := newSockets(t, 3*time.Microsecond)
			random := rand.New(rand.NewPCG(uint64(n), 1))
			sockets[1].dead = func() bool { return random.IntN(4) == 0 }
			w.flood(w.pair(verbs.UC, nil)[0])
			w.run()
			if n := w.hosts[0].finished(); n != flood || sockets[1].taken != flood*perMessage || sockets[1].dropped != 0 {
				t.Errorf("%d requests complete, %d packets taken and %d dropped, want %d, %d and 0",
					n, sockets[1].taken, sockets[1].dropped, flood, flood*perMessage)
			}
		})
	}
}

// TestDrainWhilePaced: a message that has begun is sent to its end, and no other.
func TestDrainWhilePaced(t *testing.T) {
	w, sockets := newSockets(t, 50*time.Microsecond)
	qps := w.pair(verbs.UC, nil)
	w.flood(qps[0])
	w.modify(qps[0], verbs.Attributes{State: verbs.SendQueueDrain, DrainNotify: true}, verbs.MaskDrainNotify)
	w.hosts[0].happened()
	w.run()
	w.hosts[0].happened("drained")
	if n := w.hosts[0].finished(); n != 1 || sockets[1].taken != perMessage {
		t.Errorf("%d requests complete, %d packets taken, want 1 and %d", n, sockets[1].taken, perMessage)
	}
	w.modify(qps[0], verbs.Attributes{State: verbs.ReadyToSend}, 0)
	w.run()
	if n := w.hosts[0].finished(); n != flood-1 || sockets[1].taken != flood*perMessage {
		t.Errorf("%d more requests complete, %d packets taken, want %d and %d", n, sockets[1].taken, flood-1, flood*perMessage)
	}
}

// TestDestroyWhilePaced: what waits is forgotten with its queue pair, and others go on.
func TestDestroyWhilePaced(t *testing.T) {
	w, sockets := newSockets(t, 50*time.Microsecond)
	first, second := w.pair(verbs.UC, nil), w.pair(verbs.UC, nil)
	w.flood(first[0])
	w.flood(second[0])
	check(t, first[0].Destroy())
	w.run()
	if n := w.hosts[0].finished(); n != flood || sockets[1].dropped != 0 {
		t.Errorf("%d requests complete, and %d packets dropped, want %d and 0", n, sockets[1].dropped, flood)
	}
}
