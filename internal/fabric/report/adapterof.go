package report

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider"
)

// AdapterOf is an adapter in a
func AdapterOf(a *adapter.State) *Adapter {
	r := &Adapter{
		Enabled: a.Enabled, Instances: a.Usage.Instances, Addresses: []AdapterAddress{},
		Info: adapterInfo(&a.Info),
		Capabilities: Capabilities{
			MaxQpCount: a.Capabilities.MaxQpCount, MaxCqCount: a.Capabilities.MaxCqCount,
			MaxMrCount: a.Capabilities.MaxMrCount, MaxPdCount: a.Capabilities.MaxPdCount,
			MaxInboundReadLimit: a.Capabilities.MaxInboundReadLimit, MaxOutboundReadLimit: a.Capabilities.MaxOutboundReadLimit,
			MaxMwCount: a.Capabilities.MaxMwCount, MaxSrqCount: a.Capabilities.MaxSrqCount,
			MissingCounterMask: a.MissingMask,
		},
		InUse: InUse{
			Qp: a.Usage.Qps, Cq: a.Usage.Cqs, Mr: a.Usage.Mrs, Pd: a.Usage.Pds, Mw: a.Usage.Mws, Srq: a.Usage.Srqs,
			InboundRead: a.Usage.InboundReads, OutboundRead: a.Usage.OutboundReads,
		},
		Configuration: Configuration{
			NetworkDirect:              a.Configuration.NetworkDirect,
			NetworkDirectTechnology:    uint32(a.Configuration.NetworkDirectTechnology),
			NetworkDirectRoCEFrameSize: a.Configuration.NetworkDirectRoCEFrameSize,
		},
		ReceiveBuffer: ReceiveBuffer(a.ReceiveBuffer),
	}
	for _, address := range a.Addresses {
		r.Addresses = append(r.Addresses, AdapterAddress{
			Address: address.Address.String(), Interface: address.Interface, MTU: address.MTU, RoCEFrameSize: address.FrameSize,
		})
	}
	return r
}

func adapterInfo(i *provider.AdapterInfo) AdapterInfo {
	r := AdapterInfo{
		Version:  fmt.Sprintf("%d.%d", i.Version.Major, i.Version.Minor),
		VendorID: i.VendorID, DeviceID: i.DeviceID,
		MaxRegistrationSize: i.MaxRegistrationSize, MaxWindowSize: i.MaxWindowSize, FRMRPageCount: i.FRMRPageCount,
		MaxInitiatorRequestSge: i.MaxInitiatorRequestSge, MaxReceiveRequestSge: i.MaxReceiveRequestSge,
		MaxReadRequestSge: i.MaxReadRequestSge, MaxTransferLength: i.MaxTransferLength, MaxInlineDataSize: i.MaxInlineDataSize,
		MaxInboundReadLimit: i.MaxInboundReadLimit, MaxOutboundReadLimit: i.MaxOutboundReadLimit,
		MaxReceiveQueueDepth: i.MaxReceiveQueueDepth, MaxInitiatorQueueDepth: i.MaxInitiatorQueueDepth,
		MaxSrqDepth: i.MaxSrqDepth, MaxCqDepth: i.MaxCqDepth, LargeRequestThreshold: i.LargeRequestThreshold,
		MaxCallerData: i.MaxCallerData, MaxCalleeData: i.MaxCalleeData,
		AdapterFlags: []string{}, RdmaTechnology: fmt.Sprint(i.RdmaTechnology),
	}
	if i.RdmaTechnology == provider.RoCEv2 {
		r.RdmaTechnology = "NdkRoCEv2"
	}
	for n, flag := range []provider.AdapterFlags{ // in the order of AdapterFlags
		provider.AdapterInOrderDMA, provider.AdapterReadSinkNotRequired, provider.AdapterCQInterruptModeration,
		provider.AdapterMultiEngine, provider.AdapterReadLocalInvalidate, provider.AdapterCQResize, provider.AdapterLoopbackConnections,
	} {
		if i.AdapterFlags&flag != 0 {
			r.AdapterFlags = append(r.AdapterFlags, AdapterFlags[n])
		}
	}
	return r
}
