package link

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// MaxPorts is the number of links that the kernel lets end at one bridge (net/bridge/br_if.c,
// find_portno: of BR_MAX_PORTS, 1024, one is reserved).
const MaxPorts = 1023

// A Bridge is a switch: a bridge of the kernel in the network's own namespace.
// Links end at it where their End says so. It has no addresses: the lab's
// namespace is not to be spoken to.
type Bridge struct {
	number int // in the network
}

// A Tree has the parameters with which a bridge takes part in the spanning tree of its
// neighbours (IEEE 802.1D). The bridge with the lowest number is the root.
type Tree struct {
	// ForwardDelay is the time for which a port listens, and then learns, before it
	// forwards: 2 to 30 s.
	ForwardDelay time.Duration
}

// Times in which the spanning tree notices changes: the shortest that the kernel
// allows (net/bridge/br_private_stp.h).
const (
	helloTime = time.Second
	maxAge    = 6 * time.Second
)

// firstBridge is the interface index of the first bridge, and firstPort of the
// first port of one.
const (
	firstPort   = 2 * firstIndex
	firstBridge = 3 * firstIndex
)

func (b *Bridge) index() int   { return firstBridge + b.number }
func (b *Bridge) name() string { return "s" + strconv.Itoa(b.number) }

// mac is a bridge's address, which with it takes part in the spanning tree. Links
// have 'd' where it has 's'.
func (b *Bridge) mac() net.HardwareAddr {
	return net.HardwareAddr{0x02, 'n', 's', byte(b.number >> 8), byte(b.number), 0}
}

// Port is the name of a link's interface at a bridge.
func Port(link, end int) string { return fmt.Sprintf("p%d%c", link, 'a'+end) }

func portIndex(link, end int) int { return firstPort + 2*link + end }

// QuietBridges keeps what crosses bridges in the caller's network namespace from the
// host's packet filter, which otherwise looks into it if the module br_netfilter
// is loaded.
func QuietBridges() error {
	for _, protocol := range []string{"arptables", "iptables", "ip6tables"} {
		err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+protocol, []byte("0"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ErrNoBridge means that this kernel has no bridges.
var ErrNoBridge error = control.Errorf(control.Unable, "this kernel lacks bridges (CONFIG_BRIDGE)")

// MakeBridge makes the bridge of that number, which forwards from now on. It takes
// part in no spanning tree if tree is nil.
//
// It treats multicast as broadcast: what a host is not asked about for minutes it
// would otherwise not get, such as the neighbour solicitations of IPv6, as nobody here
// asks (RFC 4541).
func (n *Network) MakeBridge(number int, tree *Tree) (*Bridge, error) {
	b := &Bridge{number: number}
	if err := n.makeBridge(b, tree); err != nil {
		return nil, fmt.Errorf("bridge %s: %w", b.name(), err)
	}
	return b, nil
}

func (n *Network) makeBridge(b *Bridge, tree *Tree) error {
	req := n.request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(b.index())
	msg.Flags = unix.IFF_UP | unix.IFF_NOARP
	msg.Change = unix.IFF_UP | unix.IFF_NOARP
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(b.name())))
	req.AddData(nl.NewRtAttr(unix.IFLA_ADDRESS, b.mac()))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_BR_MCAST_SNOOPING, nl.Uint8Attr(0))
	if tree != nil {
		data.AddRtAttr(nl.IFLA_BR_FORWARD_DELAY, ticks(tree.ForwardDelay))
		data.AddRtAttr(nl.IFLA_BR_HELLO_TIME, ticks(helloTime))
		data.AddRtAttr(nl.IFLA_BR_MAX_AGE, ticks(maxAge))
		// When the tree changes, what was learned has to be forgotten within this time
		// (IEEE 802.1D-1998, 8.3.5). The kernel shortens its ageing then, but only looks
		// for what is too old when the former ageing, by default of 300 s, says so
		// (net/bridge/br_fdb.c, br_fdb_cleanup): until then a host that says nothing
		// would not be found.
		data.AddRtAttr(nl.IFLA_BR_AGEING_TIME, ticks(2*tree.ForwardDelay))
		data.AddRtAttr(nl.IFLA_BR_STP_STATE, nl.Uint32Attr(1))
	}
	req.AddData(info)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrNoBridge, err)
	}
	return err
}

// ticks is a time in the unit of user space's clock, of which there are 100 in a
// second on every architecture (USER_HZ).
func ticks(d time.Duration) []byte { return nl.Uint32Attr(uint32(d / (10 * time.Millisecond))) }

// enslave makes a link's end a port of its bridge. If the link's other end is outside
// the lab, what crosses the port has the kernel split super-packets.
func (n *Network) enslave(link, end int, b *Bridge, outside bool) error {
	port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: portIndex(link, end), Name: Port(link, end)}}
	if err := n.handle.LinkSetMasterByIndex(port, b.index()); err != nil {
		return fmt.Errorf("make %s a port of bridge %s: %w", port.Name, b.name(), err)
	}
	if outside {
		if err := n.handle.LinkSetGSOMaxSegs(port, 1); err != nil {
			return fmt.Errorf("%s: turn segmentation offload off: %w", port.Name, err)
		}
	}
	return nil
}

// OpenPort sets a link's end at a bridge up. From then on it is a port whose carrier
// the bridge watches.
func (n *Network) OpenPort(link, end int) error {
	port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: portIndex(link, end), Name: Port(link, end)}}
	if err := n.handle.LinkSetUp(port); err != nil {
		return fmt.Errorf("set %s up: %w", port.Name, err)
	}
	return nil
}

// A PortState tells what a port of a bridge does with packets.
type PortState uint8

// The states of a port (BR_STATE_* in linux/if_bridge.h).
const (
	Disabled   PortState = iota // no carrier
	Listening                   // the spanning tree is looking for loops
	Learning                    // as before, and addresses are learned
	Forwarding                  // packets pass
	Blocking                    // the spanning tree keeps the port as a spare
)

// String is the state in small letters.
func (s PortState) String() string {
	if names := [...]string{"disabled", "listening", "learning", "forwarding", "blocking"}; int(s) < len(names) {
		return names[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// A PortStatus has the state of a port, and the addresses that its bridge has learned there.
type PortStatus struct {
	State PortState
	MACs  int // learned there
}

// Ports reads the status of every port of every bridge, by its link's number and
// end.
func (n *Network) Ports() (map[[2]int]PortStatus, error) {
	states, err := n.PortStates()
	if err != nil {
		return nil, err
	}
	ports := make(map[[2]int]PortStatus, len(states))
	for port, state := range states {
		ports[port] = PortStatus{State: state}
	}
	entries, err := n.handle.NeighListExecute(netlink.Ndmsg{Family: unix.AF_BRIDGE})
	// An interrupted dump is one during which a table changed.
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("read MAC tables: %w", err)
	}
	for _, e := range entries {
		port := portNumbers(e.LinkIndex)
		status, isPort := ports[port]
		if isPort && e.MasterIndex != 0 && e.State&netlink.NUD_PERMANENT == 0 { // not a port's own
			status.MACs++
			ports[port] = status
		}
	}
	return ports, nil
}

// PortStates reads the state of every port of every bridge, by its link's number
// and end.
func (n *Network) PortStates() (map[[2]int]PortState, error) {
	req := n.request(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE)) // ports alone
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, fmt.Errorf("read ports: %w", err)
	}
	states := make(map[[2]int]PortState, len(messages))
	for _, m := range messages {
		answer := nl.DeserializeIfInfomsg(m)
		attrs, err := nl.ParseRouteAttr(m[answer.Len():])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			if a.Attr.Type != unix.IFLA_PROTINFO|unix.NLA_F_NESTED {
				continue
			}
			inner, err := nl.ParseRouteAttr(a.Value)
			if err != nil {
				return nil, err
			}
			for _, i := range inner {
				if i.Attr.Type == nl.IFLA_BRPORT_STATE && len(i.Value) > 0 {
					states[portNumbers(int(answer.Index))] = PortState(i.Value[0])
				}
			}
		}
	}
	return states, nil
}

// portNumbers are the link and the end that a port belongs to.
func portNumbers(index int) [2]int {
	i := index - firstPort
	return [2]int{i / 2, i % 2}
}
