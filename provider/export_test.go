package provider

import (
	"runtime"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/provider/clock"
)

// InUse returns the numbers of connectors, endpoints, queue pairs, tokens and mappings the
// device's tables hold.
func (m *Miniport) InUse() int {
	m.manager.Lock()
	defer m.manager.Unlock()
	return m.ids() + len(slices.Collect(m.manager.Endpoints())) + m.transport.Usage().Numbers + m.Tokens() + m.Mappings()
}

// HeldQPNs counts the queue pair numbers that are kept for the timewait of
// connections.
func (m *Miniport) HeldQPNs() int { return m.transport.Usage().Held }

// IDs counts the connection IDs that connectors have: until the connection manager
// needs them no more.
func (m *Miniport) IDs() int {
	m.manager.Lock()
	defer m.manager.Unlock()
	return m.ids()
}

func (m *Miniport) ids() int { return len(slices.Collect(m.connectors())) }

// HeardBy counts the queue pairs that are kept as the ones that heard from an address last.
func (m *Miniport) HeardBy() int { return m.transport.Usage().Peers }

// Busy counts the queue pairs that wait for their peers.
func (m *Miniport) Busy() int { return m.transport.Usage().Waiting }

// FreeCredit returns the bytes of credit that nobody has, and Credit those of all.
func (m *Miniport) FreeCredit() int { return int(m.transport.Usage().Unneeded) }
func (m *Miniport) Credit() int     { return int(m.transport.Usage().Credit) }

// ReorderBuffer returns the bytes that queue pairs have taken of the memory for early
// packets.
func (m *Miniport) ReorderBuffer() int { return int(m.ledger.SumOf(sharing.EarlyBytes)) }

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
func (m *Miniport) SetNextQPN(n uint32) { m.transport.SetNextNumber(n) }

// MaxInstances bounds the instances that are open at once.
const MaxInstances = maxInstances

// WithoutQPNs calls f while every queue pair number is in use.
func (m *Miniport) WithoutQPNs(f func()) { m.transport.WithoutNumbers(f) }

// QPNs are the bounds of queue pair numbers.
func (m *Miniport) QPNs() (first, last uint32) { return m.transport.Numbers() }

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
func (srq *SRQ) Take() bool { return srqReceives{srq}.Take(&rc.Receive{}) }

// Queues counts the CQs and SRQs that the instance knows.
func (a *Adapter) Queues() int { return len(a.cqs.snapshot()) + len(a.srqs.snapshot()) }

// FailQueues has every CQ and SRQ of the instance fail as when the device does.
func (a *Adapter) FailQueues() { a.fail() }

// Tokens counts the tokens of regions and windows that are given out.
func (m *Miniport) Tokens() int { return m.regions.InUse() }

// Mappings counts the LAMs.
func (m *Miniport) Mappings() int { return m.mappings.InUse() }

// LeaveTokens has no more than n tokens left that have never been used.
func (m *Miniport) LeaveTokens(n uint32) { m.regions.Leave(n) }

// LeaveMappings has no more than room for n LAMs left that has never been used.
func (m *Miniport) LeaveMappings(n uint32) { m.mappings.Leave(n) }

// Extensions are the offer and the consent that our devices exchange.
func Extensions() (offer, consent mad.ECE) { return offered, agreedTo }
