package sharing

import (
	"errors"
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"
	"unsafe"
)

// A Ledger records what the processes that share one adapter hold of it together,
// as processes share an RNIC: how many objects each has, what each counted, and
// which ports are whose, how fast the lines are, and which packets wait. It lies in memory that all of them map. Every entry
// names its holder or is its holder's own, and is changed by atomic operations
// alone, so that a process may die at any instruction and whoever survives can
// tell what to clear.
//
// An adapter that nobody shares has a private ledger, of one share and without
// port tables.
type Ledger struct {
	Own int // share that this process has; fixed

	shares []held
	ports  map[netip.Addr]*portTable
	lines  map[netip.Addr]*line
}

// A Resource is something of which the adapter has a limited number, or which is
// only counted.
type Resource uint8

// The resources: objects (NDIS_NDK_CAPABILITIES), the READs that may be in
// progress on all connections together, and bytes of early packets.
const (
	QPs Resource = iota
	CQs
	MRs
	PDs
	MWs
	SRQs
	InboundReads
	OutboundReads
	Instances // instances that consumers have opened
	EarlyBytes
	resources
)

// held records what one process has. Its size is a multiple of a cache line.
type held struct {
	of       [resources]atomic.Uint32
	counters Counters
	_        [8]byte
}

// Counters are the NDIS counters, of one process.
type Counters struct {
	Connect, Accept, ConnectFailure, ConnectionError, Active, CQErrors atomic.Uint64
	InOctets, OutOctets, InFrames, OutFrames                           atomic.Uint64
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
	return share, share >= 0 && share < Max
}

// Size returns the bytes that a ledger for so many addresses takes. Most of
// them are never touched.
func Size(addresses int) int {
	return Max*int(unsafe.Sizeof(held{})) + addresses*int(unsafe.Sizeof(portTable{})+unsafe.Sizeof(line{}))
}

// New returns the ledger in memory, which begins as zeros, for the process that
// has the share own. All processes must give the same addresses. The memory must
// stay mapped for as long as the ledger or an adapter with it is used.
func New(memory []byte, addresses []netip.Addr, own int) (*Ledger, error) {
	if len(memory) < Size(len(addresses)) || uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%8 != 0 {
		return nil, errors.New("ledger: memory is too short or misaligned")
	}
	if own < 0 || own >= Max {
		return nil, errors.New("ledger: no such share")
	}
	l := &Ledger{
		shares: unsafe.Slice((*held)(unsafe.Pointer(unsafe.SliceData(memory))), Max),
		Own:    own,
		ports:  map[netip.Addr]*portTable{},
		lines:  map[netip.Addr]*line{},
	}
	at := Max * int(unsafe.Sizeof(held{}))
	for _, address := range addresses {
		l.ports[address] = (*portTable)(unsafe.Pointer(&memory[at]))
		at += int(unsafe.Sizeof(portTable{}))
		l.lines[address] = (*line)(unsafe.Pointer(&memory[at]))
		at += int(unsafe.Sizeof(line{}))
	}
	return l, nil
}

// NewPrivate returns the ledger of an adapter that nobody shares.
func NewPrivate(addresses []netip.Addr) *Ledger {
	l := &Ledger{shares: make([]held, 1), lines: make(map[netip.Addr]*line, len(addresses))}
	for _, address := range addresses {
		l.lines[address] = new(line)
	}
	return l
}

// Take adds n to what this process holds; false if all would then hold more
// than limit. Of two processes that both ask for the last, both may be refused,
// but never are both served.
func (l *Ledger) Take(r Resource, n, limit uint32) bool {
	l.shares[l.Own].of[r].Add(n)
	if l.SumOf(r) > uint64(limit) {
		l.Give(r, n)
		return false
	}
	return true
}

// TakeUpTo takes n, or as many as are left. A limit of 0 is none (NDK-CAP-02).
func (l *Ledger) TakeUpTo(r Resource, n, limit uint32) uint32 {
	if limit == 0 {
		limit = 1<<32 - 1
	}
	for n > 0 && !l.Take(r, n, limit) {
		n--
	}
	return n
}

// SumOf adds up what all processes hold of a resource.
func (l *Ledger) SumOf(r Resource) (sum uint64) {
	for i := range l.shares {
		sum += uint64(l.shares[i].of[r].Load())
	}
	return sum
}

// Note adds n to what this process holds, of what is only counted.
func (l *Ledger) Note(r Resource, n uint32) { l.shares[l.Own].of[r].Add(n) }

// Give takes n off what this process holds.
func (l *Ledger) Give(r Resource, n uint32) { l.shares[l.Own].of[r].Add(-n) }

// ClaimPort takes a port for this process; false if another has it.
func (l *Ledger) ClaimPort(address netip.AddrPort) bool {
	table := l.ports[address.Addr()]
	return table == nil || table[address.Port()].CompareAndSwap(0, portEntry(l.Own, PortOfConnection))
}

// UsePort tells others what a port of this process's is used for.
func (l *Ledger) UsePort(address netip.AddrPort, use PortUse) {
	if table := l.ports[address.Addr()]; table != nil {
		table[address.Port()].Store(portEntry(l.Own, use))
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

// Clear frees everything that is held by a share whose process is gone. Its counts
// stay, since counters never decrease; the connections it had are no longer active.
func (l *Ledger) Clear(share int) {
	for _, table := range l.ports {
		for port := range table {
			if holder, ok := holderOf(table[port].Load()); ok && holder == share {
				table[port].Store(0) // nobody else changes what it has
			}
		}
	}
	s := &l.shares[share]
	for r := range s.of {
		s.of[r].Store(0)
	}
	s.counters.Active.Store(0)
}

// Counters returns this process's counters.
func (l *Ledger) Counters() *Counters { return &l.shares[l.Own].counters }

// AllCounters returns the counters of all processes.
func (l *Ledger) AllCounters() iter.Seq[*Counters] {
	return func(yield func(*Counters) bool) {
		for i := range l.shares {
			if !yield(&l.shares[i].counters) {
				return
			}
		}
	}
}
