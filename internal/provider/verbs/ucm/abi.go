package ucm

import (
	"encoding/binary"
	"syscall"
)

// This file is the ABI, version 4, as rdma/rdma_user_cm.h has it. Structures are in the host's byte order and have
// the header's layout, with its padding written out.

// Commands, by number.
const (
	cmdCreateID = iota
	cmdDestroyID
	cmdBindIP
	cmdResolveIP
	cmdResolveRoute
	cmdQueryRoute
	cmdConnect
	cmdListen
	cmdAccept
	cmdReject
	cmdDisconnect
	cmdInitQPAttr
	cmdGetEvent
	cmdGetOption
	cmdSetOption
	cmdNotify
	cmdJoinIPMulticast
	cmdLeaveMulticast
	cmdMigrateID
	cmdQuery
	cmdBind
	cmdResolveAddr
	cmdJoinMulticast
	commandCount
)

// A header begins every command. In and Out are the sizes of what follows and of the response.
type header struct {
	Command uint32
	In, Out uint16
}

const headerSize = 8

// Sizes of socket addresses, in bytes.
const (
	sockaddrIn      = 16
	sockaddrIn6     = 28
	sockaddrStorage = 128
)

type createID struct {
	UID, Response uint64
	PortSpace     uint16
	QPType        uint8
	_             [5]byte
}

// idResponse answers CREATE_ID and the joins.
type idResponse struct{ ID uint32 }

// destroyID is also LEAVE_MCAST.
type destroyID struct {
	Response uint64
	ID       uint32
	_        uint32
}

// eventsResponse answers DESTROY_ID, LEAVE_MCAST and MIGRATE_ID.
type eventsResponse struct{ EventsReported uint32 }

type bindIP struct {
	Response uint64
	Address  [sockaddrIn6]byte
	ID       uint32
}

type bind struct {
	ID       uint32
	Size     uint16
	Reserved uint16
	Address  [sockaddrStorage]byte
}

type resolveIP struct {
	Source, Destination [sockaddrIn6]byte
	ID                  uint32
	TimeoutMS           uint32
}

type resolveAddr struct {
	ID, TimeoutMS               uint32
	SourceSize, DestinationSize uint16
	Reserved                    uint32
	Source, Destination         [sockaddrStorage]byte
}

type resolveRoute struct{ ID, TimeoutMS uint32 }

// query is QUERY_ROUTE, too, which has no option.
type query struct {
	Response   uint64
	ID, Option uint32
}

// Options of QUERY.
const (
	queryAddr = iota
	queryPath
	queryGID
)

// A pathRecord is struct ib_user_path_rec. Arrays of bytes are in network order.
type pathRecord struct {
	DGID, SGID         [16]byte
	DLID, SLID         [2]byte
	RawTraffic         uint32
	FlowLabel          [4]byte
	Reversible, MTU    uint32
	PKey               [2]byte
	HopLimit           uint8
	TrafficClass       uint8
	Paths, SL          uint8
	MTUSelector        uint8
	RateSelector, Rate uint8
	LifeTimeSelector   uint8
	LifeTime           uint8
	Preference         uint8
}

type routeResponse struct {
	NodeGUID            [8]byte
	Routes              [2]pathRecord
	Source, Destination [sockaddrIn6]byte
	Paths               uint32
	Port                uint8
	_                   [3]byte
	DeviceIndex         uint32
	_                   uint32
}

// Without its last two fields, which came in Linux 5.7, the response has this size.
const routeResponseLeast = 200

// addrResponse answers QUERY for addresses and for GIDs.
type addrResponse struct {
	NodeGUID                    [8]byte
	Port                        uint8
	_                           uint8
	PKey                        [2]byte
	SourceSize, DestinationSize uint16
	Source, Destination         [sockaddrStorage]byte
	DeviceIndex                 uint32
	_                           uint32
}

const addrResponseLeast = 272

// noDeviceIndex has librdmacm find the device by its GUID.
const noDeviceIndex = 0xFFFFFFFF

// pathResponse answers QUERY for paths with one path, and without the path if there is none.
type pathResponse struct {
	Paths uint32
	_     uint32
}

type pathData struct {
	Flags  uint32
	_      uint32
	Record [64]byte // of the subnet administrator, IBTA Vol. 1, 15.2.5.16
}

// Flags of pathData.
const (
	pathGMP           = 1
	pathPrimary       = 1 << 1
	pathBidirectional = 1<<3 | 1<<5
)

const maxPrivateData = 256

type connParam struct {
	QPN, QKey          uint32
	PrivateData        [maxPrivateData]byte
	PrivateDataLength  uint8
	SRQ                uint8
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        uint8
	RetryCount         uint8
	RNRRetryCount      uint8
	Valid              uint8
}

type udParam struct {
	QPN, QKey         uint32
	AH                ahAttr
	PrivateData       [maxPrivateData]byte
	PrivateDataLength uint8
	_                 [7]byte
}

type ece struct{ Vendor, Options uint32 }

type connect struct {
	Param connParam
	ID    uint32
	_     uint32
}

type listen struct{ ID, Backlog uint32 }

type accept struct {
	UID   uint64
	Param connParam
	ID    uint32
	_     uint32
}

type reject struct {
	ID                uint32
	PrivateDataLength uint8
	Reason            uint8
	_                 [2]byte
	PrivateData       [maxPrivateData]byte
}

type disconnect struct{ ID uint32 }

type initQPAttr struct {
	Response    uint64
	ID, QPState uint32
}

type notify struct{ ID, Event uint32 }

type joinIPMulticast struct {
	Response, UID uint64
	Address       [sockaddrIn6]byte
	ID            uint32
}

type joinMulticast struct {
	Response, UID uint64
	ID            uint32
	Size          uint16
	Flags         uint16
	Address       [sockaddrStorage]byte
}

// Flags of joinMulticast.
const (
	joinFullMember = iota
	joinSendOnly
)

type getEvent struct{ Response uint64 }

// An eventResponse is an event. Its Param is a connParam or a udParam.
type eventResponse struct {
	UID               uint64
	ID, Event, Status uint32
	Param             [304]byte
	_                 uint32
	ECE               ece
}

// EventSize is the size of an event in bytes, and eventLeast that without its last fields, which came in Linux 5.9.
const (
	EventSize  = 336
	eventLeast = 324
)

type setOption struct {
	Value                   uint64
	ID, Level, Name, Length uint32
}

type migrateID struct {
	Response       uint64
	ID, Descriptor uint32
}

// ahAttr is struct ib_uverbs_ah_attr.
type ahAttr struct {
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	_            uint8
	DLID         uint16
	SL           uint8
	PathBits     uint8
	StaticRate   uint8
	Global       uint8
	Port         uint8
	_            uint8
}

// qpAttr is struct ib_uverbs_qp_attr.
type qpAttr struct {
	Mask, State, CurrentState uint32
	PathMTU, MigrationState   uint32
	QKey                      uint32
	RQPSN, SQPSN              uint32
	DestQPN, Access           uint32
	AH, AlternateAH           ahAttr
	_                         [5]uint32 // capacities
	PKeyIndex, AlternatePKey  uint16
	_, _                      uint8 // draining
	MaxReadAtomic             uint8
	MaxDestReadAtomic         uint8
	MinRNRTimer, Port         uint8
	Timeout, RetryCount       uint8
	RNRRetryCount             uint8
	AlternatePort, AltTimeout uint8
	_                         [5]byte
}

// decoded reads a structure from the beginning of b.
func decoded[T any](b []byte) (v T, err error) {
	if _, err := binary.Decode(b, binary.NativeEndian, &v); err != nil {
		return v, syscall.EINVAL
	}
	return v, nil
}

// encoded returns a structure's bytes.
func encoded(v any) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		panic(err) // it is no structure of this file
	}
	return b
}
