package udp

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A deferrer is a receiver that has something put off.
type deferrer struct {
	collector
	delivered func() bool
}

func (d deferrer) Delivered() bool { return d.delivered() }

// beginPolling polls until that has an effect: while somebody receives, it has none.
func beginPolling(c *Carrier, r collector) {
	for c.Poll(r); !c.listeners[0].watch.polled.Load(); {
		c.Poll(r)
	}
}

// poll polls until n packets have arrived.
func poll(t *testing.T, c *Carrier, polled collector, n int) []roce.Received {
	t.Helper()
	for deadline := time.Now().Add(patience); len(polled) < n; {
		c.Poll(polled)
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d packets arrived", len(polled), n)
		}
	}
	return polled.take(t, n)
}

// TestWhoPollsReceives has packets arrive where they are asked for: with whoever polls,
// until Resume, and then with whom the carrier listens for. Packets that had arrived before
// are not lost.
func TestWhoPollsReceives(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	flow := flowBetween(from, to, 0)
	to.listeners[0].watch.maxTick = time.Hour
	listens, polled := newCollector(), newCollector()
	to.Listen(listens)
	mustSend(t, from, flow, []roce.Packet{acknowledgement(1)})
	listens.take(t, 1)
	if beginPolling(to, polled); len(polled) > 0 {
		t.Fatal("something there when nothing was sent")
	}
	for psn := range uint32(100) {
		mustSend(t, from, flow, []roce.Packet{acknowledgement(psn)})
		if p := poll(t, to, polled, 1)[0]; p.Header.PSN != psn {
			t.Fatalf("packet %d, want %d", p.Header.PSN, psn)
		}
	}
	if len(listens) > 0 {
		t.Errorf("%d packets arrived elsewhere", len(listens))
	}
	mustSend(t, from, flow, []roce.Packet{acknowledgement(200)})
	to.Resume()
	mustSend(t, from, flow, []roce.Packet{acknowledgement(201)})
	for i, p := range listens.take(t, 2) {
		if p.Header.PSN != 200+uint32(i) {
			t.Errorf("packet %d, want %d", p.Header.PSN, 200+i)
		}
	}
}

// TestWhoStopsPolling takes nothing away from the others, though it does not say so; and what was
// put off for it is done.
func TestWhoStopsPolling(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	flow := flowBetween(from, to, 0)
	done := make(chan struct{}, 4096)
	listens := deferrer{newCollector(), func() bool {
		select {
		case done <- struct{}{}:
		default:
		}
		return false
	}}
	to.Listen(listens)
	mustSend(t, from, flow, []roce.Packet{acknowledgement(1)})
	poll(t, to, listens.collector, 1) // somebody else may have been quicker
	for len(done) > 0 {               // of before
		<-done
	}
	beginPolling(to, listens.collector)
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("what was put off was never done")
	}
	mustSend(t, from, flow, []roce.Packet{acknowledgement(2)})
	listens.take(t, 1)
}

// TestWhatIsPutOffIsAskedFor has Delivered called until nothing is put off any more, though
// nothing arrives meanwhile.
func TestWhatIsPutOffIsAskedFor(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	calls, enough := 0, make(chan struct{})
	to.Listen(deferrer{newCollector(), func() bool {
		if calls++; calls == 1000 {
			close(enough)
		}
		return calls < 1000
	}})
	mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(1)})
	select {
	case <-enough:
	case <-time.After(patience):
		t.Fatal("Delivered was not called often enough")
	}
}

// TestConsumerWaitsInCallback for what only a further packet brings about: another
// goroutine receives it.
func TestConsumerWaitsInCallback(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	flow := flowBetween(from, to, 0)
	entered, leave := make(chan struct{}), make(chan struct{})
	var second atomic.Bool
	listens := deferrer{newCollector(), nil}
	listens.delivered = func() bool {
		if !second.Swap(true) {
			close(entered)
			<-leave
		}
		return false
	}
	to.Listen(listens)
	mustSend(t, from, flow, []roce.Packet{acknowledgement(1)})
	<-entered
	mustSend(t, from, flow, []roce.Packet{acknowledgement(2)})
	listens.take(t, 2)
	close(leave)
	mustSend(t, from, flow, []roce.Packet{acknowledgement(3)})
	if got := listens.take(t, 1)[0].Header.PSN; got != 3 {
		t.Errorf("packet %d, want 3", got)
	}
	deadline := time.Now().Add(patience)
	for n := receiving(); n != 1; n = receiving() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines receive, want 1", n)
		}
	}
}

// TestWhatIsPutOffOutlastsRelief: what is still put off when a goroutine was relieved is
// asked for, though nothing arrives any more. To be relieved it need not wait for anything:
// on a busy machine it is enough that its thread gets no processor for a while.
func TestWhatIsPutOffOutlastsRelief(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	flow := flowBetween(from, to, 0)
	leave, reached := make(chan struct{}), make(chan int32, 4096)
	var calls atomic.Int32
	to.Listen(deferrer{newCollector(), func() bool {
		n := calls.Add(1)
		reached <- n
		if n == 1 {
			<-leave
		}
		return n == 1
	}})
	for n := range int32(3) {
		if n < 2 {
			mustSend(t, from, flow, []roce.Packet{acknowledgement(uint32(n))})
		} else {
			close(leave) // the first call ends after the second one, of another goroutine
		}
		select {
		case <-reached:
		case <-time.After(patience):
			t.Fatalf("%d calls of Delivered, want %d", n, n+1)
		}
	}
}

// receiving returns the number of goroutines of listeners.
func receiving() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("udp.(*listener).receive("))
}

// TestArrivalsAreHushed while somebody polls, so that the sender wakes nobody, and show
// again when nobody does.
func TestArrivalsAreHushed(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	watch := &to.listeners[0].watch
	watch.maxTick = time.Hour
	shows := func() bool { return readable(watch.epoll) }
	beginPolling(to, newCollector())
	mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(1)})
	if shows() {
		t.Error("an arrival shows while somebody polls")
	}
	to.Resume()
	for deadline := time.Now().Add(patience); !shows(); {
		if time.Now().After(deadline) {
			t.Fatal("an arrival does not show though nobody polls")
		}
	}
}

// TestPollAfterClose finds nothing, and does no harm.
func TestPollAfterClose(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	flow := flowBetween(from, to, 0)
	to.Poll(newCollector())
	mustSend(t, from, flow, []roce.Packet{acknowledgement(1)})
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	polled := newCollector()
	if to.Poll(polled) || len(polled) > 0 {
		t.Error("a closed carrier received something")
	}
	to.Resume()
}

// TestWokenOnce: who was woken, and has found nothing, sleeps again until something arrives.
func TestWokenOnce(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	l := to.listeners[0]
	s := newSleep(l, newCollector())
	l.watch.wake()
	if n, open := s.wait(); n != 0 || !open {
		t.Fatalf("woken by %d messages, open %t", n, open)
	}
	mustSend(t, from, flowBetween(from, to, 0), []roce.Packet{acknowledgement(1)})
	if n, open := s.wait(); n != 1 || !open {
		t.Errorf("woken by %d messages, open %t; want 1", n, open)
	}
}
