package provider

import "github.com/ndklab/ndklab/internal/provider/sharing"

// The device limits the READs that may be in progress on all its connections
// together, those of other processes included (NDIS_NDK_CAPABILITIES). A
// connection takes its share while it is negotiated, as much as is left of what
// it wants, and gives it back when it has ended.

// readLimits are the effective read limits of a connection. The manager's lock guards them.
type readLimits struct {
	inbound, outbound uint32
	taken             bool // from what the device has
}

// take has the connection have up to so many READs in progress, depending
// on what is left.
func (r *readLimits) take(m *Miniport, inbound, outbound uint32) {
	r.inbound = m.ledger.TakeUpTo(sharing.InboundReads, inbound, m.capabilities.MaxInboundReadLimit)
	r.outbound = m.ledger.TakeUpTo(sharing.OutboundReads, outbound, m.capabilities.MaxOutboundReadLimit)
	r.taken = true
}

// lower gives back what the peer does not want.
func (r *readLimits) lower(ledger *sharing.Ledger, inbound, outbound uint32) {
	inbound, outbound = min(r.inbound, inbound), min(r.outbound, outbound)
	ledger.Give(sharing.InboundReads, r.inbound-inbound)
	ledger.Give(sharing.OutboundReads, r.outbound-outbound)
	r.inbound, r.outbound = inbound, outbound
}

// giveBack gives everything back. The limits can still be asked for.
func (r *readLimits) giveBack(ledger *sharing.Ledger) {
	if !r.taken {
		return
	}
	r.taken = false
	ledger.Give(sharing.InboundReads, r.inbound)
	ledger.Give(sharing.OutboundReads, r.outbound)
}
