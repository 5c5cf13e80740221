package cm

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// An Event is something that the consumer is to be told: one of the structs
// below. Each is delivered at most once for a connection.
type Event interface {
	Of() ID // the connection
}

// A ConnectRequest is a peer's request to connect to a service of ours. It stays
// valid until Accept, Reject, Abandon or AcceptFailed.
type ConnectRequest struct {
	ID            ID
	Local, Remote netip.AddrPort // the ports are rdma_cm's
	GUID          uint64         // the peer's adapter
	QPN           uint32
	StartingPSN   uint32 // of our first request: the receiver chooses (roce.md 5)
	MTU           uint8  // code of the path MTU, 1 (256) to 5 (4096)
	// ResponderResources is the number of READs that the peer answers at once, and
	// InitiatorDepth the number that it wants to have outstanding.
	ResponderResources uint8
	InitiatorDepth     uint8
	RetryCount         uint8
	RNRRetryCount      uint8       // for our sends
	AckTimeout         mad.Timeout // for our sends
	SRQ                bool
	ECE                mad.ECE
	PrivateData        [mad.ConsumerPrivateData]byte
}

// A ConnectReply says that the peer has accepted. The connection waits for
// CompleteConnect, Reject or Abandon.
type ConnectReply struct {
	ID                 ID
	GUID               uint64 // the peer's adapter
	QPN                uint32
	StartingPSN        uint32 // of our first request
	ResponderResources uint8  // how many READs the peer answers at once
	InitiatorDepth     uint8  // how many it will have outstanding
	TargetAckDelay     mad.Timeout
	RNRRetryCount      uint8 // for our sends
	SRQ                bool
	ECE                mad.ECE
	PrivateData        [mad.REPPrivateData]byte
}

// Rejected says that the peer, or the adapter there, has refused.
type Rejected struct {
	ID          ID
	Reason      mad.Reason
	MTU         uint8                    // code of the MTU to ask for, with mad.ReasonInvalidMTU; 0 if the peer names none
	PrivateData [mad.REJPrivateData]byte // the peer's consumer's, with mad.ReasonConsumer
}

// Established says that an accepted connection is in use by the peer.
type Established struct{ ID ID }

// A Failure says how establishing a connection failed.
type Failure uint8

// The failures.
const (
	TimedOut Failure = iota + 1 // no answer: none from the peer, or none from us in the time the peer gives
	Aborted                     // the peer gave up
	Ended                       // the peer, to which the connection was established, has ended it
)

// ConnectFailed is the end of a connection on the active side: before
// ConnectReply the peer did not answer, after it the peer gave up or
// CompleteConnect took too long.
type ConnectFailed struct {
	ID      ID
	Failure Failure
}

// AcceptFailed is the end of a connection on the passive side before it was
// established; when aborted, Accept may not have been called yet.
type AcceptFailed struct {
	ID      ID
	Failure Failure
}

// Disconnected says that the peer has ended an established connection, or, if
// Lost, that it no longer knows it.
type Disconnected struct {
	ID   ID
	Lost bool
}

// DisconnectDone is the end of Disconnect. If it timed out, the peer has not
// confirmed; the connection is ended nevertheless.
type DisconnectDone struct {
	ID       ID
	TimedOut bool
}

// A LookUpRequest is a peer's request for the queue pair of a datagram service of ours. It stays valid
// until AnswerLookUp, Abandon or TimewaitOver.
type LookUpRequest struct {
	ID            ID
	Local, Remote netip.AddrPort // the ports are rdma_cm's
	PrivateData   [mad.ConsumerLookUpData]byte
}

// LookUpAnswered is the peer's answer to LookUp.
type LookUpAnswered struct {
	ID          ID
	Status      mad.SIDRStatus // mad.SIDRValid: what follows is valid
	QPN, QKey   uint32
	PrivateData [mad.SIDRREPPrivateData]byte
}

// LookUpFailed says that the peer did not answer LookUp.
type LookUpFailed struct{ ID ID }

// TimewaitOver is the last event of every connection and look-up, also of an abandoned one:
// no packet of it should be under way any more, and our QPN may be used again.
type TimewaitOver struct {
	ID  ID
	QPN uint32 // ours, as Connect or Accept was given it; 0 without Accept
}

func (e ConnectRequest) Of() ID { return e.ID }
func (e ConnectReply) Of() ID   { return e.ID }
func (e Rejected) Of() ID       { return e.ID }
func (e Established) Of() ID    { return e.ID }
func (e ConnectFailed) Of() ID  { return e.ID }
func (e AcceptFailed) Of() ID   { return e.ID }
func (e Disconnected) Of() ID   { return e.ID }
func (e DisconnectDone) Of() ID { return e.ID }
func (e TimewaitOver) Of() ID   { return e.ID }
func (e LookUpRequest) Of() ID  { return e.ID }
func (e LookUpAnswered) Of() ID { return e.ID }
func (e LookUpFailed) Of() ID   { return e.ID }
