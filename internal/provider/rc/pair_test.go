package rc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider/clock"
)

// A fakeMemory is a protection domain with one flat region per token. Regions
// are handed out in pieces of at most page bytes, as scattered memory would be.
type fakeMemory map[uint32]*region

type region struct {
	base  uint64
	bytes []byte
	deny  map[Access]bool
}

const page = 1000

func (m fakeMemory) Local(dst [][]byte, sge SGE, access Access) ([][]byte, bool) {
	return m.Remote(dst, sge.Token, sge.Address, sge.Length, access)
}

func (m fakeMemory) Remote(dst [][]byte, token uint32, va uint64, length uint32, access Access) ([][]byte, bool) {
	r := m[token]
	if r == nil || r.deny[access] {
		return dst, false
	}
	if size := uint64(len(r.bytes)); va-r.base > size || uint64(length) > size-(va-r.base) {
		return dst, false
	}
	at, end := int(va-r.base), int(va-r.base)+int(length)
	for at < end {
		next := min(end, (at/page+1)*page)
		dst = append(dst, r.bytes[at:next])
		at = next
	}
	return dst, true
}

func (m fakeMemory) Invalidate(token uint32) bool {
	_, ok := m[token]
	delete(m, token)
	return ok
}

func (m fakeMemory) InvalidateLocal(token uint32) bool { return m.Invalidate(token) }

func (m fakeMemory) Atomic(op Op, token uint32, va uint64, operand, compare uint64) uint64 {
	r := m[token]
	return changeBytes(op, r.bytes[va-r.base:], operand, compare)
}

// changeBytes carries out an atomic operation on the first 8 bytes.
func changeBytes(op Op, b []byte, operand, compare uint64) (original uint64) {
	original = binary.NativeEndian.Uint64(b)
	switch {
	case op == OpFetchAdd:
		operand += original
	case op == OpCompareSwap && original != compare:
		operand = original
	}
	binary.NativeEndian.PutUint64(b, operand)
	return original
}

// add makes a region of n bytes that starts at address token<<32.
func (m fakeMemory) add(token uint32, n int) *region {
	r := &region{base: uint64(token) << 32, bytes: make([]byte, n), deny: map[Access]bool{}}
	m[token] = r
	return r
}

// piece is n bytes of the region with the given token, from offset.
func piece(token uint32, offset, n int) SGE {
	return SGE{Address: uint64(token)<<32 + uint64(offset), Length: uint32(n), Token: token}
}

// A path carries packets one way in virtual time.
type path struct {
	clock     *clock.Virtual
	random    *rand.Rand
	delay     time.Duration
	jitter    time.Duration // up to this is added, so that packets overtake
	late      float64       // to this share of the packets only; 0 for all
	rate      float64       // bits per second, 0 for infinite
	loss, dup float64
	down      bool
	drop      func(h *roce.Header) bool // beside loss
	buffer    int                       // bytes that may queue for the rate, 0 for any number
	to        *end

	idleAt   time.Duration
	sent     []roce.Header
	overflow int
	longest  int // bytes that did queue
}

func (w *path) send(p *roce.Packet) {
	wire := p.Header.Append(nil, p.PayloadLen())
	for _, b := range p.Payload {
		wire = append(wire, b...)
	}
	wire = append(wire, make([]byte, (-len(wire)&3)+4)...) // padding, ICRC
	w.sent = append(w.sent, p.Header)

	now := w.clock.Now()
	arrive := w.delay
	if w.rate > 0 {
		// A receive buffer would have to hold all that is queued.
		queued := int(float64(max(0, w.idleAt-now).Seconds()) * w.rate / 8)
		w.longest = max(w.longest, queued)
		if w.buffer > 0 && queued > w.buffer {
			w.overflow++
			return
		}
		w.idleAt = max(now, w.idleAt) + time.Duration(float64(len(wire)*8)/w.rate*1e9)
		arrive += w.idleAt - now
	}
	copies := 1
	if w.random.Float64() < w.loss || w.down || w.drop != nil && w.drop(&p.Header) {
		copies = 0
	} else if w.random.Float64() < w.dup {
		copies = 2
	}
	for range copies {
		jitter := time.Duration(0)
		if w.jitter > 0 && (w.late == 0 || w.random.Float64() < w.late) {
			jitter = time.Duration(w.random.Int64N(int64(w.jitter)))
		}
		w.clock.AfterFunc(arrive+jitter, func() { w.to.receive(wire) })
	}
}

// An end is one QP with what it needs, driven as a provider would drive it.
type end struct {
	t        testing.TB
	clock    *clock.Virtual
	qp       *QP
	memory   fakeMemory
	receives *ReceiveQueue
	out      *path
	timer    clock.Timer
	packet   roce.Packet
	idle     time.Duration // how long packets gather before anything is done about them
	asleep   bool
	gathers  bool // Gather goes before Next
	done     []Completion
	onDone   func()
}

func (e *end) receive(wire []byte) {
	var h roce.Header
	payload, err := roce.Decode(wire, &h)
	if err != nil {
		e.t.Fatalf("undecodable packet sent: %v", err)
	}
	e.qp.Handle(e.clock.Now(), &h, payload)
	if e.idle == 0 {
		e.pump()
	} else if !e.asleep {
		e.asleep = true
		e.clock.AfterFunc(e.idle, func() {
			e.asleep = false
			e.pump()
		})
	}
}

func (e *end) pump() {
	if e.gathers {
		e.qp.Gather()
	}
	for e.qp.Next(e.clock.Now(), &e.packet) {
		e.out.send(&e.packet)
	}
	before := len(e.done)
	e.done = e.qp.Completions(e.done)
	if len(e.done) > before && e.onDone != nil {
		e.onDone()
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	if at, ok := e.qp.Deadline(); ok {
		e.timer = e.clock.AfterFunc(at-e.clock.Now(), func() {
			e.qp.HandleTimeout(e.clock.Now())
			e.pump()
		})
	}
}

func (e *end) post(r Request) {
	e.t.Helper()
	if err := e.qp.Post(&r); err != nil {
		e.t.Fatalf("post: %v", err)
	}
	e.pump()
}

func (e *end) postReceive(r Receive) {
	e.t.Helper()
	if err := e.receives.Post(&r); err != nil {
		e.t.Fatalf("receive: %v", err)
	}
}

// A pair is two connected ends.
type pair struct {
	clock *clock.Virtual
	a, b  *end
}

var testConfig = Config{SendDepth: 64, MaxSGE: 4, MaxInline: 256}

var testConnection = Connection{
	Rights: AllowRead | AllowWrite,
	MTU:    1024, SendPSN: 0xFFFFF0, ReceivePSN: 0xFFFFF0, InitiatorDepth: 4, ResponderResources: 4,
	AckTimeout: 67 * time.Millisecond, RetryCount: 6, RNRRetryCount: 6, MinRNRTimer: 12, Credit: 64 << 10,
}

// newEnd makes an end in state Init, with its out path leading nowhere.
func newEnd(t testing.TB, config Config) *end {
	e := &end{t: t, clock: clock.NewVirtual(), memory: fakeMemory{}, receives: NewReceiveQueue(64, 4)}
	config.Receives, config.Memory = e.receives, e.memory
	e.qp = NewQP(config)
	e.out = &path{clock: e.clock, random: rand.New(rand.NewPCG(0, 0)), down: true}
	return e
}

// newPair joins two ends by paths with the given properties.
func newPair(t testing.TB, config Config, c Connection, p path, seed uint64) *pair {
	t.Helper()
	both := &pair{clock: clock.NewVirtual(), a: newEnd(t, config), b: newEnd(t, config)}
	ends := [2]*end{both.a, both.b}
	for i, e := range ends {
		out := p
		out.clock, out.to = both.clock, ends[1-i]
		out.random = rand.New(rand.NewPCG(seed, uint64(i)))
		e.clock, e.out = both.clock, &out
		mine := c
		mine.RemoteQPN = uint32(1 + 1 - i)
		if i == 1 {
			mine.SendPSN, mine.ReceivePSN = c.ReceivePSN, c.SendPSN
		}
		if err := e.qp.Connect(mine); err != nil {
			t.Fatal(err)
		}
	}
	return both
}

// await runs until the end has n completions, for d at most.
func (p *pair) await(t testing.TB, e *end, n int, d time.Duration) {
	t.Helper()
	if !p.clock.RunUntil(func() bool { return len(e.done) >= n }, d) {
		t.Fatalf("%d completions of %d after %v", len(e.done), n, d)
	}
}

// check compares completions with one line for each: "op status context bytes",
// in which bytes is left out if 0, followed by "solicited" and the token, if any.
func (e *end) check(want ...string) {
	e.t.Helper()
	var got []string
	for _, c := range e.done {
		got = append(got, describe(c))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		e.t.Fatalf("completions\n got %q\nwant %q", got, want)
	}
}

func describe(c Completion) string {
	s := fmt.Sprint([...]string{"", "send", "sendinv", "sendimm", "write", "writeimm", "read", "add", "swap", "atomicwrite",
		"bind", "register", "invalidate", "receive", "receiveinv", "receiveimm", "receivewrite"}[c.Op], " ", statusNames[c.Status], " ", c.Context)
	if c.Bytes != 0 {
		s += fmt.Sprint(" ", c.Bytes)
	}
	if c.Token != 0 {
		s += fmt.Sprintf(" token %d", c.Token)
	}
	if c.Immediate != 0 {
		s += fmt.Sprintf(" immediate %#x", c.Immediate)
	}
	if c.Solicited && c.Status == Success {
		s += " solicited"
	}
	return s
}

var statusNames = [...]string{"ok", "local-length", "local-protection", "bad-operation", "flushed", "bad-response",
	"remote-invalid", "remote-access", "remote-operation", "retry-exceeded", "rnr-retry-exceeded"}

// pattern fills b with bytes that tell where they belong.
func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(seed*31 + i + i>>8*7)
	}
}

func TestRoundTrips(t *testing.T) {
	for _, mtu := range []int{256, 1024, 4096} {
		for _, n := range []int{0, 1, mtu - 1, mtu, mtu + 1, 3*mtu + 5, 40 * mtu} {
			t.Run(fmt.Sprintf("%d of %d", n, mtu), func(t *testing.T) {
				c := testConnection
				c.MTU = mtu
				p := newPair(t, testConfig, c, path{delay: time.Millisecond}, 1)
				source, sink := p.a.memory.add(1, n+10), p.a.memory.add(4, n+10)
				target := p.b.memory.add(2, n+10)
				inbox := p.b.memory.add(3, n+10)
				pattern(source.bytes, n)
				cut := n / 3
				p.b.postReceive(Receive{Context: 9, SGL: []SGE{piece(3, 2, cut), piece(3, 2+cut, 0), piece(3, 2+cut, n-cut+1)}})
				gather := []SGE{piece(1, 5, 0), piece(1, 5, cut), piece(1, 5+cut, n-cut), piece(1, 0, 0)}
				p.a.post(Request{Op: OpWrite, Context: 1, SGL: gather, VA: 2<<32 + 7, Token: 2})
				p.a.post(Request{Op: OpSend, Context: 2, SGL: gather, Solicited: true})
				p.a.post(Request{Op: OpRead, Context: 3, SGL: []SGE{piece(4, 1, cut), piece(4, 1+cut, n-cut)}, VA: 2<<32 + 7, Token: 2})
				p.await(t, p.a, 3, time.Second)
				p.a.check("write ok 1", "send ok 2", "read ok 3")
				receive := "receive ok 9 solicited"
				if n > 0 {
					receive = fmt.Sprintf("receive ok 9 %d solicited", n)
				}
				p.b.check(receive)
				want := source.bytes[5 : 5+n]
				for name, got := range map[string][]byte{"write": target.bytes[7:], "send": inbox.bytes[2:], "read": sink.bytes[1:]} {
					if len(got) < n || !bytes.Equal(got[:n], want) {
						t.Errorf("%s: wrong bytes", name)
					}
				}
				if r := p.a.qp.Counters().Retransmitted; r != 0 {
					t.Errorf("%d packets sent again", r)
				}
			})
		}
	}
}
