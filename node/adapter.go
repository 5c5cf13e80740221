package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/lease"
	"github.com/ndklab/ndklab/provider/udp"
	"github.com/ndklab/ndklab/topology"
)

// startAdapter starts the node's adapter, at all its addresses, and shares it
// with the programs that run in the node.
func startAdapter(cfg *Config, c clock.Clock) (*lease.Server, error) {
	carrier, err := udp.Open(udp.Config{Addresses: cfg.addresses()})
	if err != nil {
		return nil, err
	}
	server, err := lease.Serve(provider.Config{
		Clock:         c,
		Rand:          rand.New(rand.NewPCG(cfg.Seed, adapterStream)),
		Info:          limited(provider.DefaultAdapterInfo(), &cfg.Adapter),
		Capabilities:  provider.DefaultCapabilities(),
		Configuration: keywords(&cfg.Adapter),
	}, carrier)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adapter: %w", err), carrier.Close())
	}
	return server, nil
}

// addresses are those of the node that an adapter can have.
func (cfg *Config) addresses() []netip.Addr {
	var addresses []netip.Addr
	for _, i := range cfg.Interfaces {
		for _, prefix := range i.Addresses {
			// An IPv6 link-local address means nothing without its interface, which a
			// flow does not name.
			if a := prefix.Addr(); a.Is4() || !a.IsLinkLocalUnicast() {
				addresses = append(addresses, a)
			}
		}
	}
	return addresses
}

// adapterStream keeps the adapter's random numbers apart from others of the same
// seed.
const adapterStream = 0x61646170746572 // "adapter"

// limited is info with the limits that a topology sets.
func limited(info provider.AdapterInfo, set *topology.Adapter) provider.AdapterInfo {
	override(&info.MaxRegistrationSize, set.MaxRegistrationSize)
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
	return info
}

// keywords are the adapter's keywords as a topology sets them.
func keywords(set *topology.Adapter) *provider.Configuration {
	c := provider.DefaultConfiguration()
	if set.NetworkDirect != nil && !*set.NetworkDirect {
		c.NetworkDirect = 0
	}
	c.NetworkDirectRoCEFrameSize = 0 // what the links allow
	override(&c.NetworkDirectRoCEFrameSize, set.RoCEFrameSize)
	return &c
}

func override[T any](limit *T, set *T) {
	if set != nil {
		*limit = *set
	}
}
