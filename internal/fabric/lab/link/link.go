// Package link makes the veth pairs that join nodes, and joins their middles in
// the kernel; and the bridges that are the lab's switches.
//
// A link between two nodes is two veth pairs: each has one end in a node and its
// middle in the lab's own network namespace. Where the node is a switch, the end is
// in the lab's namespace too, as a port of its bridge (bridge.go). On a plain link the kernel hands
// whatever enters one middle to the other one (Join); otherwise somebody else
// reads and writes the middles, and the kernel leaves them alone (Part). The
// nodes' interfaces do not notice the change. The pair at one end vanishes with its
// node, and can be made again (end.go).
//
// The package knows nothing of impairments, engines or node processes. Start
// reading at Network.Make, then Network.Join.
package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/ndklab/ndklab/internal/node/rtnl"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// MaxLinks is the number of links that a network can hold: a link's number is in the
// middle of its MAC addresses.
const MaxLinks = 1 << 17

// queueLength is the length of every interface's transmit queue in packets (or
// super-packets). veths hand packets on at once, so the queue only fills while
// another CPU is sending on the same interface.
const queueLength = 1000

// queues is the number of transmit and of receive queues of every interface: one, which the
// kernel would use anyway. Unless told so it makes one for each processor and then puts the
// others out of use. For that it waits until no processor uses them, with the lock held that
// all changes of interfaces need (drivers/net/veth.c, veth_init_queues).
const queues = 1

// A Network makes the links of one lab. Its methods may be called from any
// goroutine, but not two at once for the same link.
type Network struct {
	handle  *netlink.Handle
	sockets map[int]*nl.SocketHandle // for requests that the handle has no method for

	asking sync.Mutex   // held while bulk is used
	bulk   *rtnl.Socket // for what each link takes several requests for

	mu         sync.Mutex  // guards what follows
	classifier *classifier // one that this kernel has; nil before the first Join
	lone       map[int]int // the end of links of which the other is at another host
}

// Lone says that a link has one end alone here, and the other at another host. It is called before the end is made.
func (n *Network) Lone(link, end int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lone == nil {
		n.lone = map[int]int{}
	}
	n.lone[link] = end
}

// Forget forgets that a link has one end alone here: another one may have its number.
func (n *Network) Forget(link int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.lone, link)
}

// ends returns the ends of a link that are here.
func (n *Network) ends(link int) []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if end, ok := n.lone[link]; ok {
		return []int{end}
	}
	return []int{0, 1}
}

// Open prepares to make links whose middles are in the caller's network
// namespace, which must be one made for the purpose: their interface indices are
// used as if nobody else took any.
func Open() (*Network, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	socket, err := nl.GetNetlinkSocketAt(-1, -1, unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("netlink: %w", err)
	}
	bulk, err := rtnl.Open()
	if err != nil {
		handle.Close()
		socket.Close()
		return nil, err
	}
	return &Network{
		handle:  handle,
		bulk:    bulk,
		sockets: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}},
	}, nil
}

// Close gives the netlink sockets back; the links stay.
func (n *Network) Close() {
	n.handle.Close()
	n.bulk.Close()
	for _, s := range n.sockets {
		s.Close()
	}
}

// An End is a link's interface in a node.
type End struct {
	Network   func() (*os.File, error) // opens the node's network namespace
	Interface string                   // its name there
	// Bridge is, instead of a Network, the bridge whose port this end is. The port's name
	// is Port's.
	Bridge *Bridge
	// Stub says, instead of a Network, that nothing is behind the end, which stays in the network's own namespace: an engine
	// carries the switch that it is at, and has the packets of the link's other end alone. It has the name that a port has.
	Stub bool
	// Outside is, instead of a Network, the network namespace of an end outside the
	// lab. Packets arrive there with all their checksums. Super-packets must not
	// be sent to it: the far node has the kernel split them (package node), as a
	// bridge's port does.
	Outside *os.File
	// Wire has the kernel split super-packets that this end sends, if it is a
	// bridge's port. A node does it itself (package node).
	Wire bool
}

// NetworkOf returns what opens the network namespace of a process, as the caller sees it.
func NetworkOf(pid int) func() (*os.File, error) {
	return func() (*os.File, error) { return os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)) }
}

// MAC is the address of a link's interface in a node, where end is 0 or 1.
// Addresses repeat only in other labs, which never meet.
func MAC(link, end int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 'n', 'd' + byte(link>>16), byte(link >> 8), byte(link), byte(end)}
}

// Middle is the name of a link's interface in the lab's namespace that belongs
// to the node at end.
func Middle(link, end int) string {
	return fmt.Sprintf("l%d%c", link, 'a'+end)
}

// firstIndex is the interface index of the first middle. Choosing indices spares
// a request to find out each. They start high because the kernel tells a veth's
// carrier up to a second late if it has the index of its peer in the node
// (net/core/link_watch.c, linkwatch_urgent_event).
const firstIndex = 1 << 20

// MiddleIndex is the interface index of a middle.
func MiddleIndex(link, end int) int { return firstIndex + 2*link + end }

// Make creates both veth pairs of a link, every interface directly where it
// belongs: creating them in one namespace and moving them costs tens of
// milliseconds each in a namespace that has many. The ends in the nodes are left
// down, for the node to configure; the middles are down until Up, and ports of
// bridges until OpenPort.
func (n *Network) Make(link, mtu int, ends [2]End) error {
	if link < 0 || link >= MaxLinks {
		return fmt.Errorf("link %d: a lab has at most %d links", link, MaxLinks)
	}
	var b rtnl.Batch
	for end, e := range ends {
		done, err := addEnd(&b, link, end, mtu, e)
		if err != nil {
			return err
		}
		defer done()
	}
	if _, err := n.do(&b); err != nil {
		return noRedirect(err)
	}
	for end := range ends {
		if err := n.finish(link, end, ends); err != nil {
			return err
		}
	}
	return nil
}

// do has the kernel do a batch of requests.
func (n *Network) do(b *rtnl.Batch) ([][]byte, error) {
	n.asking.Lock()
	defer n.asking.Unlock()
	return n.bulk.Do(b)
}

// addPair asks by one RTM_NEWLINK for the middle with the node's end as its peer.
// netlink.LinkAdd would need three more requests for the index, for turning off
// ARP (nobody is to answer from a middle) and for the middle's flags. network is that of a node.
func addPair(b *rtnl.Batch, link, end, mtu int, e End, network *os.File) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(MiddleIndex(link, end))
	msg.Flags = unix.IFF_NOARP
	msg.Change = unix.IFF_NOARP
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	theirs := nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	if e.Bridge != nil || e.Stub {
		e.Interface = Port(link, end)
		theirs.Index = int32(portIndex(link, end))
	}
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(e.Interface))
	peer.AddRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu)))
	peer.AddRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(queueLength))
	peer.AddRtAttr(unix.IFLA_ADDRESS, MAC(link, end))
	peer.AddRtAttr(unix.IFLA_NUM_TX_QUEUES, nl.Uint32Attr(queues))
	peer.AddRtAttr(unix.IFLA_NUM_RX_QUEUES, nl.Uint32Attr(queues))
	switch {
	case e.Outside != nil:
		peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(e.Outside.Fd())))
	case network != nil:
		peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(network.Fd())))
	}
	b.Add(fmt.Sprintf("veth %s to %s", Middle(link, end), e.Interface), unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, msg,
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(Middle(link, end))),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))),
		nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(queueLength)),
		nl.NewRtAttr(unix.IFLA_ADDRESS, MAC(link, 2+end)),
		nl.NewRtAttr(unix.IFLA_NUM_TX_QUEUES, nl.Uint32Attr(queues)),
		nl.NewRtAttr(unix.IFLA_NUM_RX_QUEUES, nl.Uint32Attr(queues)),
		info)
}

// Remove deletes a link with its ends in the nodes.
func (n *Network) Remove(link int) error {
	for end := range 2 {
		if err := n.handle.LinkDel(middle(link, end)); err != nil {
			return fmt.Errorf("delete %s: %w", Middle(link, end), err)
		}
	}
	return nil
}

// Up makes a link's middles carry packets, which the nodes see as a carrier.
func (n *Network) Up(link int) error {
	var b rtnl.Batch
	for _, end := range n.ends(link) {
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(MiddleIndex(link, end))
		msg.Flags, msg.Change = unix.IFF_UP, unix.IFF_UP
		b.Add("set "+Middle(link, end)+" up", unix.RTM_NEWLINK, 0, msg)
	}
	_, err := n.do(&b)
	return err
}

// Down takes a link's middles down: the nodes lose the carrier, as when a cable
// is pulled. One that has vanished with its node is no error.
func (n *Network) Down(link int) error {
	for _, end := range n.ends(link) {
		if err := n.handle.LinkSetDown(middle(link, end)); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("set %s down: %w", Middle(link, end), err)
		}
	}
	return nil
}

// Settled reports whether all interfaces of a link that are here have taken note that the
// link is up, or were set down in their node. The kernel does that some time
// after Up, and drops what is sent before; seconds later if hundreds of
// interfaces go up together, unless somebody asks for an interface (net/core,
// linkwatch_sync_dev).
func (n *Network) Settled(link int) (bool, error) {
	var of, ofPeers rtnl.Batch
	ends := n.ends(link)
	for _, end := range ends {
		addQuestion(&of, "read "+Middle(link, end), MiddleIndex(link, end), -1)
	}
	middles, err := n.statuses(&of)
	if err != nil {
		return false, err
	}
	for i, middle := range middles {
		addQuestion(&ofPeers, "read the peer of "+Middle(link, ends[i]), middle.peer, middle.namespace)
	}
	peers, err := n.statuses(&ofPeers)
	if err != nil {
		return false, err
	}
	for i, peer := range peers {
		if peer.up && !(middles[i].running && peer.running) {
			return false, nil
		}
	}
	return true, nil
}

// A status has what Settled needs to know of an interface.
type status struct {
	up        bool // administratively
	running   bool
	peer      int // its index
	namespace int // the peer's, as this one's kernel numbers it; -1 if it is the same
}

// addQuestion asks for an interface's status. Unless it is -1, namespace tells where
// the interface is.
func addQuestion(b *rtnl.Batch, what string, index, namespace int) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	data := []nl.NetlinkRequestData{msg, rtnl.SkipStatistics()}
	if namespace >= 0 {
		data = append(data, nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(namespace))))
	}
	b.Add(what, unix.RTM_GETLINK, 0, data...)
}

// statuses are the answers to questions.
func (n *Network) statuses(b *rtnl.Batch) ([]status, error) {
	answers, err := n.do(b)
	if err != nil {
		return nil, err
	}
	all := make([]status, len(answers))
	for i, answer := range answers {
		if all[i], err = parseStatus(answer); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func parseStatus(message []byte) (status, error) {
	if len(message) < unix.SizeofIfInfomsg {
		return status{}, fmt.Errorf("an answer of %d bytes about an interface", len(message))
	}
	answer := nl.DeserializeIfInfomsg(message)
	s := status{up: answer.Flags&unix.IFF_UP != 0, namespace: -1}
	attrs, err := nl.ParseRouteAttr(message[answer.Len():])
	if err != nil {
		return status{}, err
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFLA_OPERSTATE:
			s.running = netlink.LinkOperState(a.Value[0]) == netlink.OperUp
		case unix.IFLA_LINK:
			s.peer = int(binary.NativeEndian.Uint32(a.Value))
		case unix.IFLA_LINK_NETNSID:
			s.namespace = int(binary.NativeEndian.Uint32(a.Value))
		}
	}
	return s, nil
}

// numbers are the link and the end that a middle belongs to.
func numbers(index int) (link, end int) { return (index - firstIndex) / 2, (index - firstIndex) % 2 }

func (n *Network) request(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = n.sockets
	return req
}

// middle is a middle as the netlink package wants to be told of it.
func middle(link, end int) netlink.Link {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: MiddleIndex(link, end), Name: Middle(link, end)}}
}
