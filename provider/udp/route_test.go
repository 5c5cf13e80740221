package udp

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// TestReach asks for routes of every kind.
func TestReach(t *testing.T) {
	t.Parallel()
	ends := newLink(t, 4200)
	c := closeLater(t, openIn(t, ends[0], addressesOf(0)...))
	type route struct {
		kind  int
		want  provider.Status
		names [2]string
	}
	routes := []route{
		{unix.RTN_UNREACHABLE, provider.StatusHostUnreachable, [2]string{"10.2.0.1", "fd02::1"}},
		{unix.RTN_PROHIBIT, provider.StatusHostUnreachable, [2]string{"10.3.0.1", "fd03::1"}},
		{unix.RTN_BLACKHOLE, provider.StatusSuccess, [2]string{"10.4.0.1", "fd04::1"}},
	}
	within(t, ends[0], func() error {
		for _, r := range routes {
			for _, name := range r.names {
				ip := netip.MustParseAddr(name)
				if err := netlink.RouteAdd(&netlink.Route{Type: r.kind, Dst: &net.IPNet{
					IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}}); err != nil {
					return fmt.Errorf("%v: %w", ip, err)
				}
			}
		}
		return nil
	})
	routes = append(routes,
		route{want: provider.StatusNetworkUnreachable, names: [2]string{"192.0.2.1", "2001:db8::1"}}, // none
		route{want: provider.StatusSuccess, names: [2]string{"10.0.0.2", "fd00::2"}},
		route{want: provider.StatusSuccess, names: [2]string{"10.0.0.99", "fd00::99"}}, // nobody there
		route{want: provider.StatusSuccess, names: [2]string{"10.0.0.1", "fd00::1"}},   // ourselves
	)
	peer := closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	arrived := newCollector()
	peer.Listen(arrived)
	for range 2 { // also from where the last question left the socket
		for _, r := range routes {
			for i, name := range r.names {
				if got := c.Reach(c.Addresses()[i], netip.MustParseAddr(name)); got != r.want {
					t.Errorf("%s: %v, not %v", name, got, r.want)
				}
			}
		}
	}
	local := c.Addresses()
	mustSend(t, c, flowBetween(c, peer, 0), []roce.Packet{acknowledgement(0)})
	arrived.take(t, 1)
	if n := peer.Counters()["malformed"]; n != 0 {
		t.Errorf("%d datagrams were sent to find out", n)
	}
	for _, pair := range [][2]netip.Addr{{local[0], local[1]}, {netip.MustParseAddr("10.0.0.9"), local[0]}, {local[0], {}}, {}} {
		if got := c.Reach(pair[0], pair[1]); got != provider.StatusInvalidAddress {
			t.Errorf("%v: %v", pair, got)
		}
	}
	within(t, ends[0], func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(eth0)
	})
	for i, name := range []string{"10.0.0.2", "fd00::2"} {
		if got := c.Reach(local[i], netip.MustParseAddr(name)); got != provider.StatusNetworkUnreachable {
			t.Errorf("%s, interface down: %v", name, got)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	// Somebody else has the descriptor now.
	var others []int
	for range 4 * sourcePorts {
		fd, err := newSocket(local[0])
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		others = append(others, fd)
	}
	if got := c.Reach(local[0], netip.MustParseAddr("127.0.0.1")); got != provider.StatusSuccess {
		t.Errorf("after Close: %v", got)
	}
	for _, fd := range others {
		if to, err := unix.Getpeername(fd); err != unix.ENOTCONN {
			t.Errorf("a socket of somebody else was connected to %v, %v", to, err)
		}
	}
}
