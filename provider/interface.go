package provider

// An ObjectType says what an object is (ndkpi.md 2.2).
type ObjectType int32

// The object types.
const (
	ObjectTypeAdapter        ObjectType = 1
	ObjectTypeQP             ObjectType = 2
	ObjectTypeCQ             ObjectType = 3
	ObjectTypeMR             ObjectType = 4
	ObjectTypeMW             ObjectType = 5
	ObjectTypePD             ObjectType = 6
	ObjectTypeSharedEndpoint ObjectType = 7
	ObjectTypeConnector      ObjectType = 8
	ObjectTypeListener       ObjectType = 9
	ObjectTypeSRQ            ObjectType = 10
)

// An OperationType says what a completion completes (ndkpi.md 2.3).
type OperationType int32

// The operation types.
const (
	OperationTypeReceive              OperationType = 1
	OperationTypeReceiveAndInvalidate OperationType = 0x8001
	OperationTypeSend                 OperationType = 2
	OperationTypeFastRegister         OperationType = 4
	OperationTypeBind                 OperationType = 8
	OperationTypeInvalidate           OperationType = 0x10
	OperationTypeRead                 OperationType = 0x20
	OperationTypeWrite                OperationType = 0x40
)

// A NotifyType says which completions an armed CQ waits for (ndkpi.md 2.4).
type NotifyType uint32

// The notification types.
const (
	NotifyErrors    NotifyType = 0
	NotifyAny       NotifyType = 1
	NotifySolicited NotifyType = 2
)

// MRFlags are the rights of a memory region (ndkpi.md 2.5).
type MRFlags uint32

// The rights. MRAllowRemoteWrite includes MRAllowLocalWrite.
const (
	MRAllowLocalRead   MRFlags = 0
	MRAllowLocalWrite  MRFlags = 0x1
	MRAllowRemoteRead  MRFlags = 0x2
	MRAllowRemoteWrite MRFlags = 0x5
	MRReadSink         MRFlags = 0x8
)

// OpFlags modify a request (ndkpi.md 2.6).
type OpFlags uint32

// The request flags.
const (
	OpSilentSuccess       OpFlags = 0x001
	OpReadFence           OpFlags = 0x002
	OpSendAndSolicitEvent OpFlags = 0x004
	OpAllowRemoteRead     OpFlags = 0x008
	OpAllowLocalWrite     OpFlags = 0x010
	OpAllowRemoteWrite    OpFlags = 0x030
	OpInline              OpFlags = 0x040
	OpReadSink            OpFlags = 0x080
	OpReadLocalInvalidate OpFlags = 0x100
	OpDefer               OpFlags = 0x200
	opFlagsOfEveryRequest         = OpSilentSuccess | OpReadFence | OpDefer
	opFlagsOfSend                 = opFlagsOfEveryRequest | OpSendAndSolicitEvent | OpInline
	opFlagsOfWrite                = opFlagsOfEveryRequest | OpInline
	opFlagsOfRead                 = opFlagsOfEveryRequest | OpReadLocalInvalidate
	opFlagsOfBind                 = opFlagsOfEveryRequest | OpAllowRemoteRead | OpAllowRemoteWrite
	opFlagsOfFastRegister         = opFlagsOfBind | OpAllowLocalWrite | OpReadSink
)

// AdapterFlags say what an adapter can do (ndkpi.md 2.7).
type AdapterFlags uint32

// The adapter flags.
const (
	AdapterInOrderDMA            AdapterFlags = 0x00001
	AdapterReadSinkNotRequired   AdapterFlags = 0x00002
	AdapterCQInterruptModeration AdapterFlags = 0x00004
	AdapterMultiEngine           AdapterFlags = 0x00008
	AdapterReadLocalInvalidate   AdapterFlags = 0x00010
	AdapterCQResize              AdapterFlags = 0x00100
	AdapterLoopbackConnections   AdapterFlags = 0x10000
)

// An RDMATechnology is an adapter's kind of RDMA (ndkpi.md 2.8).
type RDMATechnology int32

// RoCEv2 is the technology of this provider.
const RoCEv2 RDMATechnology = 4

// GroupAffinity is a set of processors; a hint that this provider accepts and
// does not follow (NDK-CQ-45).
type GroupAffinity struct {
	Mask  uint64
	Group uint16
}

// An SGE is a piece of registered memory, or, in a request with OpInline, bytes
// to be copied by the call. With the domain's privileged token the address is a
// logical one, and the piece must not leave its page. A virtual address is only
// an index into a region here, never dereferenced, so that inline bytes are given
// as such; address and token are ignored then (NDK-INL-01).
type SGE struct {
	VirtualAddress    uint64
	Length            uint32
	MemoryRegionToken uint32
	Inline            []byte // Length bytes, with OpInline only
}

// A Result is one completion (ndkpi.md 3.3).
type Result struct {
	Status           Status
	BytesTransferred uint32 // of receives; otherwise 0
	QPContext        any
	RequestContext   any
}

// A ResultEx is one completion with its kind.
type ResultEx struct {
	Result
	Type                         OperationType
	ProviderErrorCode            uint32 // 0 when Status is StatusSuccess
	TypeSpecificCompletionOutput uint64 // the invalidated token of ReceiveAndInvalidate
}

// The consumer's callbacks (ndkpi.md 4.13). Each gets back the context that was
// given with it, runs on a goroutine of the provider's with no lock held, must
// not block, and may call any function of the provider but the Close of an
// Adapter or Miniport.
type (
	// RequestCompletion reports the end of a request that returned
	// StatusPending.
	RequestCompletion func(context any, status Status)
	// CloseCompletion reports the end of a close that returned StatusPending;
	// it is the last callback for its object.
	CloseCompletion func(context any)
	// CQNotification reports that what a CQ was armed for has happened.
	CQNotification func(context any, status Status)
	// SRQNotification reports that fewer receives are queued than the threshold,
	// or that the SRQ has failed.
	SRQNotification func(context any, status Status)
	// ConnectEvent hands over the connector of an incoming connection request.
	ConnectEvent func(context any, connector *Connector)
	// DisconnectEvent reports that the peer disconnected or was lost, once.
	DisconnectEvent func(context any)
	// DisconnectEventEx is DisconnectEvent with the reason, one of
	// DisconnectReason.
	DisconnectEventEx func(context any, providerDisconnectReason uint32)
)
