package provider

import "github.com/ndklab/ndklab/provider/rc"

// InUse is how many connectors, endpoints and queue pairs the device's tables
// hold.
func (m *Miniport) InUse() int {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	m.qps.mu.Lock()
	defer m.qps.mu.Unlock()
	return len(m.connectors) + len(m.endpoints) + int(m.qps.count)
}

// SetNextQPN has the search for a free queue pair number begin at n.
func (m *Miniport) SetNextQPN(n uint32) { m.qps.next = n }

// QPNs are the bounds of queue pair numbers.
func (m *Miniport) QPNs() (first, last uint32) { return m.qps.first, m.qps.last }

// Fail has the CQ fail as when the device does.
func (cq *CQ) Fail() { cq.fail(StatusInternalError) }

// Fail has the SRQ fail as when the device does.
func (srq *SRQ) Fail() { srq.fail(StatusInternalError) }

// Take has a queue pair take a receive; false if there is none.
func (srq *SRQ) Take() bool { return taker{srq}.Take(&rc.Receive{}) }

// Queues is how many CQs and SRQs the instance knows.
func (a *Adapter) Queues() int { return len(a.cqs.snapshot()) + len(a.srqs.snapshot()) }

// FailQueues has every CQ and SRQ of the instance fail as when the device does.
func (a *Adapter) FailQueues() {
	a.eachCQ((*CQ).Fail)
	a.eachSRQ((*SRQ).Fail)
}
