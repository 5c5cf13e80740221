package udp

import (
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// data26 is the traffic class of data that may be marked, of DSCP 26.
const data26 = 26<<2 | roce.ECT0

// classes is the packets, with traffic classes: runs of the same one, marked packets within.
func classes(packets []roce.Packet) []roce.Packet {
	pattern := slices.Concat(
		slices.Repeat([]uint8{0}, 3), slices.Repeat([]uint8{data26}, 5), []uint8{26<<2 | roce.CE},
		slices.Repeat([]uint8{data26}, 5), []uint8{48 << 2, 0})
	for i := range packets {
		packets[i].Class = pattern[i%len(pattern)]
	}
	return packets
}

// TestClasses: every packet arrives with its traffic class and in order, whatever those around
// it have, also in a share and in super-packets.
func TestClasses(t *testing.T) {
	ends := newLink(t, 4200)
	from := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	owner := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	var arrived []collector
	for _, c := range []*Carrier{owner, leaseIn(t, ends[1], owner, 1)} {
		arrived = append(arrived, newCollector())
		c.Listen(arrived[len(arrived)-1])
	}
	for i, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			checkClasses(t, from, flowBetween(from, owner, i), arrived)
		})
	}
	if n := owner.Counters()["super_packets_received"]; n == 0 {
		t.Error("no super-packet arrived")
	}
}

// checkClasses sends packets of several classes to each share.
func checkClasses(t *testing.T, from *Carrier, flow roce.Flow, arrived []collector) {
	t.Helper()
	for share, c := range arrived {
		packets := addressed(uint32(share)<<shareShift+17, classes(writes(random(64<<10), 4<<10))...)
		mustSend(t, from, flow, packets)
		if d := diff(wants(t, flow, packets), c.take(t, len(packets))); d != "" {
			t.Errorf("share %d: want (-), got (+):\n%s", share, d)
		}
	}
}

// TestJoinedByClass has the receiving kernel join what a wire carried apart (GRO): it joins no
// packets of different classes, as when some of a flow were marked.
func TestJoinedByClass(t *testing.T) {
	ends := newLink(t, 4200)
	segmentInSoftware(t, ends[0])
	within(t, ends[0], func() error { return setFeature(unix.ETHTOOL_STSO, 0) })
	within(t, ends[1], func() error { return setFeature(unix.ETHTOOL_SGRO, 1) })
	from := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	to := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	to.Listen(arrived)
	for i, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			before := to.Counters()["super_packets_received"]
			checkClasses(t, from, flowBetween(from, to, i), []collector{arrived})
			if n := to.Counters()["super_packets_received"] - before; n == 0 {
				t.Error("nothing was joined")
			}
		})
	}
}

// setFeature switches a feature of eth0, by an operation of linux/ethtool.h. A veth joins
// packets that arrive only when told to, and only those of a peer that does not segment TCP
// (veth_skb_is_eligible_for_gro in drivers/net/veth.c).
func setFeature(operation, value uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	command := [2]uint32{operation, value}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data *[2]uint32
		_    [16]byte
	}{data: &command}
	copy(request.name[:], "eth0")
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
