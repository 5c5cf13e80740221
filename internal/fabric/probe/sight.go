package probe

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

// A Sight collects what of a flight crosses an interface.
type Sight struct {
	file   *os.File
	flight uint32
	size   int

	done chan struct{} // closed when collecting has ended

	// The fields below belong to the collecting goroutine until done.
	receiver *frame.Receiver
	arrivals []Arrival
	seen     []bool // by number
	left     int    // probes not seen yet
	missed   uint64
	err      error
}

// sightBatch is the number of frames that are taken at once.
const sightBatch = 32

// Seen has the probes that a Sight has collected.
type Seen struct {
	Arrivals []Arrival
	Missed   uint64 // frames that the socket had no room for
}

// See begins to collect what of a flight crosses the interface.
func (p *Port) See(flight uint32, o Options) *Sight {
	buffers := make([][]byte, sightBatch)
	for i := range buffers {
		buffers[i] = make([]byte, frame.HeaderLen+o.Size+1) // one more tells longer frames
	}
	s := &Sight{
		file: p.see, flight: flight, size: o.Size, left: o.Count, done: make(chan struct{}),
		receiver: frame.NewReceiver(buffers), seen: make([]bool, o.Count),
	}
	// A deadline of an earlier flight may have passed. Sockets take deadlines.
	_ = s.file.SetReadDeadline(time.Time{})
	go func() {
		defer close(s.done)
		s.err = s.collect()
	}()
	return s
}

// Finish ends collecting when every probe has been seen, after so long, or with ctx.
func (s *Sight) Finish(ctx context.Context, limit time.Duration) (*Seen, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Now()) })
	defer stop()
	_ = s.file.SetReadDeadline(time.Now().Add(limit + settling))
	<-s.done
	if err := cmp.Or(s.err, ctx.Err()); err != nil {
		return nil, err
	}
	return &Seen{s.arrivals, s.missed}, nil
}

// Stop ends it at once, also after Finish.
func (s *Sight) Stop() {
	_ = s.file.SetReadDeadline(time.Now())
	<-s.done
}

// settling is the time that the kernel and this process may need to see packets
// that have crossed.
const settling = 50 * time.Millisecond

func (s *Sight) collect() error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	for whole := false; ; {
		if s.left == 0 && !whole {
			whole = true // but for copies of the last ones
			_ = s.file.SetReadDeadline(time.Now().Add(settling))
		}
		n, receiveErr := 0, error(nil)
		err := raw.Read(func(fd uintptr) bool {
			n, receiveErr = s.receiver.Receive(int(fd))
			return receiveErr != unix.EAGAIN
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return s.count(raw.Control)
		case err != nil:
			return err
		case receiveErr == unix.ENETDOWN: // the link went down; it may come back
			continue
		case receiveErr != nil:
			return receiveErr
		}
		for i := range n {
			if !s.receiver.Cut(i) {
				stamp, stamped := s.receiver.Stamp(i)
				s.look(s.receiver.Frame(i), time.Duration(stamp), stamped)
			}
		}
	}
}

// look notes a frame, behind its virtio header, if it is of the flight.
func (s *Sight) look(b []byte, at time.Duration, stamped bool) {
	b = b[min(frame.HeaderLen, len(b)):]
	if len(b) != s.size || !isProbe(b) {
		return
	}
	flight, number := decompose(b)
	a := Arrival{Probe: -1, At: at, Late: !stamped, Marked: marked(b)}
	switch {
	case flight == s.flight && number < uint32(len(s.seen)):
		a.Probe = int(number)
		a.Corrupted = !intact(b, flight, number)
		if !s.seen[number] {
			s.seen[number] = true
			s.left--
		}
	case distance(flight, s.flight) <= maxChanged:
		a.Corrupted = true
	default:
		return // of another flight
	}
	s.arrivals = append(s.arrivals, a)
}

// count notes how many frames were missed.
func (s *Sight) count(control func(func(uintptr)) error) error {
	var missedErr error
	err := control(func(fd uintptr) { s.missed, missedErr = frame.Overruns(int(fd)) })
	return errors.Join(err, missedErr)
}
