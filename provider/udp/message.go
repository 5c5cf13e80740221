package udp

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// This file is the only one that hands memory to the kernel by address.
//
// That memory is safe from the garbage collector for three reasons. The
// message headers, names, control data and buffers are fields of outgoing and
// incoming, which are on the heap and never copied; the collector moves nothing
// there. Headers and iovecs hold addresses in fields of pointer type, which keep
// alive what they point to. And the address of the headers themselves becomes a
// number only in the argument list of the system call, which keeps them alive
// until it returns.

// A sockaddr is room for a struct sockaddr_in or sockaddr_in6.
type sockaddr [unix.SizeofSockaddrInet6]byte

// put writes an address and returns its length in bytes.
func (s *sockaddr) put(a netip.Addr, port uint16) uint32 {
	*s = sockaddr{}
	binary.BigEndian.PutUint16(s[2:], port)
	if a.Is4() {
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET)
		a4 := a.As4()
		copy(s[4:], a4[:])
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
	a16 := a.As16()
	copy(s[8:], a16[:])
	return unix.SizeofSockaddrInet6
}

// get returns the address that the kernel wrote.
func (s *sockaddr) get() (netip.Addr, uint16) {
	port := binary.BigEndian.Uint16(s[2:])
	if binary.NativeEndian.Uint16(s[:]) == unix.AF_INET {
		return netip.AddrFrom4([4]byte(s[4:8])), port
	}
	return netip.AddrFrom16([16]byte(s[8:24])), port
}

// A control is one control message, a number, with the padding that a further
// one needs: UDP_SEGMENT with 16 bits, UDP_GRO with 32, IP_TOS with 8 when it is
// received, and 32 when it is sent, IPV6_TCLASS with 32.
type control struct {
	header unix.Cmsghdr
	value  [8]byte
}

const controlLen = int(unsafe.Sizeof(control{}))

// controls are those of one message: how it is cut, or was joined, and its traffic class.
type controls [2]control

// outgoing is the messages of one sendmmsg, all to one peer.
type outgoing struct {
	messages [sendMessages]unix.Mmsghdr
	iovecs   [sendMessages]unix.Iovec
	controls [sendMessages]controls
	peer     sockaddr
	peerLen  uint32
	n        int // messages in use
}

// reset begins anew, with messages to port 4791 of peer.
func (o *outgoing) reset(peer netip.Addr) {
	o.n = 0
	o.peerLen = o.peer.put(peer, roce.Port)
}

// open begins a message, empty as yet, of which there must be room for one
// more. Its bytes will be those at the beginning of b.
func (o *outgoing) open(b []byte) {
	iov := &o.iovecs[o.n]
	iov.Base = unsafe.SliceData(b)
	iov.SetLen(0)
	h := &o.messages[o.n].Hdr
	*h = unix.Msghdr{Name: &o.peer[0], Namelen: o.peerLen, Iov: iov}
	h.SetIovlen(1)
	o.n++
}

// extend makes the newest message n bytes longer.
func (o *outgoing) extend(n int) {
	iov := &o.iovecs[o.n-1]
	iov.SetLen(int(iov.Len) + n)
}

// segment makes the newest message a super-packet, to be cut into datagrams of
// size bytes, of which the last may be shorter.
func (o *outgoing) segment(size int) {
	binary.NativeEndian.PutUint16(o.control(unix.SOL_UDP, unix.UDP_SEGMENT, 2), uint16(size))
}

// classify gives the newest message a traffic class.
func (o *outgoing) classify(class uint8) {
	level, kind := int32(unix.IPPROTO_IP), int32(unix.IP_TOS)
	if o.peerLen == unix.SizeofSockaddrInet6 {
		level, kind = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	binary.NativeEndian.PutUint32(o.control(level, kind, 4), uint32(class))
}

// control gives the newest message a further control message, and returns where its value of
// size bytes goes.
func (o *outgoing) control(level, kind int32, size int) []byte {
	all, h := &o.controls[o.n-1], &o.messages[o.n-1].Hdr
	used := int(h.Controllen)
	c := &all[used/controlLen]
	c.header.Level, c.header.Type = level, kind
	c.header.SetLen(unix.CmsgLen(size))
	h.Control = (*byte)(unsafe.Pointer(all))
	h.SetControllen(used + controlLen)
	return c.value[:]
}

// send sends the messages from first on and returns how many it sent. If it
// sent none, it returns the error of the first. It does not wait for room, so that Go's
// scheduler need not know of the system call.
func (o *outgoing) send(fd, first int) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&o.messages[first])), uintptr(o.n-first), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// incoming is the messages of one recvmmsg.
type incoming struct {
	messages [receiveMessages]unix.Mmsghdr
	controls [receiveMessages]controls
	iovecs   [receiveMessages]unix.Iovec
	peers    [receiveMessages]sockaddr
	// buffers become resident page by page as datagrams fill them.
	buffers [receiveMessages][receiveBytes]byte
	used    int // messages that the kernel has written to, and whose headers it has changed
	vlen    int // how many messages to ask for
}

func newIncoming() *incoming {
	m := &incoming{used: receiveMessages, vlen: 1}
	for i := range m.messages {
		iov := &m.iovecs[i]
		iov.Base = &m.buffers[i][0]
		iov.SetLen(receiveBytes)
		h := &m.messages[i].Hdr
		h.Name = &m.peers[i][0]
		h.Iov = iov
		h.SetIovlen(1)
		h.Control = (*byte)(unsafe.Pointer(&m.controls[i]))
	}
	return m
}

// receive takes what is there and waits for nothing: if there is nothing, the
// error is EAGAIN. more says that there may be more.
//
// It asks for twice as many messages as there were last: to find that there is no other takes
// the kernel as long as everything that we do with a single small one. The system call
// is not announced to Go's scheduler, as it cannot wait.
func (m *incoming) receive(fd int) (n int, more bool, errno syscall.Errno) {
	for i := range m.messages[:m.used] {
		h := &m.messages[i].Hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(len(m.controls[i]) * controlLen)
	}
	m.used = 0
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&m.messages[0])), uintptr(m.vlen), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		m.vlen = 1
		return 0, false, errno
	}
	m.used = int(r)
	more = m.used == m.vlen
	m.vlen = min(2*m.used, receiveMessages)
	return m.used, more, 0
}

// message returns the i-th message received: its bytes, the size of the datagrams
// that the kernel joined in it, which is that of the whole if it is but one, and the traffic
// class of all of them (inet_gro_receive in net/ipv4/af_inet.c, ipv6_gro_receive).
func (m *incoming) message(i int) (b []byte, segment int, class uint8) {
	b = m.buffers[i][:m.messages[i].Len]
	all := &m.controls[i]
	for j := range int(m.messages[i].Hdr.Controllen) / controlLen {
		switch c := &all[j]; {
		case c.header.Level == unix.SOL_UDP && c.header.Type == unix.UDP_GRO:
			segment = int(int32(binary.NativeEndian.Uint32(c.value[:])))
		case c.header.Level == unix.IPPROTO_IP && c.header.Type == unix.IP_TOS:
			class = c.value[0]
		case c.header.Level == unix.IPPROTO_IPV6 && c.header.Type == unix.IPV6_TCLASS:
			class = uint8(binary.NativeEndian.Uint32(c.value[:]))
		}
	}
	if segment <= 0 {
		segment = len(b)
	}
	return b, segment, class
}

// drops counts the messages that a socket has dropped for want of room, 0 if the
// kernel does not say (sk_get_meminfo in net/core/sock.c).
func drops(fd int) uint64 { return uint64(memory(fd)[unix.SK_MEMINFO_DROPS]) }

// memory returns what a socket has of the kernel's memory, zero if the kernel does not say.
func memory(fd int) (info [unix.SK_MEMINFO_VARS]uint32) {
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return [unix.SK_MEMINFO_VARS]uint32{}
	}
	return info
}
