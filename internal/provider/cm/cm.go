// Package cm is the connection manager: the state machine that makes, refuses and
// ends the reliable connections of one adapter by exchanging management
// datagrams (roce.md sections 10 to 12 and 15.2).
//
// It is pure: calls of the consumer, datagrams and the present time go in;
// datagrams, events and the next deadline come out. It starts no goroutine,
// takes no lock, reads no clock and draws random numbers only from the source
// that it is given. It knows nothing of queue pairs beyond their numbers and
// parameters, which it carries between the two ends without changing them, and
// of listeners only what Config.Refuses answers.
//
// The caller of an Endpoint serialises the calls on it and, after each call that
// takes the time, drains NextDatagram and NextEvent and wakes up at Deadline to
// call HandleTimeout. Calling back into the Endpoint between two NextEvents is
// fine.
//
// The life of a connection, with the calls (->) and events (<-) of both ends:
//
//	active                          passive
//	-> Connect              REQ     <- ConnectRequest
//	<- ConnectReply         REP     -> Accept
//	-> CompleteConnect      RTU     <- Established
//	-> Disconnect           DREQ    <- Disconnected
//	<- DisconnectDone       DREP
//	<- TimewaitOver                 <- TimewaitOver
//
// The last event of every connection is TimewaitOver, whatever happened before.
//
// An Endpoint refuses by a REJ for these reasons (roce.md 10.5):
//
//	no resources           REQ, if Config.Refuses says so
//	timeout                what we have asked for or accepted, and not heard of for long
//	invalid comm ID        REP or RTU of a connection that we do not know
//	invalid service ID     REQ for another port space, or if Config.Refuses says so
//	invalid transport      REQ for another than reliable connection
//	stale connection       REQ or REP with a QPN or communication ID that is still known as another's
//	invalid GID            REQ for or from another address than the datagram's; tells ours
//	invalid path MTU       REQ for an unknown or too large one; tells the largest
//	rejected by consumer   REQ whose rdma_cm header is not of the datagram's addresses; Reject
//
// The other reasons are about what we do not check or do not have. Path migration
// is among that: LAP and APR are ignored, as they may be.
//
// A datagram service is looked up by SIDR_REQ and SIDR_REP, which makes no connection: lookup.go.
//
// Start reading at Endpoint, which hands each call and message to the connection
// that it is about. table.go has the connections by the numbers that messages name,
// connection.go the states of one. active.go and passive.go establish connections,
// disconnect.go and reject.go end them. Where several processes share an adapter,
// each with an Endpoint of its own, share.go has what concerns the others, and
// router.go finds the process that a datagram is for.
package cm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// An ID names a connection at its Endpoint: our communication ID. It is never 0,
// and not used again until long after the connection's TimewaitOver, since IDs
// are handed out cyclically.
type ID uint32

// ErrState says that a call does not fit the connection's state, or that there is
// no such connection: it may have failed or been ended by the peer, and the
// event that says so be under way.
var ErrState = errors.New("cm: the connection is not in a state for this")

// errTooLong refuses private data for what the call is to do.
func errTooLong(call string, data []byte, most int) error {
	return fmt.Errorf("cm: %s: %d bytes of private data, at most %d fit", call, len(data), most)
}

// checkFamily refuses two addresses that cannot be the ends of one connection.
func checkFamily(call string, local, remote netip.AddrPort) error {
	if !local.IsValid() || !remote.IsValid() || local.Addr().Is4() != remote.Addr().Is4() {
		return fmt.Errorf("cm: %s: %v and %v are not two addresses of one family", call, local, remote)
	}
	return nil
}

// Ignored is Config.Refuses's answer about a request that the peer is to repeat, since it may be
// delivered then. It is no reason that a peer is told.
const Ignored mad.Reason = 0xFFFF

// A Config is fixed when an Endpoint is made. Zero values mean the defaults.
type Config struct {
	GUID uint64     // identifies the adapter to its peers; unique among them, not 0
	Rand *rand.Rand // for the first communication ID; required

	// Share is which part of the communication IDs is this Endpoint's, 0 to
	// MaxShares-1, where several processes have Endpoints for one adapter.
	Share int
	// Track has NextChange tell of connections.
	Track bool

	// Refuses says why a connection request from remote to local (address and
	// rdma_cm port) is not to be delivered, which the peer is told: as a rule
	// mad.ReasonInvalidServiceID, when nobody listens. 0 has it delivered, and Ignored
	// has it be as if it had been lost. It must not call the Endpoint. Required.
	Refuses func(local, remote netip.AddrPort) mad.Reason

	// RefusesLookUp is Refuses for the look-up of a datagram service: the status that the
	// peer is told, as a rule mad.SIDRUnsupported, mad.SIDRValid to have it delivered, or
	// LookUpIgnored. Nil has none delivered.
	RefusesLookUp func(local, remote netip.AddrPort) mad.SIDRStatus

	// MaxMTU is the code of the largest path MTU that a local address takes part
	// in, 1 (256) to 5 (4096). A request for more is refused, with this for the
	// peer to ask for instead. Nil stands for 5.
	MaxMTU func(local netip.Addr) uint8

	// Timeout bounds the time for which a REQ, REP or DREQ is repeated without any
	// answer; then the attempt is given up. Default 30 s, about half of what Linux takes:
	// longer than any outage that a connection should survive, shorter than a
	// person's patience.
	Timeout time.Duration
	// EstablishTimeout is the longest wait for the answer to a REQ or REP when the
	// peer asks for more time (MRA), or while Heard says that the answer may be on its way.
	// Default 90 s: above the 69 s that Linux asks for at once.
	EstablishTimeout time.Duration
	// Heard returns the time at which packets of connections last came from an address, and
	// whether the answer to what was sent there at sentAt may be behind them. It must not call
	// the Endpoint. Nil stands for never.
	Heard func(remote netip.Addr, sentAt time.Duration) (at time.Duration, behind bool)
}

const (
	defaultTimeout          = 30 * time.Second
	defaultEstablishTimeout = 90 * time.Second

	// We announce these values, as Linux does over RoCE (roce.md 12.3).
	responseTimeout mad.Timeout = 20 // 4.3 s
	packetLifeTime  mad.Timeout = 16 // 268 ms
	maxRetries                  = 15

	// Linux repeats a REQ every 4.6 s and a REP or DREQ every 4.1 s; on a lab's
	// link with loss that makes connecting a matter of many seconds. Repeating is
	// harmless, as both ends recognise duplicates. So the first repetition comes
	// early, though later than a round trip on most links, and each further one
	// after twice the time, until the pace is that of Linux.
	firstResend = 100 * time.Millisecond

	// A consumer that has not answered for answerTime makes the next duplicate be
	// answered by an MRA, which asks for serviceTimeout, 69 s as Linux does.
	answerTime                 = time.Second
	serviceTimeout mad.Timeout = 24

	// A connection's timewait is its ACK timeout (roce.md section 11), within
	// limits, since the peer chooses it and may choose hours.
	maxTimewait = 8 * time.Second
)

var (
	slowestREQ = responseTimeout.Duration() + 2*packetLifeTime.Duration()
	slowest    = responseTimeout.Duration() // of the other messages

	// A REJ has no answer of its own: for this long it is said again to whoever
	// repeats what it refused. That is twice the time in which Linux does so.
	rejectMemory = 2 * slowest
)

// A Datagram is a management datagram to send: to UDP port 4791, QP 1, with
// Q_Key mad.QKey.
type Datagram struct {
	Local, Remote netip.Addr
	MAD           [mad.Size]byte
}

// An Endpoint is the connection management of one adapter, or of one process's share of
// it. Not for concurrent use.
type Endpoint struct {
	config      Config
	connections table
	timers      timers // of the connections that wait for something

	disconnecting int // connections in that state

	datagrams queue[Datagram]
	events    queue[Event]
	changes   queue[*connection] // whose records have changed, each once
}

// New makes an endpoint without connections.
func New(config Config) *Endpoint {
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if config.EstablishTimeout == 0 {
		config.EstablishTimeout = defaultEstablishTimeout
	}
	// A random start keeps IDs of an adapter that was made anew apart from
	// those of its former life, which peers may remember.
	firstID := ID(config.Share)<<shareShift | ID(config.Rand.Uint32())&idMask
	return &Endpoint{config: config, connections: newTable(firstID)}
}

// NextDatagram takes the oldest datagram that is to be sent; false if there is
// none.
func (e *Endpoint) NextDatagram() (Datagram, bool) { return e.datagrams.pop() }

// NextEvent takes the oldest event; false if there is none.
func (e *Endpoint) NextEvent() (Event, bool) { return e.events.pop() }

// Deadline returns the time of the next call of HandleTimeout; false if nothing is
// waited for. It may change with every call that takes the time.
func (e *Endpoint) Deadline() (time.Duration, bool) { return e.timers.first() }

// HandleTimeout does what is due: repeats messages, gives up, ends timewaits.
// Calling it early does no harm.
func (e *Endpoint) HandleTimeout(now time.Duration) {
	for c := e.timers.due(now); c != nil; c = e.timers.due(now) {
		c.handleTimeout(now)
	}
}

// Handle takes the payload of a UD packet that came to QP 1 with mad.QKey. It
// ignores all but messages of connection management, and ignores or refuses those
// that fit no connection, as the protocol wants it. IPv4 addresses are not
// IPv4-mapped. b is not kept.
func (e *Endpoint) Handle(now time.Duration, local, remote netip.Addr, b []byte) {
	h, err := mad.DecodeHeader(b)
	if err != nil {
		return
	}
	from := path{local: local, remote: remote}
	switch h.Attribute {
	case mad.AttributeREQ:
		e.handleREQ(now, from, b)
	case mad.AttributeMRA:
		e.handleMRA(now, from, b)
	case mad.AttributeREJ:
		e.handleREJ(now, from, b)
	case mad.AttributeREP:
		e.handleREP(now, from, b)
	case mad.AttributeRTU:
		e.handleRTU(now, from, b)
	case mad.AttributeDREQ:
		e.handleDREQ(now, from, b)
	case mad.AttributeDREP:
		e.handleDREP(now, from, b)
	case mad.AttributeSIDRREQ:
		e.handleSIDRREQ(now, from, b)
	case mad.AttributeSIDRREP:
		e.handleSIDRREP(from, b)
	}
}

// Strays counts the datagrams that named a connection and came from another address than
// its peer's, or to another than its own. They have no effect on it.
func (e *Endpoint) Strays() uint64 { return e.connections.strays }

// A path is the pair of addresses that a datagram travels between.
type path struct{ local, remote netip.Addr }

// send queues a message.
func (e *Endpoint) send(to path, m interface{ Append([]byte) []byte }) {
	d := Datagram{Local: to.local, Remote: to.remote}
	m.Append(d.MAD[:0])
	e.datagrams.push(d)
}

// A queue is first in, first out.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

func (q *queue[T]) pop() (item T, ok bool) {
	if q.head == len(q.items) {
		return item, false
	}
	item, q.items[q.head] = q.items[q.head], item
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return item, true
}

// remove drops the items for which drop says so.
func (q *queue[T]) remove(drop func(T) bool) {
	kept := slices.DeleteFunc(q.items[q.head:], drop)
	q.items = q.items[:q.head+len(kept)]
}
