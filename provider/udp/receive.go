package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/descriptor"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

const (
	// receiveMessages is the number of messages that one recvmmsg takes, and
	// receiveBytes bounds the length of each.
	receiveMessages = 8
	receiveBytes    = 1 << 16
	// receiveBatch bounds the number of packets that a Receiver is given at once.
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

	watch    watch
	timers   clock.Clock // of the ticks of watch and the watchdog
	advance  func()      // runs what is due of them; who polls calls it, without the turn
	busyPoll busyPoll    // of the goroutine that runs receive
	moved    func()      // Config.Moved

	turn     sync.Mutex // of who receives; guards what follows
	fd       int        // of file; -1 when closed
	polls    uint64     // how often somebody polled
	soloPoll soloPoll
	missed   atomic.Bool // the goroutine wanted the turn in vain; who polled looks until the socket is empty, since it may have slept again
	incoming *incoming   // nil before the first message
	heard    atomic.Bool // incoming is not nil
	verifier verifier
	flow     roce.Flow       // of the newest message
	batch    []roce.Received // nil likewise
	receiver provider.Receiver
}

// newListener receives from a socket that is bound to local already, which from
// now on is the listener's.
func newListener(local netip.Addr, device string, fd int, cfg *Config, n *counters) (_ *listener, err error) {
	l := &listener{
		local:    local,
		file:     os.NewFile(uintptr(fd), netip.AddrPortFrom(local, roce.Port).String()),
		fd:       fd,
		device:   device,
		asked:    cfg.ReceiveBuffer,
		before:   drops(fd),
		counters: n,
		flow:     roce.Flow{Local: local},
		verifier: newVerifier(clock.Real().Now),
		soloPoll: soloPoll{now: clock.Real().Now},
		busyPoll: newBusyPoll(cfg.BusyPoll),
		moved:    cfg.Moved,
	}
	l.timers, l.advance = clock.Driven(clock.Real())
	if l.granted, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
		return nil, errors.Join(os.NewSyscallError("getsockopt SO_RCVBUF", err), l.file.Close())
	}
	if err := hearClass(fd, local); err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	if err := l.watch.open(fd); err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	descriptor.Note(fd)
	return l, nil
}

// close ends what receive does. When it returns, the Receiver is given nothing more.
func (l *listener) close() error {
	l.dropped.Store(l.overflow())
	err := l.watch.close()
	for _, fd := range l.members {
		// Others may have it open. The group is no longer as large as the filter takes it to be.
		err = errors.Join(err, blockAndDrain(fd), os.NewSyscallError("close", unix.Close(fd)))
	}
	l.turn.Lock()
	l.fd = -1
	err = errors.Join(err, l.file.Close())
	l.turn.Unlock()
	if err != nil {
		return fmt.Errorf("%v: %w", l.local, err)
	}
	return nil
}

// overflow returns how many messages the kernel has dropped for want of room.
func (l *listener) overflow() uint64 {
	n := l.dropped.Load()
	// Control fails when the socket is closed, and then n is the count.
	_ = l.raw.Control(func(fd uintptr) { n = drops(int(fd)) - l.before })
	return n
}

// mtu returns the MTU of the listener's interface, in bytes; 0 if it is gone. The
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

// step receives what there is, at most receiveMessages, and gives it to r. It returns
// how many messages that was; 0, too, if another goroutine is at it, or somebody polls, or the
// socket is closed.
func (l *listener) step(r provider.Receiver) int {
	if !l.takeTurn() {
		return 0
	}
	defer l.turn.Unlock()
	if l.watch.polled.Load() {
		return 0
	}
	return l.stepInTurn(r)
}

// takeTurn locks l.turn, unless somebody has it, who then looks again, or has the goroutine do so: what has arrived since they
// last did might show to nobody else.
func (l *listener) takeTurn() bool {
	if l.turn.TryLock() {
		return true
	}
	l.missed.Store(true)
	return l.turn.TryLock() // they may have looked whether it is set just before
}

// leaveTurn unlocks l.turn for one who does not look again. If the goroutine could not have it meanwhile, and nobody polls, it is
// woken.
func (l *listener) leaveTurn() {
	l.turn.Unlock()
	if !l.watch.polled.Load() && l.missed.Swap(false) {
		l.watch.wake()
	}
}

// stepInTurn is step with l.turn held.
func (l *listener) stepInTurn(r provider.Receiver) int {
	if l.fd < 0 {
		return 0
	}
	if l.incoming == nil {
		// In labs of thousands of nodes the memory would be most of what many of them
		// take: it is there when it is needed.
		if !readable(l.fd) {
			return 0
		}
		l.incoming, l.batch = newIncoming(), make([]roce.Received, 0, receiveBatch)
		l.heard.Store(true)
	}
	n, more, errno := l.incoming.receive(l.fd)
	if errno != 0 {
		l.verifier.noteEmpty()
		return 0 // EAGAIN or EINTR; no other is expected of an unconnected socket
	}
	l.receiver = r
	for i := range n {
		l.take(i)
	}
	l.deliver()
	if l.moved != nil {
		l.moved()
	}
	if !more {
		l.verifier.noteEmpty() // recvmmsg found the socket empty
	}
	return n
}

// readable reports whether a message is there.
func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return n > 0 || err == unix.EINTR
}

// take appends the packets of the i-th message to the batch.
func (l *listener) take(i int) {
	b, segment, class := l.incoming.message(i)
	l.flow.Remote, l.flow.SourcePort = l.incoming.peers[i].get()
	l.verifier.setPeer(l.flow.Remote)
	if len(b) > segment {
		l.counters.superPacketsReceived.Add(1)
	}
	for index := uint16(0); ; index++ {
		n := min(segment, len(b))
		l.takePacket(b[:n:n], index, class)
		if b = b[n:]; len(b) == 0 {
			return
		}
	}
}

// takePacket appends a packet, of which index is the place in the super-packet,
// to the batch, if it is intact.
func (l *listener) takePacket(b []byte, index uint16, class uint8) {
	if len(l.batch) == cap(l.batch) {
		l.deliver()
	}
	p := &l.batch[:cap(l.batch)][len(l.batch)]
	payload, err := roce.Decode(b, &p.Header)
	if err != nil {
		l.counters.malformed.Add(1)
		return
	}
	if !l.verifier.intact(&l.flow, b, index) {
		l.counters.icrcErrors.Add(1)
		return
	}
	p.Flow, p.Payload, p.Class = l.flow, payload, class
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
