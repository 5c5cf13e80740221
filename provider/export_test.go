package provider

// InUse is how many connectors, endpoints, queue pairs, tokens and mappings the
// device's tables hold.
func (m *Miniport) InUse() int {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	m.qps.mu.Lock()
	defer m.qps.mu.Unlock()
	return len(m.connectors) + len(m.endpoints) + int(m.qps.count) + m.Tokens() + m.Mappings()
}

// SetNextQPN has the search for a free queue pair number begin at n.
func (m *Miniport) SetNextQPN(n uint32) { m.qps.next = n }

// QPNs are the bounds of queue pair numbers.
func (m *Miniport) QPNs() (first, last uint32) { return m.qps.first, m.qps.last }

// Tokens is how many tokens of regions and windows are given out.
func (m *Miniport) Tokens() int { return m.regions.inUse() }

// Mappings is how many LAMs there are.
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
