// Package adapter configures an emulated host's adapter as a topology describes it, with the
// provider's defaults for the rest. It starts no
// adapter: a node's agent does that on sockets, a simulation on a network in virtual
// time, and both have the same limits.
//
// Start reading at Config.
package adapter

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// Takes reports whether an address of a node is one that its adapter can have. An
// IPv6 link-local address means nothing without its interface, which a flow does not
// name.
func Takes(a netip.Addr) bool { return a.Is4() || !a.IsLinkLocalUnicast() }

// stream keeps the adapter's random numbers apart from others of the same seed.
const stream = 0x61646170746572 // "adapter"

// Rand returns the adapter's source of random numbers in a node of a seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// Config returns a configuration with what a topology sets of an adapter, and the provider's
// defaults for the rest. The caller adds Carrier, Clock, Rand and the callbacks.
func Config(set *topology.Adapter) provider.Config {
	c := provider.Config{
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(),
		ReceiveBuffer: provider.DefaultReceiveBuffer,
	}
	override(&c, set)
	override(&c.Info, set)
	override(&c.Capabilities, set)
	setFlags(&c.Info.AdapterFlags, set)
	// A read is an initiator request: of these two, the one that is not set follows the
	// one that is.
	switch info := &c.Info; {
	case set.MaxReadRequestSge == nil:
		info.MaxReadRequestSge = min(info.MaxReadRequestSge, info.MaxInitiatorRequestSge)
	case set.MaxInitiatorRequestSge == nil:
		info.MaxInitiatorRequestSge = max(info.MaxInitiatorRequestSge, info.MaxReadRequestSge)
	}
	c.Configuration = keywords(set)
	c.Congestion = congestionControl(set)
	return c
}

// keywords returns the adapter's keywords. Where a topology sets no frame size it is the
// largest that the link's MTU allows, not that of the keyword's default.
func keywords(set *topology.Adapter) *provider.Configuration {
	k := provider.DefaultConfiguration()
	k.NetworkDirectRoCEFrameSize = 0
	if set.NetworkDirect != nil && !*set.NetworkDirect {
		k.NetworkDirect = 0
	}
	if set.RoCEFrameSize != nil {
		k.NetworkDirectRoCEFrameSize = *set.RoCEFrameSize
	}
	return &k
}

// override gives fields of a structure of the provider's the values that a topology sets for
// them. A limit has the same name in both, but for one of all consumers together that is of each
// consumer, too: topology.Adapter has that with System before its name.
func override(to any, set *topology.Adapter) {
	settings := reflect.ValueOf(set).Elem()
	_, together := to.(*provider.Capabilities)
	for field, value := range reflect.ValueOf(to).Elem().Fields() {
		setting := settings.FieldByName(field.Name)
		if system := settings.FieldByName("System" + field.Name); together && system.IsValid() {
			setting = system
		}
		if setting.IsValid() && !setting.IsNil() && setting.Elem().Type() == value.Type() { // Congestion is of another
			value.Set(setting.Elem())
		}
	}
}

// setFlags sets and clears the flags that a topology names. Its names are NDK's, without the
// underscores.
func setFlags(flags *provider.AdapterFlags, set *topology.Adapter) {
	settings := reflect.ValueOf(set).Elem()
	for _, f := range provider.AdapterFlagNames {
		name := strings.ReplaceAll(strings.TrimPrefix(f.Name, "NDK_ADAPTER_FLAG_"), "_", "")
		setting := settings.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
		switch {
		case setting.IsNil():
		case setting.Elem().Bool():
			*flags |= f.Flag
		default:
			*flags &^= f.Flag
		}
	}
}
