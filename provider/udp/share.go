package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// This file divides what arrives at an adapter's addresses among processes.
//
// Port 4791 of a local address is a group of sockets (SO_REUSEPORT), of which
// the kernel picks one for each datagram by a program. Socket k is that of share
// k, which has the queue pairs whose numbers divided by 2^18 are k. Share 0, with
// QP 1, is the part of the carrier that made the group. A socket's place in the
// group follows from the order of binding (__reuseport_add_sock in
// net/core/sock_reuseport.c), and when one is closed the last takes its place. So
// sockets are only appended, and the group's maker keeps all of them open.
//
// A super-packet goes where its first packet goes. Those that carriers make are
// of one Send, which is of one queue pair, and link emulators only take them
// apart. GRO in the receiving kernel joins packets with the same source port,
// which may be of several queue pairs; but a veth does none unless told to
// (veth_newlink in drivers/net/veth.c). Where it does, packets can reach a share
// that has no such queue pair. Its receiver drops them, as a wire might.

// shareShift is the number of bits of a queue pair number below the share.
const shareShift = 18

// shareFilter returns the program that picks a socket of a group of n. It is shown the UDP
// payload, that is the BTH, whose byte 5 is the highest of the destination's
// number (roce.md 3). Where there is no such socket, or no such byte, share 0 is
// picked; had the program a higher number than there are sockets, the kernel would
// pick by a hash of the flow (reuseport_select_sock).
func shareFilter(n int) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 5},
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: shareShift - 16},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: uint32(n), Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_A},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
}

// refuseFilter returns the filter that lets nothing into a socket, so that a share that
// nobody holds takes no memory.
func refuseFilter() []unix.SockFilter {
	return []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
}

func attachFilter(fd, option int, program []unix.SockFilter) error {
	return os.NewSyscallError("setsockopt attach program", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, option,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}))
}

// openGroup opens the first socket of a local address's group. The socket is a group
// already when it is bound, since it has its program by then. So it joins no other: if
// somebody has the port, bind fails (udp_lib_lport_inuse2 in net/ipv4/udp.c).
func openGroup(local netip.Addr, buffer int) (fd int, err error) {
	return openReceiver(local, buffer, unix.SO_ATTACH_REUSEPORT_CBPF, shareFilter(1))
}

// openMember opens a further socket, which lets nothing in as yet.
func openMember(local netip.Addr, buffer int) (fd int, err error) {
	return openReceiver(local, buffer, unix.SO_ATTACH_FILTER, refuseFilter())
}

// openReceiver opens a socket that asks for a receive buffer of so many bytes.
// option attaches a program.
func openReceiver(local netip.Addr, buffer, option int, program []unix.SockFilter) (_ int, err error) {
	fd, err := newSocket(local)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return -1, os.NewSyscallError("setsockopt UDP_GRO", err)
	}
	if local.Is6() {
		// Linux rxe sends no UDP checksum, which IPv6 otherwise insists on. The
		// ICRC says more.
		if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1); err != nil {
			return -1, os.NewSyscallError("setsockopt UDP_NO_CHECK6_RX", err)
		}
	}
	if err := setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, buffer); err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return -1, os.NewSyscallError("setsockopt SO_REUSEPORT", err)
	}
	if err := attachFilter(fd, option, program); err != nil {
		return -1, err
	}
	if err := bindSocket(fd, local, roce.Port); err != nil {
		return -1, err
	}
	return fd, nil
}

// Share hands out share k, 1 to sharing.Max-1: the sockets, in the order
// of Addresses, that receive the packets for queue pairs k<<18 to (k+1)<<18-1,
// for Config.Sockets of another Carrier, here or in another process. The files
// are the caller's to close. Nothing is in the sockets that arrived before; but a
// share has only these, so its last holder must have gone.
//
// Share is called in the network namespace that Open was called in. The sockets
// of a share, and of those below it, are made when it is first handed out; until
// then its packets go to c's own Receiver. Afterwards they never do.
func (c *Carrier) Share(k int) (_ []*os.File, err error) {
	c.sharing.Lock()
	defer c.sharing.Unlock()
	if err := c.checkShare(k); err != nil {
		return nil, err
	}
	var files []*os.File
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("udp carrier: share %d: %w", k, err)
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, l := range c.listeners {
		if err := l.grow(k); err != nil {
			return nil, err
		}
		f, err := handOut(l.members[k-1], fmt.Sprintf("%v, share %d", netip.AddrPortFrom(l.local, roce.Port), k))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Reclaim has nothing more arrive in a share that was handed out, whose holder is
// gone, and frees what is queued there. A share that never was is left alone.
func (c *Carrier) Reclaim(k int) error {
	c.sharing.Lock()
	defer c.sharing.Unlock()
	if err := c.checkShare(k); err != nil {
		return err
	}
	for _, l := range c.listeners {
		if k > len(l.members) {
			continue
		}
		if err := blockAndDrain(l.members[k-1]); err != nil {
			return fmt.Errorf("udp carrier: share %d: %w", k, err)
		}
	}
	return nil
}

// checkShare reports why share k cannot be handed out, if so.
func (c *Carrier) checkShare(k int) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch {
	case c.closed:
		return fmt.Errorf("udp carrier: share %d: %w", k, net.ErrClosed)
	case c.adopted:
		return fmt.Errorf("udp carrier: share %d: only who opened the addresses can share them", k)
	case k < 1 || k >= sharing.Max:
		return fmt.Errorf("udp carrier: share %d: there are shares 1 to %d", k, sharing.Max-1)
	}
	return nil
}

// grow appends sockets to the group until share k has one. Then the filter learns of
// them; while it does not, nothing is picked that it does not know.
func (l *listener) grow(k int) error {
	for len(l.members) < k {
		fd, err := openMember(l.local, l.asked)
		if err != nil {
			return fmt.Errorf("address %v: %w", l.local, err)
		}
		l.members = append(l.members, fd)
	}
	var err error
	if e := l.raw.Control(func(fd uintptr) {
		err = attachFilter(int(fd), unix.SO_ATTACH_REUSEPORT_CBPF, shareFilter(1+len(l.members)))
	}); e != nil {
		return e
	}
	return err
}

// handOut duplicates a member of a group for a new holder, and opens it to
// packets.
func handOut(fd int, name string) (*os.File, error) {
	if err := blockAndDrain(fd); err != nil {
		return nil, err
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	}
	f := os.NewFile(uintptr(dup), name)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil {
		return nil, errors.Join(os.NewSyscallError("setsockopt SO_DETACH_FILTER", err), f.Close())
	}
	return f, nil
}

// blockAndDrain lets nothing more into a socket, and throws away what is there.
func blockAndDrain(fd int) error {
	if err := attachFilter(fd, unix.SO_ATTACH_FILTER, refuseFilter()); err != nil {
		return err
	}
	for {
		switch _, _, err := unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT|unix.MSG_TRUNC); err {
		case nil, unix.EINTR:
		case unix.EAGAIN:
			return nil
		default:
			return os.NewSyscallError("recvfrom", err)
		}
	}
}

// duplicateChecked returns a descriptor of its own for a socket that Share gave.
func duplicateChecked(local netip.Addr, socket *os.File) (_ int, err error) {
	fd, err := duplicate(socket)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	if bound, err := unix.Getsockname(fd); err != nil {
		return -1, os.NewSyscallError("getsockname", err)
	} else if !sameAddress(bound, local) {
		return -1, errors.New("the socket given is not of this address")
	}
	return fd, nil
}

// duplicate returns another descriptor for a socket that somebody has handed over.
func duplicate(socket *os.File) (fd int, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(given uintptr) {
		fd, err = unix.FcntlInt(given, unix.F_DUPFD_CLOEXEC, 0)
	}); e != nil {
		return -1, e
	}
	return fd, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
}

// sameAddress reports whether a socket is bound to port 4791 of local.
func sameAddress(bound unix.Sockaddr, local netip.Addr) bool {
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		return b.Port == roce.Port && netip.AddrFrom4(b.Addr) == local
	case *unix.SockaddrInet6:
		return b.Port == roce.Port && netip.AddrFrom16(b.Addr) == local
	}
	return false
}
