package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// openSocket makes a UDP socket that is bound to local and a port, and forbids
// fragmentation. kind is added to SOCK_DGRAM.
func openSocket(local netip.Addr, port uint16, kind int) (fd int, err error) {
	family, level, discover, do := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	var address unix.Sockaddr
	if local.Is4() {
		address = &unix.SockaddrInet4{Port: int(port), Addr: local.As4()}
	} else {
		family, level, discover, do = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
		address = &unix.SockaddrInet6{Port: int(port), Addr: local.As16()}
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|kind, unix.IPPROTO_UDP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.SetsockoptInt(fd, level, discover, do); err != nil {
		return -1, errors.Join(os.NewSyscallError("setsockopt MTU_DISCOVER", err), unix.Close(fd))
	}
	if err := unix.Bind(fd, address); err != nil {
		return -1, errors.Join(fmt.Errorf("bind port %d: %w", port, err), unix.Close(fd))
	}
	return fd, nil
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

// interfaceWith names the interface that has a local address. Loopback interfaces
// have every address of their prefixes.
func interfaceWith(local netip.Addr) (string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return "", err
		}
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // not an address of IP
			}
			if prefix.Addr() == local || i.Flags&net.FlagLoopback != 0 && prefix.Contains(local) {
				return i.Name, nil
			}
		}
	}
	return "", errors.New("no interface has it")
}
