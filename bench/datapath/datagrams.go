package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is UDP as the kernel gives it to a program: sockets without Go's poller,
// and system calls that take several messages. Memory that the kernel is handed by
// address lies in fields of objects on the heap, which the collector does not move.

// openDatagrams makes a UDP socket that is bound to local and takes datagrams of peer
// only. It blocks, for as long as silence at most.
func openDatagrams(local, peer netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	limit := unix.NsecToTimeval(int64(silence))
	for _, err := range []error{
		os.NewSyscallError("setsockopt IP_MTU_DISCOVER", unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)),
		os.NewSyscallError("setsockopt SO_RCVBUFFORCE", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, datagramBuffer/2)),
		os.NewSyscallError("setsockopt SO_SNDBUFFORCE", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, datagramBuffer/2)),
		os.NewSyscallError("setsockopt UDP_GRO", unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1)),
		os.NewSyscallError("setsockopt SO_RCVTIMEO", unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)),
		os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()})),
		os.NewSyscallError("connect", unix.Connect(fd, &unix.SockaddrInet4{Port: int(peer.Port()), Addr: peer.Addr().As4()})),
	} {
		if err != nil {
			return -1, errors.Join(err, unix.Close(fd))
		}
	}
	return fd, nil
}

const (
	// silence bounds the time that a peer may say nothing.
	silence = 10 * time.Second
	// datagramBuffer is the memory for messages that wait in a socket, bytes: as much
	// as the provider's have.
	datagramBuffer = 8 << 20
)

// errSilent is the error of a peer that has said nothing for too long.
var errSilent = fmt.Errorf("the peer has said nothing for %v", silence)

// try makes a system call that does not block and that the scheduler of goroutines need
// not hear of.
func try(trap, fd uintptr, memory unsafe.Pointer, n, flags int) (int, error) {
	for {
		r, _, errno := unix.RawSyscall6(trap, fd, uintptr(memory), uintptr(n), uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
		switch errno {
		case 0:
			return int(r), nil
		case unix.EAGAIN, unix.ENOBUFS:
			return 0, nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// block makes a system call that blocks until there is something.
func block(trap, fd uintptr, memory unsafe.Pointer, n, flags int) (int, error) {
	for {
		r, _, errno := unix.Syscall6(trap, fd, uintptr(memory), uintptr(n), uintptr(flags), 0, 0)
		switch errno {
		case 0:
			return int(r), nil
		case unix.EAGAIN:
			return 0, errSilent
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// call calls block or, if busy, try over and over.
func call(busy bool, trap, fd uintptr, memory unsafe.Pointer, n, flags int) (int, error) {
	if !busy {
		return block(trap, fd, memory, n, flags)
	}
	var since time.Time
	for i := 1; ; i++ {
		if got, err := try(trap, fd, memory, n, flags); got > 0 || err != nil {
			return got, err
		}
		switch {
		case i%spins != 0:
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > silence:
			return 0, errSilent
		}
	}
}

// spins is the number of tries of a busy caller between looks at the clock.
const spins = 1 << 16

// A batch is messages of one system call.
type batch struct {
	headers  []unix.Mmsghdr
	iovecs   []unix.Iovec
	controls []segmentControl
	buffers  [][]byte
}

// A segmentControl is the control message UDP_SEGMENT or UDP_GRO.
type segmentControl struct {
	header unix.Cmsghdr
	value  [8]byte
}

// newBatch makes n messages of up to size bytes each.
func newBatch(n, size int) *batch {
	b := &batch{
		headers: make([]unix.Mmsghdr, n), iovecs: make([]unix.Iovec, n),
		controls: make([]segmentControl, n), buffers: make([][]byte, n),
	}
	for i := range n {
		b.buffers[i] = make([]byte, size)
		b.iovecs[i].Base = &b.buffers[i][0]
		b.iovecs[i].SetLen(size)
		h := &b.headers[i].Hdr
		h.Iov = &b.iovecs[i]
		h.SetIovlen(1)
	}
	return b
}

// segment has the kernel cut each message into datagrams of size bytes.
func (b *batch) segment(size int) {
	for i := range b.controls {
		c := &b.controls[i]
		c.header.Level, c.header.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		c.header.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(c.value[:], uint16(size))
		b.headers[i].Hdr.Control = (*byte)(unsafe.Pointer(c))
		b.headers[i].Hdr.SetControllen(int(unsafe.Sizeof(*c)))
	}
}

// send sends the first n messages.
func (b *batch) send(fd, n int) error {
	for sent := 0; sent < n; {
		m, err := block(unix.SYS_SENDMMSG, uintptr(fd), unsafe.Pointer(&b.headers[sent]), n-sent, 0)
		if err != nil {
			return os.NewSyscallError("sendmmsg", err)
		}
		sent += m
	}
	return nil
}

// receive waits for at least one message.
func (b *batch) receive(fd int, busy bool) (int, error) {
	n, err := call(busy, unix.SYS_RECVMMSG, uintptr(fd), unsafe.Pointer(&b.headers[0]), len(b.headers), unix.MSG_WAITFORONE)
	if err != nil {
		return 0, os.NewSyscallError("recvmmsg", err)
	}
	return n, nil
}

// message returns the i-th message received.
func (b *batch) message(i int) []byte { return b.buffers[i][:b.headers[i].Len] }

// receiveOne waits for a datagram.
func receiveOne(fd int, b []byte, busy bool) (int, error) {
	n, err := call(busy, unix.SYS_RECVFROM, uintptr(fd), unsafe.Pointer(&b[0]), len(b), 0)
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	return n, nil
}

// tryOne takes a datagram if one is there; 0 if none is.
func tryOne(fd int, b []byte) (int, error) {
	n, err := try(unix.SYS_RECVFROM, uintptr(fd), unsafe.Pointer(&b[0]), len(b), 0)
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	return n, nil
}

// sendOne sends a datagram.
func sendOne(fd int, b []byte) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("sendto", errno)
	}
	return nil
}
