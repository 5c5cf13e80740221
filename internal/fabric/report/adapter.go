package report

// A NodeAdapter is a node and its adapter.
type NodeAdapter struct {
	NodeState
	Adapter *Adapter `json:"adapter"` // null if the node has none, or is not ready
}

// An Adapter is what an adapter is and can do, and how much of it is in use. What
// NDK has a name for has that name.
type Adapter struct {
	Enabled       bool             `json:"enabled"`
	Instances     int              `json:"instances"` // of the adapter that consumers have open
	Addresses     []AdapterAddress `json:"addresses"`
	Info          AdapterInfo      `json:"info"`
	Capabilities  Capabilities     `json:"capabilities"`
	InUse         InUse            `json:"in_use"`
	Configuration Configuration    `json:"configuration"`
	ReceiveBuffer ReceiveBuffer    `json:"receive_buffer"`
}

// A ReceiveBuffer holds the bytes of packets that may wait at each address of an adapter: as
// many as its topology asks for, and as many as this machine has room for.
type ReceiveBuffer struct {
	Asked   uint32 `json:"asked"`
	Granted uint32 `json:"granted"`
}

// An AdapterAddress is an address of an adapter, and what is in force there.
type AdapterAddress struct {
	Address       string `json:"address"`
	Interface     string `json:"interface"`
	MTU           int    `json:"mtu"`             // bytes of IP packet
	RoCEFrameSize int    `json:"roce_frame_size"` // bytes of payload in a RoCE packet
}

// AdapterInfo holds what an adapter allows each consumer and object
// (NDK_ADAPTER_INFO). Lengths and sizes are in bytes.
type AdapterInfo struct {
	Version                string   `json:"Version"`
	VendorID               uint32   `json:"VendorId"`
	DeviceID               uint32   `json:"DeviceId"`
	MaxRegistrationSize    uint64   `json:"MaxRegistrationSize"`
	MaxWindowSize          uint64   `json:"MaxWindowSize"`
	FRMRPageCount          uint32   `json:"FRMRPageCount"`
	MaxInitiatorRequestSge uint32   `json:"MaxInitiatorRequestSge"`
	MaxReceiveRequestSge   uint32   `json:"MaxReceiveRequestSge"`
	MaxReadRequestSge      uint32   `json:"MaxReadRequestSge"`
	MaxTransferLength      uint32   `json:"MaxTransferLength"`
	MaxInlineDataSize      uint32   `json:"MaxInlineDataSize"`
	MaxInboundReadLimit    uint32   `json:"MaxInboundReadLimit"`
	MaxOutboundReadLimit   uint32   `json:"MaxOutboundReadLimit"`
	MaxReceiveQueueDepth   uint32   `json:"MaxReceiveQueueDepth"`
	MaxInitiatorQueueDepth uint32   `json:"MaxInitiatorQueueDepth"`
	MaxSrqDepth            uint32   `json:"MaxSrqDepth"`
	MaxCqDepth             uint32   `json:"MaxCqDepth"`
	LargeRequestThreshold  uint32   `json:"LargeRequestThreshold"`
	MaxCallerData          uint32   `json:"MaxCallerData"`
	MaxCalleeData          uint32   `json:"MaxCalleeData"`
	AdapterFlags           []string `json:"AdapterFlags"` // those that are set
	RdmaTechnology         string   `json:"RdmaTechnology"`
}

// AdapterFlags are the names of all flags (ndkpi.md 2.7), by ascending value.
var AdapterFlags = []string{
	"NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED",
	"NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED",
	"NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED",
	"NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED",
	"NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED",
	"NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED",
	"NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED",
}

// Capabilities holds what an adapter allows all consumers together
// (NDIS_NDK_CAPABILITIES).
type Capabilities struct {
	MaxQpCount           uint32 `json:"MaxQpCount"`
	MaxCqCount           uint32 `json:"MaxCqCount"`
	MaxMrCount           uint32 `json:"MaxMrCount"`
	MaxPdCount           uint32 `json:"MaxPdCount"`
	MaxInboundReadLimit  uint32 `json:"MaxInboundReadLimit"`  // 0: no such limit
	MaxOutboundReadLimit uint32 `json:"MaxOutboundReadLimit"` // 0: no such limit
	MaxMwCount           uint32 `json:"MaxMwCount"`
	MaxSrqCount          uint32 `json:"MaxSrqCount"`
	MissingCounterMask   uint64 `json:"MissingCounterMask"`
}

// InUse counts the objects on an adapter, of all consumers, and the READs that their
// connections may have in progress.
type InUse struct {
	Qp           uint32 `json:"Qp"`
	Cq           uint32 `json:"Cq"`
	Mr           uint32 `json:"Mr"`
	Pd           uint32 `json:"Pd"`
	InboundRead  uint32 `json:"InboundRead"`
	OutboundRead uint32 `json:"OutboundRead"`
	Mw           uint32 `json:"Mw"`
	Srq          uint32 `json:"Srq"`
}

// Configuration is an adapter's keywords (ndkpi.md 2.11), without the asterisk
// that their names begin with.
type Configuration struct {
	NetworkDirect              uint32 `json:"NetworkDirect"`
	NetworkDirectTechnology    uint32 `json:"NetworkDirectTechnology"`
	NetworkDirectRoCEFrameSize uint32 `json:"NetworkDirectRoCEFrameSize"` // 0: the largest that fits
}
