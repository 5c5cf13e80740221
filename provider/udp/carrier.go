// Package udp carries an adapter's RoCEv2 packets over Linux UDP sockets.
//
// It moves packets and nothing else: it computes and checks ICRCs, joins packets
// into super-packets and takes them apart (UDP GSO and GRO), and counts. It knows
// neither queue pairs nor connections, and sends nothing of its own accord.
//
// At every local address one socket is bound to port 4791 and only receives;
// packets leave from up to eight others, bound to ports that serve ECMP as entropy.
// All are unconnected and forbid fragmentation, which makes the IPv4
// identification, which the ICRC covers, predictable (roce.md 17).
//
// Foreign peers, such as Linux rxe, count their identifications up. A socket does
// not show them, so their packets are solved for them, and must then be near to where
// the peer had counted to: one corrupted packet in 2^21 passes (one in 2^16 after
// the peer was silent for 65 ms), and of those from peers of our kind one in 2^25,
// as before. The alternative, a raw socket that sees the headers of foreign
// packets, would make it one in 2^32. Solving takes a few percent of the time of a
// short packet, for foreign packets only; an idle raw socket with a filter takes as
// much, of all of ours. It also needs
// CAP_NET_RAW in each process that shares an adapter, and misses the first packets
// of every peer. So packets are solved.
//
// Several processes can share an adapter's addresses. One opens them, and hands
// out further sockets of port 4791; each receives what is for one range of
// queue pair numbers, and a Carrier of another process is opened with it.
//
// Start reading at Carrier; send.go and receive.go are the two directions,
// watch.go is about who receives, busypoll.go about how long to look before sleeping,
// message.go is where memory is handed to the kernel, identification.go is about
// foreign peers, share.go about several processes, multicast.go about groups.
package udp

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// A Config says where and how to open a Carrier.
type Config struct {
	// Addresses are the local addresses. IPv6 ones must not be link-local.
	Addresses []netip.Addr
	// Interfaces are the names of the interfaces that have the addresses, in the same
	// order. If nil, Open has the kernel list all interfaces to find them.
	Interfaces []string
	// ReceiveBuffer holds the bytes of memory to ask for at each address, to
	// keep packets in until they are received; 0 means Memory(provider.DefaultReceiveBuffer).
	ReceiveBuffer int
	// Sockets, one for each of Addresses, are a share that the Carrier that
	// opened the addresses has handed out (Share). They are duplicated, stay the
	// caller's, and have the receive buffers they have. If nil, Open makes
	// sockets, and fails if the addresses are in use.
	Sockets []*os.File
	// Bound, one for each of Addresses, are what Bind has returned for them: Open takes these
	// sockets instead of making some, with all that has arrived there since. They are
	// duplicated, and stay the caller's.
	Bound []*os.File
	// Spare, with Sockets, are what Spare has made for Addresses: the Carrier takes the
	// other sockets that it needs from there. They are duplicated, and stay the caller's.
	// If nil, Open makes them, in the network namespace of the calling thread, which must
	// then be that of Sockets.
	Spare []*os.File
	// BusyPoll bounds the time for which the Carrier looks for more after it has received
	// something, before it sleeps; 0 means DefaultBusyPoll, less means never.
	BusyPoll time.Duration
	// Lazy has the sockets that packets leave from opened when the first flow is to use
	// them, but for one at each address, by the thread that asks for the flow's
	// SourcePort. So the process has to stay in one network namespace. Open takes less time,
	// and a carrier without traffic less of the kernel's memory.
	Lazy bool
	// Moved, unless it is nil, is called whenever packets were received, also such as are of no use, or sent. It must return
	// soon, and not call the Carrier.
	Moved func()
}

// Charged returns the least memory that the kernel takes for a receive buffer of so many bytes of
// packets with 1 KiB of payload or more. It charges for the memory that packets lie in. A packet of
// 4 KiB that a link emulator sent on lies in a buffer of 8 KiB, with the kernel's record of it; one that
// a Carrier sent lies in pages that packets share.
func Charged(packets int) (memory int) { return packets / 4 * 9 }

// Memory returns the bytes to ask of the kernel for each address, where credit is given for
// so many bytes of packets (provider.Config.ReceiveBuffer).
//
// It is more than what is charged for those, since peers also have in flight, beyond their
// credit, as much as their paths hold: that arrives, too, while the receiver gets no
// processor. At 10 Gb/s 5 ms without one are 6 MB.
func Memory(packets int) int { return 8 * packets }

var _ provider.Poller = (*Carrier)(nil)

// A Carrier is the open sockets of one adapter. Its methods may be called from
// any goroutine.
type Carrier struct {
	listeners []*listener // in the order of Config.Addresses; fixed by Open
	counters  counters

	// Fixed by Open.
	routeSockets map[netip.Addr]*routeSocket
	adopted      bool // the listeners are another Carrier's share

	config Config // of further sockets

	receiver provider.Receiver // set by Listen

	closing sync.Once
	sharing sync.Mutex               // guards the listeners' members, and groups; locked before mu
	groups  map[netip.Addr]*listener // of multicast that were joined; nil when closed

	// mu guards what follows. It is held for reading while packets are sent.
	mu      sync.RWMutex
	closed  bool
	senders map[netip.AddrPort]*sender          // by local address and source port
	ports   map[netip.Addr]*[sourcePorts]uint16 // 0: the sender is not open
}

// counters count since the carrier was opened.
type counters struct {
	packetsSent, superPacketsSent         atomic.Uint64
	sendDropped, sendTooBig               atomic.Uint64
	segmentationRefused                   atomic.Uint64
	packetsReceived, superPacketsReceived atomic.Uint64
	icrcErrors, malformed                 atomic.Uint64
}

// Open binds the sockets that receive, in the network namespace of the calling
// thread unless the Config has Spare. Packets that arrive before Listen wait in their
// buffers.
func Open(cfg Config) (*Carrier, error) {
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("udp carrier: no local address")
	}
	if cfg.Sockets != nil && len(cfg.Sockets) != len(cfg.Addresses) {
		return nil, fmt.Errorf("udp carrier: %d sockets for %d addresses", len(cfg.Sockets), len(cfg.Addresses))
	}
	if cfg.Bound != nil && (cfg.Sockets != nil || len(cfg.Bound) != len(cfg.Addresses)) {
		return nil, fmt.Errorf("udp carrier: %d bound sockets for %d addresses, expected one for each and no share", len(cfg.Bound), len(cfg.Addresses))
	}
	if cfg.Spare != nil && len(cfg.Spare) != len(cfg.Addresses)*spareSockets {
		return nil, fmt.Errorf("udp carrier: %d spare sockets for %d addresses", len(cfg.Spare), len(cfg.Addresses))
	}
	if cfg.ReceiveBuffer == 0 {
		cfg.ReceiveBuffer = Memory(provider.DefaultReceiveBuffer)
	}
	switch {
	case cfg.BusyPoll == 0:
		cfg.BusyPoll = DefaultBusyPoll
	case cfg.BusyPoll < 0:
		cfg.BusyPoll = 0
	}
	if cfg.Interfaces == nil {
		interfaces, err := interfacesWith(cfg.Addresses)
		if err != nil {
			return nil, fmt.Errorf("udp carrier: %w", err)
		}
		cfg.Interfaces = interfaces
	}
	if len(cfg.Interfaces) != len(cfg.Addresses) {
		return nil, fmt.Errorf("udp carrier: %d interfaces for %d addresses", len(cfg.Interfaces), len(cfg.Addresses))
	}
	c := &Carrier{
		senders:      make(map[netip.AddrPort]*sender),
		ports:        make(map[netip.Addr]*[sourcePorts]uint16),
		routeSockets: make(map[netip.Addr]*routeSocket),
		adopted:      cfg.Sockets != nil,
		config:       Config{ReceiveBuffer: cfg.ReceiveBuffer, BusyPoll: cfg.BusyPoll, Moved: cfg.Moved},
		groups:       make(map[netip.Addr]*listener),
	}
	for i, local := range cfg.Addresses {
		if err := c.open(&cfg, i); err != nil {
			err = fmt.Errorf("udp carrier: address %v: %w", local, err)
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Bind makes the sockets that receive at addresses, in their order, in the network namespace of the
// calling thread, for an Open somewhere else (Config.Bound). Packets wait in the sockets, which
// are the caller's. receiveBuffer is as in a Config.
func Bind(addresses []netip.Addr, receiveBuffer int) (bound []*os.File, err error) {
	if receiveBuffer == 0 {
		receiveBuffer = Memory(provider.DefaultReceiveBuffer)
	}
	for _, local := range addresses {
		fd, err := openGroup(local, receiveBuffer)
		if err != nil {
			for _, f := range bound {
				err = errors.Join(err, f.Close())
			}
			return nil, fmt.Errorf("udp carrier: address %v: %w", local, err)
		}
		bound = append(bound, os.NewFile(uintptr(fd), netip.AddrPortFrom(local, roce.Port).String()))
	}
	return bound, nil
}

// open opens the sockets of the i-th address.
func (c *Carrier) open(cfg *Config, i int) error {
	local := cfg.Addresses[i]
	if !local.IsValid() || local.Is4In6() || local.Zone() != "" || local.IsUnspecified() || local.IsMulticast() {
		return errors.New("cannot be a local address")
	}
	if c.routeSockets[local] != nil {
		return errors.New("given twice")
	}
	if cfg.Interfaces[i] == "" {
		return errors.New("no interface has it")
	}
	var fd int
	var err error
	switch {
	case c.adopted:
		fd, err = duplicateChecked(local, cfg.Sockets[i])
	case cfg.Bound != nil:
		fd, err = duplicateChecked(local, cfg.Bound[i])
	default:
		fd, err = openGroup(local, cfg.ReceiveBuffer)
	}
	if err != nil {
		return err
	}
	l, err := newListener(local, cfg.Interfaces[i], fd, cfg, &c.counters)
	if err != nil {
		return err
	}
	c.listeners = append(c.listeners, l)
	unbound := newSocketOf(local)
	if cfg.Spare != nil {
		unbound = takeSpare(cfg.Spare[i*spareSockets : (i+1)*spareSockets])
	}
	s, err := openRouteSocket(local, unbound)
	if err != nil {
		return err
	}
	c.routeSockets[local] = s
	return c.openSenders(local, cfg.Lazy && cfg.Spare == nil, unbound)
}

// Listen starts delivery to r. It is called once, before the first Send.
func (c *Carrier) Listen(r provider.Receiver) {
	c.receiver = r
	for _, l := range c.listeners {
		go l.receive(r)
	}
}

// Interfaces returns the names of the interfaces that have Addresses, in the same order.
func (c *Carrier) Interfaces() []string {
	names := make([]string, len(c.listeners))
	for i, l := range c.listeners {
		names[i] = l.device
	}
	return names
}

// Addresses returns the local addresses, as configured.
func (c *Carrier) Addresses() []netip.Addr {
	addresses := make([]netip.Addr, len(c.listeners))
	for i, l := range c.listeners {
		addresses[i] = l.local
	}
	return addresses
}

// MTU returns the present IP MTU, in bytes, of the interface that has a local
// address; 0 if the carrier has no such address or the interface is gone.
func (c *Carrier) MTU(local netip.Addr) int {
	for _, l := range c.listeners {
		if l.local == local {
			return l.mtu()
		}
	}
	return 0
}

// ReceiveBuffer returns the bytes of packets with 1 KiB of payload or more that may
// wait to be received at a local address and none is lost, whoever sent them: those
// that are Charged no more than the kernel has granted.
func (c *Carrier) ReceiveBuffer() int {
	granted := math.MaxInt
	for _, l := range c.listeners {
		granted = min(granted, l.granted)
	}
	return granted / 9 * 4
}

// Counters returns the carrier's counts since Open, by name:
//
//   - packets_sent, packets_received: RoCE packets, one by one
//   - super_packets_sent, super_packets_received: how often the kernel took or
//     gave several packets as one
//   - send_too_big: packets not sent because they exceed the path's MTU;
//     send_dropped: packets not sent for other reasons. Packets that a queueing
//     discipline drops count as sent, since the kernel tells only sockets that also
//     want ICMP errors (udp_send_skb in net/ipv4/udp.c); tc counts them
//   - segmentation_refused: how often the kernel refused a super-packet, after
//     which packets were sent one by one
//   - receive_overflow: packets or super-packets that the kernel dropped because
//     the receive buffer was full
//   - icrc_errors, malformed: packets received and dropped
func (c *Carrier) Counters() map[string]uint64 {
	var overflow uint64
	for _, l := range c.listeners {
		overflow += l.overflow()
	}
	n := &c.counters
	return map[string]uint64{
		"packets_sent":           n.packetsSent.Load(),
		"super_packets_sent":     n.superPacketsSent.Load(),
		"send_dropped":           n.sendDropped.Load(),
		"segmentation_refused":   n.segmentationRefused.Load(),
		"send_too_big":           n.sendTooBig.Load(),
		"packets_received":       n.packetsReceived.Load(),
		"super_packets_received": n.superPacketsReceived.Load(),
		"receive_overflow":       overflow,
		"icrc_errors":            n.icrcErrors.Load(),
		"malformed":              n.malformed.Load(),
	}
}

// Close closes the carrier's sockets and returns when no call of the Receiver
// runs any more. Carriers that hold shares of it can still send, but receive nothing
// more. The counters can still be read. A second Close only waits for the first.
func (c *Carrier) Close() (err error) {
	c.closing.Do(func() { err = c.close() })
	return err
}

func (c *Carrier) close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock() // a Receiver that is waited for below may be about to send

	var errs []error
	for _, s := range c.senders {
		errs = append(errs, s.close())
	}
	for _, s := range c.routeSockets {
		errs = append(errs, s.close())
	}
	c.sharing.Lock()
	for _, l := range c.listeners {
		errs = append(errs, l.close())
	}
	for _, l := range c.groups {
		errs = append(errs, l.close())
	}
	c.groups = nil
	c.sharing.Unlock()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("udp carrier: close: %w", err)
	}
	return nil
}
