package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// newSocket makes a UDP socket of local's family that forbids fragmentation. It is left
// to wait in system calls: os.NewFile keeps those that are O_NONBLOCK in Go's poller, where
// arrivals wake a thread (watch.go).
func newSocket(local netip.Addr) (fd int, err error) {
	family, level, discover, do := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if !local.Is4() {
		family, level, discover, do = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.SetsockoptInt(fd, level, discover, do); err != nil {
		return -1, errors.Join(os.NewSyscallError("setsockopt MTU_DISCOVER", err), unix.Close(fd))
	}
	return fd, nil
}

// bindSocket binds a socket to local and a port, or to one that the kernel
// chooses if port is 0. If the port is in use, another can be tried.
func bindSocket(fd int, local netip.Addr, port uint16) error {
	if err := unix.Bind(fd, socketAddress(local, port)); err != nil {
		return fmt.Errorf("bind port %d: %w", port, err)
	}
	return nil
}

func socketAddress(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(port), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(port), Addr: a.As16()}
}

// setBuffer asks for a buffer of size bytes, by an option that only the
// machine's root may use and else by one that net.core limits. The kernel doubles what
// it is asked for, to make room for its bookkeeping.
func setBuffer(fd, force, option, size int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size/2) == nil {
		return nil
	}
	return os.NewSyscallError("setsockopt buffer size", unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size/2))
}

// hearClass has a socket tell the traffic class of each message, by which the network says that
// it met congestion. A message takes less than 1 % longer for that.
func hearClass(fd int, local netip.Addr) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVTOS
	if local.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS
	}
	return os.NewSyscallError("setsockopt RECVTOS", unix.SetsockoptInt(fd, level, option, 1))
}

// An assignment is an address with its prefix, at an interface.
type assignment struct {
	prefix   netip.Prefix
	device   string
	loopback bool
}

// interfacesWith names the interfaces of the calling thread's network namespace that
// have local addresses; "" if none has.
func interfacesWith(addresses []netip.Addr) ([]string, error) {
	assigned, err := assignments()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(addresses))
	for i, a := range addresses {
		names[i] = interfaceWith(a, assigned)
	}
	return names, nil
}

// assignments lists the addresses of the calling thread's network namespace.
func assignments() ([]assignment, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []assignment
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // not an address of IP
			}
			list = append(list, assignment{prefix, i.Name, i.Flags&net.FlagLoopback != 0})
		}
	}
	return list, nil
}

// interfaceWith names the interface that has a local address. Loopback interfaces
// have every address of their prefixes.
func interfaceWith(local netip.Addr, list []assignment) string {
	for _, a := range list {
		if a.prefix.Addr() == local || a.loopback && a.prefix.Contains(local) {
			return a.device
		}
	}
	return ""
}
