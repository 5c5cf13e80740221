package lab

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/topology"
)

// pause sends a PFC frame by an interface, as a switch would: it asks for the longest pause of class 0.
func pause(args []string) error {
	face, err := net.InterfaceByName(args[0])
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	f := mmu.PFC{Enabled: 1, Quanta: [mmu.Classes]uint16{mmu.MostQuanta}}
	to := &unix.SockaddrLinklayer{Protocol: 0x0888, Ifindex: face.Index, Halen: 6, Addr: [8]byte{0x01, 0x80, 0xC2, 0, 0, 0x01}}
	return unix.Sendto(socket, f.Append(nil), 0, to)
}

// TestLineRatesFollow: an adapter knows the rate of its line while it changes, and when it has none any more: by it the pauses
// last that its neighbour asks for. They pass a link that impairs packets as they pass one that does not.
func TestLineRatesFollow(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Nodes[0].Adapter.PFC = &[]uint32{0}
	topo.Links[0].Directions[0].Rate = 100_000_000
	l := start(t, topo)
	counter := func(name string) uint64 {
		all, err := l.Nodes.Inspect(testContext(t), "n0")
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Transport[name]
	}
	ended := uint64(0)
	for _, c := range []struct {
		rate uint64
		want uint64 // us that a pause lasts
	}{{100_000_000, 335_539}, {20_000_000, 1_677_696}, {1_000_000_000, 33_553}, {0, 3_355}} {
		if err := l.Links.Set(testContext(t), "n0:eth0", "n0", topology.Change{Rate: ref(c.rate)}); err != nil {
			t.Fatal(err)
		}
		before := counter("rx_prio0_pause_duration")
		program(t, l, "n1", "pause eth0").wait(t)
		ended++
		eventually(t, testTime, func() string {
			if n := counter("rx_prio0_pause_transition"); n < ended {
				return fmt.Sprintf("%d pauses have ended, want %d", n, ended)
			}
			return ""
		})
		if got := counter("rx_prio0_pause_duration") - before; got+1 < c.want || got > c.want+1 {
			t.Errorf("at %d bit/s a pause lasts %d us, want %d", c.rate, got, c.want)
		}
	}
}
