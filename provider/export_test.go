package provider

// InUse is how many connectors, endpoints and queue pairs the device's tables
// hold.
func (m *Miniport) InUse() int {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	m.qps.mu.Lock()
	defer m.qps.mu.Unlock()
	return len(m.connectors) + len(m.endpoints) + int(m.qps.count)
}

// Busy is how many queue pairs wait for their peers.
func (m *Miniport) Busy() int { return int(m.busy.Load()) }

// SetNextQPN has the search for a free queue pair number begin at n.
func (m *Miniport) SetNextQPN(n uint32) { m.qps.next = n }

// WithoutQPNs calls f while every queue pair number is in use.
func (m *Miniport) WithoutQPNs(f func()) {
	count := m.qps.count
	m.qps.count = m.qps.last - m.qps.first + 1
	f()
	m.qps.count = count
}

// QPNs are the bounds of queue pair numbers.
func (m *Miniport) QPNs() (first, last uint32) { return m.qps.first, m.qps.last }
