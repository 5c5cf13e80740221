package provider

import (
	"runtime"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/rc"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// InUse returns the numbers of connectors, endpoints, queue pairs, tokens and mappings the
// device's tables hold.
func (m *Miniport) InUse() int {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	m.qps.mu.Lock()
	defer m.qps.mu.Unlock()
	return len(m.connectors) + len(m.endpoints) + int(m.qps.count) + m.Tokens() + m.Mappings()
}

// HeldQPNs counts the queue pair numbers that are kept for the timewait of
// connections.
func (m *Miniport) HeldQPNs() int {
	m.qps.mu.Lock()
	defer m.qps.mu.Unlock()
	return len(m.qps.held)
}

// IDs counts the connection IDs that connectors have: until the connection manager
// needs them no more.
func (m *Miniport) IDs() int {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	return len(m.connectors)
}

// HeardBy counts the queue pairs that are kept as the ones that heard from an address last.
func (m *Miniport) HeardBy() (n int) {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	for _, p := range m.paths {
		if p.heardBy.Load() != nil {
			n++
		}
	}
	return n
}

// Busy counts the queue pairs that wait for their peers.
func (m *Miniport) Busy() (n int) {
	m.qps.each(func(qp *QP) {
		qp.mu.Lock()
		defer qp.mu.Unlock()
		if qp.rc.Busy() && !qp.halted {
			n++
		}
	})
	return n
}

// FreeCredit returns the bytes of credit that nobody has, and Credit those of all.
func (m *Miniport) FreeCredit() int { return int(m.credit.free.Load()) }
func (m *Miniport) Credit() int     { return int(m.credit.size) }

// ReorderBuffer returns the bytes that queue pairs have taken of the memory for early
// packets.
func (m *Miniport) ReorderBuffer() int { return int(m.ledger.sumOf(reorderResource)) }

// AwaitRelease returns when ReleaseLAM waits for the users of the memory that lam has
// mapped, or false when it has not for long enough.
func AwaitRelease(lam *LAM) bool {
	m := lam.AdapterContext.(*mapping)
	for c, began := clock.Real(), clock.Real().Now(); c.Now()-began < 10*time.Second; {
		if !m.users.TryRLock() {
			return true
		}
		m.users.RUnlock()
		runtime.Gosched()
	}
	return false
}

// SetNextQPN has the search for a free queue pair number begin at n.
func (m *Miniport) SetNextQPN(n uint32) { m.qps.next = n }

// MaxInstances bounds the instances that are open at once.
const MaxInstances = maxInstances

// WithoutQPNs calls f while every queue pair number is in use.
func (m *Miniport) WithoutQPNs(f func()) {
	count := m.qps.count
	m.qps.count = m.qps.last - m.qps.first + 1
	f()
	m.qps.count = count
}

// QPNs are the bounds of queue pair numbers.
func (m *Miniport) QPNs() (first, last uint32) { return m.qps.first, m.qps.last }

// Fail has the CQ fail as when the device does.
func (cq *CQ) Fail() { cq.fail(StatusInternalError) }

// Fail has the SRQ fail as when the device does.
func (srq *SRQ) Fail() { srq.fail(StatusInternalError) }

// Len counts the entries that are queued.
func (cq *CQ) Len() int {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.count
}

// Take has a queue pair take a receive; false if there is none.
func (srq *SRQ) Take() bool { return taker{srq}.Take(&rc.Receive{}) }

// Queues counts the CQs and SRQs that the instance knows.
func (a *Adapter) Queues() int { return len(a.cqs.snapshot()) + len(a.srqs.snapshot()) }

// FailQueues has every CQ and SRQ of the instance fail as when the device does.
func (a *Adapter) FailQueues() {
	a.eachCQ((*CQ).Fail)
	a.eachSRQ((*SRQ).Fail)
}

// Tokens counts the tokens of regions and windows that are given out.
func (m *Miniport) Tokens() int { return m.regions.inUse() }

// Mappings counts the LAMs.
func (m *Miniport) Mappings() int { return m.mappings.inUse() }

func (t *tokenTable[T]) inUse() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used
}

// LeaveTokens has no more than n tokens left that have never been used.
func (m *Miniport) LeaveTokens(n uint32) { m.regions.leave(n) }

// LeaveMappings has no more than room for n LAMs left that has never been used.
func (m *Miniport) LeaveMappings(n uint32) { m.mappings.leave(n) }

func (t *tokenTable[T]) leave(n uint32) { t.next = tokenPages*tokenPageSize - 1 - n }

// Extensions are the offer and the consent that our devices exchange.
func Extensions() (offer, consent mad.ECE) { return offered, agreedTo }
