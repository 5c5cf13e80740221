// Package adapter is what an emulated host's adapter is configured with: what a
// topology says of it, and the provider's defaults for the rest. It starts no
// adapter: a node's agent does that on sockets, a simulation on a network in virtual
// time, and both have the same limits.
//
// Start reading at Config.
package adapter

import (
	"math/rand/v2"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// Takes reports whether an address of a node is one that its adapter can have. An
// IPv6 link-local address means nothing without its interface, which a flow does not
// name.
func Takes(a netip.Addr) bool { return a.Is4() || !a.IsLinkLocalUnicast() }

// stream keeps the adapter's random numbers apart from others of the same seed.
const stream = 0x61646170746572 // "adapter"

// Rand is the adapter's source of random numbers in a node of a seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// Config is what a topology sets of an adapter, and the provider's defaults for the
// rest. Carrier, Clock, Rand and who is told of what are the caller's to add.
func Config(set *topology.Adapter) provider.Config {
	c := provider.Config{
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(),
		ReceiveBuffer: provider.DefaultReceiveBuffer,
	}
	setInfo(&c.Info, set)
	setFlags(&c.Info.AdapterFlags, set)
	setCapabilities(&c.Capabilities, set)
	override(&c.ReceiveBuffer, set.ReceiveBuffer)
	override(&c.GoBackN, set.GoBackN)
	override(&c.ReorderBuffer, set.ReorderBuffer)
	override(&c.Pend, set.Pend)
	c.Configuration = keywords(set)
	return c
}

// keywords are the adapter's. Where a topology sets no frame size it is the
// largest that the link's MTU allows, not that of the keyword's default.
func keywords(set *topology.Adapter) *provider.Configuration {
	k := provider.DefaultConfiguration()
	k.NetworkDirectRoCEFrameSize = 0
	if set.NetworkDirect != nil && !*set.NetworkDirect {
		k.NetworkDirect = 0
	}
	override(&k.NetworkDirectRoCEFrameSize, set.RoCEFrameSize)
	return &k
}

func setInfo(info *provider.AdapterInfo, set *topology.Adapter) {
	override(&info.VendorID, set.VendorID)
	override(&info.DeviceID, set.DeviceID)
	override(&info.MaxRegistrationSize, set.MaxRegistrationSize)
	override(&info.MaxWindowSize, set.MaxWindowSize)
	override(&info.FRMRPageCount, set.FRMRPageCount)
	override(&info.MaxInitiatorRequestSge, set.MaxInitiatorRequestSge)
	override(&info.MaxReceiveRequestSge, set.MaxReceiveRequestSge)
	override(&info.MaxReadRequestSge, set.MaxReadRequestSge)
	override(&info.MaxTransferLength, set.MaxTransferLength)
	override(&info.MaxInlineDataSize, set.MaxInlineDataSize)
	override(&info.MaxInboundReadLimit, set.MaxInboundReadLimit)
	override(&info.MaxOutboundReadLimit, set.MaxOutboundReadLimit)
	override(&info.MaxReceiveQueueDepth, set.MaxReceiveQueueDepth)
	override(&info.MaxInitiatorQueueDepth, set.MaxInitiatorQueueDepth)
	override(&info.MaxSrqDepth, set.MaxSrqDepth)
	override(&info.MaxCqDepth, set.MaxCqDepth)
	override(&info.LargeRequestThreshold, set.LargeRequestThreshold)
	override(&info.MaxCallerData, set.MaxCallerData)
	override(&info.MaxCalleeData, set.MaxCalleeData)
	// A read is an initiator request: of these two, the one that is not set gives
	// way to the one that is.
	switch {
	case set.MaxReadRequestSge == nil:
		info.MaxReadRequestSge = min(info.MaxReadRequestSge, info.MaxInitiatorRequestSge)
	case set.MaxInitiatorRequestSge == nil:
		info.MaxInitiatorRequestSge = max(info.MaxInitiatorRequestSge, info.MaxReadRequestSge)
	}
}

func setFlags(flags *provider.AdapterFlags, set *topology.Adapter) {
	for _, f := range []struct {
		flag provider.AdapterFlags
		set  *bool
	}{
		{provider.AdapterInOrderDMA, set.InOrderDMASupported},
		{provider.AdapterReadSinkNotRequired, set.RDMAReadSinkNotRequired},
		{provider.AdapterCQInterruptModeration, set.CQInterruptModerationSupported},
		{provider.AdapterMultiEngine, set.MultiEngineSupported},
		{provider.AdapterReadLocalInvalidate, set.RDMAReadLocalInvalidateSupported},
		{provider.AdapterCQResize, set.CQResizeSupported},
		{provider.AdapterLoopbackConnections, set.LoopbackConnectionsSupported},
	} {
		switch {
		case f.set == nil:
		case *f.set:
			*flags |= f.flag
		default:
			*flags &^= f.flag
		}
	}
}

func setCapabilities(c *provider.Capabilities, set *topology.Adapter) {
	override(&c.MaxQpCount, set.MaxQpCount)
	override(&c.MaxCqCount, set.MaxCqCount)
	override(&c.MaxMrCount, set.MaxMrCount)
	override(&c.MaxPdCount, set.MaxPdCount)
	override(&c.MaxMwCount, set.MaxMwCount)
	override(&c.MaxSrqCount, set.MaxSrqCount)
	override(&c.MaxInboundReadLimit, set.SystemMaxInboundReadLimit)
	override(&c.MaxOutboundReadLimit, set.SystemMaxOutboundReadLimit)
}

func override[T any](limit *T, set *T) {
	if set != nil {
		*limit = *set
	}
}
