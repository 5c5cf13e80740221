package udp

import (
	"errors"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/descriptor"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// A routeSocket is a socket that has the kernel look for routes from a local address.
// It neither sends nor receives. It is opened before there is a question,
// since a socket knows its network namespace, whatever the caller's.
type routeSocket struct {
	mu sync.Mutex
	fd int // -1 when closed
}

func openRouteSocket(local netip.Addr, unbound func() (fd int, err error)) (*routeSocket, error) {
	fd, err := unbound()
	if err != nil {
		return nil, err
	}
	s := &routeSocket{fd: fd}
	if err := bindSocket(fd, local, 0); err != nil {
		return nil, errors.Join(err, s.close())
	}
	descriptor.Note(fd)
	return s, nil
}

// Reach reports whether packets from a local address have a route to a remote one,
// and sends none: provider.StatusNetworkUnreachable if there is no route,
// StatusHostUnreachable if the one there is refuses (unreachable, prohibit),
// StatusInvalidAddress if local is not an address of the carrier, or of another
// family. StatusSuccess promises nothing: whoever is on the way may be silent, or
// not exist. It does not block and may be called from any goroutine (NDK-CONN-11).
func (c *Carrier) Reach(local, remote netip.Addr) provider.Status {
	s := c.routeSockets[local]
	if s == nil || local.BitLen() != remote.BitLen() {
		return provider.StatusInvalidAddress
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// To connect a UDP socket is to look for a route, no more. The next question
	// connects it anew.
	switch unix.Connect(s.fd, socketAddress(remote, roce.Port)) {
	case unix.ENETUNREACH:
		return provider.StatusNetworkUnreachable
	case unix.EHOSTUNREACH, unix.EACCES: // of routes "unreachable" and "prohibit"
		return provider.StatusHostUnreachable
	}
	return provider.StatusSuccess // a route "blackhole" is meant to tell nobody
}

func (s *routeSocket) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := unix.Close(s.fd)
	s.fd = -1
	return os.NewSyscallError("close", err)
}
