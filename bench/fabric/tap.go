package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

func init() {
	programs["tap"] = tapProgram
	programs["hold"] = hold
}

// iface is the interface of either end in every lab and rig here.
const iface = "eth0"

// Parameters of a tap's reads. It reads seldom, since the kernel keeps the timestamps
// and the frames meanwhile, and whole batches at a time, so that it takes little from
// those that are measured.
const (
	tapInterval = 2 * time.Millisecond
	tapBuffer   = 64 << 20 // bytes to ask for
	tapBatch    = 64       // frames
	tapHeaders  = 128      // bytes of a frame that tell its length
)

// A tap sees the frames that cross an interface.
type tap struct {
	fd       int
	receiver *frame.Receiver
	drops    uint64 // frames that the kernel had no room for
}

// openTap begins to see frames, whole or just their headers. outgoing has it see
// those that this end sends, too.
func openTap(outgoing, whole bool) (*tap, error) {
	length := tapHeaders
	if whole {
		length = frame.MaxLen
	}
	buffers := make([][]byte, tapBatch)
	for i := range buffers {
		buffers[i] = make([]byte, length)
	}
	fd, err := frame.Open(iface, outgoing, tapBuffer)
	return &tap{fd: fd, receiver: frame.NewReceiver(buffers)}, err
}

// run has see look at every frame until done is closed.
func (t *tap) run(done <-chan struct{}, see func(stamp int64, frame []byte)) error {
	ticker := time.NewTicker(tapInterval)
	defer ticker.Stop()
	for last := false; ; {
		for {
			n, err := t.receiver.Receive(t.fd)
			if err == unix.EAGAIN {
				break
			}
			if err != nil {
				return err
			}
			for i := range n {
				stamp, _ := t.receiver.Stamp(i)
				see(stamp, t.receiver.Frame(i))
			}
		}
		if last {
			drops, err := frame.Overruns(t.fd)
			t.drops += drops
			return err
		}
		select {
		case <-ticker.C:
		case <-done:
			last = true
		}
	}
}

// A sight describes what a frame is on a wire. At least the headers of the frame are there.
type sight struct {
	packets int
	wire    uint64 // bytes that it keeps an Ethernet wire busy: with preamble, padding, check sequence and gap
	udpPort uint16 // destination; 0: no UDP over IPv4
	payload []byte // of all packets together, as far as it is there
	segment int    // bytes of payload in each packet but the last
}

// On an Ethernet wire (IEEE 802.3, 3.1.1 and 4.4.2), bytes.
const (
	preambleFCSGap = 8 + 4 + 12
	shortest       = 60 // without the check sequence
)

// look takes a frame behind its virtio header apart (linux/virtio_net.h). It is
// written anew here, rather than left to package frame, because the engine that
// is to be measured relies on that.
func look(b []byte) sight {
	gso, size := b[1]&0x7f, int(binary.NativeEndian.Uint16(b[4:]))
	b = b[frame.HeaderLen:]
	s := sight{packets: 1, wire: uint64(max(len(b), shortest)) + preambleFCSGap}
	if len(b) < 14+20+8 || binary.BigEndian.Uint16(b[12:]) != unix.ETH_P_IP {
		return s
	}
	ip := b[14:]
	total := 14 + int(binary.BigEndian.Uint16(ip[2:]))
	l4 := 14 + int(ip[0]&15)*4
	headers := l4
	switch {
	case ip[9] == unix.IPPROTO_UDP:
		s.udpPort = binary.BigEndian.Uint16(b[l4+2:])
		headers += 8
	case ip[9] == unix.IPPROTO_TCP && len(b) > l4+12:
		headers += int(b[l4+12]>>4) * 4
	}
	s.payload = b[min(headers, len(b)):min(total, len(b))]
	s.segment = max(1, total-headers)
	if gso != 0 && size > 0 && total > headers {
		s.segment = size
		s.packets = (total - headers + size - 1) / size
	}
	last := total - headers - (s.packets-1)*s.segment
	s.wire = uint64(s.packets-1)*uint64(max(headers+s.segment, shortest)+preambleFCSGap) +
		uint64(max(headers+last, shortest)+preambleFCSGap)
	return s
}

// numbers calls f with the number that each packet of the sender's (send.go)
// begins with.
func (s *sight) numbers(f func(uint64)) {
	for at := 0; at+8 <= len(s.payload); at += s.segment {
		f(binary.BigEndian.Uint64(s.payload[at:]))
	}
}

// tapProgram is
//
//	tap stamps in|out PORT   when each packet was there, a Stamps
//	tap lost PORT COUNT      which of the packets 0 to COUNT-1 were, a Lost
//	tap wire in|out SKIP SECONDS   how much crossed after so many seconds, a Wire
func tapProgram(args []string) error {
	kind := args[0]
	t, err := openTap(args[1] == "out", kind == "lost")
	if err != nil {
		return err
	}
	var result any
	var see func(int64, []byte)
	switch kind {
	case "stamps":
		port, err := bindPort(args[2])
		if err != nil {
			return err
		}
		stamps := &Stamps{}
		result, see = stamps, stamps.see(port)
	case "lost":
		port, err := bindPort(args[1])
		if err != nil {
			return err
		}
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		lost := &Lost{times: make([]uint8, count)}
		result, see = lost, lost.see(port)
	default:
		wire, err := newWire(args[2], args[3])
		if err != nil {
			return err
		}
		result, see = wire, wire.see
	}
	fmt.Println("ready")
	if err := t.run(inputEnd(), see); err != nil {
		return err
	}
	if t.drops > 0 {
		return fmt.Errorf("the probe itself missed %d frames (without privilege, net.core.rmem_max bounds its buffer)", t.drops)
	}
	if f, ok := result.(interface{ finish() error }); ok {
		if err := f.finish(); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// bindPort takes a UDP port, so that nobody answers that it is closed. Nothing is
// read from it.
func bindPort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, err
	}
	// One of package net would be closed once nothing refers to it.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)}); err != nil && !os.IsPermission(err) {
		return 0, err
	}
	return uint16(port), nil
}

// hold PORT does nothing but have the port.
func hold(args []string) error {
	if _, err := bindPort(args[0]); err != nil {
		return err
	}
	fmt.Println("ready")
	<-inputEnd()
	return nil
}

// Stamps say when the kernel had each packet, in ns of the wall clock.
type Stamps struct {
	Number []uint64
	Stamp  []int64
}

func (s *Stamps) see(port uint16) func(int64, []byte) {
	return func(stamp int64, b []byte) {
		seen := look(b)
		if seen.udpPort != port {
			return
		}
		seen.numbers(func(n uint64) {
			s.Number = append(s.Number, n)
			s.Stamp = append(s.Stamp, stamp)
		})
	}
}

// Lost says which packets did not arrive, and which more than once.
type Lost struct {
	Lost  []int
	Twice []int

	times []uint8
}

func (l *Lost) see(port uint16) func(int64, []byte) {
	return func(_ int64, b []byte) {
		seen := look(b)
		if seen.udpPort != port {
			return
		}
		seen.numbers(func(n uint64) {
			if n < uint64(len(l.times)) && l.times[n] < 2 {
				l.times[n]++
			}
		})
	}
}

func (l *Lost) finish() error {
	l.Lost, l.Twice = []int{}, []int{}
	for n, times := range l.times {
		switch times {
		case 0:
			l.Lost = append(l.Lost, n)
		case 2:
			l.Twice = append(l.Twice, n)
		}
	}
	return nil
}

// Wire says how fast frames crossed in a stretch of time, counted from the first
// frame that had waited for others: from the arrival of one frame to that of
// another, without the bytes of the former.
type Wire struct {
	Bytes   uint64
	Packets uint64
	Seconds float64
	Rate    float64 // bits per second

	// When the stretch was, ns of the wall clock, and what the first end of the link
	// sent of what crossed, also before and after.
	Begin, End int64
	Sent       By

	skip, length time.Duration
	frames       []crossing
}

// A crossing is a frame's.
type crossing struct {
	stamp   int64
	wire    uint32
	packets uint32
}

func newWire(skip, seconds string) (*Wire, error) {
	w := &Wire{}
	for text, d := range map[string]*time.Duration{skip: &w.skip, seconds: &w.length} {
		v, err := time.ParseDuration(text)
		if err != nil {
			return nil, err
		}
		*d = v
	}
	return w, nil
}

func (w *Wire) see(stamp int64, b []byte) {
	seen := look(b)
	if fromSender(b[frame.HeaderLen:]) {
		w.Sent.add(stamp, seen.wire)
	}
	w.frames = append(w.frames, crossing{stamp, uint32(seen.wire), uint32(seen.packets)})
}

func (w *Wire) finish() error {
	begin := -1
	for i, f := range w.frames {
		if begin < 0 && f.wire > 1000 {
			begin = i
		}
		if begin < 0 {
			continue
		}
		first := &w.frames[begin]
		since := time.Duration(f.stamp - first.stamp)
		if w.skip > 0 && since >= w.skip {
			begin, w.skip = i, 0
			w.Bytes, w.Packets = 0, 0
			continue
		}
		if since > w.length && w.skip == 0 {
			return nil
		}
		if i > begin {
			w.Bytes += uint64(f.wire)
			w.Packets += uint64(f.packets)
			w.Seconds, w.Begin, w.End = since.Seconds(), first.stamp, f.stamp
			w.Rate = float64(w.Bytes) * 8 / w.Seconds
		}
	}
	if w.skip > 0 || w.Seconds < 0.9*w.length.Seconds() {
		return fmt.Errorf("frames crossed for %.3f s only", w.Seconds)
	}
	return nil
}
