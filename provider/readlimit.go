package provider

// The device limits the READs that may be in progress on all its connections
// together, those of other processes included (NDIS_NDK_CAPABILITIES). A
// connection takes its share while it is negotiated, as much as is left of what
// it wants, and gives it back when it has ended.

// takeReads has the connection have up to so many READs in progress, depending
// on what is left. The manager's lock is held.
func (c *Connector) takeReads(inbound, outbound uint32) {
	m := c.adapter.miniport
	c.inbound = m.takeReads(inboundReadResource, inbound, m.capabilities.MaxInboundReadLimit)
	c.outbound = m.takeReads(outboundReadResource, outbound, m.capabilities.MaxOutboundReadLimit)
	c.holdsReads = true
}

// lowerReads gives back what the peer does not want. The manager's lock is held.
func (c *Connector) lowerReads(inbound, outbound uint32) {
	ledger := c.adapter.miniport.ledger
	inbound, outbound = min(c.inbound, inbound), min(c.outbound, outbound)
	ledger.give(inboundReadResource, c.inbound-inbound)
	ledger.give(outboundReadResource, c.outbound-outbound)
	c.inbound, c.outbound = inbound, outbound
}

// returnReads gives everything back. The limits can still be asked for. The
// manager's lock is held.
func (c *Connector) returnReads() {
	if !c.holdsReads {
		return
	}
	c.holdsReads = false
	ledger := c.adapter.miniport.ledger
	ledger.give(inboundReadResource, c.inbound)
	ledger.give(outboundReadResource, c.outbound)
}

// takeReads takes n, or as many as are left. A limit of 0 is none (NDK-CAP-02).
func (m *Miniport) takeReads(r resource, n, limit uint32) uint32 {
	if limit == 0 {
		limit = 1<<32 - 1
	}
	for n > 0 && !m.ledger.take(r, n, limit) {
		n--
	}
	return n
}
