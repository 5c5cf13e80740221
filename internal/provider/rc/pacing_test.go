package rc

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A fixedRate is a Control of one rate, in bits per second.
type fixedRate struct {
	rate     float64
	notified int
	lost     int
}

func (f *fixedRate) Sent(time.Duration, int) {}
func (f *fixedRate) Notified(time.Duration)  { f.notified++ }

func (f *fixedRate) Lost(time.Duration) bool                    { f.lost++; return true }
func (f *fixedRate) Acknowledged(time.Duration, congestion.Ack) {}
func (f *fixedRate) Window() int64                              { return 0 }
func (f *fixedRate) Rate(time.Duration) float64                 { return f.rate }
func (f *fixedRate) Deadline() (time.Duration, bool)            { return 0, false }

// At pacedRate a full packet, of 1,024 bytes behind a BTH of 12 and with pacedOverhead, takes packetTime; the first of a WRITE,
// whose RETH has 16 bytes, takes firstTime.
const (
	pacedOverhead = 88
	pacedRate     = (1024 + 12 + pacedOverhead) * 8 * 100_000.0
	packetTime    = 10 * time.Microsecond
	firstTime     = packetTime*(1024+12+16+pacedOverhead)/(1024+12+pacedOverhead) + 1 // rounded up
)

// newPacedPair makes a pair of which the given end is paced.
func newPacedPair(t *testing.T, p path, pacedEnd int, unbounded bool) *pair {
	t.Helper()
	c := testConnection
	c.Selective = true
	both := newPair(t, testConfig, c, p, 1)
	e := [2]*end{both.a, both.b}[pacedEnd]
	e.qp.connection.Pacer = congestion.NewPacer(&fixedRate{rate: pacedRate}, 0, 0, pacedOverhead)
	e.qp.connection.Pacer.Unbounded = unbounded
	e.qp.requester.window = newWindow(&e.qp.connection)
	return both
}

// departures notes when an end sends packets of opcodes that take, in virtual time.
func (e *end) departures(take func(roce.Opcode) bool) *[]time.Duration {
	var times []time.Duration
	before := e.out.drop
	e.out.drop = func(h *roce.Header) bool {
		if take(h.Opcode) {
			times = append(times, e.clock.Now())
		}
		return before != nil && before(h)
	}
	return &times
}

// every returns n instants that are so far apart.
func every(d time.Duration, n int) (list []time.Duration) {
	for i := range n {
		list = append(list, time.Duration(i)*d)
	}
	return list
}

// TestPacedRequests: requests leave at the rate from the first on, though all could at once.
func TestPacedRequests(t *testing.T) {
	p := newPacedPair(t, path{delay: time.Microsecond}, 0, true)
	p.a.memory.add(1, 64<<10)
	p.b.memory.add(2, 64<<10)
	times := p.a.departures(roce.Opcode.IsRequest)
	p.a.post(Request{Op: OpWrite, Context: 1, SGL: []SGE{piece(1, 0, 20*1024)}, VA: 2 << 32, Token: 2})
	p.await(t, p.a, 1, time.Second)
	want := []time.Duration{0}
	for _, d := range every(packetTime, 19) {
		want = append(want, firstTime+d)
	}
	if d := cmp.Diff(want, *times); d != "" {
		t.Errorf("packets left at (-want +got):\n%s", d)
	}
}

// TestPacedResponses: the responder of a READ is the sender of its data, and is paced; what asks for it is not.
func TestPacedResponses(t *testing.T) {
	p := newPacedPair(t, path{delay: time.Microsecond}, 1, true)
	p.a.memory.add(1, 64<<10)
	p.b.memory.add(2, 64<<10)
	times := p.b.departures(func(op roce.Opcode) bool { return op == roce.ReadResponseMiddle })
	p.a.post(Request{Op: OpRead, Context: 1, SGL: []SGE{piece(1, 0, 20*1024)}, VA: 2 << 32, Token: 2})
	p.await(t, p.a, 1, time.Second)
	var want []time.Duration
	for _, d := range every(packetTime, 18) {
		want = append(want, (*times)[0]+d)
	}
	if d := cmp.Diff(want, *times); d != "" {
		t.Errorf("the middle of the response left at (-want +got):\n%s", d)
	}
}

// TestPacedResends: what is sent again is paced like everything else.
func TestPacedResends(t *testing.T) {
	p := newPacedPair(t, path{delay: time.Microsecond}, 0, true)
	p.a.memory.add(1, 64<<10)
	p.b.memory.add(2, 64<<10)
	lost := 0
	p.a.out.drop = func(h *roce.Header) bool { // eight in the middle, once
		if h.Opcode == roce.WriteMiddle && lost < 8 {
			lost++
			return true
		}
		return false
	}
	times := p.a.departures(func(op roce.Opcode) bool { return op.IsRequest() })
	p.a.post(Request{Op: OpWrite, Context: 1, SGL: []SGE{piece(1, 0, 20*1024)}, VA: 2 << 32, Token: 2})
	p.await(t, p.a, 1, time.Second)
	if n := p.a.qp.Counters().Retransmitted; n < 8 {
		t.Errorf("%d packets were sent again, want at least 8", n)
	}
	for i := 1; i < len(*times); i++ {
		if apart := (*times)[i] - (*times)[i-1]; apart < packetTime && i > 1 {
			t.Errorf("packet %d left %v after the one before, want at least %v", i, apart, packetTime)
		}
	}
}

// TestAcknowledgementsUnpaced: an end that is paced, and has used up its time, acknowledges at once.
func TestAcknowledgementsUnpaced(t *testing.T) {
	p := newPacedPair(t, path{delay: time.Microsecond}, 1, true)
	p.b.qp.connection.Pacer.Control.(*fixedRate).rate = 1000 // a packet takes 9 s
	for _, e := range []*end{p.a, p.b} {
		e.memory.add(1, 64<<10)
		e.memory.add(2, 64<<10)
	}
	p.b.post(Request{Op: OpWrite, Context: 1, SGL: []SGE{piece(1, 0, 1024)}, VA: 2 << 32, Token: 2})
	p.b.post(Request{Op: OpWrite, Context: 2, SGL: []SGE{piece(1, 0, 1024)}, VA: 2 << 32, Token: 2})
	p.a.post(Request{Op: OpWrite, Context: 3, SGL: []SGE{piece(1, 0, 1024)}, VA: 2 << 32, Token: 2})
	p.await(t, p.a, 1, 10*time.Microsecond)
	if len(p.b.done) != 1 {
		t.Errorf("%d requests of the paced end are complete, want 1: the other waits", len(p.b.done))
	}
	p.await(t, p.b, 2, 10*time.Second)
}

// A testLine is busy or not, and counts how often it is asked.
type testLine struct {
	busy  bool
	asked int
}

func (l *testLine) Busy() bool {
	l.asked++
	return l.busy
}

// TestLine: a busy line holds back requests and responses, and nothing else, until it is free. It is asked for their sake alone.
func TestLine(t *testing.T) {
	p := newPacedPair(t, path{delay: time.Microsecond}, 0, true)
	line := testLine{busy: true}
	p.a.qp.connection.Pacer.Line = &line
	for _, e := range []*end{p.a, p.b} {
		e.memory.add(1, 64<<10)
		e.memory.add(2, 64<<10)
	}
	p.a.pump()
	if line.asked > 0 {
		t.Error("was asked for the line though there is nothing to send")
	}
	p.a.post(Request{Op: OpWrite, Context: 1, SGL: []SGE{piece(1, 0, 10)}, VA: 2 << 32, Token: 2})
	p.b.post(Request{Op: OpWrite, Context: 2, SGL: []SGE{piece(1, 0, 10)}, VA: 2 << 32, Token: 2})
	p.await(t, p.b, 1, time.Millisecond) // is acknowledged
	if len(p.a.out.sent) != 1 || !p.a.qp.WaitsForLine() {
		t.Errorf("%d packets were sent, want the acknowledgement alone; waits for the line: %v", len(p.a.out.sent), p.a.qp.WaitsForLine())
	}
	p.b.post(Request{Op: OpRead, Context: 3, SGL: []SGE{piece(1, 0, 10)}, VA: 2 << 32, Token: 2})
	p.clock.RunUntil(func() bool { return len(p.b.done) == 2 }, 100*time.Microsecond)
	if len(p.b.done) != 1 {
		t.Error("a READ was answered on a busy line")
	}
	line.busy = false
	p.a.pump()
	p.await(t, p.a, 1, time.Second)
	p.await(t, p.b, 2, time.Second)
	if p.a.qp.WaitsForLine() {
		t.Error("nothing is left to send, and still waits for the line")
	}
}

// TestUnbounded: neither the peer's receive buffer nor the path bounds what is in flight.
func TestUnbounded(t *testing.T) {
	for unbounded, want := range map[bool]int{true: 1024, false: 42} { // 64 KiB, of packets of 1,024 and PacketOverhead bytes
		p := newPacedPair(t, path{delay: time.Second}, 0, unbounded)
		p.a.qp.connection.Pacer = nil
		p.a.memory.add(1, 1<<20)
		p.b.memory.add(2, 1<<20)
		p.a.qp.SetRoundTrip(2*time.Second, false)
		p.a.post(Request{Op: OpWrite, Context: 1, SGL: []SGE{piece(1, 0, 1<<20)}, VA: 2 << 32, Token: 2})
		if n := len(p.a.out.sent); n != want {
			t.Errorf("unbounded %v: %d packets were sent at once, want %d", unbounded, n, want)
		}
		if unbounded && (p.a.qp.CreditWanted() != 0 || p.a.qp.CreditInUse() != 0 || p.a.qp.CreditLimited()) {
			t.Error("credit is of concern to a QP that it does not bound")
		}
	}
}

// TestNotified: a CNP is for the Pacer, and for nobody where there is none, or no connection any more.
func TestNotified(t *testing.T) {
	p := newPacedPair(t, path{delay: time.Microsecond}, 0, true)
	control := p.a.qp.connection.Pacer.Control.(*fixedRate)
	if !p.a.qp.Notified(0) || control.notified != 1 {
		t.Error("a CNP did not reach the Control")
	}
	if p.b.qp.Notified(0) {
		t.Error("a CNP was heeded without a Pacer")
	}
	p.a.qp.Flush()
	if p.a.qp.Notified(0) {
		t.Error("a CNP was heeded in Error")
	}
}

// TestSlowPace: packets that leave far apart are acknowledged one by one, so that no timer runs out between two.
func TestSlowPace(t *testing.T) {
	p := newPacedPair(t, path{delay: time.Microsecond}, 0, true)
	p.a.qp.connection.Pacer.Control.(*fixedRate).rate = pacedRate / 1000 // a packet each 10 ms
	p.a.memory.add(1, 64<<10)
	p.b.memory.add(2, 64<<10)
	p.a.post(Request{Op: OpWrite, Context: 1, SGL: []SGE{piece(1, 0, 64*1024)}, VA: 2 << 32, Token: 2})
	p.await(t, p.a, 1, time.Second)
	if n := p.a.qp.Counters().Timeouts; n != 0 {
		t.Errorf("%d probe timeouts, want none: nothing was late", n)
	}
}

// TestLost: a packet that is missing, by a NAK or by what else a peer says of it, and what is in flight when
// the peer was asked in vain, are for the Pacer. A SelectiveAcknowledge says it again with each packet behind the one that is missing, where a
// NAK comes once: it counts once. Acknowledgements and RNR NAKs say nothing of the kind.
func TestLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Connection)
		hear   []roce.Header
		want   int
	}{
		{"acknowledgements", nil, []roce.Header{ack(100, roce.SyndromeACK), ack(101, roce.SyndromeRNR)}, 0},
		{"a NAK", nil, []roce.Header{ack(101, roce.SyndromePSNSequence)}, 1},
		{"NAKs of two packets", nil, []roce.Header{ack(101, roce.SyndromePSNSequence), ack(103, roce.SyndromePSNSequence)}, 2},
		{"a NAK that is stale", nil, []roce.Header{ack(101, roce.SyndromeACK), ack(99, roce.SyndromePSNSequence)}, 0},
		{"one packet that is missing", selectively, []roce.Header{reporting(101, 102), reporting(101, 103, 1), reporting(101, 104, 1, 2)}, 1},
		{"two packets", selectively, []roce.Header{reporting(101, 102), reporting(101, 104, 2), reporting(103, 104)}, 2},
	} {
		e := newReady(t, c.change)
		control := new(fixedRate)
		e.qp.connection.Pacer = congestion.NewPacer(control, 0, 0, pacedOverhead)
		e.queue(sends(1, 1), sends(2, 1), sends(3, 1), sends(4, 1), sends(5, 1))
		e.answers(0)
		for _, h := range c.hear {
			e.qp.Handle(0, &h, nil)
		}
		if control.lost != c.want {
			t.Errorf("%s: %d are lost, want %d", c.name, control.lost, c.want)
		}
	}
	e := newReady(t, nil)
	control := new(fixedRate)
	e.qp.connection.Pacer = congestion.NewPacer(control, 0, 0, pacedOverhead)
	e.queue(sends(1, 1))
	e.answers(0)
	at, _ := e.qp.Deadline()
	e.qp.HandleTimeout(at - 1)
	if control.lost != 0 {
		t.Error("a packet is lost before its time is over")
	}
	for timeouts, want := range []int{0, 1, 2} { // the first only has the peer asked
		e.qp.HandleTimeout(at)
		if control.lost != want {
			t.Errorf("after %d timeouts %d are lost, want %d", timeouts+1, control.lost, want)
		}
		e.answers(at)
		at, _ = e.qp.Deadline()
	}
}
