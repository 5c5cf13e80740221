package udp

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider/clock"
)

// periods has a consumer poll so often in each of n periods, and reports whether it is to be alone.
func (b *soloPoll) periods(now *time.Duration, n, polls int) (alone bool) {
	for range n {
		*now += soloPeriod
		for range polls {
			alone = b.notePoll() || alone
		}
	}
	return alone
}

// TestBeside: who polls all the time receives alone; who polls now and then does not.
func TestBeside(t *testing.T) {
	for _, test := range []struct {
		name  string
		polls int // in each period
		alone bool
	}{
		{"all the time", 1000, true},
		{"often enough", soloPolls, true},
		{"now and then", soloPolls - clockInterval, false},
	} {
		var now time.Duration
		b := soloPoll{now: func() time.Duration { return now }}
		if alone := b.periods(&now, 5, test.polls); alone != test.alone {
			t.Errorf("%s: alone %t", test.name, alone)
		}
	}
}

// TestBesideWaits: each time that packets had to wait, the consumer does not receive alone for longer, a minute at most.
func TestBesideWaits(t *testing.T) {
	var now time.Duration
	b := soloPoll{now: func() time.Duration { return now }}
	for want := firstPenalty; want < 100*time.Minute; want *= 2 {
		if !b.periods(&now, 2, 2*soloPolls) {
			t.Fatalf("before a penalty of %v: not alone", want)
		}
		b.notePacketsWaited()
		until := now + min(want, maxPenalty)
		for now < until-2*soloPeriod {
			if b.periods(&now, 1, 2*soloPolls) {
				t.Fatalf("alone at %v, before %v", now, until)
			}
		}
		now = until
	}
}

// TestBesideIsForgiven: who was alone for longer than the last penalty was begins with the shortest again.
func TestBesideIsForgiven(t *testing.T) {
	var now time.Duration
	b := soloPoll{now: func() time.Duration { return now }}
	for range 3 {
		now = b.until
		b.periods(&now, 2, 2*soloPolls)
		b.notePacketsWaited()
	}
	now = b.until
	b.periods(&now, 2, 2*soloPolls)
	now += 4 * firstPenalty
	if b.notePacketsWaited(); b.until != now+firstPenalty {
		t.Errorf("a penalty of %v, want %v", b.until-now, firstPenalty)
	}
}

// TestTrial: a consumer that is left alone is watched closely at first, and loses nothing but time if packets wait for it.
func TestTrial(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	hear(t, from, to)
	l := to.listeners[0]
	l.soloPoll.now = func() time.Duration { return time.Hour }
	ticks := clock.NewVirtual()
	l.timers, l.advance = ticks, func() {}
	begin := func() {
		l.turn.Lock()
		defer l.turn.Unlock()
		l.notePoll() // which has it be alone
		l.beginPolling(firstTick)
	}
	begin()
	for want := 2 * firstTick; want < 4*pollTick; want *= 2 {
		to.PollBeside(newCollector())
		if ticks.Run(l.watch.tickInterval); l.watch.tickInterval != min(want, pollTick) {
			t.Fatalf("the next tick is after %v, want %v", l.watch.tickInterval, min(want, pollTick))
		}
	}
	ticks.Run(pollTick)
	if l.watch.polled.Load() || l.soloPoll.until != 0 {
		t.Error("alone without polling, or not alone again though nothing has waited")
	}
	begin()
	mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(1)})
	ticks.Run(firstTick)
	if l.watch.polled.Load() || l.soloPoll.until == 0 {
		t.Error("alone though packets have waited")
	}
	if ticks.Step() {
		t.Error("a tick though nobody is alone")
	}
}

// TestPollsRunTicks: who polls, in whichever way, runs the ticks that see whether anybody does, but does not look each time.
func TestPollsRunTicks(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	hear(t, from, to)
	l := to.listeners[0]
	advances := 0
	l.timers, l.advance = clock.NewVirtual(), func() {
		if advances++; !l.turn.TryLock() {
			t.Fatal("a tick could not have the turn")
		}
		l.turn.Unlock()
	}
	for _, poll := range []func(){func() { to.Poll(newCollector()) }, func() { to.PollBeside(newCollector()) }} {
		advances = 0
		for range 3 * clockInterval {
			poll()
		}
		if advances != 3 {
			t.Errorf("%d polls of %d run ticks, want 3", advances, 3*clockInterval)
		}
	}
}

// TestNoTickAfterClose: nobody looks whether a carrier is polled that is closed.
func TestNoTickAfterClose(t *testing.T) {
	to := open(t, "127.0.0.2")
	ticks := clock.NewVirtual()
	to.listeners[0].timers = ticks
	to.Poll(newCollector())
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		to.Poll(newCollector())
		ticks.Run(pollTick)
	}
	if ticks.Step() {
		t.Error("a tick of a closed carrier")
	}
}

// TestLooksAlone: a poll of a consumer that receives alone looks again when there is nothing, and one of another does not.
func TestLooksAlone(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	hear(t, from, to)
	l := to.listeners[0]
	l.verifier.foreign = true
	looks := func() int {
		n := 0
		l.verifier.now = func() time.Duration { n++; return 0 } // at each look that finds nothing
		to.PollBeside(newCollector())
		return n
	}
	beside := looks()
	l.beginPolling(time.Hour)
	if alone := looks(); beside == 0 || alone != soloSteps*beside {
		t.Errorf("%d looks beside others, %d alone", beside, alone)
	}
}

// hear has a packet arrive.
func hear(t *testing.T, from, to *Carrier) {
	t.Helper()
	mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(0)})
	if n := to.listeners[0].step(newCollector()); n != 1 {
		t.Fatalf("%d messages received, want 1", n)
	}
}

// TestFirstMessageIsLeft to the goroutine by a consumer that polls, which costs it nothing.
func TestFirstMessageIsLeft(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(1)})
	listens, polled := newCollector(), newCollector()
	if to.PollBeside(polled); len(polled) > 0 {
		t.Error("a poll received the first message")
	}
	to.Listen(listens)
	listens.take(t, 1)
}

// TestWhatTheGoroutineMissed: when the goroutine was woken while somebody polled, it sleeps again, and no packet that is
// there already wakes it. So whoever polls receives all of them, though they may never poll again.
func TestWhatTheGoroutineMissed(t *testing.T) {
	const packets = 5
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	hear(t, from, to)
	for psn := range uint32(packets) {
		mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(psn)})
	}
	l := to.listeners[0]
	l.turn.Lock() // somebody polls
	if l.step(newCollector()) != 0 {
		t.Fatal("received while another has the turn")
	}
	l.turn.Unlock()
	polled := newCollector()
	to.PollBeside(polled)
	if len(polled) != packets {
		t.Errorf("%d of %d packets received by a poll for who missed them", len(polled), packets)
	}
	if l.missed.Load() {
		t.Error("an empty socket has something for who missed it")
	}
}

// TestCatchUp receives what consumers who receive alone have left, though they may poll only later.
func TestCatchUp(t *testing.T) {
	const packets = 5
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	to.listeners[0].beginPolling(time.Hour)
	for psn := range uint32(packets) {
		mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(psn)})
	}
	caught := newCollector()
	if to.CatchUp(caught); len(caught) != packets {
		t.Errorf("%d of %d packets received", len(caught), packets)
	}
}

// TestCatchUpWaits for who receives just now, and may have packets in hand.
func TestCatchUpWaits(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(0)})
	l := to.listeners[0]
	caught, began, done := newCollector(), make(chan struct{}), make(chan struct{})
	l.turn.Lock()
	go func() {
		close(began)
		to.CatchUp(caught)
		close(done)
	}()
	<-began
	l.turn.Unlock()
	<-done
	if len(caught) != 1 {
		t.Errorf("%d packets received, want 1", len(caught))
	}
}

// An echo is a receiver that sends another packet for each that it receives.
type echo struct {
	again func()
	n     atomic.Int32
}

func (e *echo) Receive(batch []roce.Received) {
	for range batch {
		e.n.Add(1)
		e.again()
	}
}

// TestPollEnds though packets come without end, and has the goroutine go on.
func TestPollEnds(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	send := func() { mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(1)}) }
	hear(t, from, to)
	send()
	l := to.listeners[0]
	l.missed.Store(true)
	e := &echo{again: send}
	to.PollBeside(e)
	if n := e.n.Load(); n != maxSteps {
		t.Errorf("a poll received %d packets, want %d", n, maxSteps)
	}
	expectWoken(t, l)
}

// expectWoken has the goroutine of a listener, which has none, be woken to look what has arrived.
func expectWoken(t *testing.T, l *listener) {
	t.Helper()
	woken := make(chan error, 1)
	go func() { woken <- l.watch.raw.Read(func(uintptr) bool { return false }) }()
	select {
	case err := <-woken:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the goroutine is woken for another reason:", err)
		}
	case <-time.After(patience):
		t.Error("the goroutine sleeps on")
	}
}

// TestGoroutineLooksBehind a tick, or a poll in which another consumer ended polling, if it wanted to receive meanwhile.
func TestGoroutineLooksBehind(t *testing.T) {
	t.Run("tick", func(t *testing.T) {
		l := open(t, "127.0.0.1").listeners[0]
		l.missed.Store(true)
		l.tick()
		expectWoken(t, l)
	})
	t.Run("poll", func(t *testing.T) {
		from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
		hear(t, from, to)
		mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(1)})
		l := to.listeners[0]
		l.watch.maxTick = time.Hour
		to.Poll(&echo{again: func() {
			to.Resume() // wakes the goroutine, which fails to receive
			if err := l.watch.file.SetReadDeadline(time.Time{}); err != nil {
				t.Error(err)
			}
			l.step(newCollector())
		}})
		expectWoken(t, l)
	})
}
