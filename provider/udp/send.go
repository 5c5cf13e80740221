package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/descriptor"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

const (
	// firstPort is the first of the source ports that RoCEv2 uses for entropy
	// (roce.md 1). They are divided into ranges, one per socket: eight spread
	// flows well enough, and each costs time to open and memory of the kernel.
	firstPort      = 0xC000
	sourcePortBits = 3
	sourcePorts    = 1 << sourcePortBits
	portRange      = (0xFFFF - firstPort + 1) / sourcePorts

	// sendBuffer is the bytes of memory that packets may take between a socket
	// and the wire. It matters only where something, such as a shaper, holds packets
	// back. Then it holds more than a device's queue pairs have in flight on a path whose
	// queue they fill, which is their credit (provider.DefaultReceiveBuffer) and little else.
	sendBuffer = 8 << 20

	// maxUDPPayload is the largest UDP payload over IPv4 (65,535 bytes less
	// the headers). IPv6 would take 20 more.
	maxUDPPayload = 65535 - 20 - 8
	// maxSegments is UDP_MAX_SEGMENTS of kernels before 6.10; of packets of
	// 4 KiB fewer fit anyway.
	maxSegments = 64

	// pagedFrom is the size in bytes from which a single packet, too, is sent
	// as one to be cut. The kernel then keeps it in pages that packets share,
	// not in a buffer of the next power of two, so that one of 4 KiB takes little more
	// than half as much of the peer's receive buffer.
	pagedFrom = 512

	// Bounds on what one sendmmsg takes.
	sendMessages = 16
	sendBytes    = 4 << 16
)

// A sender is a socket that packets leave from.
type sender struct {
	fd int
	// plain is set while the kernel refuses to segment on this socket's way.
	plain atomic.Bool
}

// SourcePort returns the UDP source port, 0xC000 to 0xFFFF, that a flow from a local
// address is to use, and 0 if the carrier has no such address. Equal hashes give
// equal ports. It may open a socket (Config.Lazy); if that fails, the flow shares
// the port of others, as do flows of equal hashes.
func (c *Carrier) SourcePort(local netip.Addr, hash uint32) uint16 {
	i := hash * 2654435769 >> (32 - sourcePortBits) // Fibonacci hashing: neighbours go apart
	c.mu.RLock()
	ports := c.ports[local]
	port := uint16(0)
	if ports != nil {
		port = ports[i]
	}
	c.mu.RUnlock()
	if ports == nil || port != 0 {
		return port
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ports[i] == 0 && (c.closed || c.openSender(local, i, newSocketOf(local)) != nil) {
		return ports[0]
	}
	return ports[i]
}

// openSenders opens the sockets that send from a local address, or but the first of
// them, each of one that is unbound.
func (c *Carrier) openSenders(local netip.Addr, lazy bool, unbound func() (fd int, err error)) error {
	c.ports[local] = new([sourcePorts]uint16)
	for i := range uint32(sourcePorts) {
		if err := c.openSender(local, i, unbound); err != nil {
			return err
		}
		if lazy {
			break
		}
	}
	return nil
}

// openSender opens the i-th of the sockets that send from a local address, of one that is unbound.
func (c *Carrier) openSender(local netip.Addr, i uint32, unbound func() (fd int, err error)) error {
	s, port, err := openSender(local, uint16(firstPort+i*portRange), unbound)
	if err != nil {
		return err
	}
	c.ports[local][i] = port
	c.senders[netip.AddrPortFrom(local, port)] = s
	return nil
}

// openSender opens a socket that sends from the first port that nobody has of
// the range that begins at port. It does not ask for SO_REUSEPORT: a port is of
// one socket of one process.
func openSender(local netip.Addr, port uint16, unbound func() (fd int, err error)) (_ *sender, _ uint16, err error) {
	fd, err := unbound()
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	if err := setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer); err != nil {
		return nil, 0, err
	}
	// Nobody reads what strangers send to this port: as little as possible is kept.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil {
		return nil, 0, os.NewSyscallError("setsockopt SO_RCVBUF", err)
	}
	err = bindSocket(fd, local, port)
	for ; errors.Is(err, unix.EADDRINUSE) && port%portRange != portRange-1; port++ {
		err = bindSocket(fd, local, port+1)
	}
	if err != nil {
		return nil, 0, err
	}
	descriptor.Note(fd)
	return &sender{fd: fd}, port, nil
}

func (s *sender) close() error { return os.NewSyscallError("close", unix.Close(s.fd)) }

// A superPacket describes one message: a packet, or several that the kernel takes
// as one and cuts apart. All have the size of the first, but the last may be
// shorter, and its traffic class.
type superPacket struct {
	packets int
	bytes   int
	segment int   // bytes of the first packet
	class   uint8 // the traffic class
	full    bool  // a shorter packet has been added
	cut     bool  // the kernel is asked to cut it apart, if need be
}

// fits reports whether a packet of size bytes and a traffic class may follow.
func (s *superPacket) fits(size int, class uint8) bool {
	return !s.full && size <= s.segment && class == s.class && s.bytes+size <= maxUDPPayload && s.packets < maxSegments
}

func (s *superPacket) add(size int) {
	s.packets++
	s.bytes += size
	s.full = size < s.segment
}

// A sending is the scratch memory of one Send. Packets are copied into it as
// a whole. Gathering payloads from the consumer's memory instead would save the copy,
// and fails when the consumer writes to that memory, as
// the target of a READ may: the bytes that the ICRC covers would no longer be
// those that the kernel copies, and the peer would drop the packet.
type sending struct {
	outgoing outgoing
	messages [sendMessages]superPacket
	sealer   roce.Sealer
	buf      [sendBytes]byte
}

var sendings = sync.Pool{New: func() any { return new(sending) }}

// Send sends packets of one flow, in order; flow.SourcePort must come from
// SourcePort. It may be called from any goroutine, also for several flows at
// once. When it returns, the packets and their payloads are the caller's
// again.
//
// Packets that the kernel does not take are lost, as on a wire, and counted. Send
// does not wait for room where a queue on this host is full: whoever calls it holds the
// lock of a queue pair, for which a consumer would wait that posts (NDK-CB-01).
// The only error is that the carrier is closed.
func (c *Carrier) Send(flow roce.Flow, packets []roce.Packet) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return fmt.Errorf("udp carrier: send: %w", net.ErrClosed)
	}
	s := c.senders[netip.AddrPortFrom(flow.Local, flow.SourcePort)]
	if s == nil || flow.Remote.BitLen() != flow.Local.BitLen() {
		c.counters.sendDropped.Add(uint64(len(packets)))
		return nil
	}
	b := sendings.Get().(*sending)
	for len(packets) > 0 {
		packets = packets[c.sendBatch(s, b, &flow, packets):]
	}
	sendings.Put(b)
	if c.config.Moved != nil {
		c.config.Moved()
	}
	return nil
}

// sendBatch sends, or loses, packets from the first on, and returns how many.
func (c *Carrier) sendBatch(s *sender, b *sending, flow *roce.Flow, packets []roce.Packet) (done int) {
	n := &c.counters
	if b.fill(flow, packets, s.plain.Load()) == 0 {
		n.sendTooBig.Add(1)
		return 1
	}
	for first := 0; first < b.outgoing.n; {
		sent, errno := b.outgoing.send(s.fd, first)
		for i := range b.messages[first : first+sent] {
			m := &b.messages[first+i]
			done += m.packets
			n.packetsSent.Add(uint64(m.packets))
			if m.packets > 1 {
				n.superPacketsSent.Add(1)
			}
		}
		first += sent
		if errno == 0 || errno == unix.EINTR {
			continue
		}
		lost := b.messages[first].packets
		switch errno {
		case unix.EIO, unix.EINVAL:
			// Perhaps the device, or a transformation on the way, cannot
			// segment (udp_send_skb in net/ipv4/udp.c). Then the packets, made
			// anew since IPv4 identification and ICRC differ, pass one by one.
			s.plain.Store(b.messages[first].cut)
			if b.messages[first].cut {
				n.segmentationRefused.Add(1)
				return done
			}
			n.sendDropped.Add(uint64(lost))
		case unix.EAGAIN:
			// There is no room. The rest is lost at once, as at the end of a queue:
			// smaller messages that would find some would only overtake.
			n.sendDropped.Add(uint64(len(packets) - done))
			return len(packets)
		case unix.EMSGSIZE:
			// Up to Linux 6.13 super-packets of packets that are too big are
			// refused as if they could not be cut. Now the reason is known.
			s.plain.Store(false)
			n.sendTooBig.Add(uint64(lost))
		default:
			n.sendDropped.Add(uint64(lost))
		}
		done += lost
		first++
	}
	return done
}

// fill makes messages of as many packets, from the first on, as there is room
// for, and returns how many. If plain is set, every packet is a message.
func (b *sending) fill(flow *roce.Flow, packets []roce.Packet, plain bool) int {
	b.outgoing.reset(flow.Remote)
	buf := b.buf[:0]
	m := &superPacket{full: true}
	for i := range packets {
		p := &packets[i]
		size := p.Header.Opcode.HeaderLen() + (p.PayloadLen()+3)&^3 + 4 // padding and ICRC
		if len(buf)+size > len(b.buf) {
			return i
		}
		if plain || !m.fits(size, p.Class) {
			if b.outgoing.n == sendMessages {
				return i
			}
			m = &b.messages[b.outgoing.n]
			*m = superPacket{segment: size, class: p.Class}
			b.outgoing.open(b.buf[len(buf):])
			if m.class != 0 {
				b.outgoing.classify(m.class)
			}
		}
		id := uint16(m.packets)
		m.add(size)
		b.outgoing.extend(size)
		if !plain && !m.cut && (m.packets == 2 || size >= pagedFrom) {
			m.cut = true
			b.outgoing.segment(m.segment)
		}

		buf = b.sealer.Append(buf, flow, id, p)
	}
	return len(packets)
}
