package rc

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// bulkConnection is a connection as two nodes of a lab make it.
var bulkConnection = Connection{
	Rights: AllowRead | AllowWrite,
	MTU:    4096, SendPSN: 0xFFFF00, InitiatorDepth: 16, ResponderResources: 16,
	AckTimeout: 537 * time.Millisecond, RetryCount: 6, RNRRetryCount: 7, MinRNRTimer: 12,
	Credit: 208 << 10,
}

// bulk keeps a requester busy: depth requests of 64 KiB at a time.
type bulk struct {
	*pair
	op    Op
	size  int // of a request, in bytes
	bytes int // of completed requests
	quit  bool
}

const bulkSize = 64 << 10

func newBulk(t testing.TB, op Op, depth int, c Connection, p path) *bulk {
	t.Helper()
	return newBulkOf(t, op, bulkSize, depth, c, p)
}

// draw has chance begin with a seed.
func (b *bulk) draw(seed uint64) {
	for i, e := range []*end{b.a, b.b} {
		e.out.random = rand.New(rand.NewPCG(seed, uint64(i)))
	}
}

// newBulkOf is newBulk with requests of another size.
func newBulkOf(t testing.TB, op Op, size, depth int, c Connection, p path) *bulk {
	t.Helper()
	config := testConfig
	config.SendDepth = depth
	b := &bulk{pair: newPair(t, config, c, p, 42), op: op, size: size}
	b.a.memory.add(1, size)
	b.b.memory.add(2, size)
	if op == OpSend {
		receive := Receive{SGL: []SGE{piece(2, 0, size)}}
		for range 64 {
			b.b.postReceive(receive)
		}
		b.b.onDone = func() {
			for range b.b.done {
				b.b.postReceive(receive)
			}
			b.b.done = b.b.done[:0]
		}
	}
	b.a.onDone = func() {
		for _, c := range b.a.done {
			if c.Status != Success {
				t.Fatalf("request failed: %v at %v", describe(c), b.clock.Now())
			}
			b.bytes += b.size
		}
		b.a.done = b.a.done[:0]
		b.fill(t)
	}
	b.fill(t)
	return b
}

func (b *bulk) fill(t testing.TB) {
	r := Request{Op: b.op, SGL: []SGE{piece(1, 0, b.size)}, VA: 2 << 32, Token: 2}
	for !b.quit {
		if err := b.a.qp.Post(&r); err == ErrFull {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	b.a.pump()
}

// rate runs for d and returns the payload moved in that time in bits per second.
func (b *bulk) rate(d time.Duration) float64 {
	before := b.bytes
	b.clock.Run(d)
	return float64(b.bytes-before) * 8 / d.Seconds()
}

// TestFillsAFatPath: 10 Gb/s at 1 ms each way hold 2.5 MB, twelve receive
// buffers. The window must find that out, at a receive buffer per round trip,
// and then stay there.
func TestFillsAFatPath(t *testing.T) {
	c := bulkConnection
	c.InitiatorDepth, c.ResponderResources = 64, 64
	for _, op := range []Op{OpWrite, OpRead} {
		b := newBulk(t, op, 64, c, path{delay: time.Millisecond, rate: 10e9})
		first := b.rate(50 * time.Millisecond)
		longest := max(b.a.out.longest, b.b.out.longest)
		b.a.out.longest, b.b.out.longest = 0, 0
		steady := b.rate(30 * time.Millisecond)
		t.Logf("op %d: %.2f Gb/s in the first 50 ms, then %.2f, queue up to %d bytes, later %d", op, first/1e9, steady/1e9, longest, max(b.a.out.longest, b.b.out.longest))
		if first < 4e9 || steady < 9.2e9 {
			t.Errorf("op %d: %.2f Gb/s in the first 50 ms, then %.2f", op, first/1e9, steady/1e9)
		}
		if got := b.a.qp.Counters(); got.Retransmitted != 0 {
			t.Errorf("op %d: packets sent again: %+v", op, got)
		}
		// An acknowledgement frees up to 16 packets at once; while the window
		// grows, that comes on top.
		if most := c.Credit + ackReqInterval*(c.MTU+PacketOverhead); longest > most {
			t.Errorf("op %d: %d bytes queued at first, more than %d", op, longest, most)
		}
		if longest := max(b.a.out.longest, b.b.out.longest); longest > c.Credit {
			t.Errorf("op %d: %d bytes queued later, more than %d", op, longest, c.Credit)
		}
	}
}

// TestKeepsToTheCreditOnAShortPath: where the path holds nothing, all that is in
// flight waits in the receive buffer.
func TestKeepsToTheCreditOnAShortPath(t *testing.T) {
	b := newBulk(t, OpWrite, 64, bulkConnection, path{delay: 20 * time.Microsecond, rate: 10e9, buffer: 208 << 10})
	if got := b.rate(50 * time.Millisecond); got < 9.2e9 {
		t.Errorf("%.2f Gb/s", got/1e9)
	}
	if b.a.out.overflow != 0 {
		t.Errorf("%d packets overflowed the buffer", b.a.out.overflow)
	}
}

// TestFollowsThePath: the path becomes ten times as long, and as short again,
// then as long and ten times as slow, and the window with it.
func TestFollowsThePath(t *testing.T) {
	b := newBulk(t, OpWrite, 64, bulkConnection, path{delay: time.Millisecond, rate: 1e9})
	b.rate(50 * time.Millisecond)
	for _, step := range []struct {
		delay time.Duration
		rate  float64
	}{{10 * time.Millisecond, 1e9}, {time.Millisecond, 1e9}, {10 * time.Millisecond, 1e9}, {10 * time.Millisecond, 1e8}} {
		b.a.out.delay, b.b.out.delay, b.a.out.rate = step.delay, step.delay, step.rate
		b.rate(2500 * time.Millisecond)
		// Once a second the delay is measured anew, and what follows on that arrives at
		// one go.
		got, queued := 0.0, math.MaxInt
		for range 10 {
			b.a.out.longest = 0
			got += b.rate(100*time.Millisecond) / 10
			queued = min(queued, b.a.out.longest)
		}
		t.Logf("%v: %.3f Gb/s, queue up to %d", step, got/1e9, queued)
		if got < 0.9*step.rate {
			t.Errorf("%v: %.3f Gb/s", step, got/1e9)
		}
		if most := 2 * bulkConnection.Credit; queued > most {
			t.Errorf("%v: %d bytes queued", step, queued)
		}
	}
}

// TestGoBackNUnderLoss: with the window W in packets and loss p, a packet is
// sent 1 + p W times on average, so at 1 % and 640 packets some 14 % of the
// rate is left; more would mean that loss is not what the test thinks.
func TestGoBackNUnderLoss(t *testing.T) {
	for _, test := range []struct {
		loss        float64
		least, most float64
	}{
		{0.001, 0.45, 0.75}, {0.01, 0.10, 0.25},
	} {
		b := newBulk(t, OpWrite, 64, bulkConnection, path{delay: time.Millisecond, rate: 10e9})
		b.rate(50 * time.Millisecond)
		b.a.out.loss = test.loss
		got := b.rate(400*time.Millisecond) / 10e9
		t.Logf("loss %v: %.3f of the rate, %+v", test.loss, got, b.a.qp.Counters())
		if got < test.least || got > test.most {
			t.Errorf("loss %v: %.2f of the rate, want %.2f to %.2f", test.loss, got, test.least, test.most)
		}
	}
}

// TestSelectiveRepair: next to nothing arrives in vain, so what loss costs is the
// share that is lost. The time that passes until it is made good costs nothing as
// long as there is other work, of which 8 MiB are enough up to 5 %. READs pay
// more: what waits behind a request that is lost is not even sent.
func TestSelectiveRepair(t *testing.T) {
	c := bulkConnection
	c.Selective, c.InitiatorDepth, c.ResponderResources = true, 64, 64
	gentle := path{delay: 500 * time.Microsecond, rate: 10e9}
	reordering := gentle
	reordering.jitter, reordering.late = 200*time.Microsecond, 0.005
	for _, test := range []struct {
		name  string
		op    Op
		path  path
		batch time.Duration
		least [5]float64 // of what goes without loss: at 0, 0.1, 1, 5 and 20 %
	}{
		{"write", OpWrite, gentle, 0, [5]float64{0.98, 0.97, 0.95, 0.9, 0.6}},
		{"send", OpSend, gentle, 0, [5]float64{0.98, 0.97, 0.95, 0.9, 0.6}},
		{"read", OpRead, gentle, 0, [5]float64{0.98, 0.9, 0.65, 0.4, 0.2}},
		{"write, reordered", OpWrite, reordering, 0, [5]float64{0.97, 0.97, 0.94, 0.85, 0.6}},
		{"read, reordered", OpRead, reordering, 0, [5]float64{0.97, 0.85, 0.6, 0.4, 0.2}},
		{"write, in batches", OpWrite, gentle, 200 * time.Microsecond, [5]float64{0.97, 0.97, 0.94, 0.85, 0.5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i, loss := range []float64{0, 0.001, 0.01, 0.05, 0.2} {
				p := test.path
				p.loss = loss
				var rates []float64
				for seed := range uint64(3) { // in one of 16, batches have the sender take the path for slower than it is
					b := newBulkOf(t, test.op, 1<<20, 8, c, p)
					b.draw(seed)
					b.a.idle, b.b.idle = test.batch, test.batch
					b.rate(20 * time.Millisecond)
					before := b.a.qp.Counters()
					got := b.rate(60*time.Millisecond) / 10e9
					after := b.a.qp.Counters()
					again := float64(after.Retransmitted-before.Retransmitted) / float64(after.Sent-before.Sent)
					t.Logf("loss %4.1f %%: %.3f of the rate, %.2f %% sent again, %d timeouts", loss*100, got, again*100, after.Timeouts)
					if test.op != OpRead && again > 1.2*loss+0.003 {
						t.Errorf("loss %v: %.2f %% sent again", loss, again*100)
					}
					rates = append(rates, got)
				}
				slices.Sort(rates)
				if median := rates[len(rates)/2]; median < test.least[i] {
					t.Errorf("loss %v: %.3f of the rate, less than %v", loss, median, test.least[i])
				}
			}
		})
	}
}

// TestGoodputUnderLoss: at 1 % loss and 1 ms round trip at 10 Gb/s the requests of
// a bulk transfer lose less than a fifth of their goodput. READs lose most: what
// stands behind a request that is lost is answered a round trip later.
func TestGoodputUnderLoss(t *testing.T) {
	c := bulkConnection
	c.Selective = true
	for op, name := range map[Op]string{OpWrite: "write", OpSend: "send", OpRead: "read"} {
		t.Run(name, func(t *testing.T) {
			goodput := func(loss float64, seed uint64) float64 {
				b := newBulkOf(t, op, 1<<20, 8, c, path{delay: 500 * time.Microsecond, rate: 10e9, loss: loss})
				b.draw(seed)
				b.rate(20 * time.Millisecond)
				return b.rate(150 * time.Millisecond)
			}
			clean := goodput(0, 0)
			for seed := range uint64(5) {
				got := goodput(0.01, seed)
				t.Logf("seed %d: %.2f of %.2f Gb/s", seed, got/1e9, clean/1e9)
				if got < 0.8*clean {
					t.Errorf("seed %d: %.2f of %.2f Gb/s", seed, got/1e9, clean/1e9)
				}
			}
		})
	}
}

// TestRepairKeepsToTheWindow: what is sent again must not come on top of what is
// still on its way.
func TestRepairKeepsToTheWindow(t *testing.T) {
	b := newBulk(t, OpWrite, 64, bulkConnection, path{delay: time.Millisecond, rate: 10e9})
	b.rate(50 * time.Millisecond)
	b.a.out.loss, b.a.out.longest = 0.002, 0
	b.rate(200 * time.Millisecond)
	if most := 3 * bulkConnection.Credit / 2; b.a.out.longest > most {
		t.Errorf("%d bytes queued, more than %d", b.a.out.longest, most)
	}
}

// TestReordering: every packet that is overtaken draws a NAK. That is bad
// enough; it must not have a window sent for each.
func TestReordering(t *testing.T) {
	b := newBulk(t, OpWrite, 64, bulkConnection, path{delay: time.Millisecond, rate: 10e9})
	b.rate(50 * time.Millisecond)
	b.a.out.jitter = 20 * time.Microsecond
	before := b.a.qp.Counters()
	got := b.rate(200 * time.Millisecond)
	after := b.a.qp.Counters()
	sent := float64(after.Sent-before.Sent) * 4096 * 8 / 0.2
	t.Logf("%.2f Gb/s of %.2f sent, %d NAKs", got/1e9, sent/1e9, after.NAKsReceived-before.NAKsReceived)
	if got < 100e6 || sent > 12e9 {
		t.Errorf("%.2f Gb/s of %.2f sent", got/1e9, sent/1e9)
	}
}

// TestRepairTakesOneRoundTrip: a packet that is lost with others behind it is
// there one round trip later than it would have been.
//
// Where single packets are sent again, a quarter of a round trip more is spent on
// waiting whether it was only overtaken.
func TestRepairTakesOneRoundTrip(t *testing.T) {
	for _, selective := range []bool{false, true} {
		testRepairTakesOneRoundTrip(t, selective)
	}
}

func testRepairTakesOneRoundTrip(t *testing.T, selective bool) {
	const delay = 5 * time.Millisecond
	c, want := bulkConnection, 2*2*delay
	if c.Selective = selective; selective {
		want += 2 * delay / 4
	}
	p := newPair(t, testConfig, c, path{delay: delay}, 1)
	p.a.memory.add(1, 4096)
	p.b.memory.add(2, 4096)
	request := Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 4096)}, VA: 2 << 32, Token: 2}
	p.a.out.down = true
	p.a.post(request)
	p.a.out.down = false
	p.a.post(request)
	p.await(t, p.a, 2, time.Second)
	if took := p.clock.Now(); took != want {
		t.Errorf("took %v instead of %v, the round trip is %v", took, want, 2*delay)
	}
}

// TestTailLoss: the last packet of all is lost; nothing tells but the timer,
// which by then knows the path. It takes a quarter more than the round trip. Then one
// goes by to ask, and one to send the packet again.
func TestTailLoss(t *testing.T) {
	for _, selective := range []bool{false, true} {
		testTailLoss(t, selective)
	}
}

func testTailLoss(t *testing.T, selective bool) {
	const delay = 5 * time.Millisecond
	c := bulkConnection
	c.Selective = selective
	p := newPair(t, testConfig, c, path{delay: delay}, 1)
	p.a.memory.add(1, 4096)
	p.b.memory.add(2, 4096)
	request := Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 4096)}, VA: 2 << 32, Token: 2}
	for i := range 20 {
		p.a.post(request)
		p.await(t, p.a, i+1, time.Second)
	}
	p.a.out.down = true
	start := p.clock.Now()
	p.a.post(request)
	p.a.out.down = false
	p.await(t, p.a, 21, time.Second)
	if took, want := p.clock.Now()-start, 2*delay*13/4; took < want || took > want+want/1000 {
		t.Errorf("took %v, not %v, the round trip is %v", took, want, 2*delay)
	}
}

func TestOutage(t *testing.T) {
	for i, op := range []Op{OpWrite, OpRead, OpWrite, OpRead} {
		c := bulkConnection
		c.Selective = i >= 2
		b := newBulk(t, op, 64, c, path{delay: time.Millisecond, rate: 10e9})
		b.rate(30 * time.Millisecond)
		atLeast := 0.9 * b.rate(20*time.Millisecond)
		b.a.out.down, b.b.out.down = true, true
		sent := len(b.a.out.sent)
		b.rate(1500 * time.Millisecond)
		if wasted := len(b.a.out.sent) - sent; wasted > 1000 {
			t.Errorf("%d packets sent into an outage", wasted)
		}
		b.a.out.down, b.b.out.down = false, false
		before, end := b.bytes, b.clock.Now()
		if !b.clock.RunUntil(func() bool { return b.bytes > before }, 10*time.Second) {
			t.Fatal("never recovered")
		}
		t.Logf("op %d: progress %v after the end", op, b.clock.Now()-end)
		if after := b.clock.Now() - end; after > bulkConnection.AckTimeout+10*time.Millisecond {
			t.Errorf("op %d: progress %v after the end of the outage", op, after)
		}
		if got := b.rate(50 * time.Millisecond); got < atLeast {
			t.Errorf("op %d: %.2f Gb/s after the outage", op, got/1e9)
		}
	}
}

func TestDeadPeer(t *testing.T) {
	b := newBulk(t, OpWrite, 4, bulkConnection, path{delay: time.Millisecond})
	b.rate(20 * time.Millisecond)
	b.b.out.down = true
	b.clock.Run(5 * time.Millisecond) // the last acknowledgement has arrived
	last := b.a.qp.requester.timers.progressAt
	b.quit = true
	b.a.onDone = nil
	b.await(t, b.a, 4, 10*time.Second)
	if took := b.clock.Now() - last; took != 7*bulkConnection.AckTimeout {
		t.Errorf("gave up after %v, want 7 x %v", took, bulkConnection.AckTimeout)
	}
	b.a.check("write retry-exceeded <nil>", "write flushed <nil>", "write flushed <nil>", "write flushed <nil>")
}
