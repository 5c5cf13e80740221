package linkem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	lablink "github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/topology"
)

// A super-packet in these tests: 15 datagrams of 4096 bytes.
const (
	datagram = 4096
	super    = 15 * datagram
)

// sendSupers sends super-packets whose datagrams are numbered and filled with
// a pattern, one after the receiver has confirmed the one before, or, when
// packets may be lost, said how many came until then. It calls got with every
// datagram received, in order.
func sendSupers(t *testing.T, l *lab, network string, count int, got func(number uint64, payload []byte)) {
	t.Helper()
	from, to := l.nodes[0].udp(t, network), l.nodes[1].udp(t, network)
	segment(t, from, datagram)
	buf, in := make([]byte, super), make([]byte, 65536)
	for n := range count {
		for i := range super / datagram {
			d := buf[i*datagram : (i+1)*datagram]
			number := uint64(n*super/datagram + i)
			fillPattern(d, number)
		}
		if _, err := from.WriteTo(buf, to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		// The mark is never lost: it goes on until it comes back.
		last := uint64((n + 1) * super / datagram)
		for {
			size, _, err := to.ReadFrom(in)
			if err != nil {
				t.Fatalf("super-packet %d: %v", n, err)
			}
			number := binary.BigEndian.Uint64(in)
			got(number, in[:size])
			if number == last-1 {
				break
			}
		}
	}
}

func fillPattern(d []byte, number uint64) {
	for j := 8; j < len(d); j++ {
		d[j] = byte(number) + byte(j)*7
	}
	binary.BigEndian.PutUint64(d, number)
}

func TestTrafficCrosses(t *testing.T) {
	ms := topology.Impairment{Delay: time.Millisecond}
	for _, c := range []struct {
		name  string
		there topology.Impairment
	}{
		{"delay", ms},
		{"unimpaired", topology.Impairment{}},
		{"rate and jitter", topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: 50 * time.Microsecond}, Rate: 1_000_000_000}},
	} {
		for _, network := range []string{"udp4", "udp6"} {
			t.Run(c.name+" "+network, func(t *testing.T) {
				l := newLab(t, 4200)
				l.attach(t, c.there, ms)
				next := uint64(0)
				want := make([]byte, datagram)
				sendSupers(t, l, network, 20, func(number uint64, payload []byte) {
					fillPattern(want, next)
					if number != next || !bytes.Equal(payload, want) {
						t.Fatalf("got datagram %d of %d bytes, want %d unaltered", number, len(payload), next)
					}
					next++
				})
				m, err := l.engine.Detach(deadline(t), linkName)
				must(t, err)
				// Packets that the kernel sends by itself may still have been on their way.
				if m[0].Delivered < next || m[0].Packets != m[0].Delivered+m[0].LostDown || m[0].LostOverrun != 0 {
					t.Errorf("measured %+v", m[0])
				}
			})
		}
	}
}

func TestTCPCrosses(t *testing.T) {
	l := newLab(t, 9000)
	l.attach(t, topology.Impairment{Delay: 200 * time.Microsecond, Rate: 2_000_000_000}, topology.Impairment{Delay: 200 * time.Microsecond})
	streams(t, l, "tcp4", 8<<20)
}

// delivered counts the packets that the engine has delivered to node 0.
func (l *lab) delivered(t *testing.T) uint64 {
	t.Helper()
	m, err := l.engine.Measure(deadline(t), nil)
	must(t, err)
	return m[linkName][1].Delivered
}

// eventually waits until what is true, or the test has failed. It asks again and again for
// what has been sent so far: the engine counts packets in another process and reports none
// of them, and a sender that told of each would send more slowly.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(time.Millisecond) // the processor may be needed for what is waited for
	defer tick.Stop()
	for !what() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("waited in vain")
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

// echoes has datagrams go from node 0 to node 1 and back, and calls each with
// the round-trip time until it says that it is enough.
func echoes(t *testing.T, l *lab, each func(rtt time.Duration) bool) {
	t.Helper()
	a, b := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := b.ReadFrom(buf)
			if err != nil {
				return // closed at the end of the test
			}
			if _, err := b.WriteTo(buf[:n], from); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 2000)
	for {
		began := time.Now()
		if _, err := a.WriteTo(buf[:64], b.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.ReadFrom(buf); err != nil {
			t.Fatal(err)
		}
		if !each(time.Since(began)) {
			return
		}
	}
}

func TestLossIsPerWirePacket(t *testing.T) {
	const loss, count = 0.02, 1000
	l := newLab(t, 4200)
	l.quiet(t) // of chance, there is only how many marks it takes
	l.attach(t, topology.Impairment{Loss: topology.Loss{Rate: loss}}, topology.Impairment{})
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	segment(t, from, datagram)
	end := l.nodes[0].udp(t, "udp4")
	buf, in := make([]byte, super), make([]byte, 65536)
	received, gaps := 0, map[int]int{} // how often so many of a super-packet were missing
	for n := range count {
		_, err := from.WriteTo(buf, to.LocalAddr())
		must(t, err)
		// An end mark follows each super-packet, again and again until one comes
		// through: packets keep their order.
		missing := super / datagram
		done := false
		for until := time.Now().Add(patience); !done; {
			if time.Now().After(until) {
				t.Fatalf("nothing arrives after %d super-packets", n)
			}
			_, err := end.WriteTo([]byte{byte(n), byte(n >> 8)}, to.LocalAddr())
			must(t, err)
			must(t, to.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			for !done {
				size, _, err := to.ReadFrom(in)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
				must(t, err)
				if size == datagram {
					missing--
				} else {
					done = in[0] == byte(n) && in[1] == byte(n>>8)
				}
			}
		}
		received += super/datagram - missing
		gaps[missing]++
	}
	sent := count * super / datagram
	lost := sent - received
	if off := math.Abs(float64(lost) - loss*float64(sent)); off > 3.29*math.Sqrt(float64(sent)*loss*(1-loss)) {
		t.Errorf("%d of %d datagrams lost, asked for %v", lost, sent, loss)
	}
	// Independent losses leave 74 % of the super-packets whole and 23 % with one gap.
	if gaps[0] < count*65/100 || gaps[1] < count*15/100 || gaps[super/datagram] > 0 {
		t.Errorf("missing datagrams per super-packet: %v", gaps)
	}
	m, err := l.engine.Detach(deadline(t), linkName)
	must(t, err)
	marks := m[0].Packets - uint64(sent)
	// Of several marks, the last may still have been on its way.
	if d := m[0].Dropped; d < uint64(lost) || d > uint64(lost)+marks || m[0].Delivered+d+m[0].LostDown != m[0].Packets || m[0].Asked.Loss < loss-1e-9 || m[0].Asked.Loss > loss+1e-9 {
		t.Errorf("lost %d of %d and some of %d marks; measured %+v", lost, sent, marks, m[0])
	}
}

// While datagrams cross, the link is taken over and given back several times.
// None is lost, also if the supervisor is held up for so long that the ports would be
// full. A few may be doubled, if a processor is held up just between giving a frame to
// the engine and forwarding it (settling): hardly any of those that both see; without
// watches nearly all are. So it is if a middle completes checksums, as one does that leads outside the lab.
func TestHandOver(t *testing.T) {
	t.Run("within", func(t *testing.T) { handOver(t, newLab(t, 4200)) })
	t.Run("to outside", func(t *testing.T) {
		l := newLab(t, 4200)
		must(t, lablink.CompleteChecksums("m1"))
		handOver(t, l)
	})
}

func handOver(t *testing.T, l *lab) {
	join(t)
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	stop, seen := make(chan struct{}), make(chan [2]map[uint64]int)
	var sent atomic.Uint64
	go func() { seen <- flow(t, from, to, &sent, stop) }()
	both := uint64(0) // about how many were sent while kernel and engine saw them
	for i := range 5 {
		began := sent.Load()
		given := l.link(topology.Impairment{Delay: time.Duration(i) * time.Millisecond}, topology.Impairment{})
		given.Joined = true
		must(t, l.engine.Attach(deadline(t), given))
		if i == 0 {
			const full = 2 * receiveBuffer / datagram // the kernel grants twice the buffer, and counts more than payload
			eventually(t, func() bool { return sent.Load() > began+full })
		}
		part(t)
		must(t, l.engine.Start(deadline(t), linkName))
		both += sent.Load() - began
		before := l.delivered(t)
		eventually(t, func() bool { return l.delivered(t) > before+100 })
		must(t, l.engine.Release(deadline(t), linkName))
		began = sent.Load()
		join(t)
		_, err := l.engine.Detach(deadline(t), linkName)
		must(t, err)
		both += sent.Load() - began
	}
	close(stop)
	for direction, arrived := range <-seen {
		lost, doubled := 0, 0
		for number := range uint64(len(arrived)) {
			switch n := arrived[number]; {
			case n == 0:
				lost++
			case n > 1:
				doubled += n - 1
			}
		}
		if lost > 0 || doubled > 5+int(both/100) || len(arrived) == 0 {
			t.Errorf("direction %d: %d datagrams arrived, %d were lost, %d doubled", direction, len(arrived), lost, doubled)
		}
	}
	if t.Failed() {
		m, err := l.engine.Measure(deadline(t), nil)
		t.Logf("measured %+v, %v", m, err)
	}
}

// flow sends numbered datagrams, which it counts, 32 on their way at a time, and
// answers to them, and says how often each number arrived at to and at from. After stop all
// that is on its way still arrives.
func flow(t *testing.T, from, to *net.UDPConn, sent *atomic.Uint64, stop <-chan struct{}) (arrived [2]map[uint64]int) {
	arrived = [2]map[uint64]int{{}, {}}
	answered := make(chan struct{})
	go func() { // the other end
		defer close(answered)
		buf := make([]byte, datagram)
		for {
			n, sender, err := to.ReadFrom(buf)
			if err != nil {
				return // closed at the end of the test
			}
			number := binary.BigEndian.Uint64(buf[:n])
			if arrived[0][number]++; arrived[0][number] > 1 {
				continue
			}
			if _, err := to.WriteTo(buf[:8], sender); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	buf, answer := make([]byte, datagram), make([]byte, 8)
	next, onTheirWay := uint64(0), 0
	for stopped := false; !stopped || onTheirWay > 0; {
		select {
		case <-stop:
			stopped = true
		default:
		}
		if onTheirWay < 32 && !stopped {
			binary.BigEndian.PutUint64(buf, next)
			if _, err := from.WriteTo(buf, to.LocalAddr()); err != nil {
				t.Error(err)
				break
			}
			next++
			sent.Add(1)
			onTheirWay++
			continue
		}
		if _, err := from.Read(answer); err != nil {
			t.Errorf("%d sent, %d not answered: %v", next, onTheirWay, err)
			break
		}
		number := binary.BigEndian.Uint64(answer)
		if arrived[1][number]++; arrived[1][number] == 1 {
			onTheirWay--
		}
	}
	to.Close()
	<-answered
	return arrived
}

func TestSettingsChangeWhileRunning(t *testing.T) {
	l := newLab(t, 1500)
	l.attach(t, topology.Impairment{Delay: 20 * time.Millisecond}, topology.Impairment{})
	const most = 1000 // on a busy machine many take longer than they must
	count := 0
	echoes(t, l, func(rtt time.Duration) bool {
		count++
		switch {
		case count <= 3 && rtt < 20*time.Millisecond:
			t.Errorf("round trip %d of %v, under 20 ms", count, rtt)
		case count == 3:
			must(t, l.engine.Set(deadline(t), linkName, 0, topology.Impairment{Delay: 100 * time.Microsecond}))
			must(t, l.engine.Set(deadline(t), linkName, 1, topology.Impairment{Delay: 5 * time.Millisecond}))
		case count > 3 && rtt < 5100*time.Microsecond:
			t.Errorf("round trip %d of %v, under 5.1 ms", count, rtt)
		case count > 3 && rtt < 20*time.Millisecond:
			return false
		}
		return count < most
	})
	if count == most {
		t.Error("the shorter delay never showed")
	}
	m, err := l.engine.Measure(deadline(t), nil)
	must(t, err)
	if a := m[linkName][0].Asked; a.Delay <= 100*time.Microsecond || a.Delay >= 20*time.Millisecond {
		t.Errorf("mean of the delays asked for: %v", a.Delay)
	}
}

func TestKilledEngineLeavesNothing(t *testing.T) {
	l := newLab(t, 1500)
	l.attach(t, topology.Impairment{Delay: time.Millisecond}, topology.Impairment{})
	if n := packetSockets(t); n != 2 {
		t.Errorf("%d packet sockets while the engine runs, want 2", n)
	}
	must(t, l.cmd.Process.Kill())
	select {
	case <-l.engine.Done():
	case <-deadline(t).Done():
		t.Fatal("the supervisor does not learn that the engine is gone")
	}
	if err := l.engine.Set(deadline(t), linkName, 0, topology.Impairment{}); !errors.Is(err, control.ErrClosed) {
		t.Errorf("request to a dead engine: %v", err)
	}
	if err := l.cmd.Wait(); err == nil { // it closes files before its parent may learn of its end
		t.Error("the killed engine has ended without an error")
	}
	if n := packetSockets(t); n != 0 {
		t.Errorf("%d packet sockets are left", n)
	}
}

func packetSockets(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/packet")
	must(t, err)
	return strings.Count(string(b), "\n") - 1 // a line of headings
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	l := newLab(t, 1500)
	none := topology.Impairment{}
	ctx := deadline(t)
	attach := func(change func(*Link)) error {
		link := l.link(none, none)
		change(&link)
		return l.engine.Attach(ctx, link)
	}
	check := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", what, err, want)
		}
	}
	check("start an unknown link", l.engine.Start(ctx, "nowhere"), "no link nowhere")
	check("set an unknown link", l.engine.Set(ctx, "nowhere", 0, none), "no link nowhere")
	check("unknown interface", attach(func(k *Link) { k.Interfaces[1] = "m7" }), "m7")
	check("loss of 120 %", attach(func(k *Link) { k.Directions[1].Loss.Rate = 1.2 }), "loss 1.2")
	must(t, attach(func(*Link) {}))
	check("attach twice", attach(func(*Link) {}), "is attached")
	check("release before start", l.engine.Release(ctx, linkName), "is attached")
	must(t, l.engine.Start(ctx, linkName))
	check("negative delay", l.engine.Set(ctx, linkName, 0, topology.Impairment{Delay: -1}), "delay -1ns")
	check("third direction", l.engine.Set(ctx, linkName, 2, none), "no direction 2")
	check("start twice", l.engine.Start(ctx, linkName), "is started")
	_, err := l.engine.Detach(ctx, linkName)
	must(t, err)
	_, err = l.engine.Detach(ctx, linkName)
	check("detach twice", err, "is detached")
	if e := (*control.Error)(nil); !errors.As(err, &e) || e.Code != control.Usage {
		t.Errorf("detach twice: %#v", err)
	}
}
