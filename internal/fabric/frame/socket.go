package frame

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Open opens a packet socket on an interface of the present network namespace.
// It is non-blocking, gives every frame with its virtio header and the time the
// kernel received it, and sends frames that begin with one. outgoing has it
// give what this namespace sends through the interface, too. buffer is the
// receive buffer to ask for, in bytes; without privilege in the initial user
// namespace the kernel grants less (net.core.rmem_max).
func Open(iface string, outgoing bool, buffer int) (fd int, err error) {
	// Not SO_TIMESTAMPNS: it gives a frame without a stamp the time at which it is read.
	const software = unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE
	options := []option{
		{"PACKET_VNET_HDR", unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{"SO_TIMESTAMPING", unix.SOL_SOCKET, unix.SO_TIMESTAMPING, software},
	}
	if !outgoing {
		options = append(options, ignoreOutgoing)
	}
	return open(iface, buffer, options...)
}

// OpenPlain opens a packet socket without virtio headers and times. It gives what enters the
// interface, and sends frames that begin with their Ethernet header.
func OpenPlain(iface string, buffer int) (fd int, err error) {
	return open(iface, buffer, ignoreOutgoing)
}

// An option is a socket option.
type option struct {
	what               string
	level, name, value int
}

var ignoreOutgoing = option{"PACKET_IGNORE_OUTGOING", unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1}

func open(iface string, buffer int, options ...option) (fd int, err error) {
	// Protocol 0 receives nothing until bind names one, so that no frame of
	// another interface gets in.
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		if err = configure(fd, iface, buffer, options); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("packet socket on %s: %w", iface, err)
	}
	return fd, nil
}

// configure sets options and the receive buffer, and binds the socket to the interface.
func configure(fd int, iface string, buffer int, options []option) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		options = append(options, option{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, buffer})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("%s: %w", o.what, err)
		}
	}
	index, err := interfaceIndex(fd, iface)
	if err != nil {
		return err
	}
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: index}))
}

// interfaceIndex returns the index of an interface of the socket's network namespace.
// net.InterfaceByName would have the kernel describe every interface there is.
func interfaceIndex(fd int, iface string) (int, error) {
	request, err := unix.NewIfreq(iface)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, err
	}
	return int(request.Uint32()), nil
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

// Overruns returns how many frames the socket had no room for since the last call.
func Overruns(fd int) (uint64, error) {
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("PACKET_STATISTICS: %w", err)
	}
	return uint64(stats.Drops), nil
}

// A Receiver takes frames off packet sockets, several at a time. It is not for
// use by several goroutines at once.
type Receiver struct {
	buffers  [][]byte
	messages []mmsghdr
	vectors  []unix.Iovec
	control  []stamp
	from     []unix.RawSockaddrLinklayer // nil unless ways are asked for
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

// stamp is the one control message there is: struct scm_timestamping, of which the
// last two are of hardware.
type stamp struct {
	header unix.Cmsghdr
	times  [3]unix.Timespec
}

// NewReceiver makes a Receiver into the given buffers, of MaxLen bytes unless
// longer frames may be cut.
func NewReceiver(buffers [][]byte) *Receiver {
	n := len(buffers)
	r := &Receiver{
		buffers: make([][]byte, n), messages: make([]mmsghdr, n),
		vectors: make([]unix.Iovec, n), control: make([]stamp, n),
	}
	for i, b := range buffers {
		r.Replace(i, b)
		h := &r.messages[i].header
		h.Iov, h.Iovlen, h.Control = &r.vectors[i], 1, (*byte)(unsafe.Pointer(&r.control[i]))
	}
	return r
}

// KeepDirections has Receive keep the direction of frames, for Outgoing.
func (r *Receiver) KeepDirections() {
	r.from = make([]unix.RawSockaddrLinklayer, len(r.messages))
	for i := range r.messages {
		r.messages[i].header.Name = (*byte)(unsafe.Pointer(&r.from[i]))
	}
}

// Outgoing reports whether frame i is one that this namespace sent through the
// interface, if directions are kept.
func (r *Receiver) Outgoing(i int) bool { return r.from[i].Pkttype == unix.PACKET_OUTGOING }

// Replace gives the Receiver another buffer i; the caller keeps the old one.
func (r *Receiver) Replace(i int, b []byte) {
	r.buffers[i] = b
	r.vectors[i].Base = &b[0]
	r.vectors[i].SetLen(len(b))
}

// Receive takes up to as many frames as there are buffers and returns how many it
// got. It does not wait: without frames it returns unix.EAGAIN.
func (r *Receiver) Receive(fd int) (int, error) {
	for i := range r.messages {
		r.messages[i].header.Controllen = uint64(unsafe.Sizeof(stamp{}))
		if r.from != nil {
			r.messages[i].header.Namelen = unix.SizeofSockaddrLinklayer
		}
	}
	for {
		// A raw system call, because it never blocks: no need to tell the scheduler.
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.messages[0])),
			uintptr(len(r.messages)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// Frame returns what the last Receive put into buffer i, with its virtio header.
func (r *Receiver) Frame(i int) []byte { return r.buffers[i][:r.messages[i].length] }

// Cut reports whether frame i was longer than its buffer.
func (r *Receiver) Cut(i int) bool { return r.messages[i].header.Flags&unix.MSG_TRUNC != 0 }

// Stamp returns when the kernel received or sent frame i, in ns of the wall clock
// since 1970, and whether the kernel says so. It does not of the first frames after
// nobody wanted stamps: it begins to stamp in the background. Of these Stamp returns
// the time now.
func (r *Receiver) Stamp(i int) (at int64, stamped bool) {
	c := &r.control[i]
	if r.messages[i].header.Controllen < uint64(unsafe.Sizeof(stamp{})) || c.header.Level != unix.SOL_SOCKET || c.header.Type != unix.SCM_TIMESTAMPING {
		return time.Now().UnixNano(), false
	}
	return c.times[0].Nano(), true
}
