package provider

import "net/netip"

// The dispatch tables (ndkpi.md 3.2). Every object has one in its field Dispatch,
// set before the consumer gets the object and never read by the provider: who
// wants to stand between a consumer and the provider puts a table there whose
// functions call the object's own. All functions are there in every version
// (NDK-VER-09).
type (
	// AdapterDispatch is NDK_ADAPTER_DISPATCH.
	AdapterDispatch interface {
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		QueryAdapterInfo(info *AdapterInfo, size *uint32) Status
		CreateCQ(depth uint32, notification CQNotification, notificationContext any, affinity *GroupAffinity,
			completion CreateCompletion, context any) (*CQ, Status)
		CreatePD(completion CreateCompletion, context any) (*PD, Status)
		CreateSharedEndpoint(address netip.AddrPort, completion CreateCompletion, context any) (*SharedEndpoint, Status)
		CreateConnector(completion CreateCompletion, context any) (*Connector, Status)
		CreateListener(event ConnectEvent, eventContext any, completion CreateCompletion, context any) (*Listener, Status)
		BuildLAM(mdl *MDL, length uint64, completion RequestCompletion, context any, lam *LAM, size, fbo *uint32) Status
		ReleaseLAM(lam *LAM)
	}

	// CQDispatch is NDK_CQ_DISPATCH.
	CQDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		Resize(depth uint32, completion RequestCompletion, context any) Status
		Arm(t NotifyType)
		Results(results []Result) int
		ControlInterruptModeration(interval, count uint32) Status
		ResultsEx(results []ResultEx) int
	}

	// PDDispatch is NDK_PD_DISPATCH.
	PDDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		CreateMR(fastRegister bool, completion CreateCompletion, context any) (*MR, Status)
		CreateMW(completion CreateCompletion, context any) (*MW, Status)
		CreateSRQ(depth, maxReceiveRequestSge, notifyThreshold uint32, notification SRQNotification,
			notificationContext any, affinity *GroupAffinity, completion CreateCompletion, context any) (*SRQ, Status)
		CreateQP(receiveCQ, initiatorCQ *CQ, qpContext any, receiveQueueDepth, initiatorQueueDepth,
			maxReceiveRequestSge, maxInitiatorRequestSge, inlineDataSize uint32,
			completion CreateCompletion, context any) (*QP, Status)
		CreateQPWithSRQ(receiveCQ, initiatorCQ *CQ, srq *SRQ, qpContext any,
			initiatorQueueDepth, maxInitiatorRequestSge, inlineDataSize uint32,
			completion CreateCompletion, context any) (*QP, Status)
		PrivilegedMemoryRegionToken() uint32
	}

	// MRDispatch is NDK_MR_DISPATCH.
	MRDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		Register(mdl *MDL, length uint64, flags MRFlags, completion RequestCompletion, context any) Status
		Deregister(completion RequestCompletion, context any) Status
		InitializeFastRegister(adapterPageCount uint32, remoteAccess bool, completion RequestCompletion, context any) Status
		RemoteToken() uint32
		LocalToken() uint32
	}

	// MWDispatch is NDK_MW_DISPATCH.
	MWDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		RemoteToken() uint32
	}

	// QPDispatch is NDK_QP_DISPATCH.
	QPDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		Flush()
		Send(context any, sgl []SGE, flags OpFlags) Status
		Receive(context any, sgl []SGE) Status
		Bind(context any, mr *MR, mw *MW, virtualAddress, length uint64, flags OpFlags) Status
		FastRegister(context any, mr *MR, pages []LogicalAddress, fbo uint32, length, baseVirtualAddress uint64,
			flags OpFlags) Status
		Invalidate(context any, mrOrMW Object, flags OpFlags) Status
		Read(context any, sgl []SGE, remoteAddress uint64, remoteToken uint32, flags OpFlags) Status
		Write(context any, sgl []SGE, remoteAddress uint64, remoteToken uint32, flags OpFlags) Status
		SendAndInvalidate(context any, sgl []SGE, flags OpFlags, remoteToken uint32) Status
	}

	// SRQDispatch is NDK_SRQ_DISPATCH.
	SRQDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		Modify(depth, notifyThreshold uint32, completion RequestCompletion, context any) Status
		Receive(context any, sgl []SGE) Status
	}

	// ConnectorDispatch is NDK_CONNECTOR_DISPATCH.
	ConnectorDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		Connect(qp *QP, source, destination netip.AddrPort, inboundReadLimit, outboundReadLimit uint32,
			privateData []byte, completion RequestCompletion, context any) Status
		ConnectWithSharedEndpoint(qp *QP, endpoint *SharedEndpoint, destination netip.AddrPort,
			inboundReadLimit, outboundReadLimit uint32, privateData []byte,
			completion RequestCompletion, context any) Status
		CompleteConnect(event DisconnectEvent, eventContext any, completion RequestCompletion, context any) Status
		Accept(qp *QP, inboundReadLimit, outboundReadLimit uint32, privateData []byte,
			event DisconnectEvent, eventContext any, completion RequestCompletion, context any) Status
		Reject(privateData []byte) Status
		GetConnectionData(inbound, outbound *uint32, privateData []byte, length *uint32) Status
		GetLocalAddress(address *netip.AddrPort, length *uint32) Status
		GetPeerAddress(address *netip.AddrPort, length *uint32) Status
		Disconnect(completion RequestCompletion, context any) Status
		CompleteConnectEx(event DisconnectEventEx, eventContext any, completion RequestCompletion, context any) Status
		AcceptEx(qp *QP, inboundReadLimit, outboundReadLimit uint32, privateData []byte,
			event DisconnectEventEx, eventContext any, completion RequestCompletion, context any) Status
	}

	// ListenerDispatch is NDK_LISTENER_DISPATCH.
	ListenerDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		Listen(address netip.AddrPort, completion RequestCompletion, context any) Status
		GetLocalAddress(address *netip.AddrPort, length *uint32) Status
		ControlConnectEvents(pause bool)
	}

	// SharedEndpointDispatch is NDK_SHARED_ENDPOINT_DISPATCH.
	SharedEndpointDispatch interface {
		Close(completion CloseCompletion, context any) Status
		QueryExtension(id GUID, version Version, extension *ExtensionInterface) Status
		GetLocalAddress(address *netip.AddrPort, length *uint32) Status
	}
)
