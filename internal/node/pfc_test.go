package node

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/node/pfc"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// A neighbour sends MAC control frames from a node by its eth0, as its switch would.
type neighbour struct {
	t      *testing.T
	socket int
	index  int
}

func newNeighbour(t *testing.T, at *Agent) *neighbour {
	t.Helper()
	link, err := handleIn(t, at).LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	n := &neighbour{t: t, index: link.Attrs().Index}
	if inside := at.inNetwork(func() { n.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) }); inside != nil || err != nil {
		t.Fatal(inside, err)
	}
	t.Cleanup(func() { unix.Close(n.socket) })
	return n
}

// send sends a frame of a content.
func (n *neighbour) send(content []byte) {
	n.t.Helper()
	to := &unix.SockaddrLinklayer{Protocol: 0x0888, Ifindex: n.index, Halen: 6, Addr: [8]byte{0x01, 0x80, 0xC2, 0, 0, 0x01}}
	if err := unix.Sendto(n.socket, content, 0, to); err != nil {
		n.t.Fatal(err)
	}
}

// ask asks for a pause of class 0 for as long as a frame can, or for its end.
func (n *neighbour) ask(pause bool) {
	n.t.Helper()
	f := mmu.PFC{Enabled: 1}
	if pause {
		f.Quanta[0] = mmu.MostQuanta
	}
	n.send(f.Append(nil))
}

// A pausedFlow is a workload from a node that its neighbour pauses, and what it has done.
type pausedFlow struct {
	t    *testing.T
	a    *Agent
	done chan workload.Result
}

const pausedDepth = 4

func newPausedFlow(t *testing.T, a, b *Agent) *pausedFlow {
	t.Helper()
	spec := workload.Spec{Name: "w", Operation: topology.Write, Size: 512, Depth: pausedDepth, Duration: time.Hour, Seed: 7}
	at := netip.MustParseAddrPort("10.0.0.2:7000")
	if err := b.Workloads.Serve(t.Context(), spec, at); err != nil {
		t.Fatal(err)
	}
	f := &pausedFlow{t, a, make(chan workload.Result, 1)}
	go func() {
		result, err := a.Workloads.Run(context.Background(), spec, netip.MustParseAddr("10.0.0.1"), at)
		if err != nil {
			t.Error(err)
		}
		f.done <- result
		close(f.done)
	}()
	t.Cleanup(func() {
		if err := a.Workloads.Abort(context.Background(), "w", 0, "the test is over"); err != nil {
			t.Error(err)
		}
		<-f.done
	})
	f.awaitMessages(1)
	return f
}

// messages returns how many are complete.
func (f *pausedFlow) messages() uint64 {
	f.t.Helper()
	progress, err := f.a.Workloads.Progress(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	if len(progress) == 0 {
		return 0
	}
	return progress[0].Messages
}

// awaitMessages waits until so many are complete.
func (f *pausedFlow) awaitMessages(least uint64) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); f.messages() < least; {
		if time.Now().After(deadline) {
			f.t.Fatalf("%d messages are complete, want %d", f.messages(), least)
		}
	}
}

// counter reads a counter of the node's transport.
func (f *pausedFlow) counter(name string) uint64 {
	f.t.Helper()
	c, err := f.a.Counters(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return c.Transport[name]
}

// awaitPauses waits until the node has read so many PFC frames of class 0.
func (f *pausedFlow) awaitPauses(frames uint64) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); f.counter("rx_prio0_pause") < frames; {
		if time.Now().After(deadline) {
			f.t.Fatal("the node has not read the frame")
		}
	}
}

// pace returns how long the messages take that standsStill expects not to be sent.
func (f *pausedFlow) pace() time.Duration {
	f.t.Helper()
	began := time.Now()
	f.awaitMessages(f.messages() + 10*pausedDepth)
	return time.Since(began)
}

// standsStill fails unless no message is sent for as long as ten times those take that may be under way. Those may still be
// acknowledged.
func (f *pausedFlow) standsStill(pace time.Duration) {
	f.t.Helper()
	most := f.messages() + pausedDepth
	for until := time.Now().Add(pace); time.Now().Before(until); {
		if f.messages() > most {
			f.t.Fatal("it sends in a pause")
		}
	}
}

// TestPFC: a node whose adapter has pfc stands still while its switch says so, and goes on afterwards. Frames that mean
// nothing have no effect, nor has a flood of them.
func TestPFC(t *testing.T) {
	for _, congestion := range []topology.Congestion{"window", "dcqcn"} {
		t.Run(string(congestion), func(t *testing.T) {
			a, b := linkedAs(t, func(c *Config) {
				c.PFC = &pfc.Config{Priorities: []uint32{0}}
				c.LineRates = map[netip.Addr]uint64{netip.MustParseAddr("10.0.0.1"): 1e6} // a pause lasts 34 s
				if congestion != "window" {
					c.Adapter.Congestion, c.Adapter.DSCP = &congestion, new(uint32)
				}
			})
			n := newNeighbour(t, b)
			f := newPausedFlow(t, a, b)
			for range 3 {
				n.send([]byte{0x01, 0x01, 0, 0xFF})                                        // cut off
				n.send(append([]byte{0, 1, 0xFF, 0xFF}, make([]byte, mmu.PFCFrameLen)...)) // PAUSE of 802.3x
			}
			pace := f.pace()
			for round := range uint64(2) {
				n.ask(true)
				f.awaitPauses(2*round + 1)
				f.standsStill(pace)
				n.ask(false)
				pace = f.pace()
			}

			for range 5000 {
				n.ask(true)
			}
			f.awaitPauses(5) // of a flood many are lost
			f.standsStill(pace)
			if err := a.Workloads.Abort(t.Context(), "w", 0, "enough"); err != nil {
				t.Fatal(err)
			}
			<-f.done // in a pause, too
			if c := f.counter("rx_prio0_pause_transition"); c < 2 {
				t.Errorf("%d pauses have ended, want 2", c)
			}
		})
	}
}

// TestPFCRunsOut: a pause that nobody ends is over when its quanta are, by the rate that the line has now.
func TestPFCRunsOut(t *testing.T) {
	a, b := linkedAs(t, func(c *Config) {
		c.PFC = &pfc.Config{Priorities: []uint32{0}}
		c.LineRates = map[netip.Addr]uint64{netip.MustParseAddr("10.0.0.1"): 1e6}
	})
	if err := a.SetLineRates(t.Context(), map[netip.Addr]uint64{netip.MustParseAddr("10.0.0.1"): 100e6}); err != nil { // a pause lasts 336 ms
		t.Fatal(err)
	}
	f := newPausedFlow(t, a, b)
	newNeighbour(t, b).ask(true)
	f.awaitPauses(1)
	f.awaitMessages(f.messages() + 10*pausedDepth)
	if took := f.counter("rx_prio0_pause_duration"); took < 335_000 || took > 10_000_000 || f.counter("rx_prio0_pause_transition") != 1 {
		t.Errorf("a pause of %d us, want 335,539", took)
	}
}

// TestPFCWithout: an adapter without pfc does not obey.
func TestPFCWithout(t *testing.T) {
	a, b := linked(t)
	f := newPausedFlow(t, a, b)
	n := newNeighbour(t, b)
	for range 10 {
		n.ask(true)
		f.awaitMessages(f.messages() + 10*pausedDepth)
	}
}
