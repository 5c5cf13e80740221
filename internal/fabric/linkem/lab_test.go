package linkem

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The tests run in a network namespace of their own, and a user namespace when
// not root: the test binary starts itself again in them. It also is the engine
// process.
const (
	roleEnv    = "NDKLAB_LINKEM_TEST"
	roleTests  = "tests"
	roleEngine = "engine"
)

// patience bounds every wait.
const patience = time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case roleEngine:
		if err := Main(os.NewFile(3, "control"), 1); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case roleTests:
		os.Exit(m.Run())
	default:
		os.Exit(runInNamespaces(m))
	}
}

func runInNamespaces(m *testing.M) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), roleEnv+"="+roleTests)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil { // no namespaces here: what needs them is skipped
		fmt.Fprintln(os.Stderr, "network namespaces:", err)
		return m.Run()
	}
	return 0
}

// A lab is a link between two nodes whose middles, m0 and m1, are in the test's
// namespace.
type lab struct {
	nodes  [2]*node
	engine *Engine
	cmd    *exec.Cmd
	conn   *control.Conn
}

// A node is a namespace with the interface eth0: 10.0.0.N/24 and fd00::N/64,
// where N is 1 or 2.
type node struct {
	ns   netns.NsHandle
	ipv4 net.IP
	ipv6 net.IP
}

const linkName = "a:eth0"

func newLab(tb testing.TB, mtu int) *lab {
	tb.Helper()
	if os.Getenv(roleEnv) != roleTests {
		tb.Skip("needs a network namespace")
	}
	l := &lab{}
	for i := range l.nodes {
		n := &node{ns: newNamespace(tb), ipv4: net.IPv4(10, 0, 0, byte(i+1)), ipv6: net.ParseIP(fmt.Sprintf("fd00::%d", i+1))}
		l.nodes[i] = n
		middle := fmt.Sprintf("m%d", i)
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "eth0", PeerNamespace: netlink.NsFd(int(n.ns))}
		veth.Name, veth.MTU = middle, mtu
		must(tb, netlink.LinkAdd(veth))
		tb.Cleanup(func() { must(tb, netlink.LinkDel(veth)) })
		must(tb, os.WriteFile("/proc/sys/net/ipv6/conf/"+middle+"/disable_ipv6", []byte("1"), 0))
		link, err := netlink.LinkByName(middle)
		must(tb, err)
		must(tb, netlink.LinkSetUp(link))
		must(tb, netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact",
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)}}))
		n.do(tb, func() {
			eth0, err := netlink.LinkByName("eth0")
			must(tb, err)
			must(tb, netlink.LinkSetMTU(eth0, mtu))
			must(tb, netlink.AddrAdd(eth0, &netlink.Addr{IPNet: &net.IPNet{IP: n.ipv4, Mask: net.CIDRMask(24, 32)}}))
			must(tb, netlink.AddrAdd(eth0, &netlink.Addr{IPNet: &net.IPNet{IP: n.ipv6, Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}))
			must(tb, netlink.LinkSetUp(eth0))
			for until := time.Now().Add(patience); ; { // a thread of the kernel's has it known for the node's own
				routes, err := netlink.RouteGet(n.ipv6)
				if err == nil && routes[0].Type == unix.RTN_LOCAL {
					break
				}
				if time.Now().After(until) {
					tb.Fatalf("%v is not local: %v, %v", n.ipv6, routes, err)
				}
			}
		})
	}
	l.startEngine(tb)
	return l
}

func newNamespace(tb testing.TB) netns.NsHandle {
	tb.Helper()
	var ns netns.NsHandle
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with the goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = netns.GetFromPath("/proc/thread-self/ns/net")
		}
	}()
	<-done
	must(tb, err)
	tb.Cleanup(func() { ns.Close() })
	return ns
}

// do runs f on a thread in the node's namespace. Sockets made there stay there.
func (n *node) do(tb testing.TB, f func()) {
	tb.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := netns.Set(n.ns); err != nil {
			tb.Error(err)
			return
		}
		f()
	}()
	<-done
	if tb.Failed() {
		tb.FailNow()
	}
}

func (l *lab) startEngine(tb testing.TB) {
	tb.Helper()
	conn, file, err := control.Pair(nil)
	must(tb, err)
	l.cmd = exec.Command("/proc/self/exe")
	l.cmd.Env = append(os.Environ(), roleEnv+"="+roleEngine)
	l.cmd.Stdout, l.cmd.Stderr = os.Stdout, os.Stderr
	l.cmd.ExtraFiles = []*os.File{file}
	must(tb, l.cmd.Start())
	file.Close()
	l.conn, l.engine = conn, NewEngine(conn)
	tb.Cleanup(func() {
		conn.Close()
		if err := l.cmd.Wait(); err != nil && l.cmd.ProcessState.Success() {
			tb.Error(err)
		}
	})
}

// attach gives the link to the engine, which begins to forward.
func (l *lab) attach(tb testing.TB, there, back topology.Impairment) {
	tb.Helper()
	must(tb, l.engine.Attach(deadline(tb), l.link(there, back)))
	must(tb, l.engine.Start(deadline(tb), linkName))
}

func (l *lab) link(there, back topology.Impairment) Link {
	return Link{Name: linkName, Seed: 42, Interfaces: [2]string{"m0", "m1"}, Directions: [2]topology.Impairment{there, back}}
}

// quiet has nothing cross but what a test sends: the nodes know each other's link
// addresses, and have no IPv6, which would look for routers.
func (l *lab) quiet(tb testing.TB) {
	tb.Helper()
	var hardware [2]net.HardwareAddr
	for i, n := range l.nodes {
		n.do(tb, func() {
			eth0, err := netlink.LinkByName("eth0")
			must(tb, err)
			hardware[i] = eth0.Attrs().HardwareAddr
		})
	}
	for i, n := range l.nodes {
		n.do(tb, func() {
			eth0, err := netlink.LinkByName("eth0")
			must(tb, err)
			must(tb, os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0))
			must(tb, netlink.NeighSet(&netlink.Neigh{LinkIndex: eth0.Attrs().Index, State: netlink.NUD_PERMANENT, IP: l.nodes[1-i].ipv4, HardwareAddr: hardware[1-i]}))
		})
	}
}

// join has the kernel forward between the middles.
func join(tb testing.TB) {
	tb.Helper()
	for i := range 2 {
		must(tb, netlink.FilterAdd(redirect(tb, i)))
	}
}

// part ends that.
func part(tb testing.TB) {
	tb.Helper()
	for i := range 2 {
		must(tb, netlink.FilterDel(redirect(tb, i)))
	}
}

func redirect(tb testing.TB, i int) netlink.Filter {
	tb.Helper()
	from, err := netlink.LinkByName(fmt.Sprintf("m%d", i))
	must(tb, err)
	to, err := netlink.LinkByName(fmt.Sprintf("m%d", 1-i))
	must(tb, err)
	return &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: from.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	}
}

// udp opens a socket in a node.
func (n *node) udp(tb testing.TB, network string) *net.UDPConn {
	tb.Helper()
	var conn *net.UDPConn
	n.do(tb, func() {
		c, err := net.ListenUDP(network, &net.UDPAddr{IP: n.address(network)})
		must(tb, err)
		conn = c
	})
	tb.Cleanup(func() { conn.Close() })
	must(tb, conn.SetDeadline(time.Now().Add(patience)))
	control := func(f func(fd int)) {
		raw, err := conn.SyscallConn()
		must(tb, err)
		must(tb, raw.Control(func(fd uintptr) { f(int(fd)) }))
	}
	control(func(fd int) { // room for bursts where privilege permits
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<20)
		}
	})
	return conn
}

func (n *node) address(network string) net.IP {
	if strings.HasSuffix(network, "6") {
		return n.ipv6
	}
	return n.ipv4
}

// segment has a socket cut what it is given into datagrams of size bytes.
func segment(tb testing.TB, conn *net.UDPConn, size int) {
	tb.Helper()
	raw, err := conn.SyscallConn()
	must(tb, err)
	must(tb, raw.Control(func(fd uintptr) {
		must(tb, unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size))
	}))
}

func deadline(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
