// Package provider is an NDK provider: the Network Direct Kernel Provider
// Interface of docs/spec/ndkpi.md as a Go library, speaking RoCEv2.
//
// A Miniport is the device. It runs on a Carrier, which moves its packets: UDP
// sockets (package udp) or a simulated network (package sim). A consumer opens an
// instance of it, an Adapter, and makes there protection domains, memory regions,
// completion queues, queue pairs, listeners and connectors, and exchanges data
// with Send, Receive, Read and Write. Names are NDKPI's without the Ndk prefix,
// and so is the behaviour: what takes time returns StatusPending and calls back;
// nothing else blocks; a Status is the NTSTATUS code and implements error.
//
// The package knows objects, memory and statuses. The pure state machines of rc (a
// connection's packets) and cm (its beginning and end) are driven by internal/provider/transport
// and internal/provider/gsi, which know none of these, and which other object models use, too.
// It knows nothing of labs, namespaces or links.
//
// Locks are taken in the order gsi.Manager's, that of the transport's retired counters,
// transport.Channel's, SRQ.mu, CQ.mu, tokenSlot.mu, MR.mu, and last those of tables, of objects, of
// callback queues, of what is put off and of the credit pool, which are never held together. ndkState.mu stands beside: only
// those of objects and callback queues are taken inside. None is held while a
// consumer's callback runs. The carrier is called with one of the first and third held, so that
// it must not deliver packets within Send.
//
// Start reading at NewMiniport and Miniport.OpenAdapter; then QP and Connector.
//
// # Who runs what
//
// A consumer's call runs the state machine within the call, down to the carrier: nothing is
// handed to another goroutine to be sent. The carrier's goroutine handles what arrives,
// and then runs the notifications of CQs that this led to; those should not block, as on
// Windows. A consumer that looks for completions again and again instead (CQ.Results in
// vain, twice in a row without an Arm) receives itself, within the call, and the
// carrier's goroutine sleeps meanwhile. See internal/transport, delivery.go.
//
// # Congestion
//
// Config.Congestion says how fast queue pairs of reliable connections send. As a zero value it leaves that to their
// windows: package rc finds what a path carries by measuring it, all packets are not ECN-capable, so that no switch marks
// them, and CNPs that a peer sends are counted (cnps_received) and have no other effect. With DCQCN the device is
// notification point and reaction point (roce.md 14): packets that have data or ask for it are ECN-capable, marks are
// answered with CNPs, and CNPs slow down the queue pair that they are for. With DCTCP it is the same, but that CNPs make a
// window smaller, and marks on responses to READs that of who reads. With WithBDP no more is in flight than the path holds. A
// peer of another make that never marks packets ECN-capable, as rxe, is sent no CNP. Datagrams and unreliable connections are never ECN-capable.
//
// # Functions
//
// NDKPI's functions with their names here, in the order of docs/spec/ndkpi.md section 4:
//
//	OpenNDKAdapterHandler               Miniport.OpenAdapter
//	CloseNDKAdapterHandler              Adapter.Close
//	NdkCloseXxx                         CQ.Close, PD.Close, MR.Close, MW.Close, QP.Close, SRQ.Close,
//	                                    Connector.Close, Listener.Close, SharedEndpoint.Close
//	NdkQueryExtension                   Adapter.QueryExtension, and of every other object
//	NdkQueryAdapterInfo                 Adapter.QueryAdapterInfo, Adapter.Info
//	NdkCreateCq                         Adapter.CreateCQ
//	NdkCreatePd                         Adapter.CreatePD
//	NdkCreateSharedEndpoint             Adapter.CreateSharedEndpoint
//	NdkCreateConnector                  Adapter.CreateConnector
//	NdkCreateListener                   Adapter.CreateListener
//	NdkBuildLam                         Adapter.BuildLAM
//	NdkReleaseLam                       Adapter.ReleaseLAM
//	NdkResizeCq                         CQ.Resize
//	NdkArmCq                            CQ.Arm
//	NdkGetCqResults                     CQ.Results
//	NdkGetCqResultsEx                   CQ.ResultsEx
//	NdkControlCqInterruptModeration     CQ.ControlInterruptModeration
//	NdkCreateMr                         PD.CreateMR
//	NdkCreateMw                         PD.CreateMW
//	NdkCreateSrq                        PD.CreateSRQ
//	NdkCreateQp                         PD.CreateQP
//	NdkCreateQpWithSrq                  PD.CreateQPWithSRQ
//	NdkGetPrivilegedMemoryRegionToken   PD.PrivilegedMemoryRegionToken
//	NdkRegisterMr                       MR.Register
//	NdkDeregisterMr                     MR.Deregister
//	NdkInitializeFastRegisterMr         MR.InitializeFastRegister
//	NdkGetLocalTokenFromMr              MR.LocalToken
//	NdkGetRemoteTokenFromMr             MR.RemoteToken
//	NdkGetRemoteTokenFromMw             MW.RemoteToken
//	NdkFlush                            QP.Flush
//	NdkSend                             QP.Send
//	NdkSendAndInvalidate                QP.SendAndInvalidate
//	NdkReceive                          QP.Receive
//	NdkBind                             QP.Bind
//	NdkFastRegister                     QP.FastRegister
//	NdkInvalidate                       QP.Invalidate
//	NdkRead                             QP.Read
//	NdkWrite                            QP.Write
//	NdkModifySrq                        SRQ.Modify
//	NdkSrqReceive                       SRQ.Receive
//	NdkConnect                          Connector.Connect
//	NdkConnectWithSharedEndpoint        Connector.ConnectWithSharedEndpoint
//	NdkCompleteConnect                  Connector.CompleteConnect
//	NdkCompleteConnectEx                Connector.CompleteConnectEx
//	NdkAccept                           Connector.Accept
//	NdkAcceptEx                         Connector.AcceptEx
//	NdkReject                           Connector.Reject
//	NdkGetConnectionData                Connector.GetConnectionData
//	NdkGetLocalAddress                  Connector.GetLocalAddress, Connector.LocalAddress
//	NdkGetPeerAddress                   Connector.GetPeerAddress, Connector.PeerAddress
//	NdkDisconnect                       Connector.Disconnect
//	NdkListen                           Listener.Listen
//	NdkGetListenerLocalAddress          Listener.GetLocalAddress, Listener.LocalAddress
//	NdkControlConnectEvents             Listener.ControlConnectEvents
//	NdkGetSharedEndpointLocalAddress    SharedEndpoint.GetLocalAddress, SharedEndpoint.LocalAddress
//
// NDKPI's callbacks, and the OIDs:
//
//	NdkCreateCompletion                 CreateCompletion
//	NdkRequestCompletion                RequestCompletion
//	NdkCloseCompletion                  CloseCompletion
//	NdkCqNotificationCallback           CQNotification
//	NdkSrqNotificationCallback          SRQNotification
//	NdkConnectEventCallback             ConnectEvent
//	NdkDisconnectEventCallback          DisconnectEvent
//	NdkDisconnectEventCallbackEx        DisconnectEventEx
//	OID_NDK_SET_STATE                   Miniport.SetOID, Miniport.SetState
//	OID_NDK_STATISTICS                  Miniport.QueryOID, Miniport.Counters
//	OID_NDK_CONNECTIONS                 Miniport.QueryOID, Miniport.Connections
//	OID_NDK_LOCAL_ENDPOINTS             Miniport.QueryOID, Miniport.LocalEndpoints
//
// # Beyond NDKPI
//
// A consumer can do more here than the interface allows:
//
//   - Connector.ConnectUnmanaged, with QP.Number, connects without connection
//     management, as the peers do that exchange queue pair numbers by means of their
//     own (ibv_rc_pingpong, perftest, MPI, NCCL).
//
// # Deviations: the form
//
// The form differs from Microsoft's pages because this is a Go library:
//
//   - An object is a pointer, its dispatch table an interface in the field
//     Dispatch. A function of a later version cannot be missing: it answers
//     StatusNotSupported.
//   - A create returns the object, nil unless StatusSuccess (T14), where C has an out
//     parameter.
//   - An array and its length are a slice; the order of parameters is the header's
//     (T7, T59).
//   - A SOCKADDR is a netip.AddrPort, its size counted as SOCKADDR_IN's 16 bytes or
//     SOCKADDR_IN6's 28.
//   - Inline data is in SGE.Inline: a virtual address is an index into a region and
//     never dereferenced, so that it cannot name bytes outside.
//   - A missing argument is StatusInvalidParameter, what is made on something closed
//     is refused, and a second close of an object does nothing and returns
//     StatusSuccess, where a driver would bring the machine down.
//   - Adapter.BeginClose and Miniport.BeginClose do not block: in virtual time
//     nobody else would move time on.
//   - With Config.Pend creates and requests return StatusPending that could finish
//     at once, since consumers must bear both; without it only those pend that wait
//     for somebody.
//   - A page is 4096 bytes whatever the host's are, as on the Windows machines that
//     consumers were written for.
//
// # Deviations: where the pages contradict each other or the header
//
// We read them as follows. T-numbers are those of docs/spec/ndkpi.md section 6, of
// which misprints without a consequence are left out:
//
//   - T1, T2, T34: flags have the header's values; OpReadSink is FastRegister's only;
//     a remote write bit without its local one is refused, being no right.
//   - T3: StatusRemoteResources is a completion's status only: the peer finds out.
//   - T4: Write takes OpInline, as the adapter's limits and NDSPI say.
//   - T5: completions have NDSPI's statuses; NDKPI lists only the flushed one.
//   - T8 to T10: GetConnectionData answers the delivered connector and the one whose
//     Connect has completed, refused or not, for as long as it is open, because
//     Microsoft's own consumer asks late.
//   - T12, T13: a close never fails.
//   - T16, T17: an instance has no NdkCloseXxx; Adapter.Close blocks.
//   - T18, T19: the version asked for is the lowest that will do. There are 1.2 and
//     2.1, since consumers of either major exist; an instance has the highest minor
//     of the major asked for, and so do the headers of its objects.
//   - T20: a moderation count of 0 or 1 is no moderation.
//   - T22, T23, T51: NotifyAny is satisfied by failed requests too, NotifyErrors by
//     a failure of the CQ only, and an arm at once only by what it asks for.
//   - T26: DisconnectEvent is raised for a connection that is lost, too: the consumer
//     would not learn of it otherwise.
//   - T27: a listener may be closed with connectors open; the close pends.
//   - T28, T29: CreateSharedEndpoint makes the endpoint, and fails where it is in use.
//   - T30 to T32: a token is the newest as soon as Bind or FastRegister has returned.
//   - T33: 0 is a base address like others.
//   - T36: an Invalidate of what is known to be invalid fails inline with
//     StatusInvalidDeviceRequest; of what the peer invalidates meanwhile, as a
//     completion, which ends the connection.
//   - T37 to T39, T46, T47: a receive's result has its length and, if so, the token
//     that was invalidated; all other fields that mean nothing are 0.
//   - T41: BuildLAM finishes at once unless the device pends.
//   - T42: an instance's close waits for its LAMs.
//   - T50: read-sink flags are accepted where they are not needed.
//   - T53: the functions that only the header has are not there.
//   - T58: a READ's pieces are limited by the lesser of the two limits.
//   - T66: a window must lie within its region.
//   - T67: any byte but 0 enables; without *NetworkDirect, StatusNotSupported.
//   - T68: what is made here is not a user-mode owner's: that means NDSPI's.
//
// # Deviations: where the pages say nothing
//
// Our choices, and the reasons for them:
//
//   - T40: an SRQ's first notification comes when the count falls below the
//     threshold, not while the queue is first filled, which every consumer does.
//   - T48: Flush on a connected queue pair is the end of its use: what the peer was
//     sent cannot be called back.
//   - T54: a peer that does not answer at all is waited for 30 s; one that asks for
//     more time, as ours does for a slow consumer, or whose answer may be queued behind what
//     comes from its address for other connections, 90 s: NDSPI wants long times.
//   - T55: the flushed requests are on their CQs before Disconnect completes.
//   - T57: requests may be posted when CompleteConnect or Accept has completed.
//   - T60: plain and Ex functions may meet; only the event differs.
//   - T61: connections are counted when CompleteConnect and Accept complete.
//   - T63: what is queued on an SRQ that is closed is dropped: it has no CQ.
//   - T64: of several initialisations of one FRMR the last counts.
//   - T70: a token is good only on connections of its own domain.
//   - T71: a region or window that is registered or bound must be invalidated first.
//   - T72: wrong parameters are told inline.
//   - CompleteConnect does not wait: RoCE's third message has no answer. If it is
//     lost, the connection's first request stands in for it.
//   - An Invalidate waits for all earlier requests: they may have to be sent again
//     from memory that it takes away. Bind and FastRegister do not wait.
//   - Memory through a fast registration or window that is invalidated is free when
//     the completion is there, also if other connections were using it.
//   - A token's key has 8 bits, as on the wire everywhere, so that a window's token
//     comes again with the 256th Bind.
//   - A logical address is of one page: an SGE with the privileged token must not
//     leave it, since neighbours need not be adjacent.
//   - Moderation counts all queued entries, and ends when the queue is full: the next
//     completion would overrun it. New settings apply at once.
//   - A failed CQ is told once, when armed; a failed SRQ always. Both fail with the
//     device (Miniport.Fail), a CQ also by overrun, and their queue pairs with them.
//     Until Miniport.Recover no other is made.
//   - A CQ or SRQ cannot be made smaller than what is queued: StatusBufferOverflow.
//   - Affinity, SwitchID and VPortID are accepted and mean nothing.
//   - Read limits over all connections are shared out first come, first served: a
//     connection gets what is left, if that is 0 no READs.
//   - A listener has up to 1024 requests undecided; more are refused.
//   - A peer that takes a new connection for one of before is asked again, with
//     another number for the queue pair, up to 8 times: NDK's consumers cannot see
//     why they were refused.
//   - The path MTU is *NetworkDirectRoCEFrameSize, 1024 where nothing is set, or what
//     the interface allows below it; with 0, which the keyword does not know, the
//     largest. Of two ends the lesser counts. Keywords are fixed when the device
//     starts, since changing one restarts the adapter.
//   - DisconnectEventEx gives one of the reasons DisconnectReasonNone to
//     DisconnectReasonError.
//   - Disabling NDK leaves open instances at work until they are closed.
//   - A frame's octets are from the Ethernet header to the ICRC, without the check
//     sequence, which no software sees.
//   - Requests that met no listener are not the passive side's failures: nobody there
//     was asked.
package provider
