package provider

// InUse is how many connectors, endpoints and queue pairs the adapter's tables
// hold.
func (a *Adapter) InUse() int {
	a.cmMu.Lock()
	defer a.cmMu.Unlock()
	a.qps.mu.Lock()
	defer a.qps.mu.Unlock()
	return len(a.connectors) + len(a.endpoints) + a.qps.count
}

// SetNextQPN has the search for a free queue pair number begin at n.
func (a *Adapter) SetNextQPN(n uint32) { a.qps.next = n }

// The bounds of queue pair numbers.
const (
	FirstQPN = firstQPN
	LastQPN  = lastQPN
)
