package pfc

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider/clock"
)

// etherType is that of MAC control frames, in network byte order.
const etherType = unix.ETH_P_PAUSE>>8 | unix.ETH_P_PAUSE&0xFF<<8

// A Listener obeys for an adapter. Its methods may be called from any goroutine.
type Listener struct {
	clock      clock.Clock
	set        func(local netip.Addr, dscps uint64)
	interfaces []Interface
	socket     *os.File

	mu      sync.Mutex // guards what follows
	obeyed  *obedience
	said    []uint64      // by interface: what set was called with last
	timer   clock.Timer   // nil before the first pause
	timerAt time.Duration // when the timer will run; 0: it is not pending
}

// Listen begins to obey the frames that come in by interfaces, in the network namespace of the calling thread. Whenever it
// changes which packets have to wait that an address sends, set is called with their DSCPs as bits. It takes CAP_NET_RAW.
func Listen(cfg *Config, c clock.Clock, interfaces []Interface, set func(local netip.Addr, dscps uint64)) (*Listener, error) {
	obeyed, err := newObedience(cfg, len(interfaces))
	if err != nil {
		return nil, err
	}
	// One socket is for all interfaces: it goes on when one is taken away and made anew. Other packets cost
	// nothing, since the kernel finds it by the EtherType.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, etherType)
	if err != nil {
		return nil, fmt.Errorf("pfc: %w", os.NewSyscallError("socket", err))
	}
	socket := os.NewFile(uintptr(fd), "pfc")
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pfc: %w", err), socket.Close())
	}
	l := &Listener{
		clock: clock.Precise(c), set: set, interfaces: interfaces, socket: socket, obeyed: obeyed, said: make([]uint64, len(interfaces)),
	}
	go l.read(raw)
	return l, nil
}

// Close ends all pauses.
func (l *Listener) Close() error {
	err := l.socket.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	for i := range l.interfaces {
		l.say(i, 0)
	}
	l.obeyed = nil
	return err
}

// read takes frames until the socket is closed.
func (l *Listener) read(raw syscall.RawConn) {
	var frame [mmu.PFCFrameLen]byte
	places := map[int]int{} // of interfaces by their indices; -1: it is none of the adapter's
	for {
		n, index := 0, 0
		err := raw.Read(func(fd uintptr) bool {
			length, from, err := unix.Recvfrom(int(fd), frame[:], 0)
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			n = 0
			if at, ok := from.(*unix.SockaddrLinklayer); ok && err == nil && isForUs(at.Pkttype) { // else a link went down
				n, index = length, at.Ifindex
			}
			return true
		})
		if err != nil {
			return // it is closed
		}
		if n == 0 {
			continue
		}
		place, known := places[index]
		if !known {
			place = l.place(index)
			places[index] = place
		}
		if place >= 0 {
			l.hear(place, frame[:n])
		}
	}
}

// isForUs reports whether a frame is for the host, or for the group address that PFC frames have.
func isForUs(packetType uint8) bool {
	return packetType == unix.PACKET_HOST || packetType == unix.PACKET_MULTICAST
}

// place returns which of the interfaces has an index; -1 if none has.
func (l *Listener) place(index int) int {
	face, err := net.InterfaceByIndex(index)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(l.interfaces, func(i Interface) bool { return i.Name == face.Name })
}

// hear takes a frame that came in by an interface.
func (l *Listener) hear(at int, frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.obeyed == nil {
		return
	}
	l.obeyed.heard(l.clock.Now(), at, frame)
	l.obey()
}

// obey has whatever is asked for now take effect. The lock is held.
func (l *Listener) obey() {
	for i := range l.interfaces {
		l.say(i, l.obeyed.paused(i))
	}
	at, ok := l.obeyed.model.Deadline()
	if !ok || l.timerAt != 0 && l.timerAt <= at {
		return
	}
	l.timerAt = max(at, 1)
	wait := at - l.clock.Now()
	if l.timer == nil {
		l.timer = l.clock.AfterFunc(wait, l.expire)
	} else {
		l.timer.Reset(wait)
	}
}

// say says which packets have to wait that leave by an interface. The lock is held.
func (l *Listener) say(at int, dscps uint64) {
	if l.said[at] == dscps {
		return
	}
	l.said[at] = dscps
	for _, local := range l.interfaces[at].Addresses {
		l.set(local, dscps)
	}
}

// expire ends the pauses that are over.
func (l *Listener) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.obeyed == nil {
		return
	}
	l.timerAt = 0
	l.obeyed.model.Advance(l.clock.Now())
	l.obey()
}

// SetRates sets the rates of the lines at addresses, in bits per second, by which pauses last that begin from now on. A line
// that is not among them has none.
func (l *Listener) SetRates(rates map[netip.Addr]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.obeyed == nil {
		return
	}
	for i := range l.interfaces {
		rate := uint64(0)
		for _, local := range l.interfaces[i].Addresses {
			rate = max(rate, rates[local])
		}
		l.obeyed.setRate(i, rate)
	}
}

// Pauses returns how long each class was paused at each interface, but for those that never were.
func (l *Listener) Pauses() (all []adapter.Pause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.obeyed == nil {
		return nil
	}
	now := l.clock.Now()
	for i := range l.interfaces {
		for _, k := range l.obeyed.priorities {
			if paused := l.obeyed.model.Counters(now, i, int(k)).RxPauseTime; paused > 0 {
				all = append(all, adapter.Pause{Interface: l.interfaces[i].Name, Class: int(k), US: uint64(paused / time.Microsecond)})
			}
		}
	}
	return all
}

// Counters returns what has been asked of all interfaces, under mlx5's names.
func (l *Listener) Counters() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counters := map[string]uint64{}
	if l.obeyed == nil {
		return counters
	}
	now := l.clock.Now()
	for i := range l.interfaces {
		l.obeyed.count(now, i, counters)
	}
	return counters
}
