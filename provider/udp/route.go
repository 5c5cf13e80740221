package udp

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/roce"
)

// Reach implements provider.Carrier: to connect a UDP socket is to look for a
// route, no more.
func (c *Carrier) Reach(local, remote netip.Addr) provider.Status {
	fd, err := openSocket(local, 0, 0)
	if err != nil {
		return provider.StatusInvalidAddress
	}
	defer func() { _ = unix.Close(fd) }()
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: roce.Port, Addr: remote.As16()}
	if remote.Is4() {
		to = &unix.SockaddrInet4{Port: roce.Port, Addr: remote.As4()}
	}
	switch unix.Connect(fd, to) {
	case unix.ENETUNREACH:
		return provider.StatusNetworkUnreachable
	case unix.EHOSTUNREACH, unix.EACCES: // of routes "unreachable" and "prohibit"
		return provider.StatusHostUnreachable
	}
	return provider.StatusSuccess
}
