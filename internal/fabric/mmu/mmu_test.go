package mmu

import (
	"strings"
	"testing"
	"time"
)

// lossless is a class that asks for pauses from a fixed size on.
var lossless = Class{Lossless: true, XOFF: 10_000, Gap: 2000, Headroom: 3000, Weight: 1}

// switchOf makes a switch with n ports of 10 Gb/s, whose classes are all alike but for those that
// change changes.
func switchOf(t testing.TB, n int, size int64, class Class, change func(c *Config)) *Switch[int] {
	t.Helper()
	c := Config{Name: "s", Size: size, Ports: make([]Port, n)}
	for i := range c.Ports {
		c.Ports[i].Rate, c.Ports[i].MaxFrame = 10e9, 1000
		for k := range Classes {
			c.Ports[i].Classes[k] = class
		}
	}
	if change != nil {
		change(&c)
	}
	s, err := New[int](c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// arrive expects the verdict on n packets of 1000 bytes.
func (s *Switch[P]) arrive(t testing.TB, now time.Duration, in, out, class, n int, want Verdict) {
	t.Helper()
	var p P
	for i := range n {
		if got := s.Arrive(now, in, out, class, 1000, true, p); got != want {
			t.Fatalf("packet %d of %d: %v, want %v", i+1, n, got, want)
		}
	}
}

// leave expects n packets to leave, or none if n is 0.
func (s *Switch[P]) leave(t testing.TB, now time.Duration, out, n int) {
	t.Helper()
	for i := range max(1, n) {
		if _, ok := s.Next(now, out); ok != (n > 0) {
			t.Fatalf("packet %d of %d at %v: %v", i+1, n, now, ok)
		}
	}
}

// pauses expects a PFC frame for a class, or none if quanta is below 0.
func (s *Switch[P]) pauses(t testing.TB, now time.Duration, port, class, quanta int) {
	t.Helper()
	f, ok := s.Pause(now, port)
	var want PFC
	if quanta >= 0 {
		want.Enabled = 1 << class
		want.Quanta[class] = uint16(quanta)
	}
	if ok != (quanta >= 0) || f != want {
		t.Fatalf("at %v port %d: frame %v %v, want %v", now, port, ok, f, want)
	}
}

func TestFixedThresholds(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, nil)
	s.arrive(t, 0, 0, 1, 3, 9, Admitted)
	s.pauses(t, 0, 0, 3, -1)
	s.arrive(t, 0, 0, 1, 3, 1, Admitted) // 10,000 bytes: XOFF
	s.pauses(t, 0, 0, 3, MostQuanta)
	s.pauses(t, 0, 1, 3, -1)             // nobody else is asked
	s.arrive(t, 0, 0, 1, 3, 3, Admitted) // into the headroom
	s.arrive(t, 0, 0, 1, 3, 2, NoHeadroom)
	c := s.Counters(0, 0, 3)
	if c.HeadroomPeak != 3000 || c.IngressPeak != 13_000 || c.Drops[NoHeadroom] != 2 || c.TxPause != 1 {
		t.Errorf("counters %+v", c)
	}
	if q := s.Counters(0, 1, 3).QueuePeak; q != 13_000 {
		t.Errorf("peak of the queue %d, want 13000", q)
	}
	s.leave(t, 0, 1, 4) // the headroom is empty, and 9,000 held
	s.pauses(t, 0, 0, 3, -1)
	s.leave(t, 7, 1, 1) // 8,000: XON
	s.pauses(t, 7, 0, 3, 0)
	if c := s.Counters(9, 0, 3); c.TxPauseTime != 7 || c.TxTransitions != 1 || c.TxPause != 2 {
		t.Errorf("counters %+v", c)
	}
}

// TestDynamicThreshold: XOFF is where what is held is alpha times what is free.
func TestDynamicThreshold(t *testing.T) {
	class := lossless
	class.XOFF, class.Alpha, class.Headroom, class.Reserve = 0, 0.5, 0, 2000
	s := switchOf(t, 3, 3*8*2000+90_000, class, nil)
	// One port: used = (90,000 - used)/2 at 30,000, and 2,000 are reserved.
	s.arrive(t, 0, 0, 2, 3, 31, Admitted)
	s.pauses(t, 0, 0, 3, -1)
	s.arrive(t, 0, 0, 2, 3, 1, Admitted)
	s.pauses(t, 0, 0, 3, MostQuanta)
	// Another finds 60,000 free: used = (60,000 - used)/2 at 20,000.
	s.arrive(t, 0, 1, 2, 3, 21, Admitted)
	s.pauses(t, 0, 1, 3, -1)
	s.arrive(t, 0, 1, 2, 3, 1, Admitted)
	s.pauses(t, 0, 1, 3, MostQuanta)
	// Without headroom what comes now is lost.
	s.arrive(t, 0, 1, 2, 3, 1, NoHeadroom)
	// The first goes on when used + 2,000 <= (70,000 - used)/2: at 22,000. It leaves first.
	s.leave(t, 0, 2, 7)
	s.pauses(t, 0, 0, 3, -1)
	s.leave(t, 0, 2, 1)
	s.pauses(t, 0, 0, 3, 0)
}

// TestFirstBeyondXOFFIsNotInHeadroom: the headroom is whole for what follows the frame.
func TestFirstBeyondXOFFIsNotInHeadroom(t *testing.T) {
	class := lossless
	class.XOFF = 9_999
	s := switchOf(t, 2, 1<<20, class, nil)
	s.arrive(t, 0, 0, 1, 3, 10, Admitted)
	if c := s.Counters(0, 0, 3); c.HeadroomPeak != 0 {
		t.Errorf("%d bytes in the headroom, want 0", c.HeadroomPeak)
	}
	s.arrive(t, 0, 0, 1, 3, 3, Admitted)
	s.arrive(t, 0, 0, 1, 3, 1, NoHeadroom)
}

// TestPauseTakenBack: a neighbour is not told of a pause that was over before the frame left.
func TestPauseTakenBack(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, nil)
	s.arrive(t, 0, 0, 1, 3, 10, Admitted)
	s.leave(t, 0, 1, 2)
	s.pauses(t, 0, 0, 3, -1)
	s.arrive(t, 0, 0, 1, 3, 2, Admitted)
	s.pauses(t, 0, 0, 3, MostQuanta)
	s.leave(t, 0, 1, 2)
	s.arrive(t, 0, 0, 1, 3, 2, Admitted)
	s.pauses(t, 0, 0, 3, -1)
}

// TestPauseIsRenewed at half its time, as long as it is needed.
func TestPauseIsRenewed(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, func(c *Config) { c.Quanta = 100 }) // 5,120 ns
	s.arrive(t, 10, 0, 1, 3, 10, Admitted)
	s.pauses(t, 20, 0, 3, 100)
	for _, ok := s.Wake(); ok; _, ok = s.Wake() {
	}
	for at := 20 + 2560*time.Nanosecond; at < 10*time.Microsecond; at += 2560 {
		if got, ok := s.Deadline(); !ok || got != at {
			t.Fatalf("deadline %v %v, want %v", got, ok, at)
		}
		s.Advance(at - 1)
		s.pauses(t, at-1, 0, 3, -1)
		s.Next(at-1, 0) // idle
		s.Advance(at)
		if port, ok := s.Wake(); !ok || port != 0 {
			t.Fatalf("woke %d %v", port, ok)
		}
		s.pauses(t, at, 0, 3, 100)
	}
	s.leave(t, 10_000, 1, 2)
	s.pauses(t, 10_000, 0, 3, 0)
	if c := s.Counters(10_000, 0, 3); c.TxPauseTime != 10_000-20 {
		t.Errorf("paused for %v", c.TxPauseTime)
	}
	s.Advance(time.Second)
	s.pauses(t, time.Second, 0, 3, -1)
	if at, ok := s.Deadline(); ok {
		t.Errorf("deadline %v, want none", at)
	}
}

// TestRenewalIsNotLost where the pause ends and begins anew before the frame leaves, nor where nobody
// asked for the frame before the next packet.
func TestRenewalIsNotLost(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, func(c *Config) { c.Quanta = 100 }) // 5,120 ns
	again := func(at time.Duration) {
		s.leave(t, at, 1, 2)
		s.arrive(t, at, 0, 1, 3, 2, Admitted)
	}
	s.arrive(t, 0, 0, 1, 3, 10, Admitted)
	s.pauses(t, 0, 0, 3, 100)
	s.Advance(2560)
	again(2560)
	s.pauses(t, 2560, 0, 3, 100)
	s.leave(t, 5119, 1, 2) // the end is not told yet
	s.Advance(5120)
	s.arrive(t, 5120, 0, 1, 3, 2, Admitted)
	s.pauses(t, 5120, 0, 3, 100)

	for _, ok := s.Wake(); ok; _, ok = s.Wake() {
	}
	s.Next(7680, 0)
	if port, ok := s.Wake(); !ok || port != 0 {
		t.Fatalf("woke %d %v", port, ok)
	}
	s.pauses(t, 7680, 0, 3, 100)
}

// TestNoRenewalAfterTheEnd although the switch looks at the class for another reason.
func TestNoRenewalAfterTheEnd(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, func(c *Config) { c.Quanta = 100 })
	s.arrive(t, 0, 0, 1, 3, 10, Admitted)
	s.pauses(t, 0, 0, 3, 100)
	s.leave(t, 10, 1, 2)
	s.pauses(t, 10, 0, 3, 0)
	s.Paused(20, 0, PFC{Enabled: 1 << 3, Quanta: [Classes]uint16{3: 1000}})
	s.Advance(3000)
	s.pauses(t, 3000, 0, 3, -1)
}

// TestDropAsksForPause where the shared buffer is full before XOFF.
func TestDropAsksForPause(t *testing.T) {
	class := lossless
	class.Headroom = 0
	s := switchOf(t, 2, 5000, class, nil)
	s.arrive(t, 0, 0, 1, 3, 5, Admitted)
	s.pauses(t, 0, 0, 3, -1)
	s.arrive(t, 0, 0, 1, 3, 1, NoHeadroom)
	s.pauses(t, 0, 0, 3, MostQuanta)
	s.leave(t, 0, 1, 1)
	s.pauses(t, 0, 0, 3, 0)
}

func TestFramesAreOfAllClasses(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, nil)
	s.arrive(t, 0, 0, 1, 3, 10, Admitted)
	s.arrive(t, 0, 0, 1, 5, 10, Admitted)
	if f, ok := s.Pause(0, 0); !ok || f.Enabled != 1<<3|1<<5 || f.Quanta[3] != MostQuanta || f.Quanta[5] != MostQuanta {
		t.Errorf("frame %v %v", f, ok)
	}
}

// TestQuanta: 512 bit times each, to the first nanosecond that is not before the end.
func TestQuanta(t *testing.T) {
	for _, c := range []struct {
		quanta uint16
		rate   uint64
		want   time.Duration
	}{
		{0, 10e9, 0},
		{1, 10e9, 52}, // 51.2
		{5, 10e9, 256},
		{65535, 10e9, 3_355_392},
		{65535, 40e9, 838_848},
		{65535, 100e9, 335_540}, // 335,539.2
		{65535, 1e9, 33_553_920},
		{1, 512, time.Second},
		{3, 7, 219_428_571_429}, // 1,536/7 s
		{65535, 1, 65535 * 512 * time.Second},
	} {
		if got := QuantaTime(c.quanta, c.rate); got != c.want {
			t.Errorf("%d quanta at %d b/s: %d ns, want %d", c.quanta, c.rate, got, c.want)
		}
	}
}

// TestPausedClassSendsNothing is of row 15 of congestion.md d: exactly nothing leaves for as long as the
// quanta last, and other classes go on.
func TestPausedClassSendsNothing(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, nil)
	s.arrive(t, 0, 0, 1, 3, 2, Admitted)
	var f PFC
	f.Enabled, f.Quanta[3] = 1<<3, 1000 // 51,200 ns
	s.Paused(100, 1, f)
	s.leave(t, 100, 1, 0)
	s.arrive(t, 100, 0, 1, 4, 1, Admitted)
	if port, ok := s.Wake(); !ok || port != 1 {
		t.Fatalf("woke %d %v, want 1", port, ok)
	}
	if d, ok := s.Next(100, 1); !ok || d.Class != 4 {
		t.Fatalf("class %d %v, want 4", d.Class, ok)
	}
	s.leave(t, 51_299, 1, 0)
	if at, ok := s.Deadline(); !ok || at != 51_300 {
		t.Errorf("deadline %v %v", at, ok)
	}
	s.Advance(51_300)
	if port, ok := s.Wake(); !ok || port != 1 {
		t.Fatalf("woke %d %v, want 1", port, ok)
	}
	s.leave(t, 51_300, 1, 1)
	if c := s.Counters(60_000, 1, 3); c.RxPause != 1 || c.RxPauseTime != 51_200 || c.RxTransitions != 1 {
		t.Errorf("counters %+v", c)
	}

	// A second frame sets the time anew, and 0 ends it.
	s.Paused(100_000, 1, f)
	s.Paused(110_000, 1, f)
	s.leave(t, 151_200, 1, 0)
	if c := s.Counters(151_200, 1, 3); c.RxPauseTime != 102_400 {
		t.Errorf("paused for %d ns, want that so far", c.RxPauseTime)
	}
	f.Quanta[3] = 0
	s.Paused(152_000, 1, f)
	s.leave(t, 152_000, 1, 1)
	s.Paused(153_000, 1, f) // says nothing new
	if c := s.Counters(160_000, 1, 3); c.RxPause != 5 || c.RxPauseTime != 103_200 || c.RxTransitions != 2 {
		t.Errorf("counters %+v", c)
	}
}

// TestLateCallers: a driver that calls late finds what it should have found.
func TestLateCallers(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, nil)
	s.arrive(t, 0, 0, 1, 3, 1, Admitted)
	s.Paused(0, 1, PFC{Enabled: 1 << 3, Quanta: [Classes]uint16{3: 1000}})
	s.leave(t, time.Millisecond, 1, 1)
	if c := s.Counters(time.Millisecond, 1, 3); c.RxPauseTime != 51_200 {
		t.Errorf("paused for %d ns, want 51200", c.RxPauseTime)
	}
}

func TestLossyClassesDoNotObey(t *testing.T) {
	s := switchOf(t, 2, 1<<20, Class{Weight: 1}, nil)
	s.arrive(t, 0, 0, 1, 3, 1, Admitted)
	s.Paused(0, 1, PFC{Enabled: 0xff, Quanta: [Classes]uint16{3: 1000}})
	s.leave(t, 0, 1, 1)
	if c := s.Counters(0, 1, 3); c.RxPause != 1 || c.RxPauseTime != 0 {
		t.Errorf("counters %+v", c)
	}
}

func TestLossyLimits(t *testing.T) {
	t.Run("fixed", func(t *testing.T) {
		s := switchOf(t, 2, 1<<20, Class{Limit: 5000, Weight: 1}, nil)
		s.arrive(t, 0, 0, 1, 0, 5, Admitted)
		s.arrive(t, 0, 0, 1, 0, 1, QueueFull)
		s.arrive(t, 0, 0, 1, 1, 5, Admitted) // another queue
		if c := s.Counters(0, 1, 0); c.Drops[QueueFull] != 1 {
			t.Errorf("counters %+v", c)
		}
	})
	t.Run("dynamic", func(t *testing.T) {
		s := switchOf(t, 3, 30_000, Class{EgressAlpha: 0.5, Weight: 1}, nil)
		s.arrive(t, 0, 0, 1, 0, 10, Admitted) // finds 21,000 free: 10,000 <= 10,500
		s.arrive(t, 0, 2, 1, 0, 1, QueueFull) // 11,000 > 20,000/2
		s.arrive(t, 0, 2, 2, 0, 7, Admitted)  // finds 14,000 free
		s.arrive(t, 0, 2, 2, 0, 1, QueueFull) // 8,000 > 13,000/2
	})
	t.Run("reserve", func(t *testing.T) {
		s := switchOf(t, 3, 3*8*2000, Class{Reserve: 2000, EgressAlpha: 0.5, Weight: 1}, nil)
		s.arrive(t, 0, 0, 1, 0, 2, Admitted) // nothing is shared
		s.arrive(t, 0, 0, 1, 0, 1, NoBuffer)
		s.arrive(t, 0, 2, 1, 0, 2, Admitted)
		if c := s.Counters(0, 0, 0); c.Drops[NoBuffer] != 1 {
			t.Errorf("counters %+v", c)
		}
	})
	t.Run("buffer", func(t *testing.T) {
		s := switchOf(t, 3, 4000, Class{Weight: 1}, nil)
		s.arrive(t, 0, 0, 1, 0, 4, Admitted)
		s.arrive(t, 0, 2, 1, 1, 1, NoBuffer)
	})
}

func TestStrictOrder(t *testing.T) {
	s := switchOf(t, 2, 1<<20, Class{}, nil)
	for _, class := range []int{2, 7, 0, 7, 5} {
		s.arrive(t, 0, 0, 1, class, 1, Admitted)
	}
	for _, want := range []int{7, 7, 5, 2, 0} {
		if d, ok := s.Next(0, 1); !ok || d.Class != want {
			t.Fatalf("class %d %v, want %d", d.Class, ok, want)
		}
	}
}

// TestWeights: over a round the shares of bytes are exact, whatever the packets' sizes; a strict class goes first.
func TestWeights(t *testing.T) {
	s := switchOf(t, 2, 1<<30, Class{Weight: 1}, func(c *Config) {
		for i := range c.Ports {
			c.Ports[i].Classes[3].Weight = 60
			c.Ports[i].Classes[0].Weight = 40
			c.Ports[i].Classes[1].Weight = 20
			for _, k := range []int{2, 4, 5, 7} {
				c.Ports[i].Classes[k].Weight = 20
			}
			c.Ports[i].Classes[6].Weight = 0
		}
	})
	for range 10_000 {
		s.Arrive(0, 0, 1, 3, 1000, false, 0)
		s.Arrive(0, 0, 1, 0, 250, false, 0)
		s.Arrive(0, 0, 1, 1, 64, false, 0)
	}
	var bytes [Classes]int
	// A round is 3,000 bytes of class 3, 2,000 of class 0 and 1,000 of class 1. 64 bytes go into it
	// after 8 rounds.
	for total := 0; total < 8*6000; {
		d, ok := s.Next(0, 1)
		if !ok {
			t.Fatal("nothing to send")
		}
		bytes[d.Class] += d.Bytes
		total += d.Bytes
	}
	if want := [Classes]int{3: 24_000, 0: 16_000, 1: 8000}; bytes != want {
		t.Errorf("bytes %v, want %v", bytes, want)
	}
	s.Arrive(0, 0, 1, 6, 1000, false, 0)
	if d, _ := s.Next(0, 1); d.Class != 6 {
		t.Errorf("class %d, want the strict 6", d.Class)
	}
}

// TestEmptyClassSavesUpNothing covers a class that comes back after the others had many rounds.
func TestEmptyClassSavesUpNothing(t *testing.T) {
	s := switchOf(t, 2, 1<<30, lossless, nil)
	s.Paused(0, 1, PFC{Enabled: 1 << 2, Quanta: [Classes]uint16{2: 65535}})
	for range 9 {
		s.Arrive(0, 0, 1, 1, 1000, false, 0)
		s.Arrive(0, 0, 1, 2, 1000, false, 0)
	}
	s.leave(t, 0, 1, 5)
	s.Paused(0, 1, PFC{Enabled: 1 << 2})
	var order strings.Builder
	for d, ok := s.Next(0, 1); ok; d, ok = s.Next(0, 1) {
		order.WriteByte('0' + byte(d.Class))
	}
	if order.String() != "2121212122222" {
		t.Errorf("order %s", order.String())
	}
	// The turn is class 2's. A packet of 300 leaves 700 of its quantum, with which two more would go.
	s.Arrive(0, 0, 1, 2, 300, false, 0)
	s.leave(t, 0, 1, 1)
	order.Reset()
	for range 2 {
		s.Arrive(0, 0, 1, 2, 700, false, 0)
		s.Arrive(0, 0, 1, 1, 700, false, 0)
	}
	for d, ok := s.Next(0, 1); ok; d, ok = s.Next(0, 1) {
		order.WriteByte('0' + byte(d.Class))
	}
	if order.String() != "1212" {
		t.Errorf("order %s", order.String())
	}
}

func TestInvalidPackets(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, nil)
	for _, c := range [][4]int{{-1, 0, 0, 1}, {2, 0, 0, 1}, {0, -1, 0, 1}, {0, 2, 0, 1}, {0, 1, -1, 1}, {0, 1, 8, 1}, {0, 1, 0, 0}, {0, 1, 0, 1001}} {
		if v := s.Arrive(0, c[0], c[1], c[2], c[3], false, 0); v != Invalid {
			t.Errorf("%v: %v, want invalid", c, v)
		}
	}
	if _, ok := s.Next(0, 2); ok {
		t.Error("a packet leaves by a port that is not there")
	}
	if _, ok := s.Pause(0, -1); ok {
		t.Error("a frame leaves by a port that is not there")
	}
	s.Paused(0, 9, PFC{Enabled: 0xff})
}

func TestVerdictNames(t *testing.T) {
	if NoHeadroom.String() != "headroom" || verdicts.String() != "unknown" {
		t.Errorf("%v, %v", NoHeadroom, verdicts)
	}
}

// TestSteadyStateAllocatesNothing also has pauses come and go.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	s := switchOf(t, 4, 1<<20, lossless, nil)
	now := time.Duration(0)
	round := func() {
		now += time.Microsecond
		for i := range 12 {
			s.Arrive(now, 0, 1+i%3, 3, 1000, true, 0)
		}
		s.Pause(now, 0)
		for out := range 4 {
			for _, ok := s.Next(now, out); ok; _, ok = s.Next(now, out) {
			}
		}
		s.Pause(now, 0)
		for _, ok := s.Wake(); ok; _, ok = s.Wake() {
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations per round, want 0", n)
	}
	if s.Counters(now, 0, 3).TxTransitions < 100 {
		t.Error("no pauses")
	}
}

// BenchmarkArriveNext is of a queue of a hundred packets in a switch of 32 ports.
func BenchmarkArriveNext(b *testing.B) {
	var lines []Line
	for range 32 {
		lines = append(lines, Line{Rate: 100e9, Delay: time.Microsecond, MaxFrame: 4178})
	}
	c, err := Preset("hpcc", nil, lines)
	if err != nil {
		b.Fatal(err)
	}
	s, err := New[int](c)
	if err != nil {
		b.Fatal(err)
	}
	for range 100 {
		s.Arrive(0, 1, 2, 3, 4178, true, 0)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now := time.Duration(i) * 334
		s.Arrive(now, i&31, 2, 3, 4178, true, i)
		s.Next(now, 2)
	}
}

// TestRest is refused where something may leave, a packet or a PFC frame; a port that rests is named as soon as something may.
func TestRest(t *testing.T) {
	s := switchOf(t, 2, 1<<20, lossless, func(c *Config) { c.Quanta = 100 })
	s.arrive(t, 0, 0, 1, 3, 10, Admitted) // which asks port 0 for a pause
	if s.Rest(0) || s.Rest(1) {
		t.Fatal("a port rests that has a frame to send")
	}
	s.pauses(t, 0, 0, 3, 100)
	s.leave(t, 0, 1, 10)
	s.pauses(t, 0, 0, 3, 0)
	for _, ok := s.Wake(); ok; _, ok = s.Wake() {
	}
	if !s.Rest(0) || !s.Rest(1) {
		t.Fatal("a port does not rest that has nothing to send")
	}
	s.arrive(t, 1, 0, 1, 3, 10, Admitted)
	for _, want := range []int{1, 0} { // a packet, and the PFC frame that the last one asks for
		if port, ok := s.Wake(); !ok || port != want {
			t.Fatalf("woke %d %v, want %d", port, ok, want)
		}
	}
}
