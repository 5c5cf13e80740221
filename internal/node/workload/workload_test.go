package workload

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A lab is a client's and a server's device on a simulated network.
type lab struct {
	t       *testing.T
	clock   *clock.Virtual
	path    *sim.Impaired
	devices [2]*provider.Miniport
	drop    func(from netip.Addr, packet []byte) bool // says which packets are lost, beside those that path loses; nil: none
	ended   time.Duration                             // when the client did
	series  []Sample                                  // of what was played last
}

var (
	clientAddress = netip.MustParseAddr("10.0.0.1")
	serverAddress = netip.MustParseAddrPort("10.0.0.2:7000")
)

func newLab(t *testing.T) *lab {
	t.Helper()
	return newLabWith(t, func(*provider.Config) {})
}

// Carry implements sim.Path.
func (l *lab) Carry(now time.Duration, from, to netip.Addr, packet []byte) []time.Duration {
	if l.drop != nil && l.drop(from, packet) {
		return nil
	}
	return l.path.Carry(now, from, to, packet)
}

// newLabWith is a lab of adapters that are set up otherwise.
func newLabWith(t *testing.T, set func(*provider.Config)) *lab {
	t.Helper()
	l := &lab{t: t, clock: clock.NewVirtual()}
	l.path = &sim.Impaired{Rand: rand.New(rand.NewPCG(3, 4)), Delay: time.Millisecond, Rate: 10e9}
	network := sim.NewNetwork(l.clock, l)
	for i, address := range []netip.Addr{clientAddress, serverAddress.Addr()} {
		cfg := provider.Config{
			Carrier: network.Attach(4200, address), Clock: l.clock,
			Rand: rand.New(rand.NewPCG(uint64(i), 9)), Info: provider.DefaultAdapterInfo(),
			Capabilities: provider.DefaultCapabilities(),
		}
		set(&cfg)
		m, err := provider.NewMiniport(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.devices[i] = m
	}
	return l
}

// apart has the next end of a workload make random bytes of its own, as in a process of
// its own.
func apart() {
	randoms.Lock()
	defer randoms.Unlock()
	clear(randoms.of)
}

// run runs a workload to its end and checks that nothing is left open.
func (l *lab) run(spec Spec, meanwhile func(*target)) (Result, ServerResult) {
	l.t.Helper()
	server, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress)
	if err != nil {
		l.t.Fatal(err)
	}
	apart()
	var result *Result
	if _, err := runStream(l.devices[0], l.clock, nil, spec, clientAddress, serverAddress, func(r Result) { result = &r; l.ended = l.clock.Now() }); err != nil {
		l.t.Fatal(err)
	}
	if meanwhile != nil {
		meanwhile(server)
	}
	if !l.clock.RunUntil(func() bool { return result != nil }, 10*time.Minute) {
		l.t.Fatal("the client does not end")
	}
	var found *ServerResult
	server.Stop(func(r ServerResult) { found = &r })
	if !l.clock.RunUntil(func() bool { return found != nil }, time.Minute) {
		l.t.Fatal("the server does not end")
	}
	for _, m := range l.devices {
		closed := false
		m.BeginClose(func() { closed = true })
		if !l.clock.RunUntil(func() bool { return closed }, time.Minute) {
			l.t.Fatal("something is left open")
		}
	}
	return *result, *found
}

func TestWorkloads(t *testing.T) {
	for _, loss := range []float64{0, 0.02} {
		for _, operation := range []topology.Operation{topology.Write, topology.Read, topology.Send} {
			for _, size := range []uint64{0, 1, 64, 65536} {
				t.Run(fmt.Sprintf("%s %d loss %v", operation, size, loss), func(t *testing.T) {
					l := newLab(t)
					l.path.Loss = loss
					spec := Spec{Name: "w", Operation: operation, Size: size, Depth: 16, Count: 200, Verify: true, Seed: 5}
					got, found := l.run(spec, nil)
					if got.Messages != 200 || got.Bytes != 200*size || got.Errors != 0 || got.Error != "" {
						t.Errorf("client: %+v", got)
					}
					if operation != topology.Read && found != (ServerResult{Verified: 200}) {
						t.Errorf("server: %+v", found)
					}
					var took Latencies
					if err := took.Add(got.Latency); err != nil {
						t.Fatal(err)
					}
					if least, p50, p99, most := took.Micros(0), took.Micros(50), took.Micros(99), took.Micros(100); took.Count() != 200 ||
						least < 2000 || p50 < least || p99 < p50 || most < p99 {
						t.Errorf("%d latencies %v %v %v %v on a path of 2 ms", took.Count(), least, p50, p99, most)
					}
				})
			}
		}
	}
}

func TestDuration(t *testing.T) {
	got, _ := newLab(t).run(Spec{Operation: topology.Write, Size: 4096, Depth: 4, Duration: 100 * time.Millisecond, Seed: 1}, nil)
	if got.Errors != 0 || got.Messages < 150 || got.Messages > 250 || got.Seconds < 0.1 || got.Seconds > 0.11 {
		t.Errorf("4 messages each 2 ms for 100 ms gave %+v", got)
	}
}

// TestVerify has messages that arrive wrong be found, wherever they are compared.
func TestVerify(t *testing.T) {
	for _, operation := range []topology.Operation{topology.Write, topology.Read, topology.Send} {
		t.Run(string(operation), func(t *testing.T) {
			l := newLab(t)
			spec := Spec{Operation: operation, Size: 4096, Depth: 2, Count: 50, Verify: true, Seed: 1}
			got, found := l.run(spec, func(s *target) {
				// One byte of what the server sends, or expects, is not what
				// the client thinks.
				s.pattern.bytes[s.pattern.offset(7)+100] ^= 1
			})
			wrong, text := found.Mismatches, found.Error
			if operation == topology.Read {
				wrong, text = got.Errors, got.Error
			}
			if wrong == 0 || wrong > 2 || !strings.Contains(text, "message 7: byte 100 is ") {
				t.Errorf("%d messages found wrong: %q", wrong, text)
			}
		})
	}
}

func TestNobodyServes(t *testing.T) {
	l := newLab(t)
	var result *Result
	_, err := runStream(l.devices[0], l.clock, nil, Spec{Operation: topology.Send, Size: 1, Depth: 1, Count: 1},
		clientAddress, serverAddress, func(r Result) { result = &r })
	if err != nil {
		t.Fatal(err)
	}
	l.clock.RunUntil(func() bool { return result != nil }, time.Minute)
	if result == nil || result.Errors != 1 || result.Error != "connect: STATUS_CONNECTION_REFUSED" {
		t.Errorf("got %+v", result)
	}
}

// TestCut has the link fail for good: the workload ends with an error, and so
// does the server.
func TestCut(t *testing.T) {
	l := newLab(t)
	spec := Spec{Operation: topology.Write, Size: 65536, Depth: 16, Duration: time.Minute, Verify: true, Seed: 1}
	var cut time.Duration
	got, _ := l.run(spec, func(*target) {
		l.clock.Run(time.Second)
		l.path.Down = true
		cut = l.clock.Now()
	})
	if took := l.ended - cut; took > 5*time.Second {
		t.Errorf("it took the client %v to end", took)
	}
	if got.Messages == 0 || got.Errors != 16 || !strings.Contains(got.Error, "STATUS_IO_TIMEOUT") {
		t.Errorf("got %+v", got)
	}
}

// Messages begin at as many places of the pattern as there are messages, up to a
// million, and a pattern is no longer than that takes.
func TestPatternSpan(t *testing.T) {
	for _, test := range []struct{ count, size, span uint64 }{
		{0, 100, mostSpan}, // unknown: as many as time permits
		{1, 0, leastSpan},
		{1, leastSpan / 2, leastSpan},
		{1, leastSpan/2 + 1, 2 * leastSpan},
		{1, 2 * mostSpan, mostSpan},
		{leastSpan / 2, 0, leastSpan},
		{10, 4096, 128 << 10},
		{mostSpan - 1, 1, mostSpan},
		{1 << 40, 1 << 24, mostSpan}, // their product is 0 in 64 bits
	} {
		s := &Spec{Count: test.count, Size: test.size, Verify: true}
		p := newPattern(s)
		if p.span != test.span || uint64(len(p.bytes)) != (test.span+test.size+7)&^7 {
			t.Errorf("count %d, size %d: span %d, %d bytes", test.count, test.size, p.span, len(p.bytes))
		}
		seen := make([]bool, p.span)
		for i := range min(test.count, p.span) {
			if seen[p.offset(i)] {
				t.Fatalf("count %d: message %d begins where another did", test.count, i)
			}
			seen[p.offset(i)] = true
		}
	}
}

// Flows of one workload share the bytes of their patterns, as long as there are any of
// them, and have messages of their own. A pattern that nobody compares is short.
func TestPatternOfFlow(t *testing.T) {
	spec := Spec{Size: 64, Seed: 1, Verify: true}
	first := newPattern(&spec)
	same := 0
	for spec.Flow = 1; spec.Flow <= 300; spec.Flow++ {
		other := newPattern(&spec)
		if &other.bytes[0] != &first.bytes[0] {
			t.Fatal("flows do not share their bytes")
		}
		for i := range uint64(100) {
			if bytes.Equal(first.message(i), other.message(i)) {
				same++
			}
		}
	}
	if same > 5 { // of 30,000, each by a chance of 1 to 2^20
		t.Errorf("%d messages are those of another flow", same)
	}
	kind := randomKind{spec.Seed, patternLen(&spec)}
	runtime.KeepAlive(first)
	first = nil
	c, kept := clock.Real(), true
	for began := c.Now(); kept; runtime.Gosched() {
		if c.Now()-began > 30*time.Second {
			t.Fatal("the bytes are kept when nobody uses them")
		}
		runtime.GC()
		randoms.Lock()
		_, kept = randoms.of[kind]
		randoms.Unlock()
	}
	spec.Verify = false
	if p := newPattern(&spec); p.span != leastSpan {
		t.Errorf("span %d", p.span)
	}
}

// Conclude adds to a client's result what the flow's server has found. It reports whether
// every payload was to be compared, and was right.
func (s *Spec) Conclude(r *Result, found ServerResult) (verified bool) {
	r.Errors += found.Mismatches
	switch {
	case found.Error == "":
	case r.Error == "":
		r.Error = found.Error
	default:
		r.Error += "; at the server: " + found.Error
	}
	switch {
	case !s.Verify || r.Errors > 0:
		return false
	case s.Operation != topology.Send && s.Operation != topology.Write || found.Verified == r.Completed:
		return true // compared at the client, or told to it
	}
	r.Errors = r.Completed - min(found.Verified, r.Completed)
	r.Error = fmt.Sprintf("%d of %d messages were not verified", r.Errors, r.Completed)
	return false
}
