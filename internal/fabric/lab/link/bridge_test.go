package link

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/rtnl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// An error that the kernel lacks something says that the machine is unable, however it is wrapped.
func TestWhatAKernelLacks(t *testing.T) {
	for _, lack := range []error{ErrNoBridge, noRedirect(&rtnl.Error{Request: 1, Err: unix.ENOENT})} {
		if e := control.AsError(fmt.Errorf("link the nodes: %w", lack)); e.Code != control.Unable {
			t.Errorf("%v is %s", lack, e.Code)
		}
	}
}

// newBridge makes a bridge for the time of a test.
func newBridge(t *testing.T, n *Network, number int, tree *Tree) *Bridge {
	t.Helper()
	b, err := n.MakeBridge(number, tree)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.handle.LinkDel(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Index: b.index()}}); err != nil {
			t.Error(err)
		}
	})
	return b
}

// plug makes a link, opens the ports it has and joins it. Ends at nodes are up when
// a packetSocket is opened there.
func plug(t *testing.T, n *Network, link int, ends [2]End) {
	t.Helper()
	if err := n.Make(link, 4200, ends); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Remove(link); err != nil {
			t.Error(err)
		}
	})
	if err := n.Up(link); err != nil {
		t.Fatal(err)
	}
	if err := n.Join(link); err != nil {
		t.Fatal(err)
	}
	for end, e := range ends {
		if e.Bridge == nil {
			continue
		}
		if err := n.OpenPort(link, end); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitPorts waits until ok likes the states of all ports.
func awaitPorts(t *testing.T, n *Network, ok func(map[[2]int]PortState) bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		states, err := n.PortStates()
		if err != nil {
			t.Fatal(err)
		}
		if ok(states) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("ports are %v", states)
		}
	}
}

// count returns the number of ports in a state.
func count(states map[[2]int]PortState, state PortState) int {
	n := 0
	for _, s := range states {
		if s == state {
			n++
		}
	}
	return n
}

// Three nodes at two switches hear each other, and the switches learn where they
// are.
func TestBridges(t *testing.T) {
	// As in a lab, middles and ports say nothing of their own.
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := QuietBridges(); err != nil {
		t.Fatal(err)
	}
	n := newNetwork(t)
	bridges := [2]*Bridge{newBridge(t, n, 0, nil), newBridge(t, n, 999, nil)}
	nodes := [3]End{{Network: newNode(t), Interface: "eth0"}, {Network: newNode(t), Interface: "eth0"}, {Network: newNode(t), Interface: "eth0"}}
	plug(t, n, 10, [2]End{nodes[0], {Bridge: bridges[0]}})
	plug(t, n, 11, [2]End{{Bridge: bridges[0]}, nodes[1]})
	plug(t, n, 12, [2]End{{Bridge: bridges[0]}, {Bridge: bridges[1]}})
	plug(t, n, 13, [2]End{nodes[2], {Bridge: bridges[1]}})
	var fds, indices [3]int
	for i, e := range nodes {
		fds[i] = packetSocket(t, e)
		indices[i] = interfaceOf(t, e).Attrs().Index
	}
	for link := 10; link <= 13; link++ {
		settle(t, n, link)
	}
	awaitPorts(t, n, func(states map[[2]int]PortState) bool { return len(states) == 5 && count(states, Forwarding) == 5 })
	for from := range nodes {
		text := fmt.Sprintf("from %d", from)
		sendFrame(t, fds[from], indices[from], text)
		for to := range nodes {
			if to == from {
				continue
			}
			if got := receiveFrame(t, fds[to]); got != text {
				t.Errorf("node %d got %q, want %q", to, got, text)
			}
		}
	}
	ports, err := n.Ports()
	if err != nil {
		t.Fatal(err)
	}
	for port, macs := range map[[2]int]int{{10, 1}: 1, {11, 0}: 1, {12, 0}: 1, {12, 1}: 2, {13, 1}: 1} {
		if ports[port].MACs != macs {
			t.Errorf("%d addresses learned at port %v, want %d", ports[port].MACs, port, macs)
		}
	}
	if counters, err := n.Counters(); err != nil || len(counters) != 4 {
		t.Errorf("counters of %d links, want 4; %v", len(counters), err)
	}
	// A port whose cable is pulled forgets.
	if err := n.Down(13); err != nil {
		t.Fatal(err)
	}
	if settled, err := n.Settled(13); settled || err != nil {
		t.Errorf("a link that is down is settled, or %v", err)
	}
	awaitPorts(t, n, func(states map[[2]int]PortState) bool { return states[[2]int{13, 1}] == Disabled })
	if ports, err = n.Ports(); err != nil || ports[[2]int{13, 1}].MACs != 0 {
		t.Errorf("at a port that is down: %+v, %v", ports[[2]int{13, 1}], err)
	}
}

// Three switches in a ring take one link out of use, and put it in again when
// another one breaks.
func TestSpanningTree(t *testing.T) {
	n := newNetwork(t)
	tree := &Tree{ForwardDelay: 2 * time.Second}
	var bridges [3]*Bridge
	for i := range bridges {
		bridges[i] = newBridge(t, n, i, tree)
	}
	for i := range bridges {
		plug(t, n, 20+i, [2]End{{Bridge: bridges[i]}, {Bridge: bridges[(i+1)%3]}})
	}
	for i := range bridges {
		settle(t, n, 20+i)
	}
	// The root is bridge 0, so that link 21, between the others, is out.
	awaitPorts(t, n, func(states map[[2]int]PortState) bool {
		return len(states) == 6 && count(states, Forwarding) == 5 && states[[2]int{21, 1}] == Blocking
	})
	if err := n.Down(20); err != nil {
		t.Fatal(err)
	}
	awaitPorts(t, n, func(states map[[2]int]PortState) bool {
		return count(states, Forwarding) == 4 && count(states, Disabled) == 2
	})
}

func TestNamesOfBridges(t *testing.T) {
	seen := map[string]bool{}
	for _, number := range []int{0, 1, 255, 256, MaxLinks - 1} {
		b := Bridge{number: number}
		if name := b.name(); seen[name] || len(name) > 15 {
			t.Errorf("bridge %d: %s", number, name)
		}
		if mac := b.mac(); seen[mac.String()] || mac[0]&3 != 2 {
			t.Errorf("bridge %d: %s", number, mac)
		}
		seen[b.name()], seen[b.mac().String()] = true, true
	}
	for _, link := range []int{0, MaxLinks - 1} {
		for end := range 2 {
			if name := Port(link, end); seen[name] || len(name) > 15 {
				t.Errorf("link %d, end %d: %s", link, end, name)
			}
		}
	}
	if last := portIndex(MaxLinks-1, 1); last >= firstBridge || MiddleIndex(MaxLinks-1, 1) >= firstPort {
		t.Error("interface indices overlap")
	}
}

// A port whose link leads out of the lab has the kernel split what crosses it, and no
// other port has.
func TestPortToOutside(t *testing.T) {
	n := newNetwork(t)
	b := newBridge(t, n, 0, nil)
	namespace, err := newNode(t)()
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	plug(t, n, 30, [2]End{{Outside: namespace, Interface: "tap0"}, {Bridge: b}})
	plug(t, n, 31, [2]End{{Network: newNode(t), Interface: "eth0"}, {Bridge: b}})
	for link, split := range map[int]bool{30: true, 31: false} {
		port, err := netlink.LinkByName(Port(link, 1))
		if err != nil {
			t.Fatal(err)
		}
		if got := port.Attrs().GSOMaxSegs == 1; got != split {
			t.Errorf("port of link %d: at most %d segments", link, port.Attrs().GSOMaxSegs)
		}
	}
}
