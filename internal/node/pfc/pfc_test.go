package pfc

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider/clock"
)

var (
	first  = Interface{"eth0", []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}
	second = Interface{"eth1", []netip.Addr{netip.MustParseAddr("10.0.1.1")}}
)

// classes has 26 and 27 in class 3 and 48 in class 6; the rest are in class 0.
var classes = mmu.DSCPTable{26: 3, 27: 3, 48: 6}

const ofClass3, ofClass6 = 1<<26 | 1<<27, 1 << 48

// A world is a Listener in virtual time, without a socket, and what it says.
type world struct {
	*clock.Virtual
	*Listener
	paused map[netip.Addr]uint64
	calls  int
}

func newWorld(t *testing.T, priorities ...uint32) *world {
	t.Helper()
	w := &world{Virtual: clock.NewVirtual(), paused: map[netip.Addr]uint64{}}
	obeyed, err := newObedience(&Config{priorities, classes}, 2)
	if err != nil {
		t.Fatal(err)
	}
	w.Listener = &Listener{clock: w.Virtual, interfaces: []Interface{first, second}, obeyed: obeyed, said: make([]uint64, 2)}
	w.set = func(local netip.Addr, dscps uint64) { w.paused[local] = dscps; w.calls++ }
	w.SetRates(map[netip.Addr]uint64{first.Addresses[0]: 1e9, second.Addresses[0]: 40e9})
	return w
}

// ask has a switch ask an interface to pause classes for some quanta each, by their numbers.
func (w *world) ask(at int, quanta map[int]uint16) {
	var f mmu.PFC
	for class, q := range quanta {
		f.Enabled |= 1 << class
		f.Quanta[class] = q
	}
	w.hear(at, f.Append(nil))
}

func (w *world) want(t *testing.T, at Interface, dscps uint64) {
	t.Helper()
	for _, local := range at.Addresses {
		if got := w.paused[local]; got != dscps {
			t.Errorf("at %v DSCPs %#x of %v are paused, want %#x", w.Virtual.Now(), got, local, dscps)
		}
	}
}

// TestObey: a pause lasts as long as its quanta take at the rate of the interface that it came in by, and is of the
// packets whose DSCPs have its class, of all addresses there. It ends earlier if the switch says so, and later if it asks again.
func TestObey(t *testing.T) {
	w := newWorld(t, 3, 6)
	w.ask(0, map[int]uint16{3: 1000, 6: 2000, 0: 1000}) // 512 and 1024 us at 1 Gb/s; the adapter does not obey class 0
	w.ask(1, map[int]uint16{3: 1000})                   // 12.8 us at 40 Gb/s
	w.want(t, first, ofClass3|ofClass6)
	w.want(t, second, ofClass3)
	w.Run(12799 * time.Nanosecond)
	w.want(t, second, ofClass3)
	w.Run(1)
	w.want(t, second, 0)
	w.Run(512*time.Microsecond - w.Virtual.Now() - 1)
	w.want(t, first, ofClass3|ofClass6)
	w.Run(1)
	w.want(t, first, ofClass6)
	w.ask(0, map[int]uint16{6: 0})
	w.want(t, first, 0)

	w.ask(0, map[int]uint16{3: 1000})
	w.Run(500 * time.Microsecond)
	w.ask(0, map[int]uint16{3: 1000})
	w.Run(512*time.Microsecond - 1)
	w.want(t, first, ofClass3)
	w.Run(1)
	w.want(t, first, 0)

	w.SetRates(map[netip.Addr]uint64{first.Addresses[0]: 2e9, first.Addresses[1]: 2e9})
	w.ask(0, map[int]uint16{3: 1000})
	w.Run(256*time.Microsecond - 1)
	w.want(t, first, ofClass3)
	w.Run(1)
	w.want(t, first, 0)
	w.ask(1, map[int]uint16{3: 1000}) // without a rate: 51.2 us
	w.Run(51200*time.Nanosecond - 1)
	w.want(t, second, ofClass3)
	w.Run(1)
	w.want(t, second, 0)

	counted := w.Counters()
	want := map[string]uint64{
		"rx_prio3_pause": 6, "rx_prio3_pause_duration": 512 + 1012 + 256 + 64, "rx_prio3_pause_transition": 5,
		"rx_prio6_pause": 2, "rx_prio6_pause_duration": 512, "rx_prio6_pause_transition": 1,
	}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

// TestFlood: who is asked the same again and again says it once, and sets no timer for each.
func TestFlood(t *testing.T) {
	w := newWorld(t, 3)
	for range 100_000 {
		w.ask(0, map[int]uint16{3: mmu.MostQuanta})
	}
	if w.calls != len(first.Addresses) {
		t.Errorf("said %d times that class 3 is paused, want once for each address", w.calls)
	}
	events := 0
	for w.Step() {
		events++
	}
	if events > 2 {
		t.Errorf("%d timers ran", events)
	}
	w.want(t, first, 0)
	frame := new(mmu.PFC).Append(nil)
	if n := testing.AllocsPerRun(1000, func() { w.hear(0, frame) }); n > 0 {
		t.Errorf("%v allocations for a frame", n)
	}
}

// TestMalformed: what is no PFC frame changes nothing, and what is one is taken as far as it goes.
func TestMalformed(t *testing.T) {
	w := newWorld(t, 3)
	pause := mmu.PFC{Enabled: 1 << 3, Quanta: [mmu.Classes]uint16{3: 1000}}
	whole := pause.Append(nil)
	for n := range 20 {
		w.hear(0, whole[:n])
	}
	w.hear(0, append([]byte{0, 1}, whole[2:]...)) // PAUSE of 802.3x, which is of all classes: adapters with PFC do not obey it
	w.want(t, first, 0)
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		frame := make([]byte, r.IntN(mmu.PFCFrameLen+1))
		for i := range frame {
			frame[i] = byte(r.Uint32())
		}
		if r.IntN(2) == 0 && len(frame) > 2 {
			copy(frame, whole[:2])
		}
		w.hear(r.IntN(2), frame)
		if paused := w.paused[first.Addresses[0]] | w.paused[second.Addresses[0]]; paused&^ofClass3 != 0 {
			t.Fatalf("%x pauses %#x", frame, paused)
		}
	}
	w.Run(time.Hour)
	w.want(t, first, 0)
	w.want(t, second, 0)
	w.hear(0, whole[:20])
	w.want(t, first, ofClass3)
}

// TestPriorities: the error names the priority that there is not.
func TestPriorities(t *testing.T) {
	if _, err := newObedience(&Config{Priorities: []uint32{8}}, 1); err == nil || err.Error() != "pfc: priority 8, want 0 to 7" {
		t.Error(err)
	}
}

// Each port and class has the time for which it was paused, also amid a pause.
func TestPauseTimes(t *testing.T) {
	w := newWorld(t, 3, 6)
	if got := w.Pauses(); got != nil {
		t.Errorf("before a pause: %+v", got)
	}
	w.ask(0, map[int]uint16{3: 1000}) // 512 us at 1 Gb/s
	w.ask(1, map[int]uint16{6: 1000}) // 12.8 us at 40 Gb/s
	w.Run(200 * time.Microsecond)
	want := []adapter.Pause{{Interface: "eth0", Class: 3, US: 200}, {Interface: "eth1", Class: 6, US: 12}}
	if diff := cmp.Diff(want, w.Pauses()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
