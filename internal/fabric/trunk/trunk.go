// Package trunk is the wire format between the link engines of two hosts, and the estimate of how their clocks differ.
//
// A link whose ends are at two hosts is carried by both of their engines. The one where a packet enters decides on
// it, and has the frame cross at once, with the instants at which its packets are to leave. The one where
// it leaves holds it until then. So the time that it takes to cross is no part of the delay, unless it is longer.
//
// Frames cross a stream, such as a TCP connection; Reader takes it apart. Pings cross datagrams. All instants on the wire are
// of the sender's clock, a monotonic one; Offset turns them into those of the receiver's.
//
// The package is pure: it reads no clock and has no sockets. Start reading at Frame and Offset.
package trunk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
)

// A Frame is one that crosses, and how its packets fare.
type Frame struct {
	Link      uint32        // number in the topology
	Direction int           // of the link, 0 or 1
	Arrived   time.Duration // at the sender
	Runs      []Run
	Bytes     []byte // with its virtio header (package frame), in the byte order of the machine; empty: all runs have their Own
}

// A Run is a series of packets of the frame that leave together.
type Run struct {
	Departs time.Duration
	Queued  time.Duration // sum over the packets of what they spent in the queue before the rate, of the lab's time
	First   int
	Count   int
	Mark    bool   // they bear Congestion Experienced
	Own     []byte // not nil: they are of this frame, in the place of Bytes
}

// The parts of a message: of the head the length of all (4 bytes), the number of runs (2), the
// direction (1), nothing (1), the link (4), the length of the frame (4), and the time of arrival (8). Of a run: when it departs (8), the
// time in the queue (8), its first packet (2), their number (2), the mark (1) and the length of its own
// frame (3). Then come the frame and those of the runs. Numbers are little-endian.
const (
	headLen = 24
	runLen  = 24
	// MaxRuns bounds the runs of a message. Those of a frame with more are in several.
	MaxRuns = 1 << 14
	// MaxLen is the length of the longest message. The frames that runs have of their own are packets of the frame, each of which is
	// there twice at most, with its headers.
	MaxLen = headLen + MaxRuns*(runLen+frame.MaxHeaders) + 3*frame.MaxLen
)

// AppendHead appends a frame's message but for its bytes and the runs' own, which follow.
func AppendHead(b []byte, f *Frame) []byte {
	length := headLen + len(f.Runs)*runLen + len(f.Bytes)
	for i := range f.Runs {
		length += len(f.Runs[i].Own)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(length))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(f.Runs)))
	b = append(b, byte(f.Direction), 0)
	b = binary.LittleEndian.AppendUint32(b, f.Link)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Bytes)))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Arrived))
	for i := range f.Runs {
		r := &f.Runs[i]
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Departs))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Queued))
		b = binary.LittleEndian.AppendUint16(b, uint16(r.First))
		b = binary.LittleEndian.AppendUint16(b, uint16(r.Count))
		last := uint32(len(r.Own)) << 8
		if r.Mark {
			last |= 1
		}
		b = binary.LittleEndian.AppendUint32(b, last)
	}
	return b
}

// AppendOwn appends the runs' own frames, which a message ends with.
func AppendOwn(b []byte, f *Frame) []byte {
	for i := range f.Runs {
		b = append(b, f.Runs[i].Own...)
	}
	return b
}

// errCut is the error of a message that is cut short.
var errCut = errors.New("the message is cut short")

// parse reads a message, which it keeps parts of, into f, whose runs it uses again.
func parse(b []byte, f *Frame) error {
	if len(b) < headLen {
		return errCut
	}
	runs := int(binary.LittleEndian.Uint16(b[4:]))
	if runs > MaxRuns || len(b) < headLen+runs*runLen {
		return errCut
	}
	f.Direction, f.Link, f.Arrived = int(b[6]), binary.LittleEndian.Uint32(b[8:]), time.Duration(binary.LittleEndian.Uint64(b[16:]))
	if f.Direction > 1 {
		return fmt.Errorf("a link has no direction %d", f.Direction)
	}
	rest := b[headLen+runs*runLen:]
	take := func(length uint32) (taken []byte, err error) {
		if uint64(length) > uint64(len(rest)) {
			return nil, errCut
		}
		if length > frame.MaxLen {
			return nil, fmt.Errorf("a frame of %d bytes", length)
		}
		taken, rest = rest[:length], rest[length:]
		return taken, nil
	}
	var err error
	if f.Bytes, err = take(binary.LittleEndian.Uint32(b[12:])); err != nil {
		return err
	}
	f.Runs = f.Runs[:0]
	for x := b[headLen:]; runs > 0; x, runs = x[runLen:], runs-1 {
		last := binary.LittleEndian.Uint32(x[20:])
		r := Run{
			Departs: time.Duration(binary.LittleEndian.Uint64(x)), Queued: time.Duration(binary.LittleEndian.Uint64(x[8:])),
			First: int(binary.LittleEndian.Uint16(x[16:])), Count: int(binary.LittleEndian.Uint16(x[18:])), Mark: last&1 == 1,
		}
		if last>>8 > 0 {
			if r.Own, err = take(last >> 8); err != nil {
				return err
			}
		}
		f.Runs = append(f.Runs, r)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes too many", len(rest))
	}
	return nil
}

// A Reader takes a stream apart into frames. The stream is read into Room, and Add says how much came.
type Reader struct {
	buffer     []byte
	begin, end int // of what is not taken yet
	frame      Frame
}

// NewReader returns one whose Room has at least so many bytes.
func NewReader(room int) *Reader { return &Reader{buffer: make([]byte, MaxLen+room)} }

// Room returns where the next bytes of the stream belong. It invalidates the frame that Next returned last.
func (r *Reader) Room() []byte {
	if r.begin > 0 {
		r.end = copy(r.buffer, r.buffer[r.begin:r.end])
		r.begin = 0
	}
	return r.buffer[r.end:]
}

// Add says that so many bytes are in Room.
func (r *Reader) Add(n int) { r.end += n }

// Next returns the next frame, which is valid until it is called again, or nil if not all of it has come. After an error the
// stream is of no use any more.
func (r *Reader) Next() (*Frame, error) {
	b := r.buffer[r.begin:r.end]
	if len(b) < headLen {
		return nil, nil
	}
	length := binary.LittleEndian.Uint32(b)
	if length < headLen || length > MaxLen {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	if len(b) < int(length) {
		return nil, nil
	}
	r.begin += int(length)
	if err := parse(b[:length], &r.frame); err != nil {
		return nil, err
	}
	return &r.frame, nil
}
