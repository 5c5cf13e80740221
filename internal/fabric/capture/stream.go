package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"golang.org/x/sys/unix"
)

// This file brings what a packet socket gives to another host, which can have no such socket: Send takes frames off the
// socket as a capture does and writes them to a stream, which a capture reads in its place.

// A message of the stream is a frame, or says that there are no more up to an instant, or how the clock of the stamps that follow
// differs. All integers are little-endian.
const (
	offLength  = 0  // uint32: of all of it, bytes
	offDropped = 4  // uint32: frames that are not in the stream, since the message before
	offStamp   = 8  // int64: when the kernel took the frame, ns since 1970; of a message without one, all older ones have come; of a clock, by how much it is ahead
	offFlags   = 16 // uint8
	messageLen = 17 // then the frame with its virtio header, if there is one; of a clock, uint64: by how much that may be wrong

	flagOut   = 1 // the frame was sent through the interface, rather than received
	flagTold  = 2 // the tap is on, and tells what becomes of packets from now on
	flagClock = 4 // the message is of the clock

	// clockLen is the length of a message of the clock, bytes.
	clockLen = messageLen + 8

	// maxMessage bounds a message, bytes.
	maxMessage = messageLen + frame.MaxLen
	// sendSize is from how many bytes on messages are written.
	sendSize = 256 << 10
	// sayInterval is the time after which a stream says that nothing has come: within window, so that a capture waits no
	// longer for a packet because of it.
	sayInterval = window / 2
)

// errStream is the error of a stream that is none of Send's.
var errStream = errors.New("not the stream of a capture")

// Send takes frames off a packet socket (Open), for as long as ctx lasts and somebody reads the stream, and writes them to
// it, a socket, which it closes. The reader shuts its side down when it has enough; what the socket has by then is written
// still. A reader that is slow has frames be lost in the socket, which are counted in the stream. told reports whether the
// tap of the capture is on, and clock returns how the clock of this host differs from that of the reader's time line. Send stands
// back behind everybody else on the machine (StandBack).
func Send(ctx context.Context, socket, to *os.File, told func() bool, clock func() trunk.Difference) error {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice)
	defer to.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading := make(chan struct{})
	go func() { // until the reader shuts down, is gone, or to is closed
		defer close(reading)
		_, _ = to.Read(make([]byte, 1))
		cancel()
	}()
	s := sender{socket: socket, to: to, told: told, clock: clock}
	stop := context.AfterFunc(ctx, func() {
		// They fail on files that are closed, when there is nothing left to end.
		_ = socket.SetReadDeadline(time.Unix(1, 0))
		_ = to.SetWriteDeadline(time.Now().Add(patience))
	})
	err := s.run(ctx)
	stop()
	to.Close()
	<-reading
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // nobody reads it
	}
	return err
}

// A sender is a Send under way.
type sender struct {
	socket, to *os.File
	told       func() bool
	clock      func() trunk.Difference
	said       trunk.Difference // of the clock
	messages   []byte           // that are to be written
	newest     int64            // stamp of a frame
	dropped    uint32           // frames, since the last message
}

func (s *sender) run(ctx context.Context) error {
	raw, err := s.socket.SyscallConn()
	if err != nil {
		return err
	}
	buffers := make([][]byte, receiveBatch)
	for i := range buffers {
		buffers[i] = make([]byte, frame.MaxLen)
	}
	receiver := frame.NewReceiver(buffers)
	receiver.KeepDirections()
	for idle := false; ; {
		s.sayClock()
		ended := ctx.Err() != nil
		var n int
		var at time.Time
		var failed error
		receive := func(fd uintptr) bool {
			at = time.Now()
			n, failed = receiver.Receive(int(fd))
			return failed != unix.EAGAIN
		}
		if idle && !ended {
			err := s.socket.SetReadDeadline(time.Now().Add(sayInterval))
			if err == nil && ctx.Err() == nil { // or the deadline is to end it
				err = raw.Read(receive)
			}
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			idle = false
			if at.IsZero() { // nothing has come
				continue
			}
		} else if err := raw.Control(func(fd uintptr) { receive(fd) }); err != nil {
			return err
		}
		switch failed {
		case nil:
			for i := range n {
				s.add(receiver, i)
			}
			if len(s.messages) < sendSize {
				continue
			}
			if err := s.say(raw, s.newest-int64(skew)); err != nil {
				return err
			}
		case unix.EAGAIN:
			// Frames that other processors have stamped before may still be on their way from there.
			if err := s.say(raw, at.Add(-skew).UnixNano()); err != nil {
				return err
			}
			idle = true
		case unix.EINVAL: // a super-packet that a virtio header cannot describe
			s.dropped++
			continue
		case unix.ENETDOWN: // it may come up again
			continue
		default:
			return failed
		}
		if _, err := s.to.Write(s.messages); err != nil {
			return err
		}
		s.messages = s.messages[:0]
		if idle && ended {
			return nil
		}
	}
}

// add adds frame i of a receiver.
func (s *sender) add(receiver *frame.Receiver, i int) {
	if receiver.Cut(i) {
		s.dropped++
		return
	}
	flags := byte(0)
	if receiver.Outgoing(i) {
		flags = flagOut
	}
	stamp, _ := receiver.Stamp(i)
	s.newest = max(s.newest, stamp)
	s.message(stamp, flags, receiver.Frame(i))
}

// say adds that all that is older than an instant has been added.
func (s *sender) say(raw syscall.RawConn, until int64) error {
	var overruns uint64
	var err error
	if e := raw.Control(func(fd uintptr) { overruns, err = frame.Overruns(int(fd)) }); e != nil || err != nil {
		return errors.Join(e, err)
	}
	s.dropped += uint32(overruns)
	flags := byte(0)
	if s.told() {
		flags = flagTold
	}
	s.message(until, flags, nil)
	return nil
}

// sayClock adds how the clock differs, if that has changed.
func (s *sender) sayClock() {
	if d := s.clock(); d != s.said {
		s.said = d
		var wrong [8]byte
		binary.LittleEndian.PutUint64(wrong[:], uint64(d.Wrong))
		s.message(int64(d.Ahead), flagClock, wrong[:])
	}
}

func (s *sender) message(stamp int64, flags byte, frame []byte) {
	var head [messageLen]byte
	binary.LittleEndian.PutUint32(head[offLength:], uint32(messageLen+len(frame)))
	binary.LittleEndian.PutUint32(head[offDropped:], s.dropped)
	binary.LittleEndian.PutUint64(head[offStamp:], uint64(stamp))
	head[offFlags] = flags
	s.messages = append(append(s.messages, head[:]...), frame...)
	s.dropped = 0
}

// takeStream is take for a source whose socket is the stream of a Send. Frames that have been captured when ctx ends come
// still, if they do so soon.
func (s *Source) takeStream(ctx context.Context, source int, chunks *chunks) (dropped uint64, err error) {
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-s.Gone: // nil blocks
		case <-ctx.Done():
			if raw, err := s.Socket.SyscallConn(); err == nil {
				_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) }) // of one that is gone there is no end
			}
		case <-over:
			return
		}
		_ = s.Socket.SetReadDeadline(time.Now().Add(patience)) // it cannot fail on a socket that is open
	}()
	buffer := make([]byte, max(sendSize, maxMessage))
	have, clock := 0, s.Clock
	chunks.ahead[source].Store(int64(clock.Ahead))
	for {
		n, failed := s.Socket.Read(buffer[have:])
		have += n
		c := chunks.next(source)
		c.clock = clock
		rest, lost, err := c.addMessages(buffer[:have])
		clock = c.clock
		chunks.ahead[source].Store(int64(clock.Ahead))
		dropped += lost
		have = copy(buffer, rest)
		if failed != nil || err != nil {
			c.until = math.MaxInt64
		}
		chunks.full <- c
		switch {
		case err != nil:
			return dropped, fmt.Errorf("capture of %s: %w", s.Name, err)
		case failed == io.EOF, errors.Is(failed, os.ErrDeadlineExceeded), errors.Is(failed, unix.ECONNRESET):
			return dropped, nil
		case failed != nil:
			return dropped, fmt.Errorf("capture of %s: %w", s.Name, failed)
		}
	}
}

// next returns an empty chunk for a source, as soon as the recorder is not behind.
func (c *chunks) next(source int) *chunk {
	next := <-c.empty
	*next = chunk{source: source, bytes: next.bytes[:0], frames: next.frames[:0]}
	c.out[source].Add(1)
	return next
}

// addMessages adds the whole messages in b, with stamps that are corrected by the clock, and returns the rest and how many frames
// are not there.
func (c *chunk) addMessages(b []byte) (rest []byte, lost uint64, err error) {
	for len(b) >= messageLen {
		length := binary.LittleEndian.Uint32(b[offLength:])
		if length < messageLen || length > maxMessage {
			return b, lost, fmt.Errorf("%w: a message of %d bytes", errStream, length)
		}
		if int(length) > len(b) {
			break
		}
		lost += uint64(binary.LittleEndian.Uint32(b[offDropped:]))
		said, flags := int64(binary.LittleEndian.Uint64(b[offStamp:])), b[offFlags]
		stamp := said - int64(c.clock.Ahead)
		if flags&flagClock != 0 && length == clockLen {
			c.clock = trunk.Difference{Ahead: time.Duration(said), Wrong: time.Duration(binary.LittleEndian.Uint64(b[messageLen:]))}
		} else if length == messageLen {
			c.until, c.told = stamp, c.told || flags&flagTold != 0
		} else {
			begin := len(c.bytes)
			c.bytes = append(c.bytes, b[messageLen:length]...)
			c.frames = append(c.frames, taken{begin, len(c.bytes), stamp, flags&flagOut != 0})
		}
		b = b[length:]
	}
	return b, lost, nil
}
