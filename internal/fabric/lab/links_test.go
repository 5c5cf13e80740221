package lab

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// direction returns the state of a direction of the lab's first link.
func direction(t testing.TB, l *Lab, index int) report.Direction {
	t.Helper()
	return firstLink(t, l).Directions[index]
}

// awaitEngine waits until an engine has the lab's first link: a command that makes a link
// plain does not wait for long.
func awaitEngine(t testing.TB, l *Lab, want string) {
	t.Helper()
	eventually(t, testTime, func() string {
		if got := firstLink(t, l).Engine; got != want {
			return fmt.Sprintf("engine %s, want %s", got, want)
		}
		return ""
	})
}

func firstLink(t testing.TB, l *Lab) report.Link {
	t.Helper()
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return in.Links[0]
}

// Super-packets cross a plain link whole, and are counted as the packets that
// they would be on a wire.
func TestPlainLinkCarriesSuperPackets(t *testing.T) {
	const (
		count, segments, size = 20, 10, 4000
		headers               = 14 + 20 + 8 // Ethernet, IPv4, UDP
	)
	l := start(t, ring(uniqueName(t), 2))
	receiver := program(t, l, "n1", fmt.Sprintf("receive 5000 %d", count*segments*size))
	if got := receiver.line(t); got != "bound" {
		t.Fatal(got)
	}
	before := direction(t, l, 0)
	program(t, l, "n0", fmt.Sprintf("send 10.0.0.2:5000 %d %d %d", count, segments, size)).wait(t)
	if got := receiver.line(t); got != strconv.Itoa(count) {
		t.Errorf("%d super-packets came in %s pieces", count, got)
	}
	after := direction(t, l, 0)
	// The kernel may add a packet of its own, such as a report of multicast groups.
	const stray = 3
	packets, bytes := after.Packets-before.Packets, after.Bytes-before.Bytes
	if want := uint64(count * segments); packets < want || packets > want+stray {
		t.Errorf("%d packets, want %d", packets, want)
	}
	if want := uint64(count * segments * (size + headers)); bytes < want || bytes > want+stray*200 {
		t.Errorf("%d bytes, want %d", bytes, want)
	}
	if after.Lost != 0 || after.Dropped != 0 {
		t.Errorf("lost %d, dropped %d, want none", after.Lost, after.Dropped)
	}
}

// A pinging asks an echo server.
type pinging struct{ *running }

// pinger has node n0 ask one in n1.
func pinger(t testing.TB, l *Lab) pinging {
	t.Helper()
	if got := program(t, l, "n1", "echo 5001").line(t); got != "bound" {
		t.Fatal(got)
	}
	return pinging{program(t, l, "n0", "ping 10.0.0.2:5001")}
}

// Times for which an echo is waited for: one that is to come, however busy the machine is, and
// one that is not to, which is more than round trips in these labs usually take.
const (
	echoTime = testTime / 2
	lossTime = 300 * time.Millisecond
)

// roundTrip returns the microseconds that an echo takes, or "lost" if it never comes.
func (p pinging) roundTrip(t testing.TB) string {
	t.Helper()
	p.send(t, echoTime)
	return p.line(t)
}

// cutOff reports whether no echo comes.
func (p pinging) cutOff(t testing.TB) bool {
	t.Helper()
	p.send(t, lossTime)
	return p.line(t) == "lost"
}

// send asks; the program's next line is the answer.
func (p pinging) send(t testing.TB, limit time.Duration) {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin, limit); err != nil {
		t.Fatal(err)
	}
}

// A link that is up is taken over by the engine, changed, and given back.
func TestSetLink(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	echo := pinger(t, l)
	if got := echo.roundTrip(t); got == "lost" {
		t.Fatal("a packet was lost on a plain link")
	}
	delay, loss := 20*time.Millisecond, topology.Loss{Rate: 1}
	none, noDelay := topology.Loss{}, time.Duration(0)
	for _, step := range []struct {
		name     string
		endpoint string
		from     string
		change   topology.Change
		engine   string
		least    int // of the round trip, microseconds
		lost     bool
	}{
		{"delay both ways", "n0:eth0", "", topology.Change{Delay: &delay}, "linkem", 40000, false},
		{"lose all one way", "n1:eth0", "n1", topology.Change{Loss: &loss}, "linkem", 0, true},
		{"lose none", "n0:eth0", "n1", topology.Change{Loss: &none}, "linkem", 40000, false},
		{"delay one way", "n0:eth0", "n0", topology.Change{Delay: &noDelay}, "linkem", 20000, false},
		{"as before", "n0:eth0", "", topology.Change{Delay: &noDelay}, "plain", 0, false},
		{"delay again", "n0:eth0", "", topology.Change{Delay: &delay}, "linkem", 40000, false},
	} {
		t.Run(step.name, func(t *testing.T) {
			if err := l.Links.Set(testContext(t), step.endpoint, step.from, step.change); err != nil {
				t.Fatal(err)
			}
			awaitEngine(t, l, step.engine)
			if step.lost {
				if !echo.cutOff(t) {
					t.Fatal("an echo came")
				}
				return
			}
			took := echo.roundTrip(t)
			if us, err := strconv.Atoi(took); err != nil || us < step.least {
				t.Errorf("round trip took %s us, want %d at least", took, step.least)
			}
		})
	}
	for _, bad := range []struct{ endpoint, from string }{{"n0:eth7", ""}, {"n0:eth0", "n7"}} {
		err := l.Links.Set(testContext(t), bad.endpoint, bad.from, topology.Change{Loss: &loss})
		wantCode(t, err, control.Usage)
	}
}

// A link that is impaired from the start is the engine's.
func TestImpairedLink(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Directions[1].Delay = 10 * time.Millisecond
	l := start(t, topo)
	if us, err := strconv.Atoi(pinger(t, l).roundTrip(t)); err != nil || us < 10000 {
		t.Errorf("round trip took %d us (%v), want 10000 at least", us, err)
	}
	back := direction(t, l, 1)
	if back.Packets == 0 || back.Asked.DelayUS == nil || *back.Asked.DelayUS != 10000 || back.Achieved.DelayUS == nil {
		t.Errorf("%+v", back)
	}
	counted := uint64(0)
	for _, d := range back.Delays {
		counted += d.Packets
	}
	// Packets that came meanwhile are on the link. Of a packet that was late the bins are wide, and
	// the first one begins before the delay.
	if counted == 0 || counted > back.Packets || back.Delays[0].FromUS < 9900 && (len(back.Delays) == 1 || back.Delays[1].FromUS < 10000) {
		t.Errorf("delays of %d packets: %+v", back.Packets, back.Delays)
	}
}

// A link is taken down and brought up, which begins as the file says.
func TestLinkDownAndUp(t *testing.T) {
	for _, kind := range []string{"plain", "impaired"} {
		t.Run(kind, func(t *testing.T) {
			topo := ring(uniqueName(t), 2)
			if kind == "impaired" {
				topo.Links[0].Directions[0].Delay = time.Millisecond
			}
			topo.Links[0].Down = true
			l := start(t, topo)
			echo := pinger(t, l)
			if state := firstLink(t, l).State; state != "down" || !echo.cutOff(t) {
				t.Errorf("it is %s, or carries an echo", state)
			}
			if err := l.Links.Up(testContext(t), "n0:eth0"); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got := echo.roundTrip(t); got == "lost" {
					t.Fatal("lost while the link was up")
				}
				if err := l.Links.Down(testContext(t), "n1:eth0"); err != nil {
					t.Fatal(err)
				}
				if got := firstLink(t, l).State; got != "down" {
					t.Errorf("state %s, want down", got)
				}
				if !echo.cutOff(t) {
					t.Fatal("arrived while the link was down")
				}
				if err := l.Links.Up(testContext(t), "n0:eth0"); err != nil {
					t.Fatal(err)
				}
				if got := firstLink(t, l).State; got != "up" {
					t.Errorf("state %s, want up", got)
				}
			}
			if got := echo.roundTrip(t); got == "lost" {
				t.Fatal("lost after the link came back")
			}
		})
	}
}

// The engine and the lab survive that an end of an impaired link vanishes.
func TestNodeOfImpairedLinkDies(t *testing.T) {
	topo := ring(uniqueName(t), 3)
	for i := range topo.Links {
		topo.Links[i].Directions[0].Delay = time.Millisecond
	}
	l := start(t, topo)
	kill(t, processOf(t, topo.Name, "ndklab-node "+topo.Name+"/n0"))
	eventually(t, testTime, func() string {
		in, err := l.Inspect(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if in.Nodes[0].State != "down" {
			return "n0 is not down"
		}
		return ""
	})
	delay := 2 * time.Millisecond
	wantCode(t, l.Links.Set(testContext(t), "n0:eth0", "", topology.Change{Delay: &delay}), control.Usage)
	wantCode(t, l.Links.Down(testContext(t), "n0:eth1"), control.Usage)
	// The link between the others still works.
	if got := program(t, l, "n2", "echo 5001").line(t); got != "bound" {
		t.Fatal(got)
	}
	if got := (pinging{program(t, l, "n1", "ping 10.0.1.2:5001")}).roundTrip(t); got == "lost" {
		t.Error("lost between nodes that are up")
	}
}

// A link's counts go on when it changes hands.
func TestCountersAcrossHands(t *testing.T) {
	const count, segments = 5, 10
	l := start(t, ring(uniqueName(t), 2))
	delay := time.Millisecond
	settings := []topology.Change{{}, {Delay: &delay}, {Delay: new(time.Duration)}, {Delay: &delay}, {Delay: new(time.Duration)}}
	before := direction(t, l, 0)
	for i, change := range settings {
		if err := l.Links.Set(testContext(t), "n0:eth0", "", change); err != nil {
			t.Fatal(err)
		}
		receiver := program(t, l, "n1", fmt.Sprintf("receive %d %d", 5000+i, count*segments*100))
		if got := receiver.line(t); got != "bound" {
			t.Fatal(got)
		}
		program(t, l, "n0", fmt.Sprintf("send 10.0.0.2:%d %d %d 100", 5000+i, count, segments)).wait(t)
		receiver.line(t)
	}
	after := direction(t, l, 0)
	// The kernel may add a packet of its own, such as a report of multicast groups.
	const stray = 5
	got, want := after.Packets-before.Packets, uint64(len(settings)*count*segments)
	if got < want || got > want+stray {
		t.Errorf("%d packets, want %d", got, want)
	}
	if after.Lost != 0 || after.Dropped != 0 {
		t.Errorf("lost %d, dropped %d, want none", after.Lost, after.Dropped)
	}
}

// TestReadBeforeItsTerm has a link join the kernel between the reading of the
// kernel's counters and the report, which must not wrap.
func TestReadBeforeItsTerm(t *testing.T) {
	read := link.Counters{Packets: 10, Bytes: 1000, Lost: 1}
	later := link.Counters{Packets: 15, Bytes: 1500, Lost: 2}
	l := &labLink{joined: true, base: [2]link.Counters{later, read}}
	counted := l.byKernel([2]link.Counters{read, later}).Counters
	if d := counted[0]; d.Packets != 0 || d.Bytes != 0 || d.Lost != 0 {
		t.Errorf("before its term: %+v", d)
	}
	if d := counted[1]; d.Packets != 5 || d.Bytes != 500 || d.Lost != 1 {
		t.Errorf("in its term: %+v", d)
	}
}

// Counts stay when a node dies and its interface is gone.
func TestCountsOfAnInterfaceThatIsGone(t *testing.T) {
	l := &labLink{joined: true}
	l.byKernel([2]link.Counters{{Packets: 10, Bytes: 1000, Lost: 1}, {Packets: 7}})
	counted := l.byKernel([2]link.Counters{{}, {Packets: 8}}).Counters
	if d := counted[0]; d.Packets != 10 || d.Bytes != 1000 || d.Lost != 1 || counted[1].Packets != 8 {
		t.Errorf("%+v", counted)
	}
}
