package provider

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// An AdapterInfo holds an adapter's limits, under the names of
// NDK_ADAPTER_INFO (ndkpi.md 3.4). A limit has its unit in its tag.
type AdapterInfo struct {
	Version                Version
	VendorID               uint32 `json:"VendorId"`
	DeviceID               uint32 `json:"DeviceId"`
	MaxRegistrationSize    uint64 `unit:"bytes"`
	MaxWindowSize          uint64 `unit:"bytes"`
	FRMRPageCount          uint32 `unit:"pages"`
	MaxInitiatorRequestSge uint32 `unit:"elements"`
	MaxReceiveRequestSge   uint32 `unit:"elements"`
	MaxReadRequestSge      uint32 `unit:"elements"`
	MaxTransferLength      uint32 `unit:"bytes"`
	MaxInlineDataSize      uint32 `unit:"bytes"`
	MaxInboundReadLimit    uint32 `unit:"READs"`
	MaxOutboundReadLimit   uint32 `unit:"READs"`
	MaxReceiveQueueDepth   uint32 `unit:"requests"`
	MaxInitiatorQueueDepth uint32 `unit:"requests"`
	MaxSrqDepth            uint32 `unit:"requests"`
	MaxCqDepth             uint32 `unit:"completions"`
	LargeRequestThreshold  uint32 `unit:"bytes"`
	MaxCallerData          uint32 `unit:"bytes"`
	MaxCalleeData          uint32 `unit:"bytes"`
	AdapterFlags           AdapterFlags
	RdmaTechnology         RDMATechnology
}

// DefaultAdapterInfo returns what an adapter reports unless told otherwise: the
// limits of a present-day RNIC, and of RoCE connection management (roce.md
// 15.2).
func DefaultAdapterInfo() AdapterInfo {
	return AdapterInfo{
		Version:                InterfaceVersion,
		VendorID:               vendorID,
		DeviceID:               1,
		MaxRegistrationSize:    1 << 40,
		MaxWindowSize:          1 << 40,
		FRMRPageCount:          16,
		MaxInitiatorRequestSge: 30,
		MaxReceiveRequestSge:   30,
		MaxReadRequestSge:      30,
		MaxTransferLength:      1 << 30,
		MaxInlineDataSize:      928,
		MaxInboundReadLimit:    16,
		MaxOutboundReadLimit:   16,
		MaxReceiveQueueDepth:   32768,
		MaxInitiatorQueueDepth: 32768,
		MaxSrqDepth:            32768,
		MaxCqDepth:             4 << 20,
		LargeRequestThreshold:  65536,
		MaxCallerData:          56,
		MaxCalleeData:          148,
		AdapterFlags: AdapterInOrderDMA | AdapterReadSinkNotRequired | AdapterCQInterruptModeration |
			AdapterMultiEngine | AdapterReadLocalInvalidate | AdapterCQResize | AdapterLoopbackConnections,
		RdmaTechnology: RoCEv2,
	}
}

// AdapterInfoSize is the size of NDK_ADAPTER_INFO in bytes (ndkpi.md 3.4).
const AdapterInfoSize = 104

// check reports limits that the interface or the wire rules out, and what this
// provider cannot be.
func (i *AdapterInfo) check() error {
	const known = AdapterInOrderDMA | AdapterReadSinkNotRequired | AdapterCQInterruptModeration | AdapterMultiEngine |
		AdapterReadLocalInvalidate | AdapterCQResize | AdapterLoopbackConnections
	if i.AdapterFlags&^known != 0 {
		return fmt.Errorf("AdapterFlags %#x are unknown", uint32(i.AdapterFlags&^known))
	}
	if i.RdmaTechnology != RoCEv2 {
		return fmt.Errorf("RdmaTechnology is %d, must be %d", i.RdmaTechnology, RoCEv2)
	}
	return checkLimits([]limit{
		{"MaxRegistrationSize", i.MaxRegistrationSize, 1, 1 << 48},
		{"FRMRPageCount", uint64(i.FRMRPageCount), 16, maxFastRegisterPages}, // NDK-INFO-03
		{"MaxInitiatorRequestSge", uint64(i.MaxInitiatorRequestSge), 1, 256},
		{"MaxReceiveRequestSge", uint64(i.MaxReceiveRequestSge), 1, 256},
		{"MaxReadRequestSge", uint64(i.MaxReadRequestSge), 1, uint64(i.MaxInitiatorRequestSge)}, // T58
		{"MaxTransferLength", uint64(i.MaxTransferLength), 1, rc.MaxMessage},
		{"MaxInlineDataSize", uint64(i.MaxInlineDataSize), 0, 65536},
		{"MaxInboundReadLimit", uint64(i.MaxInboundReadLimit), 0, 255}, // 8 bits in REQ and REP
		{"MaxOutboundReadLimit", uint64(i.MaxOutboundReadLimit), 0, 255},
		{"MaxReceiveQueueDepth", uint64(i.MaxReceiveQueueDepth), 1, 1 << 20},
		{"MaxInitiatorQueueDepth", uint64(i.MaxInitiatorQueueDepth), 1, 1 << 20},
		{"MaxWindowSize", i.MaxWindowSize, 0, 1 << 48},
		{"MaxSrqDepth", uint64(i.MaxSrqDepth), 0, 1 << 20},
		{"MaxCqDepth", uint64(i.MaxCqDepth), 1, 1 << 26},
		{"MaxCallerData", uint64(i.MaxCallerData), 0, mad.ConsumerPrivateData},
		{"MaxCalleeData", uint64(i.MaxCalleeData), 0, mad.REJPrivateData},
	})
}

// Capabilities are the limits of all consumers of a device together, under the
// names of NDIS_NDK_CAPABILITIES (ndkpi.md 3.5).
type Capabilities struct {
	MaxQpCount uint32
	MaxCqCount uint32
	MaxMrCount uint32
	MaxPdCount uint32
	// The READs that may be in progress on all connections together; 0 for no
	// such limit.
	MaxInboundReadLimit  uint32
	MaxOutboundReadLimit uint32
	MaxMwCount           uint32
	MaxSrqCount          uint32
}

// DefaultCapabilities returns the capabilities of a present-day RNIC.
func DefaultCapabilities() Capabilities {
	return Capabilities{
		MaxQpCount: 1 << 17, MaxCqCount: 1 << 18, MaxMrCount: 1 << 23, MaxPdCount: 1 << 18,
		MaxMwCount: 1 << 23, MaxSrqCount: 1 << 16,
	}
}

func (c *Capabilities) check(info *AdapterInfo) error {
	if (c.MaxSrqCount == 0) != (info.MaxSrqDepth == 0) { // NDK-CAP-04
		return fmt.Errorf("MaxSrqCount is %d and MaxSrqDepth %d: either both are 0 or none", c.MaxSrqCount, info.MaxSrqDepth)
	}
	return checkLimits([]limit{
		{"MaxQpCount", uint64(c.MaxQpCount), 1, 1 << 18},
		{"MaxCqCount", uint64(c.MaxCqCount), 1, 1 << 24},
		{"MaxMrCount", uint64(c.MaxMrCount), 1, 1 << 24},
		{"MaxPdCount", uint64(c.MaxPdCount), 1, 1 << 24},
		{"MaxMwCount", uint64(c.MaxMwCount), 0, 1 << 24},
		{"MaxSrqCount", uint64(c.MaxSrqCount), 0, 1 << 24},
	})
}

// A limit is a value and the range that it must be in.
type limit struct {
	name          string
	got, min, max uint64
}

func checkLimits(limits []limit) error {
	for _, l := range limits {
		if l.got < l.min || l.got > l.max {
			return fmt.Errorf("%s is %d, must be %d to %d", l.name, l.got, l.min, l.max)
		}
	}
	return nil
}
