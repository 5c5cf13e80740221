package capture

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"golang.org/x/sys/unix"
)

// A Recent has the beginnings of the most recent frames that came in at an interface, in
// memory that the kernel writes to by itself (packet_mmap.rst of the kernel, TPACKET_V3).
// It is for looking back when something has gone wrong, and costs so little that it can be
// on all the time: nobody is woken for a frame, and of a super-packet only the first
// packet's beginning is copied. Run, which has every packet, halves what a processor
// passes on.
//
// Its methods are for one goroutine at a time.
type Recent struct {
	name   string
	socket *os.File
	index  int // of the interface in the socket's network namespace

	memory []byte // of the blocks
	block  int    // bytes of each
	oldest int    // the first block that the kernel may not write to, if there is any
	opened int64  // ns since 1970
}

const (
	// recentLength bounds the part of a frame that is kept, bytes: up to the headers of
	// any RoCEv2 packet. Frames of connection management (QP 1) are kept whole.
	recentLength = 128
	mostLength   = 512

	// recentBlocks bounds the number of blocks, of which the kernel has half to write to.
	// A block is one page at least.
	recentBlocks = 64
	pageSize     = 4096

	// retire is the time, in ms, after which a block that has a frame ends although there
	// is room in it: slow traffic is kept for half as many of these times as there are
	// blocks.
	retire = 250
)

// RetireTime bounds the time for which a Recent may lack the last frames that came.
const RetireTime = (retire + 100) * time.Millisecond

// RecentSocket makes the socket of a Recent in the present network namespace. It receives
// nothing yet. A process that has it needs no privileges to open a Recent with it.
func RecentSocket() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "recent"), nil
}

// OpenRecent begins to keep what comes in at the interface of that index, in about size
// bytes. The socket is the Recent's from then on. The kernel takes some 10 ms, and so does
// Close (packet_set_ring and packet_release of net/packet/af_packet.c wait until no
// processor uses the socket): those of several interfaces are best done at once.
func OpenRecent(socket *os.File, index int, name string, size int) (*Recent, error) {
	r := &Recent{name: name, socket: socket, index: index, opened: time.Now().UnixNano()}
	if err := r.open(size); err != nil {
		socket.Close()
		return nil, fmt.Errorf("recent packets of %s: %w", name, err)
	}
	return r, nil
}

func (r *Recent) open(size int) error {
	r.block = max(size/recentBlocks/pageSize, 1) * pageSize
	count := max(size/r.block, 4)
	fd := int(r.socket.Fd())
	for _, option := range []struct {
		name  string
		of    int
		value int
	}{
		{"PACKET_VERSION", unix.PACKET_VERSION, unix.TPACKET_V3},
		{"PACKET_VNET_HDR", unix.PACKET_VNET_HDR, 1},
		{"PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING, 1},
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option.of, option.value); err != nil {
			return fmt.Errorf("%s: %w", option.name, err)
		}
	}
	program := recentFilter()
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("SO_ATTACH_FILTER: %w", err)
	}
	request := unix.TpacketReq3{
		Block_size: uint32(r.block), Block_nr: uint32(count), Frame_size: 1024, Retire_blk_tov: retire,
	}
	request.Frame_nr = request.Block_size / request.Frame_size * request.Block_nr // which version 3 only checks
	if err := unix.SetsockoptTpacketReq3(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &request); err != nil {
		return fmt.Errorf("PACKET_RX_RING: %w", err)
	}
	var err error
	if r.memory, err = unix.Mmap(fd, 0, r.block*count, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	if err := r.Bind(); err != nil && !errors.Is(err, unix.ENODEV) { // its node may be down
		return err
	}
	return nil
}

// recentFilter says how much of a frame is kept (classic BPF).
func recentFilter() []unix.SockFilter {
	const (
		ethertype = 12
		// Where the last 24 bits of a word are the QP of a RoCEv2 packet.
		qp4, qp6 = 14 + 20 + 8 + 4, 14 + 40 + 8 + 4
	)
	statement := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	return []unix.SockFilter{
		statement(unix.BPF_LD|unix.BPF_H|unix.BPF_ABS, ethertype),
		jump(unix.ETH_P_IP, 0, 2),
		statement(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, qp4),
		statement(unix.BPF_JMP|unix.BPF_JA, 2),
		jump(unix.ETH_P_IPV6, 0, 4),
		statement(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, qp6),
		statement(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xffffff),
		jump(1, 0, 1),
		statement(unix.BPF_RET|unix.BPF_K, mostLength),
		statement(unix.BPF_RET|unix.BPF_K, recentLength),
	}
}

// Bind has the Recent keep what comes in at the interface, also at another one that has
// come to have its index. To one that it is at already it does nothing.
func (r *Recent) Bind() error {
	const all = unix.ETH_P_ALL << 8 // in network order
	if err := unix.Bind(int(r.socket.Fd()), &unix.SockaddrLinklayer{Protocol: all, Ifindex: r.index}); err != nil {
		return fmt.Errorf("recent packets of %s: %w", r.name, err)
	}
	return nil
}

// header returns the kernel's header at the beginning of a block. block is taken modulo the
// number of blocks.
func (r *Recent) header(block int) *unix.TpacketHdrV1 {
	at := (*unix.TpacketBlockDesc)(unsafe.Pointer(&r.memory[block%r.blocks()*r.block]))
	return (*unix.TpacketHdrV1)(unsafe.Pointer(&at.Hdr))
}

func (r *Recent) blocks() int { return len(r.memory) / r.block }

// full reports whether the kernel has written a block, which is ours until we give it back.
func (r *Recent) full(block int) bool {
	return atomic.LoadUint32(&r.header(block).Block_status)&unix.TP_STATUS_USER != 0
}

// Turn gives the kernel room for more frames by giving up the oldest. It is to be called
// every few milliseconds.
func (r *Recent) Turn() {
	for half := r.blocks() / 2; r.full(r.oldest + half); r.oldest++ {
		atomic.StoreUint32(&r.header(r.oldest).Block_status, unix.TP_STATUS_KERNEL)
	}
}

// Close ends it.
func (r *Recent) Close() error {
	return cmp.Or(unix.Munmap(r.memory), r.socket.Close())
}

// A Recalled is a frame that a Recent has.
type Recalled struct {
	Stamp   int64 // ns since 1970
	Length  int   // bytes, of which Data is what was kept
	Data    []byte
	Comment string
}

// recall adds the frames that the Recent has to frames. They share its memory.
func (r *Recent) recall(frames []Recalled) []Recalled {
	for block := r.oldest; block < r.oldest+r.blocks() && r.full(block); block++ {
		at := r.header(block)
		base := block % r.blocks() * r.block
		offset := base + int(at.Offset_to_first_pkt)
		for range at.Num_pkts {
			h := (*unix.Tpacket3Hdr)(unsafe.Pointer(&r.memory[offset]))
			begin := offset + int(h.Mac)
			frames = append(frames, Recalled{
				Stamp: int64(h.Sec)*1e9 + int64(h.Nsec), Length: int(h.Len),
				Data:    r.memory[begin : begin+int(h.Snaplen)],
				Comment: superPacket(r.memory[begin-frame.HeaderLen:begin], int(h.Len)),
			})
			offset += int(h.Next_offset)
		}
	}
	return frames
}

// superPacket says of a frame with such a virtio header (virtio 1.2, 5.1.6) if it is many
// packets.
func superPacket(virtio []byte, length int) string {
	kind, headers, size := virtio[1], int(binary.NativeEndian.Uint16(virtio[2:])), int(binary.NativeEndian.Uint16(virtio[4:]))
	if kind == unix.VIRTIO_NET_HDR_GSO_NONE || size == 0 {
		return ""
	}
	return fmt.Sprintf("the first of %d packets of a super-packet", (length-headers+size-1)/size)
}

// Remembered has the packets of a Recent, as they go to another process. Its frames are in the order of time.
type Remembered struct {
	Name        string // of the interface
	Description string // of it; "": there is nothing to say
	Opened      int64  // ns since 1970
	Counts      Counts
	Frames      []Recalled
}

// Remembered returns what the Recent has. Frames that came within the last RetireTime may be missing. They share the Recent's
// memory until Turn is called.
func (r *Recent) Remembered() (Remembered, error) {
	m := Remembered{Name: r.name, Opened: r.opened, Frames: r.recall(nil)}
	stats, err := unix.GetsockoptTpacketStatsV3(int(r.socket.Fd()), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return m, fmt.Errorf("recent packets of %s: PACKET_STATISTICS: %w", r.name, err)
	}
	m.Counts.Packets, m.Counts.Dropped = uint64(len(m.Frames)), uint64(stats.Drops)
	m.Counts.Other = uint64(stats.Packets) - m.Counts.Packets - m.Counts.Dropped // they have made room
	return m, nil
}

// Correct takes off its times by how much the clock of its host is ahead, and has the file say so.
func (m *Remembered) Correct(host string, clock trunk.Difference) {
	m.Description = describeClock(host, clock)
	m.Opened -= int64(clock.Ahead)
	for i := range m.Frames {
		m.Frames[i].Stamp -= int64(clock.Ahead)
	}
}

// WriteRecent writes what several Recents have as pcapng, in the order of time.
func WriteRecent(w io.Writer, recents []*Recent) error {
	all := make([]Remembered, len(recents))
	for i, r := range recents {
		var err error
		if all[i], err = r.Remembered(); err != nil {
			return err
		}
	}
	return WriteRemembered(w, all)
}

// WriteRemembered is WriteRecent of what has come from other processes.
func WriteRemembered(w io.Writer, all []Remembered) error {
	type at struct{ source, frame int }
	var interfaces []described
	var order []at
	for i := range all {
		interfaces = append(interfaces, described{all[i].Name, all[i].Description})
		for j := range all[i].Frames {
			order = append(order, at{i, j})
		}
	}
	frame := func(a at) *Recalled { return &all[a.source].Frames[a.frame] }
	slices.SortStableFunc(order, func(a, b at) int { return cmp.Compare(frame(a).Stamp, frame(b).Stamp) })
	out := blocks{snaplen: mostLength}
	out.section(interfaces, "")
	for _, a := range order {
		f := frame(a)
		out.packet(a.source, f.Stamp, f.Length, f.Data, false, f.Comment)
		if len(out.bytes) < bufferSize {
			continue
		}
		if _, err := w.Write(out.bytes); err != nil {
			return fmt.Errorf("write the recent packets: %w", err)
		}
		out.bytes = out.bytes[:0]
	}
	for i := range all {
		out.statistics(i, all[i].Opened, time.Now().UnixNano(), all[i].Counts, "")
	}
	if _, err := w.Write(out.bytes); err != nil {
		return fmt.Errorf("write the recent packets: %w", err)
	}
	return nil
}
