package linkem

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

// While a link changes hands both the kernel and the engine see the frames that
// arrive: packet sockets come before the filter that redirects a frame, so the
// engine's receives all of them, forwarded or not. A watch at the other interface, where
// they leave, sees those that the kernel forwarded and nothing else. The engine forwards
// the frames that arrived and are not among them.

// maxHandover bounds how long frames wait until the loop takes the first, so that a
// wall clock that is set meanwhile does not spoil their time of arrival.
const maxHandover = time.Second

// forwardTime bounds the time after a frame's arrival until the watch has seen it, if the
// kernel forwarded it: the two happen in one go, some us apart.
const forwardTime = 50 * time.Microsecond

// The loop takes some of the frames that the kernel forwards between Attach and Start every
// takeInterval, at most takeBatches at each port. Otherwise those frames would fill the
// sockets if the supervisor were held up then, and frames that arrive at a full one after
// the filter has gone would be lost.
const (
	takeInterval = 5 * time.Millisecond
	takeBatches  = 128
)

// signedLen is the length of the part that tells a frame from others, bytes: all
// headers up to the RoCE packet sequence number or the TCP sequence number and time
// stamps, and some payload.
const signedLen = 192

var signatures = maphash.MakeSeed()

// signature identifies a packet, without virtio header.
func signature(b []byte) uint64 { return maphash.Bytes(signatures, b[:min(len(b), signedLen)]) }

// A watch is a socket that sees what the kernel sends through an interface.
type watch struct {
	fd       int
	receiver *frame.Receiver
	sent     map[uint64]int // signatures of what it saw, and how often
	packet   []byte         // scratch
}

// openWatch begins to watch an interface. It is slow and therefore not for the
// loop's thread, as is close.
func openWatch(iface string) (*watch, error) {
	fd, err := frame.Open(iface, true, receiveBuffer)
	if err != nil {
		return nil, err
	}
	// Let in what the kernel sends, and of that the part that is signed.
	outgoing := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: adPacketType},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_OUTGOING, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: signedLen},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(outgoing)), Filter: &outgoing[0]}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch on %s: SO_ATTACH_FILTER: %w", iface, err)
	}
	buffers := make([][]byte, 32)
	for i := range buffers {
		buffers[i] = make([]byte, frame.HeaderLen+signedLen)
	}
	return &watch{fd: fd, receiver: frame.NewReceiver(buffers), sent: map[uint64]int{}}, nil
}

// adPacketType is SKF_AD_OFF + SKF_AD_PKTTYPE (linux/filter.h).
const adPacketType = 0xfffff000 + 4

func (w *watch) close() { unix.Close(w.fd) }

// update takes note of what has been sent since the last time. A frame that was sent before since, an instant of the wall clock in
// nanoseconds, had passed before the port was open, which does not see it.
func (w *watch) update(since int64) {
	for {
		n, err := w.receiver.Receive(w.fd)
		if err != nil {
			return // EAGAIN: that was all. Any other error: no more will come.
		}
		for i := range n {
			if at, _ := w.receiver.Stamp(i); at < since {
				continue
			}
			b := w.receiver.Frame(i)
			w.sent[signature(b[min(len(b), frame.HeaderLen):])]++
		}
	}
}

// saw reports whether a frame was sent, once for every time it was: as it is, or as the packets that it stands for, complete
// with their checksums, where the interface leaves neither to its peer, as one that leads outside the lab. A nil watch has seen
// nothing.
func (w *watch) saw(b []byte) bool {
	if w == nil || len(w.sent) == 0 {
		return false
	}
	if w.sawPacket(b[min(len(b), frame.HeaderLen):]) {
		return true
	}
	f, err := frame.Parse(b)
	if err != nil {
		return false
	}
	seen := false
	for i := range f.Segments() {
		w.packet = f.AppendPacket(w.packet[:0], i)
		seen = w.sawPacket(w.packet) || seen
	}
	return seen
}

// sawPacket is saw for a packet as it is.
func (w *watch) sawPacket(b []byte) bool {
	s := signature(b)
	switch n := w.sent[s]; n {
	case 0:
		return false
	case 1:
		delete(w.sent, s)
	default:
		w.sent[s] = n - 1
	}
	return true
}
