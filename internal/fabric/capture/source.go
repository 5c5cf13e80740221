package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"golang.org/x/sys/unix"
)

const (
	// receiveBatch is the number of frames that are taken at once.
	receiveBatch = 16
	// chunkSize is from how many bytes on a chunk is full, and chunkCount how many
	// chunks may wait to be recorded: some 30 ms of 10 Gb/s.
	chunkSize  = 512 << 10
	chunkCount = 64
)

// A chunk is frames of one source in the order of their arrival.
type chunk struct {
	source int
	bytes  []byte
	frames []taken
	// Of a stream:
	until int64            // all older frames are in this chunk or were in those before; 0: it does not say
	told  bool             // the tap is on
	clock trunk.Difference // of the host's, in the end
}

// taken is a frame in a chunk.
type taken struct {
	begin, end int // of its virtio header and bytes
	stamp      int64
	sent       bool // through the interface, rather than received
}

// chunks go round between those who fill them and the one who empties them.
type chunks struct {
	empty chan *chunk
	full  chan *chunk // closed after the last one
	// out is, by source, how many chunks have or are about to have frames that were not
	// recorded yet.
	out []atomic.Int32
	// ahead is, by source, by how much the clock of its stamps is ahead now, ns.
	ahead []atomic.Int64
}

func newChunks(sources int) *chunks {
	c := &chunks{
		empty: make(chan *chunk, chunkCount), full: make(chan *chunk, chunkCount), out: make([]atomic.Int32, sources), ahead: make([]atomic.Int64, sources),
	}
	for range chunkCount {
		c.empty <- new(chunk)
	}
	return c
}

// take takes frames off a source's socket until ctx ends or the source is gone,
// and then what is left there. It says how many frames the kernel had no room for,
// or that were of no use.
func (s *Source) take(ctx context.Context, source int, chunks *chunks) (dropped uint64, err error) {
	if s.Stream {
		return s.takeStream(ctx, source, chunks)
	}
	raw, err := s.Socket.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("capture of %s: %w", s.Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.Gone: // nil blocks
		case <-ctx.Done():
		}
		// A past deadline ends the wait; it cannot fail on a socket that is open.
		_ = s.Socket.SetReadDeadline(time.Unix(1, 0))
	}()
	buffers := make([][]byte, receiveBatch)
	for i := range buffers {
		buffers[i] = make([]byte, frame.MaxLen)
	}
	receiver := frame.NewReceiver(buffers)
	receiver.KeepDirections()
	var c *chunk // being filled
	for ended := false; ; {
		var n int
		var err error
		receive := func(fd uintptr) bool {
			chunks.out[source].Add(1) // before the socket is empty
			n, err = receiver.Receive(int(fd))
			if err != nil || c != nil { // there is no other chunk
				chunks.out[source].Add(-1)
			}
			return ended || c != nil || err != unix.EAGAIN
		}
		if ended { // take what is left without waiting
			if e := raw.Control(func(fd uintptr) { receive(fd) }); e != nil {
				return dropped, fmt.Errorf("capture of %s: %w", s.Name, e)
			}
		} else if e := raw.Read(receive); errors.Is(e, os.ErrDeadlineExceeded) {
			ended = true
			continue
		} else if e != nil {
			return dropped, fmt.Errorf("capture of %s: %w", s.Name, e)
		}
		if err != nil && c != nil { // a pause
			chunks.full <- c
			c = nil
			if err == unix.EAGAIN {
				continue
			}
		}
		switch err {
		case nil:
			if c == nil { // the recorder may be behind
				c = <-chunks.empty
				*c = chunk{source: source, bytes: c.bytes[:0], frames: c.frames[:0]}
			}
			dropped += c.add(receiver, n)
			if n < receiveBatch || len(c.bytes) >= chunkSize {
				chunks.full <- c
				c = nil
			}
		case unix.EAGAIN: // and ended
			overruns, err := s.overruns()
			return dropped + overruns, err
		case unix.EINVAL: // a super-packet that a virtio header cannot describe
			dropped++
		case unix.ENETDOWN: // it may come up again
		default:
			return dropped, fmt.Errorf("capture of %s: %w", s.Name, err)
		}
	}
}

// add copies the first n frames of a receiver, and says how many were of no use.
func (c *chunk) add(receiver *frame.Receiver, n int) (lost uint64) {
	for i := range n {
		if receiver.Cut(i) {
			lost++
			continue
		}
		begin := len(c.bytes)
		c.bytes = append(c.bytes, receiver.Frame(i)...)
		stamp, _ := receiver.Stamp(i)
		c.frames = append(c.frames, taken{begin, len(c.bytes), stamp, receiver.Outgoing(i)})
	}
	return lost
}

func (s *Source) overruns() (n uint64, err error) {
	raw, err := s.Socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	e := raw.Control(func(fd uintptr) { n, err = frame.Overruns(int(fd)) })
	if err = errors.Join(e, err); err != nil {
		err = fmt.Errorf("capture of %s: %w", s.Name, err)
	}
	return n, err
}
