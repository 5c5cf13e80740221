package linkem

import (
	"encoding/binary"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

// These tests hold what an engine does to packets against what the model says of each,
// as the nodes see it. A busy machine makes packets late: all but some. So the least late
// ones are held to promptness, and none may come early.

// promptness bounds how late the least late packets may be: it includes the path through
// the kernel at both ends and the wake-ups of two processes.
const promptness = 200 * time.Microsecond

// isPrompt holds how late packets were against what must be.
func isPrompt(t *testing.T, what string, late []time.Duration) {
	t.Helper()
	slices.Sort(late)
	if late[0] < 0 || late[0] > promptness {
		t.Errorf("%s: of %d the least late by %v, want 0 to %v; the median by %v", what, len(late), late[0], promptness, late[len(late)/2])
	}
}

// isPunctual holds the engine's own figures against the same.
func isPunctual(t *testing.T, l *lab, direction int) {
	t.Helper()
	m, err := l.engine.Measure(deadline(t), nil)
	must(t, err)
	if d := m[linkName][direction]; d.Lateness.Count == 0 || d.Lateness.P10 > int64(promptness) || d.Early > 0 {
		t.Errorf("direction %d: %d early, lateness %+v", direction, d.Early, d.Lateness)
	}
}

func TestDelayIsWhatWasAsked(t *testing.T) {
	const there, back = time.Millisecond, 2 * time.Millisecond
	l := newLab(t, 1500)
	l.attach(t, topology.Impairment{Delay: there}, topology.Impairment{Delay: back})
	var late []time.Duration
	echoes(t, l, func(rtt time.Duration) bool {
		late = append(late, rtt-there-back)
		return len(late) < 200
	})
	isPrompt(t, "round trips", late)
	m, err := l.engine.Measure(deadline(t), nil)
	must(t, err)
	for i, want := range []time.Duration{there, back} {
		isPunctual(t, l, i)
		// The engine reports the delay as the one asked for plus the lateness.
		d, late := m[linkName][i].Delay, m[linkName][i].Lateness
		if added := time.Duration(d.P50-late.P50) - want; d.Count < 200 || time.Duration(d.Min) < want || added.Abs() > 20*time.Microsecond {
			t.Errorf("direction %d, asked %v: delays %+v, lateness %+v", i, want, d, late)
		}
	}
}

// model is the model of direction 0 of a link with these settings.
func model(s topology.Impairment) *impair.Direction {
	d := impair.New(42, linkName, 0)
	d.Set(s, 0)
	return d
}

// Each packet takes the delay that the model draws for it.
func TestJitterIsWhatTheModelDraws(t *testing.T) {
	const size, count = 100, 300
	s := topology.Impairment{Delay: 2 * time.Millisecond, Jitter: topology.Jitter{Spread: time.Millisecond}}
	l := newLab(t, 1500)
	l.quiet(t) // so that the packets' places are theirs
	l.attach(t, s, topology.Impairment{})
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	want, buf := model(s), make([]byte, size)
	var late []time.Duration
	for i := range count {
		v := want.Packet(&impair.Packet{Frame: frameOf(size)}, time.Duration(i)*time.Second)
		sent := time.Now()
		_, err := from.WriteTo(buf, to.LocalAddr())
		must(t, err)
		_, _, err = to.ReadFrom(buf)
		must(t, err)
		late = append(late, time.Since(sent)-(v.Departs-time.Duration(i)*time.Second))
	}
	isPrompt(t, "packets", late)
	isPunctual(t, l, 0)
}

// frameOf is the length of a frame of UDP over IPv4 with so many bytes of payload.
func frameOf(size int) int { return 14 + 20 + 8 + size }

// Those packets are lost that the model drops, and no others.
func TestLossIsWhatTheModelDraws(t *testing.T) {
	const loss, rounds = 0.1, 200
	s := topology.Impairment{Loss: topology.Loss{Rate: loss}}
	l := newLab(t, 4200)
	l.quiet(t)
	l.attach(t, s, topology.Impairment{})
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	segment(t, from, datagram)
	buf, in := make([]byte, super), make([]byte, 65536)
	want, number, lost := model(s), uint64(0), 0
	for range rounds {
		var arrive []uint64
		for i := range super / datagram {
			fillPattern(buf[i*datagram:(i+1)*datagram], number)
			if v := want.Packet(&impair.Packet{Frame: frameOf(datagram)}, 0); v.Fate == impair.Passes {
				arrive = append(arrive, number)
			} else {
				lost++
			}
			number++
		}
		_, err := from.WriteTo(buf, to.LocalAddr())
		must(t, err)
		for _, n := range arrive {
			_, _, err := to.ReadFrom(in)
			must(t, err)
			if got := binary.BigEndian.Uint64(in); got != n {
				t.Fatalf("datagram %d arrived, want %d next", got, n)
			}
		}
	}
	m, err := l.engine.Measure(deadline(t), nil)
	must(t, err)
	if d := m[linkName][0]; d.Packets != number || d.Dropped != uint64(lost) || lost == 0 {
		t.Errorf("%d of %d dropped, want %d of %d", d.Dropped, d.Packets, lost, number)
	}
}

// Packets leave at the rate: the nth has its turn when the wire has sent those before
// it. Of several rounds the best counts, since the sender may be held up.
func TestRateIsWhatWasAsked(t *testing.T) {
	const (
		rate   = 100_000_000
		supers = 20
		rounds = 5
	)
	l := newLab(t, 4200)
	l.quiet(t)
	l.attach(t, topology.Impairment{Rate: rate, Queue: topology.Queue{Bytes: 64 << 20}}, topology.Impairment{})
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	segment(t, from, datagram)
	took := time.Duration(impair.WireBytes(frameOf(datagram))) * 8 * time.Second / rate
	best := time.Duration(math.MaxInt64)
	for range rounds {
		// Of the later packets, how much later than their turn the least late came.
		least := time.Duration(math.MaxInt64)
		passed(t, from, to, supers, func(n int, since time.Duration) {
			late := since - time.Duration(n+1)*took
			if late < 0 {
				t.Fatalf("packet %d came %v early, faster than %d b/s", n, -late, rate)
			}
			if n >= supers*(super/datagram)*3/4 {
				least = min(least, late)
			}
		})
		best = min(best, least)
	}
	// 0.2 ms of 100 are 0.2 %.
	if best > promptness {
		t.Errorf("the last packets come %v late, want %v at most", best, promptness)
	}
	isPunctual(t, l, 0)
}

// passed sends super-packets at once, and calls got with the number of each datagram
// received and the time since the first was sent.
func passed(t *testing.T, from, to *net.UDPConn, supers int, got func(n int, since time.Duration)) {
	t.Helper()
	begun := make(chan time.Time, 1)
	go func() {
		buf := make([]byte, super)
		begun <- time.Now()
		for range supers {
			if _, err := from.WriteTo(buf, to.LocalAddr()); err != nil {
				t.Error(err)
			}
		}
	}()
	since, in := <-begun, make([]byte, 65536)
	for n := range supers * super / datagram {
		_, _, err := to.ReadFrom(in)
		must(t, err)
		got(n, time.Since(since))
	}
}

// A queue takes as many packets as it may, the one in transmission among them.
func TestQueueIsWhatWasAsked(t *testing.T) {
	const size, room, sent = 1000, 50, 60
	for name, queue := range map[string]topology.Queue{
		"packets": {Packets: room},
		"bytes":   {Bytes: room*uint64(impair.WireBytes(frameOf(size))) + 500},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 1500)
			l.quiet(t)
			l.attach(t, topology.Impairment{Rate: 10_000, Queue: queue}, topology.Impairment{}) // a packet a second
			from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
			segment(t, from, size)
			for range sent / 15 {
				_, err := from.WriteTo(make([]byte, 15*size), to.LocalAddr())
				must(t, err)
			}
			eventually(t, func() bool { return l.entered(t) == sent })
			m, err := l.engine.Measure(deadline(t), nil)
			must(t, err)
			if d := m[linkName][0]; d.LostQueue != sent-room || d.PeakPackets != room {
				t.Errorf("%d of %d lost, %d in the queue at most, want %d and %d", d.LostQueue, sent, d.PeakPackets, sent-room, room)
			}
		})
	}
}
