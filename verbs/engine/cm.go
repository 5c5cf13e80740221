package main

/*
#include "engine.h"
*/
import "C"

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/fault"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/internal/provider/verbs/foreign"
	"github.com/ndklab/ndklab/internal/provider/verbs/ucm"
)

// service is the connection manager of the process, nil before the first channel.
var (
	startService sync.Once
	service      atomic.Pointer[ucm.Service]
	channels     handles[ucm.Channel]
)

// reportToManager reports an event that is about connections to the connection manager. It is called with locks held,
// of which the service may take any.
func reportToManager(e verbs.Event) {
	s := service.Load()
	switch {
	case s == nil:
	case e.Type == verbs.EventCommunicationEstablished:
		go s.NoteTraffic(e.QP.Number())
	case e.Type == verbs.EventDeviceFatal:
		go s.Fail()
	}
}

// sockets are a channel's. It implements ucm.Announcer.
type sockets struct{ ours, program int }

// Announce implements ucm.Announcer.
func (s sockets) Announce() bool {
	return unix.Send(s.ours, []byte{0}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) == nil
}

// TakeBack implements ucm.Announcer.
func (s sockets) TakeBack() {
	// One that cannot be received is on its way to the program.
	_, _, _ = unix.Recvfrom(s.program, make([]byte, 1), unix.MSG_DONTWAIT)
}

// memory is this process's. It implements ucm.Memory.
type memory struct{}

// Write implements ucm.Memory.
func (memory) Write(address uint64, data []byte) error {
	if client != 0 {
		return foreign.Write(client, address, data)
	}
	return copyMapped(at(address, len(data)), data)
}

// Read implements ucm.Memory.
func (memory) Read(address uint64, data []byte) error {
	if client != 0 {
		return foreign.Read(client, address, data)
	}
	return copyMapped(data, at(address, len(data)))
}

// copyMapped copies memory: EFAULT if some of it is not mapped.
func copyMapped(to, from []byte) error {
	if !fault.Copy(to, from) {
		return syscall.EFAULT
	}
	return nil
}

// at returns n bytes of this process at an address, which may not be mapped.
func at(address uint64, n int) []byte {
	if address == 0 {
		n = 0
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), n)
}

// sourceTo returns the address from which packets go to a remote one.
func sourceTo(remote netip.Addr) (netip.Addr, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, 4791)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

//export engineOpenChannel
func engineOpenChannel(fd, program C.int, descriptor C.uint32_t, out *C.uint64_t) C.int {
	startService.Do(func() {
		var guid [8]byte
		binary.BigEndian.PutUint64(guid[:], process.guid)
		service.Store(ucm.New(ucm.Config{
			Device: process.device, NodeGUID: guid, Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Memory: memory{}, Source: sourceTo,
		}))
	})
	*out = C.uint64_t(channels.add(service.Load().Open(uint32(descriptor), sockets{int(fd), int(program)})))
	return 0
}

//export engineCloseChannel
func engineCloseChannel(channel C.uint64_t) C.int {
	return errno(channels.remove(uint64(channel), func(c *ucm.Channel) error {
		c.Close()
		return nil
	}))
}

//export engineCommand
func engineCommand(channel C.uint64_t, command unsafe.Pointer, length C.uint64_t) C.long {
	c := channels.get(uint64(channel))
	if c == nil || length > longestCommand {
		return -C.long(syscall.EINVAL)
	}
	n, err := c.Command(unsafe.Slice((*byte)(command), int(length)))
	if err != nil {
		return -C.long(errno(err))
	}
	return C.long(n)
}

// longestCommand is more than any command takes, in bytes.
const longestCommand = 1 << 16
