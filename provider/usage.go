package provider

import "net/netip"

// Usage is how much of a device is in use: numbers of objects, of all processes
// that share it.
type Usage struct {
	Instances                   int
	Qps, Cqs, Mrs, Pds, Mws     uint32
	Srqs                        uint32
	InboundReads, OutboundReads uint32 // that the connections may have in progress
}

// Usage counts what is in use. Of objects that are being made and closed
// meanwhile some may be counted.
func (m *Miniport) Usage() Usage {
	held := func(r resource) uint32 { return uint32(m.ledger.sumOf(r)) }
	return Usage{
		Instances: int(held(instanceResource)),
		Qps:       held(qpResource), Cqs: held(cqResource), Mrs: held(mrResource), Pds: held(pdResource),
		Mws: held(mwResource), Srqs: held(srqResource),
		InboundReads: held(inboundReadResource), OutboundReads: held(outboundReadResource),
	}
}

// An ActiveAddress is an address of a device, with the MTUs that are in force
// there now, in bytes: of IP packets, and of payload in RoCE packets.
type ActiveAddress struct {
	Address   netip.Addr
	MTU       int
	FrameSize int // 0 if no RoCE packet fits
}

// ActiveAddresses lists the device's addresses.
func (m *Miniport) ActiveAddresses() []ActiveAddress {
	var active []ActiveAddress
	for _, a := range m.carrier.Addresses() {
		active = append(active, ActiveAddress{a, m.carrier.MTU(a), m.pathMTU(a)})
	}
	return active
}
