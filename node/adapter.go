package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/lease"
	"github.com/ndklab/ndklab/provider/udp"
	"github.com/ndklab/ndklab/topology"
)

// This file makes an adapter of what a topology says of it.

// startAdapter starts the node's adapter, at all its addresses, and shares it
// with the programs that run in the node. qpError is told of queue pairs in error.
func startAdapter(params *upParams, c clock.Clock, qpError func(provider.QPError)) (*lease.Server, error) {
	var set topology.Adapter
	if params.Adapter != nil {
		if err := json.Unmarshal(params.Adapter, &set); err != nil {
			return nil, fmt.Errorf("adapter: %w", err)
		}
	}
	sockets := udp.Config{Lazy: true}
	for _, a := range params.Addresses {
		sockets.Addresses = append(sockets.Addresses, a.Address)
		sockets.Interfaces = append(sockets.Interfaces, a.Interface)
	}
	carrier, err := udp.Open(sockets)
	if err != nil {
		return nil, err
	}
	settings := adapterConfig(&set)
	settings.Clock = c
	settings.QPError = qpError
	settings.Rand = rand.New(rand.NewPCG(params.Seed, adapterStream))
	settings.Log = func(message string) { log.Printf("adapter: %s", message) }
	server, err := lease.Serve(settings, carrier)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adapter: %w", err), carrier.Close())
	}
	return server, nil
}

// addresses are those of the node that an adapter can have.
func (cfg *Config) addresses() []localAddress {
	var addresses []localAddress
	for _, i := range cfg.Interfaces {
		for _, prefix := range i.Addresses {
			// An IPv6 link-local address means nothing without its interface, which a
			// flow does not name.
			if a := prefix.Addr(); a.Is4() || !a.IsLinkLocalUnicast() {
				addresses = append(addresses, localAddress{a, i.Name})
			}
		}
	}
	return addresses
}

// adapterStream keeps the adapter's random numbers apart from others of the same
// seed.
const adapterStream = 0x61646170746572 // "adapter"

// adapterConfig is what a topology sets of an adapter, and the provider's
// defaults for the rest.
func adapterConfig(set *topology.Adapter) provider.Config {
	c := provider.Config{Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities()}
	setInfo(&c.Info, set)
	setFlags(&c.Info.AdapterFlags, set)
	setCapabilities(&c.Capabilities, set)
	override(&c.GoBackN, set.GoBackN)
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
