package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/roce"
)

const (
	// receiveMessages is how many messages one recvmmsg takes, and receiveBytes
	// how long one of them may be.
	receiveMessages = 8
	receiveBytes    = 1 << 16
	// receiveBatch is how many packets a Receiver is given at once, at most.
	receiveBatch = 128
)

// A listener is the socket that receives what arrives at one local address for
// one share.
type listener struct {
	local    netip.Addr
	file     *os.File
	raw      syscall.RawConn // of file
	device   string          // the interface with the address
	asked    int             // receive buffer that was asked for, bytes
	granted  int             // memory for packets that wait, bytes
	counters *counters
	// The kernel's count of drops when the listener began, and how many there
	// were since when it was closed.
	before  uint64
	dropped atomic.Uint64

	// members are the group's sockets of shares 1, 2 and so on, if this is its
	// first. Carrier.sharing guards it.
	members []int

	// The goroutine that runs receive owns what follows.
	receiver  provider.Receiver
	incoming  *incoming // nil before the first message
	inspector inspector
	flow      roce.Flow       // of the newest message
	batch     []roce.Received // nil likewise
}

// newListener receives from a socket that is bound to local already, which from
// now on is the listener's.
func newListener(local netip.Addr, device string, fd, asked int, n *counters) (_ *listener, err error) {
	l := &listener{
		local:     local,
		file:      os.NewFile(uintptr(fd), netip.AddrPortFrom(local, roce.Port).String()),
		device:    device,
		asked:     asked,
		before:    drops(fd),
		counters:  n,
		flow:      roce.Flow{Local: local},
		inspector: newInspector(clock.Real().Now),
	}
	if l.granted, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
		return nil, errors.Join(os.NewSyscallError("getsockopt SO_RCVBUF", err), l.file.Close())
	}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	return l, nil
}

func (l *listener) close() error {
	l.dropped.Store(l.overflow())
	var err error
	for _, fd := range l.members {
		// Others may have it open. The group is no longer what steer takes it for.
		err = errors.Join(err, silence(fd), os.NewSyscallError("close", unix.Close(fd)))
	}
	if err = errors.Join(err, l.file.Close()); err != nil {
		return fmt.Errorf("%v: %w", l.local, err)
	}
	return nil
}

// overflow is how many messages the kernel has dropped for want of room.
func (l *listener) overflow() uint64 {
	n := l.dropped.Load()
	// Control fails when the socket is closed, and then n is the count.
	_ = l.raw.Control(func(fd uintptr) { n = drops(int(fd)) - l.before })
	return n
}

// mtu is the MTU of the listener's interface, in bytes; 0 if it is gone. The
// socket knows its network namespace, whatever the caller's.
func (l *listener) mtu() (n int) {
	request, err := unix.NewIfreq(l.device)
	if err != nil {
		return 0
	}
	err = l.raw.Control(func(fd uintptr) {
		if unix.IoctlIfreq(int(fd), unix.SIOCGIFMTU, request) == nil {
			n = int(request.Uint32())
		}
	})
	if err != nil {
		return 0
	}
	return n
}

// receive delivers to r until the socket is closed.
func (l *listener) receive(r provider.Receiver) {
	l.receiver = r
	// One Read is the listener's whole life: it calls drain, on this
	// goroutine, whenever the socket has become readable, and fails when the
	// socket is closed. The poller keeps a packet's arrival between the end of
	// drain and the next wait in mind, so that drain need not come back just
	// to be told that the socket is empty.
	_ = l.raw.Read(func(fd uintptr) bool {
		l.drain(int(fd))
		l.inspector.emptiedNow()
		return false
	})
}

// drain receives and delivers until the socket is empty.
func (l *listener) drain(fd int) {
	if l.incoming == nil {
		// In labs of thousands of nodes the memory would be most of what many of them
		// take: it is there when it is needed.
		if !readable(fd) {
			return
		}
		l.incoming, l.batch = new(incoming), make([]roce.Received, 0, receiveBatch)
	}
	for {
		n, errno := l.incoming.receive(fd)
		if errno != 0 && errno != unix.EINTR {
			return // EAGAIN; no other is expected of an unconnected socket
		}
		for i := range n {
			l.take(i)
		}
		l.deliver()
		if errno == 0 && n < receiveMessages {
			return // recvmmsg found the socket empty
		}
	}
}

// readable reports whether a message is there.
func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return n > 0 || err == unix.EINTR
}

// take appends the packets of the i-th message to the batch.
func (l *listener) take(i int) {
	b, segment := l.incoming.message(i)
	l.flow.Remote, l.flow.SourcePort = l.incoming.peers[i].get()
	l.inspector.turnTo(l.flow.Remote)
	if len(b) > segment {
		l.counters.superPacketsReceived.Add(1)
	}
	for index := uint16(0); ; index++ {
		n := min(segment, len(b))
		l.takePacket(b[:n:n], index)
		if b = b[n:]; len(b) == 0 {
			return
		}
	}
}

// takePacket appends a packet, of which index is the place in the super-packet,
// to the batch, if it is intact.
func (l *listener) takePacket(b []byte, index uint16) {
	if len(l.batch) == cap(l.batch) {
		l.deliver()
	}
	p := &l.batch[:cap(l.batch)][len(l.batch)]
	payload, err := roce.Decode(b, &p.Header)
	if err != nil {
		l.counters.malformed.Add(1)
		return
	}
	if !l.inspector.intact(&l.flow, b, index) {
		l.counters.icrcErrors.Add(1)
		return
	}
	p.Flow, p.Payload = l.flow, payload
	l.batch = l.batch[:len(l.batch)+1]
}

// deliver hands the batch over and empties it.
func (l *listener) deliver() {
	if len(l.batch) == 0 {
		return
	}
	l.counters.packetsReceived.Add(uint64(len(l.batch)))
	l.receiver.Receive(l.batch)
	l.batch = l.batch[:0]
}
