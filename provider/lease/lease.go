// Package lease lets several processes share an RDMA device as they share a real
// one. The process that owns the device, a node's agent, serves it at an abstract
// Unix socket in its network namespace; any other process there opens it, and
// gets a provider.Miniport of its own, with all of NDKPI, in its own memory.
//
// The process leases a share: a part of the queue pair numbers and of the
// communication IDs, the sockets on which packets for those queue pairs arrive,
// and a place in the ledger, which all processes map. Packets then go to and from
// the process itself; only what is addressed to QP 1, connection management,
// arrives at the owner, which hands it on. The process tells the owner of its
// connections before their peers learn of them. So when it dies, however, the
// owner ends its connections in its stead, and frees what it had.
//
// No privileges are needed, by either side. Any process that can reach the socket
// may have a share, up to sharing.Max-1 of them at once. To reach it takes being in the
// network namespace, which is where the owner's privileges end, too. A process elsewhere may
// have one to which the owner has been given a connection (Admit, OpenOver): it gets
// every socket that its device needs, since sockets stay in the namespace that they were
// made in.
//
// Start reading at Open, which is for programs, and Serve, which is for the
// owner. The devices' part in this is in share.go of package provider.
package lease

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// socketName is the abstract name of the socket. Such names are per network
// namespace.
const socketName = "@ndklab/adapter"

// Requests and notices of the process to the owner (package control).
var (
	methodLease      = control.NewMethod[leaseRequest, leaseReply]("lease")
	noticeConnection = control.NewNotice[cm.Record]("connection")
	noticeCounters   = control.NewNotice[map[string]uint64]("counters") // of its transport, the last
)

// NoticeQPErrors tells of queue pairs in error; see ErrorTeller.
var NoticeQPErrors = control.NewNotice[[]provider.QPError]("qp-errors")

// Requests and notices of the owner to the process.
var (
	methodFiles      = control.NewProcedure[control.None]("files").WithFiles(1, control.MaxFiles) // while it serves methodLease
	methodCounters   = control.NewMethod[control.None, map[string]uint64]("counters")             // of its transport
	methodQueuePairs = control.NewMethod[uint32, []provider.QueuePair]("queue-pairs")             // from a number on, at most pageOfPairs
	noticeDatagram   = control.NewNotice[datagram]("datagram")
	noticeState      = control.NewNotice[state]("state")
)

// A leaseRequest is a process's request for a lease.
type leaseRequest struct {
	Outside bool // it is in another network namespace, and needs all sockets
}

// A leaseReply is the answer to methodLease. The files are, in this order, the ledger's
// memory, the sockets of the share, one for each address, and for a process that is
// outside what udp.Spare makes.
type leaseReply struct {
	Share      int
	Addresses  []netip.Addr
	Interfaces []string        // that have them
	Config     provider.Config // as far as it can be written down
	Dilation   int             // clock.Factor of its clock
	Seed       [2]uint64       // of the process's random numbers
}

// A datagram is one of connection management that arrived at the owner.
type datagram struct {
	Flow    roce.Flow
	Payload []byte
}

// A state describes the owner's device. The zero state means that nothing is known
// of it.
type state struct{ Known, Enabled, Failed bool }
