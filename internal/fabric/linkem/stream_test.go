package linkem

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

func TestStreamIsWhatBringsMuchForSomeTime(t *testing.T) {
	const much, little = 2 * streamBytes, streamBytes / 2
	var s stream
	now := time.Duration(0)
	for _, c := range []struct {
		what  string
		bytes int
		after time.Duration
		want  bool
	}{
		{"nothing yet", 0, streamWindow, false},
		{"much, in a window that is not over", much, streamWindow / 2, false},
		{"the rest of the window", 0, streamWindow / 2, true},
		{"a pause of less than a window", 0, streamWindow / 2, true},
		{"more after it", much, streamWindow / 2, true},
		{"little", little, streamWindow, false},
		{"much again", much, streamWindow, true},
		{"much, but a long time later", much, time.Second, false},
	} {
		now += c.after
		s.bytes += c.bytes
		if got := s.goesOn(now); got != c.want {
			t.Fatalf("%s: a stream: %v, want %v", c.what, got, c.want)
		}
	}
}

// The thread coalesces during a stream on a saturated host, unless there is something
// to do at once.
func TestCoalescesOnlyWhenThatPays(t *testing.T) {
	for _, c := range []struct {
		name               string
		stream, busy, more bool
		departs            time.Duration // from now; 0: nothing is on its way
		want               bool
	}{
		{"a stream, a saturated host", true, true, false, 0, true},
		{"a departure to come", true, true, false, time.Microsecond, true},
		{"a departure that is due", true, true, false, -1, false},
		{"frames that wait", true, true, true, 0, false},
		{"no stream", false, true, false, 0, false},
		{"a processor is idle", true, false, false, 0, false},
	} {
		const now = time.Hour
		var leaving departures
		l := &poller{more: c.more, departures: &leaving, stream: &stream{since: now, runs: c.stream}, host: host{since: now, busy: c.busy}}
		if c.departs != 0 {
			leaving.Put(&line{release: now + c.departs})
		}
		if got := l.coalesces(now); got != c.want {
			t.Errorf("%s: coalesces: %v, want %v", c.name, got, c.want)
		}
	}
}

// The thread lets frames wait that have time, and no others.
func TestFramesWaitWhereLinksDelay(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name         string
		there, back  time.Duration // delay of either direction
		stream, more bool
		want         bool
	}{
		{"a stream, both delayed", ms, ms, true, false, true},
		{"one is not", ms, 0, true, false, false},
		{"nor the other", 0, ms, true, false, false},
		{"by less than the interval", ms, coalesceTime, true, false, false},
		{"no stream", ms, ms, false, false, false},
		{"frames that were left", ms, ms, true, true, false},
	} {
		b := newBench(t, topology.Impairment{})
		if b.poller.framesCanWait() {
			t.Errorf("%s: frames can wait before there is a delay", c.name)
		}
		b.ingress.stream.runs = true
		if b.poller.framesCanWait() {
			t.Errorf("%s: frames can wait without a delay", c.name)
		}
		b.commands.queue = append(b.commands.queue, func() {
			b.set(t, setParams{"x", 0, topology.Impairment{Delay: c.there}})
			b.set(t, setParams{"x", 1, topology.Impairment{Delay: c.back}})
		})
		b.runCommands()
		b.ingress.stream.runs, b.poller.more = c.stream, c.more
		if got := b.poller.framesCanWait(); got != c.want {
			t.Errorf("%s: frames can wait: %v, want %v", c.name, got, c.want)
		}
	}
}

// While frames can wait the thread wakes for departures alone.
func TestThreadWakesForDeparturesWhileFramesWait(t *testing.T) {
	for _, c := range []struct {
		name      string
		departs   time.Duration // from now; 0: nothing is on its way
		from, end time.Duration // how long it means to wait
	}{
		{"nothing on its way", 0, coalesceTime, coalesceTime},
		{"a departure after the interval", time.Hour, coalesceTime, coalesceTime},
		{"a departure", coalesceTime / 2, coalesceTime / 4, coalesceTime / 2},
	} {
		// A busy machine may be late before it means to wait, and a signal may end that:
		// once in a while is enough.
		asked, waited := time.Duration(-1), time.Duration(-1)
		done := func() bool { return asked >= c.from && asked <= c.end && waited >= c.from/2 }
		for range 100 {
			b := newBench(t, topology.Impairment{})
			b.ingress.stream, b.poller.delayKnown, b.poller.leastDelay, b.poller.early = stream{since: b.poller.now(), runs: true}, true, time.Second, 0
			_, err := unix.Write(b.ends[0], superPacket(1, 60))
			must(t, err)
			began := b.poller.now()
			if c.departs != 0 {
				b.egress.departures.Put(&line{release: began + c.departs})
			}
			n, err := b.poller.wait()
			must(t, err)
			if n != 1 {
				t.Fatalf("%s: %d events, want the one of the port with a frame", c.name, n)
			}
			waited, asked = b.poller.now()-began, time.Duration(b.poller.timeout.Nano())
			if done() {
				break
			}
		}
		if !done() {
			t.Errorf("%s: waited for %v of %v, want %v to %v", c.name, waited, asked, c.from, c.end)
		}
	}
}

// Frames that came during a sleep are taken after it.
func TestSleepSeesWhatCame(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	_, err := unix.Write(b.ends[0], superPacket(1, 60))
	must(t, err)
	slept := time.Duration(0)
	for tries := 0; slept < coalesceTime/2 && tries < 100; tries++ { // a signal may end one early
		began := time.Now()
		n, err := b.poller.sleep(coalesceTime)
		must(t, err)
		slept = time.Since(began)
		if n != 1 || int(b.poller.events[0].Fd) != b.k.ports[0].fd {
			t.Fatalf("%d events after a sleep, want the one of the port with a frame", n)
		}
	}
	if slept < coalesceTime/2 {
		t.Errorf("slept for %v, want %v", slept, coalesceTime)
	}
}

// Frames that arrive are counted, so that many of them are a stream.
func TestArrivalsMakeStream(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	raw := superPacket(15, 4096)
	for range streamBytes/len(raw) + 1 {
		b.arrive(t, raw)
	}
	if !b.ingress.stream.goesOn(b.ingress.stream.since + streamWindow) {
		t.Error("frames that arrived make no stream")
	}
}
