package sharing

import (
	"net/netip"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A switch may ask an adapter to pause packets of a class (PFC, roce.md 14.4). All processes that share the adapter
// obey at once: the ledger says for each address which packets wait. The owner alone writes that, and the others read it before they
// send. Who has to wait sleeps on the entry, which is a futex: nobody is told who does not wait.

// paused has a bit for each DSCP whose packets wait. Its size is a cache line: processes read it all the time.
type paused struct {
	dscps [2]atomic.Uint32 // a futex has 32 bits
	_     [56]byte
}

// SetPaused has packets from a local address wait in all processes if their DSCPs are among some, which are bits, and no others.
func (l *Ledger) SetPaused(local netip.Addr, dscps uint64) {
	p := l.paused[local]
	if p == nil {
		return
	}
	for i := range p.dscps {
		word := uint32(dscps >> (32 * i))
		if before := p.dscps[i].Swap(word); before&^word != 0 {
			wakeAll(&p.dscps[i])
		}
	}
}

// PauseOf returns the pause of packets of a DSCP from a local address; nil if there is nobody who could pause them.
func (l *Ledger) PauseOf(local netip.Addr, dscp uint8) *Pause {
	p := l.paused[local]
	if p == nil {
		return nil
	}
	return &Pause{ledger: l, word: &p.dscps[dscp/32%2], bit: 1 << (dscp % 32)}
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
