// Package ucm is the connection manager that librdmacm.so.1 talks to: what Linux's rdma_ucm and rdma_cm do for
// commands written to /dev/infiniband/rdma_cm (rdma/rdma_user_cm.h, ABI 4), over the device's own connection
// management (packages internal/provider/gsi and internal/provider/cm). Peers are NDKPI programs, other programs of this
// kind, and Linux: the wire is the same.
//
// A Service is the file system's side of the device, one for each process; a Channel is one open file of it. Ids,
// which are what librdmacm calls rdma_cm_id, belong to a channel. Commands are parsed and answered at once; what
// comes later is an event.
//
// Differences from Linux:
//
//   - AF_IB is unknown: librdmacm finds that out and uses the commands for IP addresses. The port spaces IB and IPoIB
//     are not there;
//   - ports below 1024 need no privilege, and another process's port is in use in all spaces;
//   - multicast knows IPv6;
//   - a listener on the wildcard address listens on the addresses that the device has at that time;
//   - resolving an address or a route ends before the command does;
//   - requests to a port are ignored, not refused, for a few seconds after a program has stopped listening there.
//
// Start reading at New and Channel.Command; state.go has the states of an id.
package ucm

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/provider"
)

// Memory is the program's, which may be of another process. The errors are not looked at: the program is told EFAULT.
type Memory interface {
	Write(address uint64, data []byte) error
	Read(address uint64, data []byte) error
}

// A Config says what a Service works on.
type Config struct {
	Device   *provider.Miniport
	NodeGUID [8]byte // as libibverbs tells it, in network order
	Rand     *rand.Rand
	Memory   Memory
	// Source is the local address from which a remote one is reached, for ids that are bound to none; an error, which
	// wraps an errno, if there is no route. With nil, it is the first of the device's addresses that reaches it.
	Source func(remote netip.Addr) (netip.Addr, error)
}

// A Service holds the ids of a process. The lock of the device's manager guards all of it.
type Service struct {
	config  Config
	manager *gsi.Manager

	channels   map[uint32]*Channel // by descriptor
	ids        map[uint32]*id
	groups     map[uint32]*multicast
	lastNumber uint32 // of a channel, an id or a group
	removed    bool   // the device has failed
	ports      map[portKey][]*id
	byQPN      map[uint32]*id // those that have accepted and wait for the peer
}

// New makes a service without channels.
func New(config Config) *Service {
	return &Service{
		config: config, manager: config.Device.Manager(), channels: map[uint32]*Channel{}, ids: map[uint32]*id{},
		groups: map[uint32]*multicast{}, ports: map[portKey][]*id{}, byQPN: map[uint32]*id{},
	}
}

// number returns a number that nothing else has, and never zero.
func (s *Service) number() uint32 {
	for {
		s.lastNumber++
		n := s.lastNumber
		if n != 0 && s.ids[n] == nil && s.groups[n] == nil {
			return n
		}
	}
}

// addresses returns the device's addresses, in the order of its GIDs.
func (s *Service) addresses() []netip.Addr {
	var all []netip.Addr
	for _, a := range s.config.Device.ActiveAddresses() {
		all = append(all, a.Address)
	}
	return all
}

// gidIndex returns the index of an address in the device's table of GIDs.
func (s *Service) gidIndex(local netip.Addr) uint8 {
	for i, a := range s.addresses() {
		if a == local {
			return uint8(i)
		}
	}
	return 0
}

// progress carries out what the connection manager was asked for. The lock is held.
func (s *Service) progress() { s.manager.Progress(s.config.Device.Clock().Now()) }

// NoteTraffic takes note of a valid request on a queue pair. It establishes the connection if the peer's message that
// does so has yet to come. The caller holds no lock of the device's.
func (s *Service) NoteTraffic(qpn uint32) {
	s.manager.Lock()
	defer s.manager.Unlock()
	if i := s.byQPN[qpn]; i != nil {
		s.manager.CM.NoteTraffic(s.config.Device.Clock().Now(), i.connection)
		s.progress()
	}
}

// Fail tells the program, once, that the device is gone.
func (s *Service) Fail() {
	s.manager.Lock()
	defer s.manager.Unlock()
	if s.removed {
		return
	}
	s.removed = true
	for _, i := range s.ids {
		if i.hasDevice() {
			i.emit(eventDeviceRemoval, 0, nil)
		}
	}
}

// errnoOf returns the errno that an error wraps, or another if it wraps none.
func errnoOf(err error, other syscall.Errno) syscall.Errno {
	errors.As(err, &other)
	return other
}

// source returns the local address for a remote one.
func (s *Service) source(remote netip.Addr) (netip.Addr, error) {
	if s.config.Source != nil {
		local, err := s.config.Source(remote)
		if err != nil {
			return local, errnoOf(err, syscall.ENETUNREACH)
		}
		return local, nil
	}
	for _, local := range s.addresses() {
		if local.Is4() == remote.Is4() && s.config.Device.Reach(local, remote) == provider.StatusSuccess {
			return local, nil
		}
	}
	return netip.Addr{}, syscall.ENETUNREACH
}
