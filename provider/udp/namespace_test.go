package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// private says whether the tests run in a network namespace of their own.
var private = os.Getenv("UDP_TEST_NAMESPACE") == "private"

// TestMain runs the tests in a network namespace of their own, if the system
// lets it, so that no port is taken, no foreign packet arrives, and links can be
// made without privilege.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("UDP_TEST_HOLDER") != "":
		if err := hold(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv("UDP_TEST_NAMESPACE") == "given":
		os.Exit(m.Run())
	case private:
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // Pdeathsig is of the thread
	test := exec.Command("/proc/self/exe", os.Args[1:]...)
	test.Env = append(os.Environ(), "UDP_TEST_NAMESPACE=private")
	test.Stdout, test.Stderr = os.Stdout, os.Stderr
	test.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		test.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		test.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		test.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	err := test.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	}
	fmt.Fprintln(os.Stderr, "no network namespace, tests that need one are skipped:", err)
	os.Exit(m.Run())
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// newNamespace makes a network namespace that lasts as long as the test.
func newNamespace(tb testing.TB) netns.NsHandle {
	tb.Helper()
	if !private {
		tb.Skip("needs a network namespace")
	}
	type result struct {
		ns  netns.NsHandle
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is thrown away
		ns, err := netns.New()
		if err == nil {
			err = loopbackUp()
		}
		made <- result{ns, err}
	}()
	r := <-made
	if r.err != nil {
		tb.Fatal(r.err)
	}
	tb.Cleanup(func() { _ = r.ns.Close() })
	return r.ns
}

// within calls f on a thread in the namespace.
func within(tb testing.TB, ns netns.NsHandle, f func() error) {
	tb.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is thrown away
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}

// newLink joins two new namespaces by a veth pair: 10.0.0.1 and fd00::1 are in
// the first, 10.0.0.2 and fd00::2 in the second.
func newLink(tb testing.TB, mtu int) (ends [2]netns.NsHandle) {
	tb.Helper()
	ends = [2]netns.NsHandle{newNamespace(tb), newNamespace(tb)}
	within(tb, ends[0], func() error {
		// With an index that the other end does not have, it comes up at once (linkwatch_urgent_event).
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "eth0", MTU: mtu, Index: 17})
		veth.PeerName, veth.PeerNamespace, veth.PeerMTU = "eth0", netlink.NsFd(ends[1]), uint32(mtu)
		return netlink.LinkAdd(veth)
	})
	for i, ns := range ends {
		within(tb, ns, func() error {
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			host := byte(i + 1)
			for _, address := range []*netlink.Addr{
				{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 0, host).To4(), Mask: net.CIDRMask(24, 32)}},
				{IPNet: &net.IPNet{IP: net.IP{0xFD, 15: host}, Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD},
			} {
				if err := netlink.AddrAdd(eth0, address); err != nil {
					return err
				}
			}
			return netlink.LinkSetUp(eth0)
		})
	}
	for i, ns := range ends {
		awaitUp(tb, ns, addressesOf(i)[1])
	}
	return ends
}

// awaitUp waits until eth0 of a namespace takes packets that nobody has asked for, and IPv6
// knows that a local address is. The kernel sees to both later, when a thread of its own gets
// a processor: to both ends of a link being up (net/core/link_watch.c, up to a second later),
// before which IPv6 drops what comes, and to an address, even where it is not to look for
// duplicates (addrconf_dad_start in net/ipv6/addrconf.c), before which it takes the address
// for somebody else's.
func awaitUp(tb testing.TB, ns netns.NsHandle, local netip.Addr) {
	tb.Helper()
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	defer close(done)
	if err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{Namespace: &ns, ListExisting: true}); err != nil {
		tb.Fatal(err)
	}
	deadline := time.After(patience)
	for up := false; !up; {
		select {
		case u := <-updates:
			a := u.Attrs()
			up = a.Name == "eth0" && a.OperState == netlink.OperUp
		case <-deadline:
			tb.Fatal("eth0 does not come up")
		}
	}
	within(tb, ns, func() error {
		for {
			routes, err := netlink.RouteGet(local.AsSlice())
			if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
				return nil
			}
			select {
			case <-deadline:
				return fmt.Errorf("%v is not local: %v, %w", local, routes, err)
			default:
			}
		}
	})
}
