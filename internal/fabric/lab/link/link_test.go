package link

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The tests run in a network namespace of their own, and nodes are processes
// that do nothing in theirs.
func TestMain(m *testing.M) {
	switch os.Getenv("NDKLAB_TEST_PROGRAM") {
	case "node":
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
	case "tests":
		os.Exit(m.Run())
	default:
		cmd := inNamespace("tests", os.Args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
		}
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// inNamespace runs the test binary in a network namespace of its own.
func inNamespace(program string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "NDKLAB_TEST_PROGRAM="+program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	return cmd
}

// newNode starts a node and returns what opens its namespace.
func newNode(t *testing.T) func() (*os.File, error) {
	t.Helper()
	cmd := inNamespace("node")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return NetworkOf(cmd.Process.Pid)
}

func newNetwork(t *testing.T) *Network {
	t.Helper()
	n, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// ends makes two nodes and a link between them.
func ends(t *testing.T, n *Network, link int) [2]End {
	t.Helper()
	ends := [2]End{{Network: newNode(t), Interface: "eth0"}, {Network: newNode(t), Interface: "eth7"}}
	if err := n.Make(link, 4200, ends); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Remove(link); err != nil {
			t.Error(err)
		}
	})
	return ends
}

// A link of which one end is at another host goes up, settles and goes down at its end here, which is all there is.
func TestLone(t *testing.T) {
	n := newNetwork(t)
	const number, end = 7, 1
	n.Lone(number, end)
	ends := [2]End{end: {Network: newNode(t), Interface: "eth0"}}
	if err := n.MakeEnd(number, end, 4200, ends); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.RemoveEnd(number, end); err != nil {
			t.Error(err)
		}
	})
	isUp := func() (up bool) {
		ends[end].in(t, func() {
			l := interfaceOf(t, ends[end])
			if err := netlink.LinkSetUp(l); err != nil {
				t.Error(err)
			}
			up = interfaceOf(t, ends[end]).Attrs().OperState == netlink.OperUp
		})
		return up
	}
	if isUp() {
		t.Error("there is a carrier before the link is up")
	}
	if err := n.Up(number); err != nil {
		t.Fatal(err)
	}
	settle(t, n, number)
	if !isUp() {
		t.Error("there is no carrier")
	}
	if err := n.Down(number); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName(Middle(number, 1-end)); err == nil {
		t.Error("the other end was made")
	}
}

// in calls f on a thread in an end's network namespace.
func (e End) in(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		ns, err := e.Network()
		if err == nil {
			err = netns.Set(netns.NsHandle(ns.Fd()))
			ns.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// interfaceOf is an end's interface as its node sees it.
func interfaceOf(t *testing.T, e End) (l netlink.Link) {
	t.Helper()
	var err error
	e.in(t, func() { l, err = netlink.LinkByName(e.Interface) })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMake(t *testing.T) {
	n := newNetwork(t)
	const link = 0x123
	for end, e := range ends(t, n, link) {
		node := interfaceOf(t, e).Attrs()
		if node.MTU != 4200 || !bytes.Equal(node.HardwareAddr, MAC(link, end)) || node.RawFlags&unix.IFF_UP != 0 {
			t.Errorf("end %d in its node: %+v", end, node)
		}
		middle, err := netlink.LinkByName(Middle(link, end))
		if err != nil {
			t.Fatal(err)
		}
		if a := middle.Attrs(); a.MTU != 4200 || a.RawFlags&unix.IFF_NOARP == 0 || a.Index != MiddleIndex(link, end) {
			t.Errorf("middle %d: %+v", end, a)
		}
	}
}

func TestMakeFails(t *testing.T) {
	n := newNetwork(t)
	e := ends(t, n, 1)
	if err := n.Make(2, 4200, e); !errors.Is(err, unix.EEXIST) {
		t.Errorf("an interface that is there already: %v", err)
	}
	if err := n.Make(MaxLinks, 4200, e); err == nil {
		t.Error("one link too many was made")
	}
}

func TestMACsAndNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, link := range []int{0, 1, 255, 256, MaxLinks - 1} {
		for end := range 4 {
			mac := MAC(link, end)
			if seen[mac.String()] || mac[0]&3 != 2 { // local and of one host
				t.Errorf("link %d, end %d: %s", link, end, mac)
			}
			seen[mac.String()] = true
		}
		for end := range 2 {
			name := Middle(link, end)
			if seen[name] || len(name) > 15 {
				t.Errorf("link %d, end %d: %s", link, end, name)
			}
			seen[name] = true
		}
	}
}

// packetSocket sends and receives frames of an otherwise unused protocol at an
// end's interface.
func packetSocket(t *testing.T, e End) int {
	t.Helper()
	const protocol = 0xb588 // 0x88b5, for experiments (IEEE 802), in network order
	var fd int
	var err error
	e.in(t, func() {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, protocol); err != nil {
			return
		}
		var iface netlink.Link
		if iface, err = netlink.LinkByName(e.Interface); err != nil {
			return
		}
		if err = netlink.LinkSetUp(iface); err != nil {
			return
		}
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: iface.Attrs().Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}); err != nil {
		t.Fatal(err)
	}
	return fd
}

func sendFrame(t *testing.T, fd, ifindex int, payload string) {
	t.Helper()
	to := &unix.SockaddrLinklayer{Protocol: 0xb588, Ifindex: ifindex, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}}
	if err := unix.Sendto(fd, []byte(payload), 0, to); err != nil {
		t.Fatal(err)
	}
}

func receiveFrame(t *testing.T, fd int) string {
	t.Helper()
	buf := make([]byte, 100)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func settle(t *testing.T, n *Network, link int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		settled, err := n.Settled(link)
		if err != nil {
			t.Fatal(err)
		}
		if settled {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the link does not settle")
		}
	}
}

func TestJoinAndPart(t *testing.T) {
	n := newNetwork(t)
	const link = 3
	e := ends(t, n, link)
	if err := n.Up(link); err != nil {
		t.Fatal(err)
	}
	fds := [2]int{packetSocket(t, e[0]), packetSocket(t, e[1])}
	settle(t, n, link)
	var indices [2]int
	for end := range e {
		indices[end] = interfaceOf(t, e[end]).Attrs().Index
	}
	for round := range 3 {
		for end := range e {
			sendFrame(t, fds[end], indices[end], "while parted")
		}
		if err := n.Join(link); err != nil {
			t.Fatal(err)
		}
		for end := range e {
			joined := fmt.Sprintf("joined %d from %d", round, end)
			sendFrame(t, fds[end], indices[end], joined)
			if got := receiveFrame(t, fds[1-end]); got != joined {
				t.Errorf("got %q, want %q", got, joined)
			}
		}
		if err := n.Part(link); err != nil {
			t.Fatal(err)
		}
	}
	counters, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for d, c := range counters[link] {
		// Three frames of 15 bytes and the header, and what the kernels send of
		// their own, such as reports of multicast groups.
		if c.Packets < 3 || c.Packets > 20 || c.Bytes < 3*(14+15) || c.Bytes > 2000 || c.Lost != 0 {
			t.Errorf("direction %d: %+v", d, c)
		}
	}
	// Read for all at once, the statistics are those that the kernel has of each.
	for end := range 2 {
		for try := 0; ; try++ {
			all, allErr := n.readSent()
			middle, err := netlink.LinkByName(Middle(link, end))
			if err := errors.Join(allErr, err); err != nil {
				t.Fatal(err)
			}
			got, want := all[MiddleIndex(link, end)], sentBy(middle)
			if got == want && got.bytes > 0 {
				break
			}
			if try == 10 {
				t.Fatalf("end %d: %+v, want %+v", end, got, want)
			}
		}
	}
	// Asked for alone, the link has the same counters, also when one end has gone. The
	// kernel may send something in between.
	for range 2 {
		for try := 0; ; try++ {
			one, oneErr := n.CountersOf(link)
			all, err := n.Counters()
			if err := errors.Join(oneErr, err); err != nil {
				t.Fatal(err)
			}
			if one == all[link] {
				break
			}
			if try == 10 {
				t.Fatalf("%+v, among all %+v", one, all[link])
			}
		}
		if err := n.RemoveEnd(link, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.MakeEnd(link, 0, 4200, e); err != nil {
		t.Fatal(err)
	}
}

// TestPartAfterAnEnd: what Join has begun ends with Part also when middles have vanished, and of what it began
// nothing is left for an end that is made again. A frame may be as short as they come.
func TestPartAfterAnEnd(t *testing.T) {
	tried := 0
	for i, c := range classifiers {
		if partAfterAnEnd(t, c, 3+i*sharing) {
			tried++
		}
	}
	if tried == 0 {
		t.Error("this kernel has no kind of filter")
	}
}

// partAfterAnEnd reports whether the kernel has that kind of filter.
func partAfterAnEnd(t *testing.T, c classifier, link int) bool {
	t.Helper()
	n := newNetwork(t)
	n.classifier = &c
	e := ends(t, n, link)
	for _, gone := range [][]int{{0}, {1}, {0, 1}} {
		err := errors.Join(n.Up(link), n.Join(link))
		if errors.Is(err, unix.ENOENT) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range gone {
			if err := n.RemoveEnd(link, end); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Part(link); err != nil {
			t.Fatalf("without the ends %v: %v", gone, err)
		}
		for _, end := range gone {
			if err := n.MakeEnd(link, end, 4200, e); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Up(link); err != nil {
			t.Fatal(err)
		}
		fds := [2]int{packetSocket(t, e[0]), packetSocket(t, e[1])}
		settle(t, n, link)
		for end, joined := range []string{"1", "other"} {
			index := interfaceOf(t, e[end]).Attrs().Index
			sendFrame(t, fds[end], index, "while parted")
			if err := n.Join(link); err != nil {
				t.Fatal(err)
			}
			sendFrame(t, fds[end], index, joined)
			if got := receiveFrame(t, fds[1-end]); got != joined {
				t.Errorf("without the ends %v: got %q, want %q", gone, got, joined)
			}
			if err := n.Part(link); err != nil {
				t.Fatal(err)
			}
		}
	}
	return true
}

// TestLinksOfOneBlock: links that share a block of filters are joined and parted each for itself, and joining again
// changes nothing.
func TestLinksOfOneBlock(t *testing.T) {
	n := newNetwork(t)
	const parted = 1
	var sockets [sharing + 1][2]int
	var indices [sharing + 1][2]int
	for link := range sockets {
		e := ends(t, n, link)
		if err := errors.Join(n.Up(link), n.Join(link), n.Join(link)); err != nil {
			t.Fatal(err)
		}
		for end := range e {
			sockets[link][end], indices[link][end] = packetSocket(t, e[end]), interfaceOf(t, e[end]).Attrs().Index
		}
		settle(t, n, link)
	}
	if err := n.Part(parted); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one is parted", "all are joined"} {
		for link := range sockets {
			for end := range 2 {
				sendFrame(t, sockets[link][end], indices[link][end], fmt.Sprint(text, link, end))
			}
		}
		for link := range sockets {
			for end := range 2 {
				if link == parted && text == "one is parted" {
					continue
				}
				if got, want := receiveFrame(t, sockets[link][1-end]), fmt.Sprint(text, link, end); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		}
		if err := n.Join(parted); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDownCutsTheCarrier(t *testing.T) {
	n := newNetwork(t)
	const link = 4
	e := ends(t, n, link)
	carrier := func() bool {
		return interfaceOf(t, e[0]).Attrs().RawFlags&unix.IFF_LOWER_UP != 0
	}
	if err := n.Up(link); err != nil {
		t.Fatal(err)
	}
	packetSocket(t, e[0])
	packetSocket(t, e[1])
	settle(t, n, link)
	if !carrier() {
		t.Error("no carrier although the link is up")
	}
	if err := n.Down(link); err != nil {
		t.Fatal(err)
	}
	if carrier() {
		t.Error("a carrier although the link is down")
	}
	if settled, err := n.Settled(link); settled || err != nil {
		t.Errorf("settled although it is down, or %v", err)
	}
}

// The cost of reading the counters of one link does not depend on the number of others.
func BenchmarkCountersOf(b *testing.B) {
	n, err := Open()
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	bridge, err := n.MakeBridge(0, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := n.RemoveBridge(bridge); err != nil {
			b.Error(err)
		}
	}()
	const links = 200
	for link := range links {
		if err := n.Make(link, 1500, [2]End{{Bridge: bridge}, {Bridge: bridge}}); err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := n.Remove(link); err != nil {
				b.Error(err)
			}
		}()
	}
	for name, read := range map[string]func() error{
		"one": func() error { _, err := n.CountersOf(links / 2); return err },
		"all": func() error { _, err := n.Counters(); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
