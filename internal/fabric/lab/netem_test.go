package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// startNetem starts a ring of two nodes whose link is netem's. Where the kernel has
// none, it checks that the lab says so, and skips the rest.
func startNetem(t *testing.T, offload bool, asked topology.Impairment) *Lab {
	t.Helper()
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Engine, topo.Links[0].EngineAt = topology.Netem, topology.Place{File: "lab.yaml", Line: 7, Column: 15}
	topo.Links[0].Offload = offload
	topo.Links[0].Directions = [2]topology.Impairment{asked, {}}
	l, err := Start(testContext(t), topo, Options{})
	if e := (*control.Error)(nil); errors.As(err, &e) && e.Code == control.Unable {
		// Nothing has been made by then: no step of that stands before the place.
		begin := fmt.Sprintf("lab %s: lab.yaml:7:15: link n0:eth0 to n1:eth0: engine: netem: this kernel lacks NET_SCH_NETEM", topo.Name)
		if !strings.HasPrefix(e.Message, begin) || !strings.Contains(e.Message, "remedy: engine: linkem") {
			t.Errorf("a kernel without netem: %v", err)
		}
		t.Skip("the tests of internal/fabric/interop run this in a virtual machine that has netem")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// A link of netem's is delayed, changed, taken down, and plain again, and what
// netem cannot do is refused without harm.
func TestNetem(t *testing.T) {
	l := startNetem(t, true, topology.Impairment{Delay: 20 * time.Millisecond})
	echo := pinger(t, l)
	slow, none := 40*time.Millisecond, time.Duration(0)
	for _, step := range []struct {
		change topology.Change
		engine string
		least  int // of a round trip, us
	}{
		{topology.Change{}, "netem", 20_000},
		{topology.Change{Delay: &slow}, "netem", 40_000},
		{topology.Change{Delay: &none}, "plain", 0},
		{topology.Change{Delay: &slow}, "netem", 40_000},
	} {
		if err := l.Links.Set(testContext(t), "n0:eth0", "n0", step.change); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []topology.Change{
			{Loss: &topology.Loss{Rate: 0.1}}, {Rate: new(uint64(1e9))}, {Loss: &topology.Loss{Every: 2}},
			{Duplicate: new(0.1)}, {Cut: new(true)}, {Delay: new(-time.Second)},
		} {
			wantCode(t, l.Links.Set(testContext(t), "n0:eth0", "", bad), control.Usage)
		}
		if us, err := strconv.Atoi(echo.roundTrip(t)); err != nil || us < step.least {
			t.Errorf("%+v: round trip %d us (%v), want %d at least", step.change, us, err, step.least)
		}
		awaitEngine(t, l, step.engine)
		for _, d := range firstLink(t, l).Directions {
			if a := d.Achieved; a.DelayUS != nil || a.JitterUS != nil || a.Loss != nil || a.RateGbps != nil {
				t.Errorf("netem measures nothing, but: %+v", a)
			}
			if d.QueuePeak != nil || d.Lateness != nil {
				t.Errorf("netem measures nothing, but: queue %v, lateness %v", d.QueuePeak, d.Lateness)
			}
		}
	}
	if err := l.Links.Down(testContext(t), "n0:eth0"); err != nil {
		t.Fatal(err)
	}
	if !echo.cutOff(t) {
		t.Error("an echo came while the link was down")
	}
	if err := l.Links.Up(testContext(t), "n0:eth0"); err != nil {
		t.Fatal(err)
	}
	if us, err := strconv.Atoi(echo.roundTrip(t)); err != nil || us < 40_000 {
		t.Errorf("after the link was down: round trip %d us (%v)", us, err)
	}
}

// Super-packets are split before netem, each packet is lost by itself, and counted;
// sizes are those of frames, not those on the wire that the rate counts.
func TestNetemCounts(t *testing.T) {
	const count, segments, size = 40, 10, 100
	l := startNetem(t, false, topology.Impairment{Loss: topology.Loss{Rate: 0.5}, Rate: 1e9, Jitter: topology.Jitter{Spread: time.Millisecond}, Delay: time.Millisecond})
	receiver := program(t, l, "n1", fmt.Sprintf("receive 5000 %d", count*segments*size))
	if got := receiver.line(t); got != "bound" {
		t.Fatal(got)
	}
	before := direction(t, l, 0)
	program(t, l, "n0", "send 10.0.0.2:5000 40 10 100").wait(t)
	eventually(t, testTime, func() string {
		d := direction(t, l, 0)
		packets, bytes := d.Packets-before.Packets, d.Bytes-before.Bytes
		dropped := d.Dropped - before.Dropped
		// The kernel may add a packet of its own, which may be smaller. Bytes are those
		// of packets that were not lost.
		switch {
		case packets < count*segments || packets > count*segments+5:
			return fmt.Sprintf("packets: %d; %+v", packets, d)
		case dropped < count*segments/3 || dropped > count*segments*2/3:
			return fmt.Sprintf("dropped: %d; %+v", dropped, d)
		case bytes < (count*segments-dropped)*(size+42) || bytes > (packets-dropped)*(size+42)+5*200:
			return fmt.Sprintf("bytes: %d; %+v", bytes, d)
		}
		return ""
	})
}

// Jitter keeps packets in order, on several processors, too.
func TestNetemOrder(t *testing.T) {
	l := startNetem(t, false, topology.Impairment{Delay: 20 * time.Millisecond, Jitter: topology.Jitter{Spread: 5 * time.Millisecond}})
	if os.Geteuid() != 0 {
		t.Skip("only root has one processor handle a link")
	}
	v, err := l.Links.Verify(testContext(t), "n0:eth0", Probes{Count: 1000})
	if err != nil {
		t.Fatal(err)
	}
	// Its delays also depend on how busy the machine is.
	for _, d := range v.Directions {
		if d.Received == 0 || d.Reordered > 0 || d.Lost > 0 {
			t.Errorf("%+v", d)
		}
	}
}

// Consecutive numbers have the processors that there are in turn.
func TestPick(t *testing.T) {
	var processors unix.CPUSet
	for _, p := range []int{1, 4, 70} {
		processors.Set(p)
	}
	for number, want := range []int{1, 4, 70, 1, 4, 70, 1} {
		if got := pick(&processors, number); got != want {
			t.Errorf("number %d: processor %d, want %d", number, got, want)
		}
	}
}
