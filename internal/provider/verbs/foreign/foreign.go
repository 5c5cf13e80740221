// Package foreign gives an engine in a process of its own the memory of other processes, which it reads and writes by
// process_vm_readv(2) and process_vm_writev(2).
//
// The state machines pass memory on as ranges of bytes. For a range of another process, addresses are reserved in this
// process, at which nothing is mapped. Fetch copies from the real addresses instead, for packets before they are sent. A
// placer copies to them, for payload that has arrived. Both combine several copies in one system call.
//
// Start reading at Space.
package foreign

import (
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A Space lists the memory of other processes that is registered.
type Space struct {
	// Ended, unless it is nil, is called when memory of a process that has ended is to be read or written for a peer. It
	// reports whether all processes have, whose memory there is: then nobody is told anything any more. Else the peer is
	// refused. It is called with a queue pair's lock held, and set before memory is registered.
	Ended func(pid int) (all bool)
	ended atomic.Bool // Ended has said so

	mu      sync.RWMutex // guards regions
	regions []*Memory    // by the address that is reserved

	// atomics excludes atomic operations from each other, but not from those of a program's processors
	// (IBV_ATOMIC_HCA).
	atomics sync.Mutex
}

// Memory is a region of a process's. It implements verbs.Memory.
type Memory struct {
	space    *Space
	pid      int
	address  uint64
	reserved []byte
	gone     atomic.Bool // some of it is not there any more
}

// Register makes length bytes of a process's memory known, until Close: EFAULT if they are not there, unless they may
// come later, EPERM if this process may not read them, EOPNOTSUPP for all that there can be.
func (s *Space) Register(pid int, address, length uint64, later bool) (*Memory, error) {
	m := &Memory{space: s, pid: pid, address: address}
	if length == 0 {
		return m, nil
	}
	switch {
	case address == 0 && length == math.MaxUint64:
		return nil, syscall.EOPNOTSUPP
	case length > longest || address > longest:
		return nil, syscall.EINVAL
	}
	var b [1]byte
	for _, at := range []uint64{address, address + length - 1} {
		if later {
			break
		}
		if err := readv(pid, [][]byte{b[:]}, []unix.RemoteIovec{{Base: uintptr(at), Len: 1}}); err != nil {
			return nil, err
		}
	}
	reserved, err := unix.Mmap(-1, 0, int(length), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	m.reserved = reserved
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _ := slices.BinarySearchFunc(s.regions, addressOf(reserved), byAddress)
	s.regions = slices.Insert(s.regions, at, m)
	return m, nil
}

// longest is more bytes than a process can have.
const longest = 1 << 47

// Close forgets the region, which nobody uses any more.
func (m *Memory) Close() error {
	if m.reserved == nil {
		return nil
	}
	s := m.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, found := slices.BinarySearchFunc(s.regions, addressOf(m.reserved), byAddress); found {
		s.regions = slices.Delete(s.regions, at, at+1)
	}
	return unix.Munmap(m.reserved)
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func byAddress(m *Memory, address uintptr) int {
	switch start := addressOf(m.reserved); {
	case start < address:
		return -1
	case start > address:
		return 1
	}
	return 0
}

// tellEnded calls Ended if err says so, and reports whether all processes have ended.
func (s *Space) tellEnded(pid int, err error) (all bool) {
	if s.Ended != nil && errors.Is(err, errEnded) && s.Ended(pid) {
		s.ended.Store(true)
	}
	return s.ended.Load()
}

// find returns the region that a range is of; nil if it is this process's own memory. The lock is held.
func (s *Space) find(b []byte) *Memory {
	at, found := slices.BinarySearchFunc(s.regions, addressOf(b), byAddress)
	if !found {
		if at == 0 {
			return nil
		}
		at--
	}
	if m := s.regions[at]; addressOf(b)-addressOf(m.reserved) < uintptr(len(m.reserved)) {
		return m
	}
	return nil
}

// real returns where a range of the region really is.
func (m *Memory) real(b []byte) unix.RemoteIovec {
	return unix.RemoteIovec{Base: uintptr(m.address) + addressOf(b) - addressOf(m.reserved), Len: len(b)}
}

// Read implements verbs.Memory.
func (m *Memory) Read(dst [][]byte, offset, length uint64) ([][]byte, bool) {
	if length == 0 {
		return dst, true
	}
	return append(dst, m.reserved[offset:offset+length:offset+length]), !m.gone.Load()
}

// Readable reports whether bytes are there now, by reading one of each page.
func (m *Memory) Readable(offset, length uint64) bool {
	if length == 0 {
		return true
	}
	var bytes [][]byte
	var from []unix.RemoteIovec
	var b [1]byte
	for at, end := m.address+offset, m.address+offset+length; at < end; at = at&^(pageSize-1) + pageSize {
		bytes, from = append(bytes, b[:]), append(from, unix.RemoteIovec{Base: uintptr(at), Len: 1})
	}
	return readv(m.pid, bytes, from) == nil
}

// pageSize is the least size of a page of memory, bytes.
var pageSize = uint64(os.Getpagesize())

// Write implements verbs.Memory.
func (m *Memory) Write(dst [][]byte, offset, length uint64) ([][]byte, bool) {
	return m.Read(dst, offset, length)
}

// Atomic implements verbs.Memory.
func (m *Memory) Atomic(op rc.Op, offset, operand, compare uint64) (original uint64, ok bool) {
	m.space.atomics.Lock()
	defer m.space.atomics.Unlock()
	at := []unix.RemoteIovec{{Base: uintptr(m.address + offset), Len: 8}}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&original)), 8)
	var v vector
	if err := v.read(m.pid, [][]byte{bytes}, at); err != nil {
		return 0, m.space.tellEnded(m.pid, err)
	}
	value := operand
	switch {
	case op == rc.OpFetchAdd:
		value = original + operand
	case op == rc.OpCompareSwap && original != compare:
		return original, true // the program may be writing there just now, which must not be undone
	}
	return original, writev(m.pid, [][]byte{unsafe.Slice((*byte)(unsafe.Pointer(&value)), 8)}, at) == nil
}

// Read fills data with the memory at an address of a process: EFAULT if it is not there.
func Read(pid int, address uint64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	return readv(pid, [][]byte{data}, []unix.RemoteIovec{{Base: uintptr(address), Len: len(data)}})
}

// Write writes data to an address of a process: EFAULT if it is not there.
func Write(pid int, address uint64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	return writev(pid, [][]byte{data}, []unix.RemoteIovec{{Base: uintptr(address), Len: len(data)}})
}

// A fetching has the memory that Fetch needs while packets are sent.
type fetching struct {
	bytes []byte
	local [][]byte
	from  []unix.RemoteIovec
	of    []*Memory
	by    []int // index of the packet

	vector vector
}

var fetchings = sync.Pool{New: func() any { return new(fetching) }}

// Fetch replaces payload that is in other processes by copies, which are valid until done is called. The first there
// packets have theirs. The payload of the next, if any, is not there: its request is refused when it is to be read again.
// If all processes have ended, all packets are lost instead.
func (s *Space) Fetch(packets []roce.Packet) (done func(), there int, lost bool) {
	f := fetchings.Get().(*fetching)
	f.bytes, f.local, f.from, f.of, f.by = f.bytes[:0], f.local[:0], f.from[:0], f.of[:0], f.by[:0]
	total := 0
	for i := range packets {
		total += packets[i].PayloadLen()
	}
	f.bytes = slices.Grow(f.bytes, total)
	s.mu.RLock()
	for i := range packets {
		for j, piece := range packets[i].Payload {
			m := s.find(piece)
			if m == nil {
				continue
			}
			first := len(f.bytes)
			f.bytes = f.bytes[:first+len(piece)]
			copied := f.bytes[first:]
			packets[i].Payload[j] = copied
			f.local, f.from, f.of, f.by = append(f.local, copied), append(f.from, m.real(piece)), append(f.of, m), append(f.by, i)
		}
	}
	s.mu.RUnlock()
	there = len(packets)
	if failed := f.fetch(); failed < len(f.by) {
		there = f.by[failed]
	}
	return func() { fetchings.Put(f) }, there, s.ended.Load()
}

// fetch reads all pieces, those of one process together, and returns how many are there before one that is not.
func (f *fetching) fetch() int {
	for first := 0; first < len(f.of); {
		last := first
		for last < len(f.of) && f.of[last].pid == f.of[first].pid && last-first < mostPieces {
			last++
		}
		if err := f.vector.read(f.of[first].pid, f.local[first:last], f.from[first:last]); err != nil {
			if f.of[first].space.tellEnded(f.of[first].pid, err) {
				return len(f.of)
			}
			if gone := f.markGone(first, last); gone < last {
				return gone
			}
		}
		first = last
	}
	return len(f.of)
}

// mostPieces bounds those that a system call takes (IOV_MAX).
const mostPieces = 1024

// markGone reads pieces one by one, marks the regions of those that are not there, and returns the index of the first, or
// last.
func (f *fetching) markGone(first, last int) int {
	gone := last
	for i := last - 1; i >= first; i-- {
		if f.vector.read(f.of[i].pid, f.local[i:i+1], f.from[i:i+1]) != nil {
			f.of[i].gone.Store(true)
			gone = i
		}
	}
	return gone
}
