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

// SetNextQPN has the search for a free queue pair number begin at n.
func (m *Miniport) SetNextQPN(n uint32) { m.qps.next = n }

// MaxInstances is how many instances may be open at once.
const MaxInstances = maxInstances

// QPNs are the bounds of queue pair numbers.
func (m *Miniport) QPNs() (first, last uint32) { return m.qps.first, m.qps.last }
