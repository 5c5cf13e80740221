package sharing

import (
	"net/netip"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A switch may ask an adapter to pause packets of a class (PFC, roce.md 14.4). All processes that share the adapter
// obey at once: the ledger says for each address which packets wait. The owner alone writes that, and the others read it before they
// send. The entry is a futex, on which sleeps who has to wait: nobody is told who does not.

// A line has the state of the one at an address that all processes know. Its size is a cache line: they read it all the time.
type line struct {
	rate   atomic.Uint64    // bits per second; 0: unknown
	paused [2]atomic.Uint32 // a bit for each DSCP whose packets wait; a futex has 32
	_      [48]byte
}

// SetLineRate sets the rate of the line at a local address, in bits per second; 0: it is unknown.
func (l *Ledger) SetLineRate(local netip.Addr, rate uint64) {
	if at := l.lines[local]; at != nil {
		at.rate.Store(rate)
	}
}

// LineRate returns the rate of the line at a local address, in bits per second; 0: it is unknown.
func (l *Ledger) LineRate(local netip.Addr) uint64 {
	if at := l.lines[local]; at != nil {
		return at.rate.Load()
	}
	return 0
}

// SetPaused has packets from a local address wait in all processes if their DSCPs are among some, which are bits, and no others.
func (l *Ledger) SetPaused(local netip.Addr, dscps uint64) {
	at := l.lines[local]
	if at == nil {
		return
	}
	for i := range at.paused {
		word := uint32(dscps >> (32 * i))
		if before := at.paused[i].Swap(word); before&^word != 0 {
			wakeAll(&at.paused[i])
		}
	}
}

// PauseOf returns the pause of packets of a DSCP from a local address; nil if there is nobody who could pause them, as in a
// private ledger.
func (l *Ledger) PauseOf(local netip.Addr, dscp uint8) *Pause {
	at := l.lines[local]
	if at == nil || l.ports == nil {
		return nil
	}
	return &Pause{ledger: l, word: &at.paused[dscp/32%2], bit: 1 << (dscp % 32)}
}

// A Pause is that of packets of a DSCP from an address.
type Pause struct {
	ledger *Ledger // whose memory is mapped for as long as it is in use
	word   *atomic.Uint32
	bit    uint32
}

// Active reports whether the packets have to wait now.
func (p *Pause) Active() bool { return p.word.Load()&p.bit != 0 }

// WhenOver has f called once, in a goroutine of its own, when the packets need not wait any more. A thread waits for that.
func (p *Pause) WhenOver(f func()) {
	go func() {
		for {
			word := p.word.Load()
			if word&p.bit == 0 {
				break
			}
			await(p.word, word)
		}
		f()
	}()
}

// Commands of futex(2), of memory that processes share.
const (
	futexWait = 0
	futexWake = 1
)

// await returns when somebody has called wakeAll, or at once if the word is another by now, or earlier.
func await(word *atomic.Uint32, is uint32) {
	// An error says just that.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(is), 0, 0, 0)
}

func wakeAll(word *atomic.Uint32) {
	// It fails only for an address that is not mapped.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1<<31-1, 0, 0, 0)
}
