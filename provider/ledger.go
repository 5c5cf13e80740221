package provider

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"unsafe"
)

// A Ledger is what the processes that share one adapter hold of it together, as
// processes share an RNIC: how many objects each has, what each counted, and
// which ports are whose. It lies in memory that all of them map. Every entry
// names its holder or is its holder's own, and is changed by atomic operations
// alone, so that a process may die at any instruction and whoever survives can
// tell what to clear.
//
// An adapter that nobody shares has a private ledger, of one share and without
// port tables.
type Ledger struct {
	shares []share
	own    int
	ports  map[netip.Addr]*portTable
}

// MaxShares bounds the processes that share an adapter, its owner included.
const MaxShares = 64

// A resource is what the adapter has a limited number of.
type resource int

// The resources: objects (NDIS_NDK_CAPABILITIES), the READs that may be in
// progress on all connections together, and bytes of early packets.
const (
	qpResource resource = iota
	cqResource
	mrResource
	pdResource
	mwResource
	srqResource
	inboundReadResource
	outboundReadResource
	instanceResource // instances that consumers have opened
	reorderResource
	resources
)

// share holds what one process has. Its size is a multiple of a cache line.
type share struct {
	held     [resources]atomic.Uint32
	counters shareCounters
	_        [8]byte
}

// shareCounters are the NDIS counters, of one process.
type shareCounters struct {
	connect, accept, connectFailure, connectionError, active, cqErrors atomic.Uint64
	inOctets, outOctets, inFrames, outFrames                           atomic.Uint64
}

// portTable has for each port of an address 0 if it is free, else its holder's
// share plus 1 in the low byte and its use above.
type portTable [1 << 16]atomic.Uint32

// A PortUse says what a port is in use for.
type PortUse uint8

// The uses.
const (
	PortOfConnection PortUse = iota // of one that comes from there, or once came in there
	PortOfListener
	PortOfSharedEndpoint
)

func portEntry(share int, use PortUse) uint32 { return uint32(use)<<8 | uint32(share+1) }

// holderOf reads a port's entry; false if it is free, or no process wrote it so.
func holderOf(entry uint32) (share int, ok bool) {
	share = int(entry&0xFF) - 1
	return share, share >= 0 && share < MaxShares
}

// LedgerSize returns the bytes that a ledger for so many addresses takes. Most of
// them are never touched.
func LedgerSize(addresses int) int {
	return MaxShares*int(unsafe.Sizeof(share{})) + addresses*int(unsafe.Sizeof(portTable{}))
}

// NewLedger returns the ledger in memory, which begins as zeros, for the process that
// has the share own. All processes must give the same addresses. The memory must
// stay mapped for as long as the ledger or an adapter with it is used.
func NewLedger(memory []byte, addresses []netip.Addr, own int) (*Ledger, error) {
	if len(memory) < LedgerSize(len(addresses)) || uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%8 != 0 {
		return nil, errors.New("ledger: memory is too short or misaligned")
	}
	if own < 0 || own >= MaxShares {
		return nil, errors.New("ledger: no such share")
	}
	l := &Ledger{
		shares: unsafe.Slice((*share)(unsafe.Pointer(unsafe.SliceData(memory))), MaxShares),
		own:    own,
		ports:  map[netip.Addr]*portTable{},
	}
	at := MaxShares * int(unsafe.Sizeof(share{}))
	for _, address := range addresses {
		l.ports[address] = (*portTable)(unsafe.Pointer(&memory[at]))
		at += int(unsafe.Sizeof(portTable{}))
	}
	return l, nil
}

// newPrivateLedger returns the ledger of an adapter that nobody shares.
func newPrivateLedger() *Ledger { return &Ledger{shares: make([]share, 1)} }

// take adds n to what this process holds; false if all would then hold more
// than limit. Of two processes that both ask for the last, both may be refused,
// but never are both served.
func (l *Ledger) take(r resource, n, limit uint32) bool {
	l.shares[l.own].held[r].Add(n)
	if l.sumOf(r) > uint64(limit) {
		l.give(r, n)
		return false
	}
	return true
}

// takeUpTo takes n, or as many as are left. A limit of 0 is none (NDK-CAP-02).
func (l *Ledger) takeUpTo(r resource, n, limit uint32) uint32 {
	if limit == 0 {
		limit = 1<<32 - 1
	}
	for n > 0 && !l.take(r, n, limit) {
		n--
	}
	return n
}

// sumOf adds up what all processes hold of a resource.
func (l *Ledger) sumOf(r resource) (sum uint64) {
	for i := range l.shares {
		sum += uint64(l.shares[i].held[r].Load())
	}
	return sum
}

// note adds n to what this process holds, of what is only counted.
func (l *Ledger) note(r resource, n uint32) { l.shares[l.own].held[r].Add(n) }

// give takes n off what this process holds.
func (l *Ledger) give(r resource, n uint32) { l.shares[l.own].held[r].Add(-n) }

// ClaimPort takes a port for this process; false if another has it.
func (l *Ledger) ClaimPort(address netip.AddrPort) bool {
	table := l.ports[address.Addr()]
	return table == nil || table[address.Port()].CompareAndSwap(0, portEntry(l.own, PortOfConnection))
}

// usePort tells others what a port of this process's is used for.
func (l *Ledger) usePort(address netip.AddrPort, use PortUse) {
	if table := l.ports[address.Addr()]; table != nil {
		table[address.Port()].Store(portEntry(l.own, use))
	}
}

// ReleasePort gives a port of this process's up.
func (l *Ledger) ReleasePort(address netip.AddrPort) {
	if table := l.ports[address.Addr()]; table != nil {
		table[address.Port()].Store(0)
	}
}

// PortHolder returns the share that has a port.
func (l *Ledger) PortHolder(address netip.AddrPort) (share int, ok bool) {
	table := l.ports[address.Addr()]
	if table == nil {
		return 0, false
	}
	return holderOf(table[address.Port()].Load())
}

// A HeldPort is a port that a process has.
type HeldPort struct {
	Address netip.AddrPort
	Share   int
	Use     PortUse
}

// Ports lists the ports in use, in order.
func (l *Ledger) Ports() []HeldPort {
	var held []HeldPort
	for address, table := range l.ports {
		for port := range table {
			entry := table[port].Load()
			if share, ok := holderOf(entry); ok {
				held = append(held, HeldPort{netip.AddrPortFrom(address, uint16(port)), share, PortUse(entry >> 8)})
			}
		}
	}
	slices.SortFunc(held, func(a, b HeldPort) int { return a.Address.Compare(b.Address) })
	return held
}

// Clear frees what a share holds whose process is gone. What it counted stays,
// since counters never decrease; the connections it had are no longer active.
func (l *Ledger) Clear(share int) {
	for _, table := range l.ports {
		for port := range table {
			if holder, ok := holderOf(table[port].Load()); ok && holder == share {
				table[port].Store(0) // nobody else changes what it has
			}
		}
	}
	s := &l.shares[share]
	for r := range s.held {
		s.held[r].Store(0)
	}
	s.counters.active.Store(0)
}

// counters are this process's.
func (l *Ledger) counters() *shareCounters { return &l.shares[l.own].counters }

// sum adds up what all processes counted.
func (l *Ledger) sum() (sum Counters) {
	for i := range l.shares {
		c := &l.shares[i].counters
		sum.Connect += c.connect.Load()
		sum.Accept += c.accept.Load()
		sum.ConnectFailure += c.connectFailure.Load()
		sum.ConnectionError += c.connectionError.Load()
		sum.ActiveConnection += c.active.Load()
		sum.CQError += c.cqErrors.Load()
		sum.RDMAInOctets += c.inOctets.Load()
		sum.RDMAOutOctets += c.outOctets.Load()
		sum.RDMAInFrames += c.inFrames.Load()
		sum.RDMAOutFrames += c.outFrames.Load()
	}
	return sum
}
